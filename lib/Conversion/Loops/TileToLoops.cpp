//===- TileToLoops.cpp - convert-flash-tile-to-loops ----------------------===//
//
//   @f in straight, eager code      @f(args..., %worker, %workers)
//   with roles, or on the late      @f, a declaration: flash.programs names the functions that run
//   clock: under the baton          at once, @f_producer_0(args..., %worker, %workers) and so on,
//                                   flash.rings the rings they meet at; @f_reset poisons these
//
//===----------------------------------------------------------------------===//
#include "Loops.h"
#include "flash/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <limits>

using namespace mlir;
using namespace flash::loops;
using namespace flash::tile;

namespace flash {
#define GEN_PASS_DEF_CONVERTFLASHTILETOLOOPS
#include "flash/Passes.h.inc"
} // namespace flash

/// Programs of one kernel: each becomes a function and a thread.
static constexpr int64_t kMaxPrograms = 64;

/// Demands what the lowering takes for granted.
static LogicalResult check(func::FuncOp kernel) {
  if (!kernel.getBody().hasOneBlock() || kernel.getNumResults())
    return kernel.emitOpError("needs a body of one block and no results to become loops");
  unsigned roles = 0;
  WalkResult result = kernel.walk([&](Operation *op) -> WalkResult {
    auto demand = [&](bool holds, const Twine &sentence) -> WalkResult {
      return holds ? WalkResult::advance() : WalkResult(op->emitOpError(sentence));
    };
    for (Value operand : op->getOperands()) {
      if (isa<ViewType>(operand.getType()) && !operand.getDefiningOp<ViewOp>())
        return demand(false, "needs its view from a flash_tile.view to become loops");
      if (isa<RingType>(operand.getType()) && !operand.getDefiningOp<RingOp>())
        return demand(false, "needs its ring from a flash_tile.ring to become loops");
    }
    for (Region &region : op->getRegions())
      for (Type type : region.getArgumentTypes())
        if (isa<TileType>(type))
          return demand(false, "needs to wait for its tiles where it reads them to become loops");
    for (Type type : op->getResultTypes()) {
      auto frag = dyn_cast<FragType>(type);
      auto ring = dyn_cast<RingType>(type);
      Type element = frag ? frag.getElementType() : ring ? ring.getElementType() : Type();
      if (ring && !isa<FloatType>(element)) // of ordinals, which only roles hand on
        continue;
      if (element && !element.isF32() && !element.isF16() && !element.isBF16())
        return demand(false, "needs f16, bf16 or f32 elements to become loops");
    }
    if (isa<ViewOp, RingOp, RolesOp>(op) && op->getParentOp() != kernel)
      return demand(false, "needs to stand in the kernel's own block to become loops");
    if (auto several = dyn_cast<RolesOp>(op))
      for (auto role : several.getRoles().getAsRange<RoleAttr>())
        if (role.getInstances() > kMaxPrograms)
          return demand(false, "has " + Twine(role.getInstances()) + " instances of " +
                                   role.getName() + ", loops run at most " + Twine(kMaxPrograms));
    return demand(!isa<RolesOp>(op) || !roles++,
                  "is the second of the kernel, which may have one to become loops");
  });
  return failure(result.wasInterrupted());
}

static constexpr StringRef kArg = "flash.arg", kInterface = "llvm.emit_c_interface";

/// An empty function like `kernel` with two more arguments.
static func::FuncOp declare(func::FuncOp kernel, const Twine &name) {
  OpBuilder b(kernel);
  SmallVector<Type> inputs(kernel.getArgumentTypes());
  inputs.append(2, b.getIndexType());
  auto made = func::FuncOp::create(b, kernel.getLoc(), name.str(), b.getFunctionType(inputs, {}));
  for (unsigned i = 0; i < kernel.getNumArguments(); ++i)
    made.setArgAttrs(i, kernel.getArgAttrDict(i));
  made.setArgAttr(inputs.size() - 2, kArg, b.getStringAttr("worker"));
  made.setArgAttr(inputs.size() - 1, kArg, b.getStringAttr("workers"));
  return made;
}

