//===- OverlapSums.cpp - a block's sum of dQ beside the next block ---------===//
//
// In gradients dQ of a block is a product over the dS of all consumers, which therefore meet in
// every block: all compute at once, and then all multiply.
//
//   for i: S(i)  dP(i)  P  dS(i) ->  dV  dQ(i)  dK
// ->
//   for i: S(i)  dP(i)  P  dS(i) ->  dV  dQ(i - 1)  dK
//   dQ(n - 1)
//
// What the others wrote a block ago is there: a consumer may be half a block ahead, and computes
// while another multiplies. The first block multiplies its own dS and adds nothing: what is in
// flight does not depend on a branch.
//
//===----------------------------------------------------------------------===//
#include "TileQueries.h"
#include "flash/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/PatternMatch.h"

namespace flash {
#define GEN_PASS_DEF_FLASHTILEOVERLAPSUMS
#include "flash/Passes.h.inc"
} // namespace flash

using namespace mlir;
using namespace flash;
using namespace flash::tile;

namespace {

/// A run, and which op of its body does what for dQ, whose columns may be several products.
struct Run {
  scf::ForOp loop;
  WaitOp scores; ///< for dS of all consumers
  SmallVector<MmaWaitOp> products;
  ReleaseOp release; ///< of dS
  SmallVector<StoreOp> stores;

  /// What says which block is summed, and where.
  SmallVector<OpOperand *> places() {
    SmallVector<OpOperand *> all{&scores.getItMutable(), &release.getItMutable()};
    for (StoreOp store : stores)
      for (OpOperand &operand : store->getOpOperands())
        if (operand.get().getType().isIndex())
          all.push_back(&operand);
    return all;
  }
};

Reason find(Run &run) {
  Block *body = run.loop.getBody();
  for (MmaOp mma : body->getOps<MmaOp>()) {
    if (!mma.getTransA())
      continue;
    WaitOp scores = waitOf(mma.getA());
    if (!scores || scores->getBlock() != body || (run.scores && run.scores != scores))
      return "a run does not multiply dS of its own block";
    if (!run.stores.empty() && run.stores.front()->isBeforeInBlock(mma))
      return "a block's dQ is multiplied part by part";
    run.scores = scores;
    auto wait = mma->hasOneUse() ? dyn_cast<MmaWaitOp>(*mma->user_begin()) : MmaWaitOp();
    auto store = wait && wait->hasOneUse() ? dyn_cast<StoreOp>(*wait->user_begin()) : StoreOp();
    if (!store || !store.getSum())
      return "dQ is not awaited and added up once";
    run.products.push_back(wait), run.stores.push_back(store);
  }
  if (run.products.empty())
    return "a run does not multiply dS of its own block";
  SmallVector<ReleaseOp> releases = releasesOf(run.scores);
  if (releases.size() != 1 || releases.front()->getBlock() != body)
    return "dS is not released once";
  run.release = releases.front();
  return std::nullopt;
}

/// Each run's sum is that of the block before, which the runs hand on.
void putBehind(MutableArrayRef<Run> runs) {
  Location loc = runs.front().loop.getLoc();
  const Value begin = runs.front().loop.getLowerBound(), end = runs.back().loop.getUpperBound();
  IRRewriter b(runs.front().loop);
  SmallVector<Value> handed; // by place
  IRMapping first;
  first.map(runs.front().loop.getInductionVar(), begin);
  for (OpOperand *place : runs.front().places())
    handed.push_back(clonedFrom(runs.front().loop.getBody(), place->get(), b, first));
  for (Run &run : runs) {
    SmallVector<OpOperand *> places = run.places();
    SmallVector<Value> own = llvm::map_to_vector(places, [](OpOperand *p) { return p->get(); });
    b.setInsertionPoint(run.loop);
    auto made = cast<scf::ForOp>(*run.loop.replaceWithAdditionalYields(
        b, handed, /*replaceInitOperandUsesInLoop=*/false,
        [&](OpBuilder &, Location, ArrayRef<BlockArgument>) { return own; }));
    made->setDiscardableAttrs(run.loop->getDiscardableAttrDictionary());
    run.loop = made;
    for (auto [place, before] : llvm::zip(places, made.getRegionIterArgs().take_back(own.size())))
      place->set(before);
    handed = made.getResults().take_back(own.size());
    b.setInsertionPointAfter(run.stores.back());
    Value isLater =
        arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, made.getInductionVar(), begin);
    auto branch = scf::IfOp::create(b, loc, isLater, /*withElseRegion=*/false);
    run.release->moveBefore(branch.thenYield());
    for (StoreOp store : run.stores)
      store->moveBefore(branch.thenYield());
  }
  Run &last = runs.back();
  b.setInsertionPointAfter(last.loop);
  Value some = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, begin, end);
  b.setInsertionPointToStart(scf::IfOp::create(b, loc, some, /*withElseRegion=*/false).thenBlock());
  IRMapping map;
  for (auto [place, value] : llvm::zip(last.places(), handed))
    map.map(place->get(), value);
  for (MmaWaitOp wait : last.products)
    clonedFrom(last.loop.getBody(), wait.getResult(), b, map);
  b.clone(*last.release, map);
  for (StoreOp store : last.stores)
    b.clone(*store, map);
}

struct OverlapSums : flash::impl::FlashTileOverlapSumsBase<OverlapSums> {
  void runOnOperation() override {
    forEachKernel(getOperation(), [](func::FuncOp kernel, PlanAttr plan) {
      if (plan.getFlag("overlap") != true || !sumsGradients(kernel))
        return;
      SmallVector<Run> runs;
      Reason why = findRuns<MmaOp>(kernel, runs, find, "no run of query blocks multiplies");
      if (!why)
        why = whyNotChained<Run>(runs);
      if (why)
        return leaveAlone(kernel, "overlap", *why);
      putBehind(runs);
      Value ring = runs.front().scores.getRing(); // the slot of a block is read in the next
      SmallVector<int64_t> shape(cast<RingType>(ring.getType()).getShape());
      shape[0] = 2;
      ring.setType(
          RingType::get(ring.getContext(), shape, cast<RingType>(ring.getType()).getElementType()));
    });
  }
};

} // namespace
