//===- SplitRoles.cpp - copies and products get programs of their own -----===//
//
// Each role is a clone of the kernel's work without the ops that its units may not execute. The
// consumers divide a tile: its rows, or the columns of V and so of the output.
//
//===----------------------------------------------------------------------===//
#include "TileQueries.h"
#include "flash/Passes.h"
#include "flash/Schedule/Tile.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Iterators.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/EquivalenceClasses.h"

namespace flash {
#define GEN_PASS_DEF_FLASHTILESPLITROLES
#include "flash/Passes.h.inc"
} // namespace flash

using namespace mlir;
using namespace flash;
using namespace flash::tile;
using flash::schedule::SplitBy;

namespace {

/// What the consumers of a tile divide, found before anything is changed.
struct Division {
  int64_t consumers = 1;
  SplitBy by = SplitBy::rows;
  int64_t part = 0;              ///< rows or columns of one consumer
  SetVector<Value> rowRings;     ///< by rows: rings whose tiles hold rows of the output
  SetVector<Value> columnValues; ///< by columns: what holds columns of the output
};
using Reason = std::optional<std::string>;

//===----------------------------------------------------------------------===//
// Looking
//===----------------------------------------------------------------------===//

Reason divide(Division &division, int64_t size, StringRef what) {
  if (size % division.consumers)
    return (Twine(division.consumers) + " consumers do not divide " + Twine(size) + " " + what)
        .str();
  division.part = size / division.consumers;
  return std::nullopt;
}

/// By rows all fragments are rows of one tile, and so are the tiles that multiply from the left.
Reason findRows(ForWorkOp work, Division &division) {
  llvm::SmallSetVector<int64_t, 2> rows;
  SetVector<Value> sharedRings;
  work.walk([&](Operation *op) {
    for (Type type : op->getResultTypes())
      if (ArrayRef<int64_t> shape = registerShape(type); !shape.empty())
        rows.insert(shape[0]);
    auto mma = dyn_cast<MmaOp>(op);
    if (!mma)
      return;
    if (WaitOp wait = waitOf(mma.getA()))
      division.rowRings.insert(wait.getRing());
    if (WaitOp wait = waitOf(mma.getB()))
      sharedRings.insert(wait.getRing());
  });
  if (rows.size() != 1)
    return "fragments are not all of one height";
  for (Value ring : division.rowRings)
    if (sharedRings.contains(ring))
      return "a ring multiplies from both sides and cannot be divided by rows";
  return divide(division, rows[0], "rows");
}

/// By columns: the output as it reaches `finalize`, and all that holds the same columns.
Reason findColumns(ForWorkOp work, Division &division) {
  FinalizeOp finalize;
  work.walk([&](FinalizeOp op) { finalize = op; });
  if (!finalize)
    return "without an output there are no columns to divide";
  const int64_t columns = finalize.getO().getType().getShape()[1];
  llvm::EquivalenceClasses<Value> alike;
  auto join = [&](ValueRange values) {
    Value first;
    for (Value value : values)
      if (ArrayRef<int64_t> shape = registerShape(value.getType());
          !shape.empty() && shape[1] == columns)
        first = first ? *alike.unionSets(first, value) : value;
  };
  auto keepsColumns = [](Operation *op) {
    return isa<CastOp, MapOp, RescaleOp, FinalizeOp, MmaWaitOp>(op);
  };
  work.walk([&](Operation *op) {
    if (keepsColumns(op)) {
      SmallVector<Value> values(op->getOperands());
      llvm::append_range(values, op->getResults());
      join(values);
    } else if (auto mma = dyn_cast<MmaOp>(op); mma && mma.getAcc()) {
      join({mma.getAcc(), mma.getResult()});
    } else if (auto loop = dyn_cast<scf::ForOp>(op)) {
      for (auto [init, argument, yielded, result] :
           llvm::zip(loop.getInitArgs(), loop.getRegionIterArgs(), loop.getYieldedValues(),
                     loop.getResults()))
        join({init, argument, yielded, result});
    } else if (auto branch = dyn_cast<scf::IfOp>(op); branch && branch.getNumResults()) {
      for (auto [yes, no, result] : llvm::zip(branch.thenYield().getOperands(),
                                              branch.elseYield().getOperands(), op->getResults()))
        join({yes, no, result});
    }
  });
  for (Value value : alike.members(finalize.getO())) {
    division.columnValues.insert(value);
    Operation *def = value.getDefiningOp();
    auto mma = dyn_cast_or_null<MmaOp>(def);
    if (def && !keepsColumns(def) && !isa<SplatOp, scf::ForOp, scf::IfOp>(def) &&
        (!mma || mma.getTransB()))
      return (def->getName().getStringRef() + " cannot give a part of the output's columns").str();
    for (Operation *user : value.getUsers()) {
      auto mma = dyn_cast<MmaOp>(user);
      if (!keepsColumns(user) && !isa<StoreOp, scf::ForOp, scf::YieldOp>(user) &&
          (!mma || mma.getA() == value))
        return (user->getName().getStringRef() + " cannot take a part of the output's columns")
            .str();
    }
  }
  return divide(division, columns, "columns");
}

//===----------------------------------------------------------------------===//
// Cloning and erasing
//===----------------------------------------------------------------------===//

bool holdsRegisters(Type type) { return isa<FragType, FlightType>(type); }

/// Makes `op` anew without the values that live in registers. Their users are doomed.
void dropRegisters(Operation *op) {
  for (Region &region : op->getRegions())
    if (!region.empty()) {
      Operation *yield = region.front().getTerminator();
      for (unsigned i = op->getNumResults(); i-- > 0;)
        if (holdsRegisters(op->getResult(i).getType()))
          yield->eraseOperand(i);
      region.front().eraseArguments([](BlockArgument a) { return holdsRegisters(a.getType()); });
    }
  OperationState state(op->getLoc(), op->getName());
  const unsigned control = op->getNumOperands() - (isa<scf::ForOp>(op) ? op->getNumResults() : 0);
  state.addOperands(op->getOperands().take_front(control));
  for (OpResult result : op->getResults())
    if (!holdsRegisters(result.getType())) {
      state.addTypes(result.getType());
      if (isa<scf::ForOp>(op))
        state.addOperands(op->getOperand(control + result.getResultNumber()));
    }
  state.addAttributes(op->getAttrs());
  for (Region &region : op->getRegions())
    state.addRegion()->takeBody(region);
  Operation *fresh = OpBuilder(op).create(state);
  unsigned kept = 0;
  for (Value result : op->getResults())
    if (holdsRegisters(result.getType()))
      result.dropAllUses();
    else
      result.replaceAllUsesWith(fresh->getResult(kept++));
  op->erase();
}

/// Erases what `units` may not execute, the ring ops of tiles that nobody reads then, and all
/// index arithmetic and control flow that has become dead.
void eraseStrangers(ForWorkOp work, ArrayRef<Unit> units) {
  auto isStranger = [&](Operation *op) {
    auto unit = dyn_cast<UnitOpInterface>(op);
    return unit && unit.getUnit() != Unit::any && !llvm::is_contained(units, unit.getUnit());
  };
  llvm::SmallDenseSet<Value> readRings;
  work.walk([&](Operation *op) {
    for (Value operand : op->getOperands())
      if (!isStranger(op) && !isa<SliceOp>(op) && isa<TileType>(operand.getType()))
        if (WaitOp wait = waitOf(operand))
          readRings.insert(wait.getRing());
  });
  SmallVector<Operation *> doomed;
  work.walk<WalkOrder::PreOrder>([&](Operation *op) {
    Value ring;
    if (auto wait = dyn_cast<WaitOp>(op))
      ring = wait.getRing();
    else if (auto release = dyn_cast<ReleaseOp>(op))
      ring = release.getRing();
    else if (auto slice = dyn_cast<SliceOp>(op))
      ring = waitOf(slice.getTile()).getRing();
    if (!isStranger(op) && (!ring || readRings.contains(ring)))
      return WalkResult::advance();
    doomed.push_back(op);
    return WalkResult::skip();
  });
  for (Operation *op : doomed)
    op->dropAllReferences();
  if (!llvm::is_contained(units, Unit::vector) && !llvm::is_contained(units, Unit::tensor))
    work.walk([&](Operation *op) {
      if (isa<scf::ForOp, scf::IfOp>(op) && llvm::any_of(op->getResultTypes(), holdsRegisters))
        dropRegisters(op);
    });
  for (Operation *op : doomed)
    op->erase();
  work->walk<WalkOrder::PostOrder, mlir::ReverseIterator>([](Operation *op) {
    if (isOpTriviallyDead(op))
      op->erase();
  });
}

//===----------------------------------------------------------------------===//
// Dividing
//===----------------------------------------------------------------------===//

Value constant(OpBuilder &b, Location loc, int64_t value) {
  return arith::ConstantIndexOp::create(b, loc, value);
}

/// One fill of a tile's rows becomes one fill of each consumer's.
void divideFills(ForWorkOp work, const Division &division) {
  work.walk([&](FillOp fill) {
    if (!division.rowRings.contains(fill.getRing()))
      return;
    OpBuilder b(fill);
    Location loc = fill.getLoc();
    Value row = fill.getRow();
    Value it = arith::MulIOp::create(b, loc, fill.getIt(), constant(b, loc, division.consumers));
    for (int64_t i = 0; i < division.consumers; ++i) {
      FillOp::create(b, loc, fill.getView(), fill.getBatch(), fill.getHead(), row, fill.getRing(),
                     it);
      if (i + 1 == division.consumers)
        break;
      row = arith::AddIOp::create(b, loc, row, constant(b, loc, division.part));
      it = arith::AddIOp::create(b, loc, it, constant(b, loc, 1));
    }
    fill.erase();
  });
}

/// Leaves consumer `w` its rows of everything, from row w * part on.
void narrowRows(ForWorkOp work, Value w, const Division &division) {
  OpBuilder b(work);
  Location loc = work.getLoc();
  Value first = arith::MulIOp::create(b, loc, w, constant(b, loc, division.part));
  Value consumers = constant(b, loc, division.consumers);

  DenseMap<Value, Value> rows, ordinals;
  auto replace = [&](DenseMap<Value, Value> &made, OpOperand &operand, auto make) {
    auto [entry, isNew] = made.try_emplace(operand.get());
    if (isNew) {
      if (work.getBody().isAncestor(operand.get().getParentRegion()))
        b.setInsertionPointAfterValue(operand.get());
      else
        b.setInsertionPointToStart(&work.getBody().front());
      entry->second = make(operand.get());
    }
    operand.set(entry->second);
  };
  auto toOwnRow = [&](OpOperand &row) {
    replace(rows, row, [&](Value v) { return arith::AddIOp::create(b, loc, v, first); });
  };
  auto toOwnOrdinal = [&](Value ring, OpOperand &it) {
    if (division.rowRings.contains(ring))
      replace(ordinals, it, [&](Value v) -> Value {
        return arith::AddIOp::create(b, loc, arith::MulIOp::create(b, loc, v, consumers), w);
      });
  };
  auto narrow = [&](Value value) {
    auto narrowed = [&](auto type) {
      SmallVector<int64_t> shape(type.getShape());
      shape[0] = division.part;
      value.setType(decltype(type)::get(type.getContext(), shape, type.getElementType()));
    };
    if (auto frag = dyn_cast<FragType>(value.getType()))
      narrowed(frag);
    else if (auto flight = dyn_cast<FlightType>(value.getType()))
      narrowed(flight);
    else if (auto tile = dyn_cast<TileType>(value.getType()))
      if (WaitOp wait = waitOf(value); wait && division.rowRings.contains(wait.getRing()))
        narrowed(tile);
  };
  work.walk([&](Operation *op) {
    llvm::for_each(op->getResults(), narrow);
    for (Region &region : op->getRegions())
      for (Block &block : region)
        llvm::for_each(block.getArguments(), narrow);
    if (auto mask = dyn_cast<MaskOp>(op))
      toOwnRow(mask.getRow0Mutable());
    else if (auto load = dyn_cast<LoadOp>(op))
      toOwnRow(load.getRowMutable());
    else if (auto store = dyn_cast<StoreOp>(op))
      toOwnRow(store.getRowMutable());
    else if (auto finalize = dyn_cast<FinalizeOp>(op); finalize && finalize.getRow0())
      toOwnRow(finalize.getRow0Mutable()[0]);
    else if (auto wait = dyn_cast<WaitOp>(op))
      toOwnOrdinal(wait.getRing(), wait.getItMutable());
    else if (auto release = dyn_cast<ReleaseOp>(op))
      toOwnOrdinal(release.getRing(), release.getItMutable());
  });
}

/// Leaves consumer `w` its columns of V and of the output, from column w * part on. What all
/// consumers compute alike is written by the first.
void narrowColumns(ForWorkOp work, Value w, const Division &division, const IRMapping &map) {
  OpBuilder b(work);
  Location loc = work.getLoc();
  Value first = arith::MulIOp::create(b, loc, w, constant(b, loc, division.part));
  Value zero = constant(b, loc, 0);
  Value isFirst = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, w, zero);
  llvm::SmallDenseSet<Value> narrowed;
  for (Value original : division.columnValues) {
    Value value = map.lookup(original);
    narrowed.insert(value);
    SmallVector<int64_t> shape(registerShape(value.getType()));
    shape[1] = division.part;
    if (auto frag = dyn_cast<FragType>(value.getType()))
      value.setType(FragType::get(b.getContext(), shape, frag.getElementType()));
    else if (auto flight = dyn_cast<FlightType>(value.getType()))
      value.setType(FlightType::get(b.getContext(), shape, flight.getElementType()));
    if (auto mma = value.getDefiningOp<MmaOp>()) {
      TileType tile = mma.getB().getType();
      auto part =
          TileType::get(b.getContext(), {tile.getShape()[0], division.part}, tile.getElementType());
      b.setInsertionPoint(mma);
      mma.getBMutable().assign(SliceOp::create(b, loc, part, mma.getB(), first));
    }
  }
  work.walk([&](StoreOp store) {
    b.setInsertionPoint(store);
    if (narrowed.contains(store.getValue())) {
      Value col =
          store.getCol() ? arith::AddIOp::create(b, loc, store.getCol(), first).getResult() : first;
      store.getColMutable().assign(col);
    } else {
      auto branch = scf::IfOp::create(b, loc, isFirst);
      store->moveBefore(branch.thenBlock()->getTerminator());
    }
  });
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

Reason split(func::FuncOp kernel, PlanAttr plan, Division &division) {
  auto works = kernel.getBody().getOps<ForWorkOp>();
  if (!llvm::hasSingleElement(works) ||
      kernel.getBody().getOps<FillOp>().begin() != kernel.getBody().getOps<FillOp>().end())
    return "the kernel is not one loop over its work";
  ForWorkOp work = *works.begin();
  if (!work->use_empty() || llvm::any_of(work.getResultTypes(), holdsRegisters))
    return "the kernel's work gives results";
  if (!work.walk([](FillOp) { return WalkResult::interrupt(); }).wasInterrupted())
    return "nothing is copied through rings";
  Reason reason =
      division.by == SplitBy::rows ? findRows(work, division) : findColumns(work, division);
  if (reason)
    return reason;

  OpBuilder b(work);
  Location loc = work.getLoc();
  const Unit producerUnits[] = {Unit::copy}, consumerUnits[] = {Unit::tensor, Unit::vector};
  auto role = [&](StringRef name, int64_t instances, unsigned index,
                  ArrayRef<Unit> units) -> Attribute {
    return RoleAttr::get(b.getContext(), name, instances, schedule::warpgroupWarps,
                         plan.getInt("registers", index).value_or(0), units);
  };
  auto roles =
      RolesOp::create(b, loc,
                      b.getArrayAttr({role("producer", 1, 0, producerUnits),
                                      role("consumer", division.consumers, 1, consumerUnits)}),
                      /*bodiesCount=*/2);
  IRMapping map;
  for (Region &region : roles.getBodies()) {
    Block *block = b.createBlock(&region, region.end(), b.getIndexType(), loc);
    map.clear();
    auto clone = cast<ForWorkOp>(b.clone(*work, map));
    YieldOp::create(b, loc, ValueRange());
    const bool consumes = region.getRegionNumber() == 1;
    if (!consumes)
      divideFills(clone, division);
    else if (division.by == SplitBy::rows)
      narrowRows(clone, block->getArgument(0), division);
    else
      narrowColumns(clone, block->getArgument(0), division, map);
    eraseStrangers(clone, consumes ? ArrayRef(consumerUnits) : ArrayRef(producerUnits));
  }
  work.erase();

  for (RingOp ring : kernel.getBody().getOps<RingOp>()) {
    if (!division.rowRings.contains(ring.getRing())) {
      ring.setReleases(ring.getReleases() * division.consumers);
      continue;
    }
    RingType type = ring.getRing().getType();
    ArrayRef<int64_t> shape = type.getShape();
    ring.getRing().setType(RingType::get(b.getContext(),
                                         {shape[0] * division.consumers, division.part, shape[2]},
                                         type.getElementType()));
  }
  return std::nullopt;
}

struct SplitRoles : flash::impl::FlashTileSplitRolesBase<SplitRoles> {
  void runOnOperation() override {
    forEachKernel(getOperation(), [](func::FuncOp kernel, PlanAttr plan) {
      Division division;
      std::optional<int64_t> consumers = plan.getInt("consumers");
      if (!consumers || plan.getFlag("roles") == false)
        return;
      division.consumers = *consumers;
      if (auto by = schedule::parseSplitBy(plan.getText("split_by").value_or("rows")))
        division.by = *by;
      if (Reason why = split(kernel, plan, division))
        leaveAlone(kernel, "roles", *why);
    });
  }
};

} // namespace
