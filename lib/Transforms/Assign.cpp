//===- Assign.cpp - shared memory, barriers, threads and registers --------===//
//
// Writes where each ring lies and how large the kernel's block is, and refuses what does not fit.
// A cpu has no such limits: its kernels are left alone.
//
//===----------------------------------------------------------------------===//
#include "TileQueries.h"
#include "flash/Passes.h"
#include "flash/Schedule/Layout.h"
#include "flash/Schedule/Splits.h"
#include "flash/Schedule/WorkOrder.h"

namespace flash {
#define GEN_PASS_DEF_FLASHTILEASSIGN
#include "flash/Passes.h.inc"
} // namespace flash

using namespace mlir;
using namespace flash;
using namespace flash::tile;
using schedule::Machine;

namespace {

//===----------------------------------------------------------------------===//
// Registers
//===----------------------------------------------------------------------===//

/// The most registers a thread of `warps` needs for fragments at any place of a program: a lower
/// bound, for a result may take the place of an operand that dies, and addresses come on top.
class Pressure {
public:
  explicit Pressure(int64_t warps) : warps(warps) {}

  int64_t of(Region &region) {
    Live live;
    visit(region.front(), live);
    return most;
  }

private:
  using Live = llvm::SmallDenseSet<Value, 16>;

  int64_t cost(Value value) const {
    ArrayRef<int64_t> shape = registerShape(value.getType());
    Type element = isa<FragType>(value.getType())
                       ? cast<FragType>(value.getType()).getElementType()
                       : cast<FlightType>(value.getType()).getElementType();
    if (shape[0] == 1) // read where they are needed
      return 0;
    const int64_t groups = schedule::ceilDiv(shape[0], schedule::warpRows * warps);
    // A value a row is kept by all lanes that share the row: two rows a lane.
    if (shape[1] == 1)
      return 2 * groups;
    const int64_t cells =
        shape[0] * shape[1] / (schedule::warpThreads * warps); // warps may share rows
    return schedule::ceilDiv(cells * element.getIntOrFloatBitWidth(), 32);
  }
  void use(Value value, Live &live) {
    if (!registerShape(value.getType()).empty() &&
        !value.getDefiningOp<SplatOp>()) // made where it is needed
      live.insert(value);
  }
  void measure(const Live &live) {
    int64_t sum = 0;
    for (Value value : live)
      sum += cost(value);
    most = std::max(most, sum);
  }

  /// Walks a block backwards; `live` is what lives at its end and then at its beginning.
  void visit(Block &block, Live &live) {
    for (Operation &op : llvm::reverse(block)) {
      for (Value result : op.getResults())
        live.erase(result);
      if (!isa<MapOp>(op) && op.getNumRegions())
        visitRegions(op, live);
      for (Value operand : op.getOperands())
        use(operand, live);
      // A product reads its fragments until it is waited for.
      if (auto wait = dyn_cast<MmaWaitOp>(op))
        if (MmaOp mma = mmaOf(wait.getFlight()))
          use(mma.getA(), live);
      measure(live);
    }
  }
  void visitRegions(Operation &op, Live &live) {
    Live after = live;
    if (isa<scf::ForOp, ForWorkOp>(op)) // what comes from outside is there in each round
      op.getRegion(0).walk([&](Operation *inner) {
        for (Value operand : inner->getOperands())
          if (!op.getRegion(0).isAncestor(operand.getParentRegion()))
            use(operand, after);
      });
    for (Region &region : op.getRegions()) {
      if (region.empty())
        continue;
      Live inside = after;
      visit(region.front(), inside);
      for (Value argument : region.front().getArguments())
        inside.erase(argument);
      live.insert(inside.begin(), inside.end());
    }
  }

