//===- PipelineLoads.cpp - flash-tile-pipeline-loads ----------------------===//
//
//   for i: fill K(i); fill V(i); ...    ->   fill K(0) before Q
//                                            for i: if i + 1 < total: fill K(i + 1)
//                                                   fill V(i); ...
//
// K runs one block ahead, also from the last block of a run to the first of the next.
//
//===----------------------------------------------------------------------===//
#include "KernelRuns.h"
#include "flash/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace flash {
#define GEN_PASS_DEF_FLASHTILEPIPELINELOADS
#include "flash/Passes.h.inc"
} // namespace flash

using namespace mlir;
using namespace flash;

namespace {
/// Which block of keys a run's fill of K takes, as a function of the run's counter.
class BlockRow {
public:
  BlockRow(scf::ForOp run, tile::FillOp fill) : counter(run.getInductionVar()), row(fill.getRow()) { collect(row); }

  /// The row for block `i`, computed where `b` stands.
  Value at(ImplicitLocOpBuilder &b, Value i) const {
    IRMapping map;
    map.map(counter, i);
    for (Operation *op : slice)
      b.clone(*op, map);
    return map.lookupOrDefault(row);
  }
  bool operator==(const BlockRow &other) const { return free == other.free; }
  /// What the row is computed from, the counter apart.
  ArrayRef<Value> inputs() const { return free; }

private:
  void collect(Value value) {
    Operation *op = value.getDefiningOp();
    if (!op || op->getBlock() != counter.getParentBlock()) {
      if (value != counter)
        free.push_back(value);
      return;
    }
    if (llvm::is_contained(slice, op))
      return;
    for (Value operand : op->getOperands())
      collect(operand);
    slice.push_back(op);
  }

  Value counter, row;
  SmallVector<Operation *> slice;
  SmallVector<Value> free;
};

struct PipelineLoads : flash::impl::FlashTilePipelineLoadsBase<PipelineLoads> {
  void runOnOperation() override {
    getOperation()->walk([&](func::FuncOp func) {
      PlanAttr plan = planOfKernel(func);
      SmallVector<scf::ForOp> runs = runsIn(func);
      if (!plan || runs.empty() || !plan.getFlag("pipeline_loads").value_or(true))
        return;
      int64_t stages = plan.getInt("stages").value_or(1);
      auto decide = [&](bool done, StringRef why) {
        func->setAttr(planName, plan.with("pipeline_loads", BoolAttr::get(&getContext(), done), why));
      };
      if (stages < 2)
        return decide(false, "one stage: a block's slot is free only when the block is done");
      if (failed(pipeline(runs, stages)))
        return signalPassFailure();
      decide(true, "");
    });
  }

  static tile::FillOp fillOf(scf::ForOp run, StringRef ring) {
    for (auto fill : run.getBody()->getOps<tile::FillOp>())
      if (fill.getRing().getDefiningOp<tile::RingOp>().getName() == ring)
        return fill;
    return {};
  }

  LogicalResult pipeline(ArrayRef<scf::ForOp> runs, int64_t stages) {
    SmallVector<tile::FillOp> fills;
    SmallVector<BlockRow> rows;
    for (scf::ForOp run : runs) {
      tile::FillOp k = fillOf(run, "k"), v = fillOf(run, "v");
      if (!k || !v)
        return run.emitOpError("expected a fill of ring \"k\" and one of ring \"v\" in a run");
      fills.push_back(k);
      rows.emplace_back(run, k);
    }
    for (StringRef name : {"k", "v"}) {
      auto ring = fillOf(runs.front(), name).getRing();
      SmallVector<int64_t> shape(ring.getType().getShape());
      shape[0] = stages;
      ring.setType(tile::RingType::get(&getContext(), shape, ring.getType().getElementType()));
    }
    Value total = scf::ForOp(runs.back()).getUpperBound();

    // The first block, before everything else that the tile loads.
    Block *body = runs.front()->getBlock();
    tile::FillOp first = *body->getOps<tile::FillOp>().begin();
    Value ordinal = ordinalBase(fills.front(), runs.front());
    if (!ordinal)
      return fills.front().emitOpError("expected the ordinal of a fill to be the run's counter and what was done before");
    moveBefore(total, first);
    for (const BlockRow &row : rows)
      for (Value input : row.inputs())
        moveBefore(input, first);
    ImplicitLocOpBuilder b(first.getLoc(), first);
    Value zero = arith::ConstantIndexOp::create(b, 0);
    prefetch(b, zero, total, ordinal, fills.front(), runs, rows, 0);
    for (auto [index, run] : llvm::enumerate(runs)) {
      scf::ForOp loop = run;
      b.setInsertionPointToStart(loop.getBody());
      Value next = arith::AddIOp::create(b, loop.getInductionVar(), arith::ConstantIndexOp::create(b, 1));
      prefetch(b, next, total, arith::AddIOp::create(b, ordinal, next), fills[index], runs, rows, index);
    }
    for (tile::FillOp fill : fills)
      fill.erase();
    return success();
  }

  /// `if (i < total) fill K(i)`, where block i belongs to run `index` or one after it.
  static void prefetch(ImplicitLocOpBuilder &b, Value i, Value total, Value ordinal, tile::FillOp fill,
                       ArrayRef<scf::ForOp> runs, ArrayRef<BlockRow> rows, size_t index) {
    Value more = arith::CmpIOp::create(b, arith::CmpIPredicate::slt, i, total);
    auto guard = scf::IfOp::create(b, more, /*withElseRegion=*/false);
    OpBuilder::InsertionGuard saved(b);
    b.setInsertionPointToStart(&guard.getThenRegion().front());
    Value row = rows.back().at(b, i);
    for (size_t r = rows.size() - 1; r-- > index;) {
      if (rows[r] == rows[r + 1])
        continue;
      Value here = arith::CmpIOp::create(b, arith::CmpIPredicate::slt, i, scf::ForOp(runs[r]).getUpperBound());
      row = arith::SelectOp::create(b, here, rows[r].at(b, i), row);
    }
    tile::FillOp::create(b, fill.getView(), fill.getBatch(), fill.getHead(), row, fill.getRing(), ordinal);
  }

  /// The n of an ordinal n + i.
  static Value ordinalBase(tile::FillOp fill, scf::ForOp run) {
    auto sum = fill.getIt().getDefiningOp<arith::AddIOp>();
    return sum && sum.getRhs() == run.getInductionVar() ? sum.getLhs() : Value();
  }

  /// Moves the pure computation of `value` up to `anchor` in the same block.
  static void moveBefore(Value value, Operation *anchor) {
    Operation *op = value.getDefiningOp();
    if (!op || op->getBlock() != anchor->getBlock() || op->isBeforeInBlock(anchor))
      return;
    for (Value operand : op->getOperands())
      moveBefore(operand, anchor);
    op->moveBefore(anchor);
  }
};
} // namespace
