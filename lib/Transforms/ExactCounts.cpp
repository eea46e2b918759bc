//===- ExactCounts.cpp - a consumer computes the blocks of its own rows ---===//
//
//   for i in 0 .. nb: block i     ->   for i in 0 .. skip:           give back K(i), V(i)
//                                      for i in skip .. skip + own:  block i
//                                      for i in skip + own .. nb:    give back K(i), V(i)
//
// K and V come once for all consumers of a tile, for as many blocks as any of its rows needs. What
// a consumer's rows need lies in one piece in that sequence. The blocks around it are given back as
// they come, full first, so that a release counts for the right ordinal.
//
//===----------------------------------------------------------------------===//
#include "ExactCounts.h"
#include "flash/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/Matchers.h"

namespace flash {
#define GEN_PASS_DEF_FLASHTILEEXACTCOUNTS
#include "flash/Passes.h.inc"
} // namespace flash

using namespace mlir;
using namespace flash;
using namespace flash::tile;

namespace {

/// A consumer's work: the range of the whole tile, and the runs that walk it.
struct Consumer {
  BlockRangeOp range;
  MaskOp mask;
  SmallVector<scf::ForOp> runs;
};

/// True if `value` follows from the run's counter and from what stands outside.
bool isCounted(Value value, scf::ForOp run) {
  if (value.getParentBlock() != run.getBody())
    return !run->isAncestor(value.getParentRegion()->getParentOp());
  Operation *def = value.getDefiningOp();
  if (!def)
    return value == run.getInductionVar();
  return isPure(def) && !def->getNumRegions() &&
         llvm::all_of(def->getOperands(), [&](Value v) { return isCounted(v, run); });
}

Reason find(ForWorkOp work, Consumer &consumer) {
  consumer.runs = runsIn(work);
  SmallVector<BlockRangeOp> ranges(work.getOps<BlockRangeOp>());
  if (ranges.size() != 1 || consumer.runs.size() < 2)
    return "a consumer visits other blocks than those of one range";
  BlockRangeOp range = consumer.range = ranges.front();
  schedule::Mask mask = range.getMask().mask();
  if (mask.hasSinkTokens())
    return "with sink tokens a row's blocks lie in two pieces";
  if (!matchPattern(range.getSplits(), m_One()))
    return "a split's share is one of the whole tile's blocks";
  const StringRef names[] = {"right", "inner", "left"};
  if (consumer.runs.size() != (mask.boundsLeft() ? 3 : 2))
    return "a consumer visits other blocks than those of one range";
  for (auto [run, name] : llvm::zip(consumer.runs, names))
    if (run->getAttrOfType<StringAttr>(runName) != name || run->getBlock() != range->getBlock())
      return "a consumer visits other blocks than those of one range";
  auto masks = consumer.runs.front().getBody()->getOps<MaskOp>();
  if (masks.empty())
    return "a consumer's first run has no mask to tell its rows";
  consumer.mask = *masks.begin();
  if (consumer.mask.getValue().getType().getShape()[0] >= int64_t(range.getRows()))
    return "consumers share all rows of a tile";
  scf::ForOp first = consumer.runs.front(), last = consumer.runs.back();
  if (consumer.mask.getRow0().getParentBlock() == first.getBody())
    return "a consumer's rows change from block to block";
  for (scf::ForOp run : {first, last})
    for (auto wait : run.getBody()->getOps<WaitOp>())
      if (!isCounted(wait.getIt(), run))
        return "a block's ordinal does not follow from its number";
  // What bounds the last run is needed in front of the first.
  Operation *def = last.getUpperBound().getDefiningOp();
  if (!range->isBeforeInBlock(first) || !matchPattern(first.getStep(), m_One()) ||
      (def && def->getBlock() == first->getBlock() && !def->isBeforeInBlock(first)))
    return "a consumer visits other blocks than those of one range";
  return std::nullopt;
}

/// Gives back K and V of the blocks [from, to) unread.
void giveBack(ImplicitLocOpBuilder &b, scf::ForOp run, Value from, Value to) {
  auto loop = scf::ForOp::create(b, from, to, run.getStep());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  IRMapping map;
  map.map(run.getInductionVar(), loop.getInductionVar());
  for (auto wait : run.getBody()->getOps<WaitOp>()) {
    Value it = clonedFrom(run.getBody(), wait.getIt(), b, map);
    WaitOp::create(b, wait.getType(), wait.getRing(), it);
    ReleaseOp::create(b, wait.getRing(), it);
  }
}

void countExactly(Consumer &consumer) {
  auto [range, mask, runs] = consumer;
  scf::ForOp first = runs.front(), last = runs.back();
  ImplicitLocOpBuilder b(first.getLoc(), first);
  auto add = [&](Value x, Value y) -> Value { return arith::AddIOp::create(b, x, y); };
  auto own = BlockRangeOp::create(b, SmallVector<Type>(5, b.getIndexType()), mask.getRow0(),
                                  range.getLenQ(), range.getLenK(), range.getSplit(),
                                  range.getSplits(), mask.getValue().getType().getShape()[0],
                                  range.getBlock(), range.getMask(), range.getGroup());
  // Rows that need nothing have no end: they give back all blocks.
  Value total = last.getUpperBound();
  Value after = arith::SubIOp::create(b, range.getEnd(), own.getEnd());
  Value at = arith::MinSIOp::create(b, after, total);
  giveBack(b, first, first.getLowerBound(), at);
  Value counts[] = {own.getRight(), own.getInner(), own.getLeft()};
  for (auto [run, count] : llvm::zip(runs, counts)) {
    run.setLowerBound(at);
    at = add(at, count);
    run.setUpperBound(at);
  }
  if (!range.getMask().mask().boundsLeft())
    return; // all rows see the first key
  b.setInsertionPointAfter(last);
  giveBack(b, last, at, total);
}

struct ExactCounts : flash::impl::FlashTileExactCountsBase<ExactCounts> {
  void runOnOperation() override {
    forEachKernel(getOperation(), [](func::FuncOp kernel, PlanAttr plan) {
      auto roles = kernel.getBody().getOps<RolesOp>();
      if (roles.empty() || plan.getFlag("exact_counts") == false)
        return;
      auto done = [&] {
        kernel->setAttr(planName,
                        plan.with("exact_counts", BoolAttr::get(kernel.getContext(), true)));
      };
      if (sumsGradients(kernel)) {
        Reason why = countQueriesExactly(kernel);
        return why ? leaveAlone(kernel, "exact_counts", *why) : done();
      }
      SmallVector<Consumer> consumers;
      for (Region &region : (*roles.begin()).getBodies())
        for (auto work : region.getOps<ForWorkOp>()) {
          if (!work.walk([](SoftmaxStepOp) { return WalkResult::interrupt(); }).wasInterrupted())
            continue;
          if (Reason why = find(work, consumers.emplace_back()))
            return leaveAlone(kernel, "exact_counts", *why);
          schedule::Mask mask = consumers.back().range.getMask().mask();
          if (!mask.boundsLeft() && !mask.boundsRight())
            return leaveAlone(kernel, "exact_counts", "every row needs every block");
        }
      for (Consumer &consumer : consumers)
        countExactly(consumer);
      done();
    });
  }
};

} // namespace