  int64_t warps, most = 0;
};

/// Demands that the fragments of a program fit into the registers its threads have.
LogicalResult checkRegisters(func::FuncOp kernel, Region &program, StringRef name, int64_t warps,
                             int64_t registers) {
  int64_t need = Pressure(warps).of(program);
  if (need <= registers)
    return success();
  return kernel.emitError() << name << " holds fragments of " << need
                            << " registers a thread, it has " << registers
                            << "; use a smaller tile or more registers";
}

bool writes(func::FuncOp kernel) {
  return kernel.walk([](WriteOp) { return WalkResult::interrupt(); }).wasInterrupted();
}

/// The threads of the kernel's block, or failure if its programs have too few registers.
FailureOr<int64_t> checkPrograms(func::FuncOp kernel, PlanAttr plan, const Machine &machine) {
  auto roles = kernel.getBody().getOps<RolesOp>();
  int64_t threads = 0;
  if (roles.empty()) {
    int64_t rows = schedule::warpRows;
    kernel.walk([&](Operation *op) {
      for (Type type : op->getResultTypes())
        if (ArrayRef<int64_t> shape = registerShape(type); !shape.empty())
          rows = std::max(rows, shape[0]);
    });
    const int64_t most = schedule::ceilDiv(rows, schedule::warpRows);
    int64_t warps = plan.getInt("warps").value_or(most);
    if (!writes(kernel)) // else parts of rows meet in shared memory
      warps = std::min(most, warps);
    if (most % warps && warps % most)
      return kernel.emitError() << warps << " warps do not share tiles of " << rows << " rows, in "
                                << schedule::warpRows << " rows a product";
    threads = warps * schedule::warpThreads;
    int64_t registers = std::min(machine.maxRegistersPerThread, machine.registersPerSm / threads);
    if (!machine.roles)
      registers = std::min(registers, plan.getInt("registers", 1).value_or(registers));
    if (failed(checkRegisters(kernel, kernel.getBody(), "kernel", warps, registers)))
      return failure();
  } else {
    RolesOp op = *roles.begin();
    int64_t registers = 0;
    for (auto role : op.getRoles().getAsRange<RoleAttr>()) {
      const int64_t count = role.getInstances() * role.getWarps() * schedule::warpThreads;
      threads += count;
      registers += count * role.getRegisters();
    }
    if (const int64_t most = schedule::launchedRegisters(machine, threads); registers > most)
      return kernel.emitError() << "roles need " << registers << " registers, " << machine.name
                                << " has " << most << " for " << threads
                                << " threads; use fewer consumers or registers";
    for (auto [attr, region] : llvm::zip(op.getRoles(), op.getBodies())) {
      auto role = cast<RoleAttr>(attr);
      if (failed(
              checkRegisters(kernel, region, role.getName(), role.getWarps(), role.getRegisters())))
        return failure();
    }
  }
  if (threads > machine.maxThreads)
    return kernel.emitError() << "kernel needs " << threads << " threads a block, " << machine.name
                              << " has " << machine.maxThreads << "; use a smaller tile";
  return threads;
}

bool multiplies(func::FuncOp kernel) {
  return kernel.walk([](MmaOp) { return WalkResult::interrupt(); }).wasInterrupted();
}

/// Without products the threads deal a fragment's columns out; writes how many there are, and gives
/// the threads of the kernel's block: a warp where there is no fragment.
FailureOr<int64_t> dealColumns(func::FuncOp kernel, const Machine &machine) {
  int64_t rows = 1, cols = 0;
  kernel.walk([&](Operation *op) {
    for (Type type : op->getResultTypes())
      if (ArrayRef<int64_t> shape = registerShape(type); !shape.empty())
        rows = std::max(rows, shape[0]), cols = std::max(cols, shape[1]);
  });
  if (cols == 0)
    return int64_t(schedule::warpThreads);
  cols = std::max(cols, schedule::combineColumns);
  const int64_t threads = schedule::dealtThreads(rows, cols);
  if (threads > machine.maxThreads)
    return kernel.emitError() << "kernel needs " << threads << " threads a block, " << machine.name
                              << " has " << machine.maxThreads << "; use a smaller tile";
  kernel->setAttr("flash.columns", Builder(kernel.getContext()).getI64IntegerAttr(cols));
  return threads;
}

//===----------------------------------------------------------------------===//
// Shared memory
//===----------------------------------------------------------------------===//

/// Of what threads pass each other to sum, a value each; to split rows, all of theirs; or to rotate
/// rows: each its columns in f32, and as much again as the last row may lack.
int64_t passedBytes(func::FuncOp kernel, int64_t threads) {
  int64_t bytes = 0;
  kernel.walk([&](SumOp) { bytes = threads * sizeof(float); });
  kernel.walk([&](SplitRowsOp op) {
    int64_t cells = 0;
    for (Value value : op.getValues())
      cells += registerShape(value.getType())[1] == 1 ? 1 : schedule::combineColumns;
    bytes = std::max<int64_t>(bytes, threads * cells * sizeof(float));
  });
  kernel.walk([&](RotateOp op) {
    const int64_t cols = op.getValue().getType().getShape()[1];
    bytes = std::max<int64_t>(bytes, (threads * schedule::combineColumns + cols) * sizeof(float));
  });
  return bytes;
}

/// Writes each ring's place; gives the bytes of a block.
FailureOr<int64_t> placeRings(func::FuncOp kernel, const Machine &machine) {
  SmallVector<RingOp> rings(kernel.getBody().getOps<RingOp>());
  std::vector<schedule::RingNeed> needs;
  for (RingOp ring : rings) {
    RingType type = ring.getRing().getType();
    ArrayRef<int64_t> shape = type.getShape();
    if (!isa<FloatType>(type.getElementType())) { // ordinals of work, read by no product
      needs.push_back({.name = ring.getName().str(),
                       .bytes = shape[1] * shape[2] * schedule::ordinalBytes,
                       .align = schedule::ordinalBytes,
                       .stages = shape[0]});
      continue;
    }
    if (shape[1] == 1) { // read by no product
      needs.push_back({.name = ring.getName().str(),
                       .bytes = schedule::rowBytes(shape[2]),
                       .align = schedule::rowBytes(1),
                       .stages = shape[0],
                       .barriers = machine.roles && !ring.getWith()});
      continue;
    }
    const int64_t bytes =
        schedule::tileBytes(shape[1], shape[2], type.getElementType().getIntOrFloatBitWidth() / 8);
    if (bytes % schedule::ringAlign)
      return ring.emitOpError() << "needs slots of a multiple of " << schedule::ringAlign
                                << " bytes on " << machine.name << ", has " << bytes
                                << "; use tiles of a multiple of 8 rows";
    needs.push_back({.name = ring.getName().str(),
                     .bytes = bytes,
                     .stages = shape[0],
                     .barriers = machine.roles && !ring.isStaging()});
  }
  auto layout = schedule::layOut(needs, machine);
  if (auto *sentence = std::get_if<std::string>(&layout))
    return kernel.emitError() << *sentence;
  auto &found = std::get<schedule::BlockLayout>(layout);
  for (auto [i, ring] : llvm::enumerate(rings)) {
    ring.setOffset(found.offsets[i]);
    if (found.barrierOffsets[i] >= 0)
      ring.setBarriers(found.barrierOffsets[i]);
  }
  return found.sharedBytes;
}

/// Gives every role's turns their named barriers: barrier 0 is the block's, then each instance has
/// one of its own, then one for its turn.
LogicalResult placeTurns(func::FuncOp kernel, const Machine &machine) {
  WalkResult result = kernel.walk([&](InTurnOp turn) -> WalkResult {
    auto roles = turn->getParentOfType<RolesOp>();
    if (!roles)
      return WalkResult::advance();
    int64_t most = 1;
    for (auto role : roles.getRoles().getAsRange<RoleAttr>())
      most = std::max(most, role.getInstances());
    if (1 + 2 * most > machine.namedBarriers)
      return turn.emitOpError() << "needs " << 1 + 2 * most << " named barriers, " << machine.name
                                << " has " << machine.namedBarriers << "; use fewer instances";
    turn.setBarriers(1 + most);
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

struct Assign : flash::impl::FlashTileAssignBase<Assign> {
  void runOnOperation() override {
    forEachKernel(getOperation(), [&](func::FuncOp kernel, PlanAttr plan) {
      auto target = kernel->getAttrOfType<TargetAttr>("flash.target");
      if (!target || target.target() == schedule::Target::cpu)
        return;
      const Machine &machine = schedule::machineOf(target.target());
      FailureOr<int64_t> bytes = placeRings(kernel, machine);
      FailureOr<int64_t> threads =
          multiplies(kernel) ? checkPrograms(kernel, plan, machine) : dealColumns(kernel, machine);
      if (failed(bytes) || failed(threads) || failed(placeTurns(kernel, machine)))
        return signalPassFailure();
      Builder b(&getContext());
      kernel->setAttr("flash.shared_bytes",
                      b.getI64IntegerAttr(*bytes + passedBytes(kernel, *threads)));
      kernel->setAttr("flash.threads", b.getI64IntegerAttr(*threads));
    });
  }
};

} // namespace
