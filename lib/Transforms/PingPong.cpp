//===- PingPong.cpp - consumers take turns on the tensor unit -------------===//
//
//   mma QK(i); wait V(i - 1); mma PV(i - 1)    ->    in_turn { the same }
//
// Every instance must enter equally often: once for each block of a tile but one. What an instance
// computes it enters for, but for the peeled block, and for each block that it hands back unread it
// enters an empty turn.
//
//===----------------------------------------------------------------------===//
#include "TileQueries.h"
#include "flash/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace flash {
#define GEN_PASS_DEF_FLASHTILEPINGPONG
#include "flash/Passes.h.inc"
} // namespace flash

using namespace mlir;
using namespace flash;
using namespace flash::tile;

namespace {

/// Two products that are in flight together, with what stands between them.
struct Pair {
  MmaOp first, second;
};

Reason findPair(scf::ForOp run, Pair &pair) {
  SmallVector<MmaOp> products(run.getBody()->getOps<MmaOp>());
  if (products.size() != 2)
    return "a run does not hold two products";
  pair = {products[0], products[1]};
  for (Operation *op = pair.first->getNextNode(); op != pair.second; op = op->getNextNode())
    if (!isa<WaitOp, SliceOp>(op) && (!isPure(op) || op->getNumRegions()))
      return "the products of a run are not in flight together, which overlap sees to";
  return std::nullopt;
}

/// The loops of a program that hand blocks back: they wait for tiles and read none.
SmallVector<scf::ForOp> skipsIn(Region &program) {
  SmallVector<scf::ForOp> skips;
  program.walk([&](scf::ForOp loop) {
    auto waits = loop.getBody()->getOps<WaitOp>();
    if (!loop->hasAttr(runName) && waits.begin() != waits.end() &&
        llvm::all_of(waits, [](WaitOp wait) { return wait.getTile().use_empty(); }))
      skips.push_back(loop);
  });
  return skips;
}

void takeTurn(Pair pair) {
  OpBuilder b(pair.first);
  Location loc = pair.first.getLoc();
  SmallVector<Value> flights{pair.first.getResult(), pair.second.getResult()};
  auto turn = InTurnOp::create(b, loc, TypeRange(ValueRange(flights)), IntegerAttr());
  Block *body = b.createBlock(&turn.getBody());
  auto yield = YieldOp::create(b, loc, flights);
  for (Operation *op = pair.first, *next = nullptr; op; op = next) {
    next = op == pair.second ? nullptr : op->getNextNode();
    if (isa<MmaOp, WaitOp, SliceOp>(op))
      op->moveBefore(yield);
    else // index arithmetic, which is needed behind the turn too
      op->moveBefore(turn);
  }
  for (auto [flight, result] : llvm::zip(flights, turn.getResults()))
    flight.replaceUsesWithIf(result,
                             [&](OpOperand &use) { return use.getOwner()->getBlock() != body; });
}

/// An in_turn of nothing where `b` stands.
void takeEmptyTurn(OpBuilder &b, Location loc) {
  auto turn = InTurnOp::create(b, loc, TypeRange(), IntegerAttr());
  OpBuilder::InsertionGuard guard(b);
  b.createBlock(&turn.getBody());
  YieldOp::create(b, loc, ValueRange());
}

/// Moves the index arithmetic that `value` comes from up to `place`, as far as it stands behind it.
void hoist(Value value, Operation *place) {
  Operation *op = value.getDefiningOp();
  if (!op || op->getBlock() != place->getBlock() || op->isBeforeInBlock(place))
    return;
  for (Value operand : op->getOperands())
    hoist(operand, place);
  op->moveBefore(place);
}

/// Blocks handed back before the runs: an instance that needs none of the tile's `total` blocks
/// hands all of them back, and its last has no turn. The turn comes behind the release: others may
/// wait for that in theirs.
void takeTurnsBefore(scf::ForOp skip, Value total) {
  Location loc = skip.getLoc();
  hoist(total, skip);
  OpBuilder b(skip.getBody()->getTerminator());
  Value next = arith::AddIOp::create(b, loc, skip.getInductionVar(), skip.getStep());
  Value more = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, next, total);
  auto branch = scf::IfOp::create(b, loc, more, /*withElseRegion=*/false);
  b.setInsertionPointToStart(branch.thenBlock());
  takeEmptyTurn(b, loc);
}

/// Blocks handed back behind the runs, of which this instance had some. The turn comes first: V of
/// the block may be filled only behind another's turn.
void takeTurnsBehind(scf::ForOp skip) {
  OpBuilder b = OpBuilder::atBlockBegin(skip.getBody());
  takeEmptyTurn(b, skip.getLoc());
}

Reason takeTurns(RolesOp roles) {
  for (auto [attr, program] : llvm::zip(roles.getRoles(), roles.getBodies())) {
    SmallVector<scf::ForOp> runs;
    for (scf::ForOp run : runsIn(program.getParentOp()))
      if (program.isAncestor(run->getParentRegion()) && !run.getBody()->getOps<MmaOp>().empty())
        runs.push_back(run);
    if (runs.empty())
      continue;
    if (cast<RoleAttr>(attr).getInstances() < 2)
      return "one consumer has every turn";
    SmallVector<Pair> pairs(runs.size());
    for (auto [run, pair] : llvm::zip(runs, pairs))
      if (Reason why = findPair(run, pair))
        return why;
    Value total = runs.back().getUpperBound();
    SmallVector<scf::ForOp> before, behind;
    for (scf::ForOp skip : skipsIn(program)) {
      Operation *run = skip->getBlock()->findAncestorOpInBlock(*runs.front());
      if (!run)
        return "blocks are handed back where no run is";
      if (skip->isBeforeInBlock(run)) {
        before.push_back(skip);
      } else {
        behind.push_back(skip);
        total = skip.getUpperBound();
      }
    }
    llvm::for_each(pairs, takeTurn);
    for (scf::ForOp skip : before)
      takeTurnsBefore(skip, total);
    llvm::for_each(behind, takeTurnsBehind);
    return std::nullopt;
  }
  return "no role holds a run of products";
}

struct PingPong : flash::impl::FlashTilePingPongBase<PingPong> {
  void runOnOperation() override {
    forEachKernel(getOperation(), [](func::FuncOp kernel, PlanAttr plan) {
      if (plan.getFlag("ping_pong") != true)
        return;
      auto roles = kernel.getBody().getOps<RolesOp>();
      Reason why = "without roles there is one program";
      if (!roles.empty())
        why = takeTurns(*roles.begin());
      if (why)
        leaveAlone(kernel, "ping_pong", *why);
    });
  }
};

} // namespace
