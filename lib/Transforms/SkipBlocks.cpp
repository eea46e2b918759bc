//===- SkipBlocks.cpp - flash-tile-skip-blocks ----------------------------===//
//
//   for i in 0 .. all: masked      ->   for i in 0 .. right:               masked
//                                       for i in right .. right + inner:   not masked
//                                       for i in ...: left masked, then sink tokens masked
//
// Blocks are of keys, or of the queries that a tile of keys needs. They count down from the last;
// queries may count up too: then the runs come the other way round.
//
//===----------------------------------------------------------------------===//
#include "KernelRuns.h"
#include "flash/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace flash {
#define GEN_PASS_DEF_FLASHTILESKIPBLOCKS
#include "flash/Passes.h.inc"
} // namespace flash

using namespace mlir;
using namespace flash;

namespace {
struct SkipBlocks : flash::impl::FlashTileSkipBlocksBase<SkipBlocks> {
  void runOnOperation() override {
    SmallVector<scf::ForOp> kernelRuns;
    getOperation()->walk([&](func::FuncOp func) {
      PlanAttr plan = planOfKernel(func);
      SmallVector<scf::ForOp> runs = runsIn(func);
      if (!plan || !plan.getFlag("skip_blocks").value_or(true) || runs.size() != 1 ||
          runs.front()->getAttrOfType<StringAttr>(runName) != "all")
        return;
      if (failed(skip(runs.front(), func)))
        signalPassFailure();
    });
  }

  /// What the mask op of the run says about its kernel.
  static tile::MaskOp maskOf(scf::ForOp run) {
    auto masks = run.getBody()->getOps<tile::MaskOp>();
    return masks.empty() ? tile::MaskOp() : *masks.begin();
  }

  LogicalResult skip(scf::ForOp all, func::FuncOp func) {
    tile::MaskOp mask = maskOf(all);
    auto work = all->getParentOfType<tile::ForWorkOp>();
    auto fills = all.getBody()->getOps<tile::FillOp>();
    if (!mask || !work || fills.empty())
      return all.emitOpError(
          "expected a mask and fills in a run of key blocks, and work around it");
    tile::FillOp fill = *fills.begin();
    ImplicitLocOpBuilder b(all.getLoc(), all);
    auto add = [&](Value x, Value y) -> Value { return arith::AddIOp::create(b, x, y); };
    schedule::Mask shape = mask.getMask().mask();
    int64_t rows = mask.getValue().getType().getShape()[0],
            block = mask.getValue().getType().getShape()[1];

    // Where keys are split, the range of all blocks says which part is the tile's.
    auto ranges = work.getOps<tile::BlockRangeOp>();
    Value split = work.getBody().front().getArgument(3), splits = work.getSplits();
    if (!ranges.empty())
      split = (*ranges.begin()).getSplit(), splits = (*ranges.begin()).getSplits();
    SmallVector<Type> counts(5, b.getIndexType());
    auto range = tile::BlockRangeOp::create(
        b, counts, mask.getRow0(), mask.getLenQ(), mask.getLenK(), split, splits, rows, block,
        mask.getMask(), mask.getGroup(), /*every_row=*/false, /*queries=*/mask.getTrans());
    struct Run {
      StringRef name;
      Value from, to, end;
      bool masked;
    };
    SmallVector<Run> runs;
    Value total, oldTotal = all.getUpperBound();
    auto append = [&](StringRef name, Value count, Value end, bool masked) {
      Value from = total ? total : all.getLowerBound();
      total = total ? add(total, count) : count;
      runs.push_back({name, from, total, end, masked});
    };
    auto appendRight = [&] { append("right", range.getRight(), range.getEnd(), true); };
    auto appendLeft = [&] {
      // Where blocks are queries, these are the ones that do not see far enough.
      if (mask.getTrans() ? shape.boundsRight() : shape.boundsLeft())
        append("left", range.getLeft(), range.getEnd(), true);
    };
    arith::AddIOp ascending = ascendingIndexOf(fill, all);
    ascending ? appendLeft() : appendRight();
    append("inner", range.getInner(), range.getEnd(), false);
    ascending ? appendRight() : appendLeft();
    if (shape.hasSinkTokens() && !mask.getTrans()) {
      // block i of this run lies at sink - 1 - (i - total) = (sink + total) - 1 - i
      Value sinkEnd = add(range.getSink(), total);
      append("sink", range.getSink(), sinkEnd, true);
    }

    Value oldEnd = endOf(fill, all), lowest;
    if (ascending)
      lowest = arith::SubIOp::create(b, range.getEnd(), total);
    else if (!oldEnd)
      return fill.emitOpError(
          "expected the rows of a fill to count down from the run's last block, or up");
    SmallVector<Value> carried(all.getInitArgs());
    for (const Run &run : runs) {
      auto loop = scf::ForOp::create(b, run.from, run.to, all.getStep(), carried);
      loop->setAttr(runName, b.getStringAttr(run.name));
      // the ragged end
      if (run.name == "right" && !mask.getTrans() && !shape.boundsLeft() && !shape.boundsRight())
        loop->setAttr(atMostOneName, b.getUnitAttr());
      IRMapping map;
      if (oldEnd)
        map.map(oldEnd, run.end);
      map.map(all.getInductionVar(), loop.getInductionVar());
      map.map(all.getRegionIterArgs(), loop.getRegionIterArgs());
      OpBuilder inside = OpBuilder::atBlockEnd(loop.getBody());
      for (Operation &op : *all.getBody()) {
        if (auto old = dyn_cast<tile::MaskOp>(op); old && !run.masked)
          map.map(old.getResult(), map.lookup(old.getValue()));
        else if (&op == ascending)
          map.map(ascending.getResult(),
                  arith::AddIOp::create(inside, op.getLoc(), lowest, loop.getInductionVar()));
        else if (auto met = dyn_cast<tile::BlockRangeOp>(inside.clone(op, map)))
          met.setMaskAttr(mask.getMask()); // whom a block of queries meets
      }
      carried.assign(loop.result_begin(), loop.result_end());
    }
    all.replaceAllUsesWith(carried);
    // What counts blocks after the run counts the new total.
    oldTotal.replaceUsesWithIf(total, [&](OpOperand &use) {
      return use.getOwner()->getBlock() == all->getBlock() && all->isBeforeInBlock(use.getOwner());
    });
    all.erase();
    func->setAttr(planName, planOfKernel(func).with("skip_blocks", b.getBoolAttr(true)));
    return success();
  }

  /// The 0 + i of a fill's row (0 + i) * block.
  static arith::AddIOp ascendingIndexOf(tile::FillOp fill, scf::ForOp run) {
    auto row = fill.getRow().getDefiningOp<arith::MulIOp>();
    auto index = row ? row.getLhs().getDefiningOp<arith::AddIOp>() : arith::AddIOp();
    return index && index.getRhs() == run.getInductionVar() ? index : arith::AddIOp();
  }

  /// The `end` of a fill's row (end - 1 - i) * block.
  static Value endOf(tile::FillOp fill, scf::ForOp run) {
    auto col = fill.getRow().getDefiningOp<arith::MulIOp>();
    auto index = col ? col.getLhs().getDefiningOp<arith::SubIOp>() : arith::SubIOp();
    auto last = index && index.getRhs() == run.getInductionVar()
                    ? index.getLhs().getDefiningOp<arith::SubIOp>()
                    : arith::SubIOp();
    return last ? last.getLhs() : Value();
  }
};
} // namespace