static void declareBaton(ModuleOp module) {
  OpBuilder b = OpBuilder::atBlockBegin(module.getBody());
  Type index = b.getIndexType();
  for (StringRef verb : {"acquire", "commit", "wait", "wait_again", "release", "enter", "leave"}) {
    std::string name = ("flash_baton_" + verb).str();
    if (module.lookupSymbol(name))
      continue;
    SmallVector<Type> answer(verb == "release", b.getI1Type());
    func::FuncOp::create(b, module.getLoc(), name, b.getFunctionType({index, index}, answer))
        .setPrivate();
  }
}

/// What a store with a turn calls: elements of `turns`, which of them, and whose turn it is.
static void declareTurns(ModuleOp module) {
  OpBuilder b = OpBuilder::atBlockBegin(module.getBody());
  Type inputs[] = {turnsType(module.getContext()), b.getIndexType(), b.getIndexType()};
  for (StringRef name : {"flash_turn_await", "flash_turn_pass"})
    if (!module.lookupSymbol(name))
      func::FuncOp::create(b, module.getLoc(), name, b.getFunctionType(inputs, {})).setPrivate();
}

/// The buffers that a kernel's programs share, and the function that makes them as good as new.
static void share(func::FuncOp kernel, llvm::MapVector<Value, SharedRing> &rings, Clock clock) {
  ImplicitLocOpBuilder b(kernel.getLoc(), kernel);
  auto reset =
      func::FuncOp::create(b, (kernel.getName() + "_reset").str(), b.getFunctionType({}, {}));
  reset->setAttr(kInterface, b.getUnitAttr());
  ImplicitLocOpBuilder inside(kernel.getLoc(), OpBuilder::atBlockEnd(reset.addEntryBlock()));
  auto make = [&](const Twine &name, MemRefType type, TypedAttr value) {
    auto global =
        memref::GlobalOp::create(b, name.str(), b.getStringAttr("private"), type, b.getUnitAttr(),
                                 /*constant=*/false, b.getI64IntegerAttr(64));
    Value buffer = memref::GetGlobalOp::create(inside, type, global.getSymName());
    Value init = arith::ConstantOp::create(inside, value);
    SmallVector<Value> place;
    OpBuilder::InsertionGuard guard(inside);
    for (int64_t size : type.getShape()) {
      Value zero = arith::ConstantIndexOp::create(inside, 0);
      Value end = arith::ConstantIndexOp::create(inside, size);
      Value one = arith::ConstantIndexOp::create(inside, 1);
      auto loop = scf::ForOp::create(inside, zero, end, one);
      inside.setInsertionPointToStart(loop.getBody());
      place.push_back(loop.getInductionVar());
    }
    memref::StoreOp::create(inside, init, buffer, place);
    return global;
  };
  auto i32 = b.getI32Type();
  auto nan = b.getF32FloatAttr(std::numeric_limits<float>::quiet_NaN());
  for (auto &[value, ring] : rings) {
    ArrayRef<int64_t> shape = ring.op.getRing().getType().getShape();
    if (!isa<FloatType>(ring.op.getRing().getType().getElementType())) {
      ring.slots = make(kernel.getName() + "_" + ring.op.getName(), MemRefType::get(shape, i32),
                        b.getI32IntegerAttr(noTile));
      auto type = MemRefType::get({1}, i32); // lives on from run to run
      auto zero = DenseElementsAttr::get(RankedTensorType::get({1}, i32), int32_t(0));
      ring.counter = memref::GlobalOp::create(
          b, (kernel.getName() + "_" + ring.op.getName() + "_counter").str(),
          b.getStringAttr("private"), type, zero, /*constant=*/false, b.getI64IntegerAttr(64));
      continue;
    }
    ring.slots = make(kernel.getName() + "_" + ring.op.getName(),
                      MemRefType::get(shape, b.getF32Type()), nan);
    if (clock == Clock::late) // the view that is to be copied + 1, batch, head, row
      ring.pending = make(kernel.getName() + "_" + ring.op.getName() + "_pending",
                          MemRefType::get({shape[0], 4}, b.getIndexType()), b.getIndexAttr(0));
  }
  func::ReturnOp::create(inside);
}

