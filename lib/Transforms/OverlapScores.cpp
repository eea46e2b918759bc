//===- OverlapScores.cpp - the next block's scores beside this block's sums -===//
//
// In gradients the scores of a block are needed first, and then products follow each other with
// little between them:
//
//   for i: S(i)  dP(i)  P  dV  dS  dQ  dK
// ->
//   S(0)
//   for i: dP(i)  P  dV  dS  dQ  dK and S(i + 1) in flight together
//
// so that a block begins with its exponentials while dP is in flight. The last block multiplies its
// own queries once more, for nothing: what is in flight does not depend on a branch.
//
//===----------------------------------------------------------------------===//
#include "TileQueries.h"
#include "flash/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/IRMapping.h"

namespace flash {
#define GEN_PASS_DEF_FLASHTILEOVERLAPSCORES
#include "flash/Passes.h.inc"
} // namespace flash

using namespace mlir;
using namespace flash;
using namespace flash::tile;

namespace {

/// A run, and which op of its body does what.
struct Run {
  scf::ForOp loop;
  MmaOp scores, last; ///< products: the first, and the one issued last
  MmaWaitOp scoresWait;
  WaitOp queries;
  ReleaseOp release; ///< of the queries
};

Reason find(Run &run) {
  Block *body = run.loop.getBody();
  SmallVector<MmaOp> products(body->getOps<MmaOp>());
  if (products.size() != 5)
    return "a run is more than the five products of gradients block after block";
  run.scores = products.front(), run.last = products.back();
  run.queries = waitOf(run.scores.getB());
  if (run.scores.getAcc() || !run.queries || run.queries->getBlock() != body)
    return "a run does not begin with scores of a tile of queries";
  if (!run.scores->hasOneUse() ||
      !(run.scoresWait = dyn_cast<MmaWaitOp>(*run.scores->user_begin())))
    return "scores are not awaited once";
  if (run.loop
          .walk([&](FillOp fill) {
            return fill.getRing() == run.queries.getRing() ? WalkResult::interrupt()
                                                           : WalkResult::advance();
          })
          .wasInterrupted())
    return "who multiplies fills the ring of queries, and none is there ahead";
  if (run.queries.getRing().getType().getShape()[0] < 2)
    return "the ring of queries needs 2 stages: two blocks' are held at once";
  SmallVector<ReleaseOp> releases = releasesOf(run.queries);
  if (releases.size() != 1 || releases.front()->getBlock() != body ||
      !run.last->isBeforeInBlock(releases.front()))
    return "queries are released before the last product";
  run.release = releases.front();
  return std::nullopt;
}

/// The scores of block `i`, in flight.
Value issue(OpBuilder &b, Run &run, Value i, IRMapping map) {
  map.map(run.loop.getInductionVar(), i);
  return clonedFrom(run.loop.getBody(), run.scores.getResult(), b, map);
}

/// The run with scores carried from block to block; what it gives, the scores last.
ValueRange carry(Run &run, Value total, ValueRange inits, Value scores) {
  scf::ForOp loop = run.loop;
  Location loc = loop.getLoc();
  OpBuilder b(loop);
  SmallVector<Value> carried(inits);
  carried.push_back(scores);
  auto made = scf::ForOp::create(b, loc, loop.getLowerBound(), loop.getUpperBound(), loop.getStep(),
                                 carried);
  made->setDiscardableAttrs(loop->getDiscardableAttrDictionary());
  b.setInsertionPointToStart(made.getBody());
  IRMapping map;
  map.map(loop.getInductionVar(), made.getInductionVar());
  map.map(loop.getRegionIterArgs(), made.getRegionIterArgs().drop_back());
  map.map(run.scoresWait.getResult(), made.getRegionIterArgs().back());
  Value flight, ahead;
  for (Operation &op : loop.getBody()->without_terminator()) {
    if (&op == run.scores || &op == run.scoresWait)
      continue;
    if (&op == run.release)
      ahead = MmaWaitOp::create(b, loc, run.scoresWait.getType(), flight);
    Operation *clone = b.clone(op, map);
    if (&op == run.queries)
      cast<WaitOp>(clone).setAgain(true);
    auto wait = dyn_cast<MmaWaitOp>(op);
    if (flight || !wait || !run.last->isBeforeInBlock(&op))
      continue; // behind the first wait past it: what that product read needs no registers then
    Value one = arith::ConstantIndexOp::create(b, loc, 1);
    Value next = arith::AddIOp::create(b, loc, made.getInductionVar(), one);
    next = arith::MinSIOp::create(b, loc, next, arith::SubIOp::create(b, loc, total, one));
    flight = issue(b, run, next, {});
  }
  SmallVector<Value> results;
  for (Value value : loop.getYieldedValues())
    results.push_back(map.lookupOrDefault(value));
  results.push_back(ahead);
  scf::YieldOp::create(b, loc, results);
  return made.getResults();
}

void bringForward(MutableArrayRef<Run> runs) {
  scf::ForOp first = runs.front().loop, last = runs.back().loop;
  Location loc = first.getLoc();
  // What bounds the runs stands before the first: index arithmetic.
  OpBuilder b(last);
  Value some = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, first.getLowerBound(),
                                     last.getUpperBound());
  auto branch = scf::IfOp::create(b, loc, last.getResultTypes(), some, /*withElseRegion=*/true);
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, loc, first.getInitArgs());
  b.setInsertionPointToStart(branch.thenBlock());
  Value flight = issue(b, runs.front(), first.getLowerBound(), {});
  Value scores = MmaWaitOp::create(b, loc, runs.front().scoresWait.getType(), flight);
  ValueRange carried = first.getInitArgs();
  for (Run &run : runs) {
    run.loop->moveBefore(branch.thenBlock(), branch.thenBlock()->end());
    ValueRange results = carry(run, last.getUpperBound(), carried, scores);
    carried = results.drop_back(), scores = results.back();
  }
  b.setInsertionPointToEnd(branch.thenBlock());
  scf::YieldOp::create(b, loc, carried);
  last.replaceAllUsesWith(branch.getResults());
  for (Run &run : llvm::reverse(runs))
    run.loop.erase();
}

struct OverlapScores : flash::impl::FlashTileOverlapScoresBase<OverlapScores> {
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
      bringForward(runs);
    });
  }
};

} // namespace
