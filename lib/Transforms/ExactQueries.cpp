//===- ExactQueries.cpp - a consumer computes the queries of its own keys --===//
//
// In gradients blocks are of queries, and consumers divide the keys of a tile. Of the blocks on a
// causal diagonal one consumer's keys may all be masked:
//
//   for i in .. end: block i      ->   for i in .. own: block i
//                                      for i in own .. end: nothing but what others wait for
//
// They wait for its part of dS, which is 0, for its part of the columns of dQ, and for the rings.
//
//===----------------------------------------------------------------------===//
#include "ExactCounts.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

using namespace mlir;
using namespace flash;
using namespace flash::tile;

namespace {

/// A consumer's work: the range of the whole tile, and the runs that walk it.
struct Consumer {
  BlockRangeOp range;
  MaskOp mask; ///< on the diagonal
  SmallVector<scf::ForOp> runs;

  /// Blocks count up, the diagonal's first.
  bool ascends() const { return nameOf(runs.front()) == "left"; }
  scf::ForOp diagonal() const { return ascends() ? runs.front() : runs.back(); }
  static StringRef nameOf(scf::ForOp run) {
    return run->getAttrOfType<StringAttr>(runName).getValue();
  }
};

Reason find(ForWorkOp work, Consumer &consumer) {
  consumer.runs = runsIn(work);
  if (consumer.runs.empty())
    return "a consumer visits other blocks than those of one range";
  for (auto range : consumer.runs.front()->getBlock()->getOps<BlockRangeOp>())
    consumer.range = range;
  if (!consumer.range || !consumer.range.getQueries())
    return "a consumer visits other blocks than those of one range";
  const schedule::Mask mask = consumer.range.getMask().mask();
  if (!mask.boundsRight() || mask.boundsLeft())
    return "only a diagonal hides all of a consumer's keys from a block of queries";
  auto masks = consumer.diagonal().getBody()->getOps<MaskOp>();
  if (consumer.runs.size() != 3 || Consumer::nameOf(consumer.diagonal()) != "left" || masks.empty())
    return "a consumer visits other blocks than those of one range";
  consumer.mask = *masks.begin();
  ArrayRef<int64_t> shape = consumer.mask.getValue().getType().getShape();
  if (shape[1] > static_cast<int64_t>(consumer.range.getRows()) - shape[0])
    return "each block of queries sees some of a consumer's keys";
  return std::nullopt;
}

/// Leaves of a run of the diagonal what others wait for.
void computeNothing(scf::ForOp run, Value zero) {
  Block *body = run.getBody();
  ImplicitLocOpBuilder b(run.getLoc(), body, body->begin());
  for (WriteOp write : body->getOps<WriteOp>()) {
    FragType type = write.getValue().getType();
    Value none =
        SplatOp::create(b, FragType::get(b.getContext(), type.getShape(), b.getF32Type()), zero);
    write.getValueMutable().assign(CastOp::create(b, type, none));
  }
  for (auto [yielded, argument] :
       llvm::zip(run.getYieldedValuesMutable().value(), run.getRegionIterArgs()))
    if (isa<FragType>(argument.getType()))
      yielded.set(argument);
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(*body)))
    if (op.use_empty() && (isa<MmaOp, MmaWaitOp, MapOp, MaskOp, ReadOp>(op) || isPure(&op)) &&
        !op.hasTrait<OpTrait::IsTerminator>())
      op.erase();
}

void countExactly(const Consumer &consumer) {
  auto [range, mask, runs] = consumer;
  const bool ascends = consumer.ascends();
  scf::ForOp diagonal = consumer.diagonal();
  ImplicitLocOpBuilder b(range.getLoc(), runs.front());
  auto add = [&](Value x, Value y) -> Value { return arith::AddIOp::create(b, x, y); };
  IRMapping map;
  Value row = clonedFrom(diagonal.getBody(), mask.getRow0(), b, map);
  ArrayRef<int64_t> shape = mask.getValue().getType().getShape();
  auto own = BlockRangeOp::create(b, SmallVector<Type>(5, b.getIndexType()), row, range.getLenQ(),
                                  range.getLenK(), range.getSplit(), range.getSplits(), shape[0],
                                  shape[1], range.getMask(), range.getGroup(),
                                  /*every_row=*/false, /*queries=*/true);
  Value counts[] = {own.getRight(), own.getInner(), own.getLeft()};
  Value all = runs.back().getUpperBound(), at = runs.front().getLowerBound();
  Value zero = arith::ConstantOp::create(b, b.getF32FloatAttr(0));
  if (ascends) {
    std::swap(counts[0], counts[2]);
    at = arith::SubIOp::create(b, all, add(add(counts[0], counts[1]), counts[2]));
  }
  SmallVector<Value> ends; // of the runs
  for (Value count : counts)
    ends.push_back(add(ends.empty() ? at : ends.back(), count));

  auto rest = cast<scf::ForOp>(b.clone(*diagonal));
  rest->setAttr(runName, b.getStringAttr("none"));
  if (ascends) {
    rest.setUpperBound(at);
    diagonal.getInitArgsMutable().assign(rest.getResults());
  } else {
    rest->moveAfter(diagonal);
    diagonal.replaceAllUsesWith(rest.getResults());
    rest.getInitArgsMutable().assign(diagonal.getResults());
    rest.setLowerBound(ends.back());
  }
  for (auto [run, end] : llvm::zip_equal(runs, ends)) {
    run.setLowerBound(at);
    run.setUpperBound(at = end);
  }
  computeNothing(rest, zero);
}

} // namespace

Reason flash::countQueriesExactly(func::FuncOp kernel) {
  SmallVector<Consumer> consumers;
  Reason why;
  kernel.walk([&](ForWorkOp work) {
    if (why || !work.walk([](MmaOp) { return WalkResult::interrupt(); }).wasInterrupted())
      return;
    why = find(work, consumers.emplace_back());
  });
  if (!why)
    llvm::for_each(consumers, countExactly);
  return why;
}