static LogicalResult convert(func::FuncOp kernel, Clock clock) {
  if (failed(check(kernel)))
    return failure();
  RolesOp roles;
  llvm::MapVector<Value, SharedRing> rings;
  for (Operation &op : kernel.front()) {
    if (auto found = dyn_cast<RolesOp>(op))
      roles = found;
    if (auto ring = dyn_cast<RingOp>(op)) {
      int64_t number = rings.size();
      rings[ring.getRing()] = {ring, number, {}, {}, {}};
    }
  }
  OpBuilder b(kernel);
  func::FuncOp entry = declare(kernel, kernel.getName());
  entry->setDiscardableAttrs(llvm::to_vector(kernel->getDiscardableAttrs()));
  entry->setAttr(kInterface, b.getUnitAttr());
  if (kernel.walk([](StoreOp op) { return WalkResult(failure(bool(op.getTurns()))); })
          .wasInterrupted())
    entry->setAttr("flash.turns", b.getUnitAttr()),
        declareTurns(kernel->getParentOfType<ModuleOp>());
  if (!roles && clock == Clock::eager) {
    if (failed(Lowering(kernel, entry, rings, clock, /*baton=*/false).run()))
      return failure();
    kernel.erase();
    return success();
  }

  declareBaton(kernel->getParentOfType<ModuleOp>());
  share(kernel, rings, clock);
  entry.setPrivate();
  entry->removeAttr(kInterface);
  SmallVector<Attribute> programs, ringAttrs;
  auto program = [&](StringRef role, unsigned number, int64_t instance) {
    func::FuncOp made = declare(kernel, kernel.getName() + "_" + role + "_" + Twine(instance));
    made->setAttr(kInterface, b.getUnitAttr());
    programs.push_back(b.getStringAttr(made.getName()));
    return Lowering(kernel, made, rings, clock, /*baton=*/true).run(roles, number, instance);
  };
  if (!roles && failed(program("block", 0, 0)))
    return failure();
  if (roles)
    for (auto [number, attr] : llvm::enumerate(roles.getRoles().getAsRange<RoleAttr>()))
      for (int64_t i = 0; i < attr.getInstances(); ++i)
        if (failed(program(attr.getName(), number, i)))
          return failure();
  // Tiles from a counter go to single blocks here, and to clusters on a GPU.
  const bool sideBySide = llvm::none_of(rings, [](auto &ring) { return ring.second.counter; });
  for (auto &[value, ring] : rings)
    ringAttrs.push_back(b.getDictionaryAttr(
        {b.getNamedAttr("name", ring.op.getNameAttr()),
         b.getNamedAttr("stages", b.getI64IntegerAttr(ring.op.getRing().getType().getShape()[0])),
         b.getNamedAttr("writers", ring.op.getWritersAttr()),
         b.getNamedAttr("cluster", sideBySide ? ring.op.getClusterAttr() : b.getI64IntegerAttr(1)),
         b.getNamedAttr("releases", ring.op.getReleasesAttr())}));
  entry->setAttr("flash.programs", b.getArrayAttr(programs));
  entry->setAttr("flash.rings", b.getArrayAttr(ringAttrs));
  kernel.erase();
  return success();
}

namespace {
struct TileToLoops : flash::impl::ConvertFlashTileToLoopsBase<TileToLoops> {
  using Base::Base;
  void runOnOperation() override {
    if (clock != "eager" && clock != "late") {
      getOperation().emitError("clock is eager or late, not ") << clock;
      return signalPassFailure();
    }
    SmallVector<func::FuncOp> kernels;
    getOperation().walk([&](func::FuncOp function) {
      if (function->hasAttr("flash.kernel"))
        kernels.push_back(function);
    });
    for (func::FuncOp kernel : kernels)
      if (failed(convert(kernel, clock == "late" ? Clock::late : Clock::eager)))
        return signalPassFailure();
  }
};
} // namespace
