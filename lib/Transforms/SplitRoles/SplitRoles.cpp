//===- SplitRoles.cpp - copies and products get programs of their own -----===//
//
// Each role is a clone of the kernel's work without the ops that its units may not execute. The
// consumers divide a tile: its rows, or the columns of V and so of the output (Divide.h). Where
// sums have an order, warps that the producer does not need keep the consumers' turns.
//
//===----------------------------------------------------------------------===//
#include "Divide.h"
#include "flash/Passes.h"
#include "flash/Schedule/WorkOrder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Iterators.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace flash {
#define GEN_PASS_DEF_FLASHTILESPLITROLES
#include "flash/Passes.h.inc"
} // namespace flash

using namespace mlir;
using namespace flash;
using namespace flash::tile;

namespace {

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
    else if (auto slice = dyn_cast<SliceOp>(op); slice && waitOf(slice.getTile()))
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
// The pass
//===----------------------------------------------------------------------===//

/// Puts the keeping of its turn before each store that has one.
void keepTurns(ForWorkOp work) {
  work.walk([](StoreOp store) {
    if (!store.getTurns())
      return;
    OpBuilder b(store);
    KeepTurnOp::create(b, store.getLoc(), store.getTurns(), store.getPlace(), store.getTurn());
  });
}

/// Leaves a consumer's turns to their keeper.
void leaveTurns(ForWorkOp work) {
  work.walk([](StoreOp store) {
    if (!store.getTurns())
      return;
    store.getTurnsMutable().clear();
    store.getPlaceMutable().clear();
    store.getTurnMutable().clear();
    store.setKept(true);
  });
}

Reason split(func::FuncOp kernel, PlanAttr plan, Division &division) {
  auto works = kernel.getBody().getOps<ForWorkOp>();
  if (!llvm::hasSingleElement(works) ||
      kernel.getBody().getOps<FillOp>().begin() != kernel.getBody().getOps<FillOp>().end())
    return "the kernel is not one loop over its work";
  ForWorkOp work = *works.begin();
  if (!work->use_empty() || llvm::any_of(work.getResultTypes(), holdsRegisters))
    return "the kernel's work gives results";
  bool copies = false;
  Operation *carrier = nullptr; // of what dropRegisters does not know
  work.walk([&](Operation *op) {
    copies |= isa<FillOp>(op);
    for (Type type : op->getResultTypes())
      if (!isa<UnitOpInterface>(op) &&
          (isa<TileType>(type) || (holdsRegisters(type) && !isa<scf::ForOp, scf::IfOp>(op))))
        carrier = op;
  });
  if (!copies)
    return "nothing is copied through rings";
  if (carrier)
    return (carrier->getName().getStringRef() + " carries a tile or fragment").str();
  if (Reason reason = findDivision(work, division))
    return reason;

  OpBuilder b(work);
  Location loc = work.getLoc();
  const Unit producerUnits[] = {Unit::copy}, keeperUnits[] = {Unit::turn},
             consumerUnits[] = {Unit::tensor, Unit::vector},
             allUnits[] = {Unit::copy, Unit::tensor, Unit::vector};
  auto role = [&](StringRef name, int64_t instances, int64_t warps, unsigned index,
                  ArrayRef<Unit> units) -> Attribute {
    return RoleAttr::get(b.getContext(), name, instances, warps,
                         plan.getInt("registers", index).value_or(0), units);
  };
  constexpr int64_t all = schedule::warpgroupWarps;
  // On a CPU programs run one by one: who stores looks at the turn itself.
  auto target = kernel->getAttrOfType<TargetAttr>("flash.target");
  const bool keeps = plan.getFlag("ordered") == true && !division.copies && target &&
                     schedule::machineOf(target.target()).roles && division.consumers < all;
  if (keeps)
    keepTurns(work);
  SmallVector<Attribute> attrs;
  if (!division.copies)
    attrs.push_back(role("producer", 1, keeps ? all - division.consumers : all, 0, producerUnits));
  if (keeps)
    attrs.push_back(role("keeper", division.consumers, 1, 0, keeperUnits));
  attrs.push_back(role("consumer", division.consumers, all, 1,
                       division.copies ? ArrayRef(allUnits) : ArrayRef(consumerUnits)));
  auto roles = RolesOp::create(b, loc, b.getArrayAttr(attrs), attrs.size());
  Value tiles;
  if (plan.getFlag("stealing") == true) {
    OpBuilder before(roles);
    auto type = RingType::get(b.getContext(), {schedule::workStages, 1, 1}, b.getI32Type());
    tiles = RingOp::create(before, loc, type, "work");
  }
  IRMapping map;
  for (Region &region : roles.getBodies()) {
    Block *block = b.createBlock(&region, region.end(), b.getIndexType(), loc);
    map.clear();
    auto clone = cast<ForWorkOp>(b.clone(*work, map));
    YieldOp::create(b, loc, ValueRange());
    const unsigned number = region.getRegionNumber();
    const bool consumes = number + 1 == attrs.size();
    if (tiles) {
      clone.getRingMutable().assign(tiles);
      clone.setTakes(!consumes);
    }
    if (number == 0 && !consumes)
      divideProducer(clone, division);
    else
      divideConsumer(clone, block->getArgument(0), division, map);
    if (consumes && keeps)
      leaveTurns(clone);
    if (!division.copies)
      eraseStrangers(clone, cast<RoleAttr>(attrs[number]).getUnits());
  }
  work.erase();

  divideRings(kernel, division);
  return std::nullopt;
}

struct SplitRoles : flash::impl::FlashTileSplitRolesBase<SplitRoles> {
  void runOnOperation() override {
    forEachKernel(getOperation(), [](func::FuncOp kernel, PlanAttr plan) {
      Division division;
      std::optional<int64_t> consumers = plan.getInt("consumers");
      bool wanted = consumers && plan.getFlag("roles") != false;
      division.consumers = consumers.value_or(1);
      if (auto by = schedule::parseSplitBy(plan.getText("split_by").value_or("rows")))
        division.by = *by;
      const bool sums =
          kernel
              .walk([](tile::StoreOp store) {
                return store.getSum() ? WalkResult::interrupt() : WalkResult::advance();
              })
              .wasInterrupted();
      // Warps that copy and compute deal rows without roles of their own, and columns by themselves
      // in gradients.
      if (auto warps = plan.getInt("warps");
          warps && !sums && division.by == schedule::SplitBy::columns) {
        division.consumers = schedule::ceilDiv(*warps, schedule::warpgroupWarps);
        division.copies = wanted = true;
      }
      Reason why = wanted ? split(kernel, plan, division) : std::nullopt;
      if (why)
        leaveAlone(kernel, "roles", *why);
      if ((why || !wanted) && plan.getFlag("stealing") == true)
        leaveAlone(kernel, "stealing", "without roles nobody takes tiles from a counter");
    });
  }
};

} // namespace
