//===- PipelineLoads.cpp - flash-tile-pipeline-loads ----------------------===//
//
//   for i: fill K(i); fill V(i); ...    ->   fill K(0) before Q
//                                            for i: if i + 1 < total: fill K(i + 1)
//                                                   fill V(i); ...
//
// K runs one block ahead, also from the last block of a run to the first of the next. So do, where
// no producer is apart, Q and the lse of gradients, whose V is dO and delta.
//
// In step, where the warps that compute copy too: a slot is filled right behind the wait that tells
// each warp that all others are done with it, s stages ahead:
//
//   fill Q, K(0), V(0), .. K(s - 1)
//   for i: wait K(i); fill V(i + s - 1); QK; release K(i)
//          wait V(i); fill K(i + s); softmax; PV; release V(i)
//
// Where the next QK is to run beside this softmax, V(i - 1) is still read there: V comes one block
// later. In gradients, where one wait serves all that a block loads, Q last:
//
//   for i: wait Q(i); S, dP; fill dO(i + s - 1), lse, delta, Q(i + s - 1); dV, dQ, dK
//
// and of one slot behind the last product that reads it, beside dQ:
//
//   for i: wait Q(i); S, dP, dV, dK; fill dO(i + 1), lse, delta, Q(i + 1); dQ
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
  BlockRow(scf::ForOp run, tile::FillOp fill) : counter(run.getInductionVar()), row(fill.getRow()) {
    collect(row);
  }

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
      const bool inStep = plan.getFlag("in_step").value_or(false);
      auto decide = [&](bool done, StringRef why) {
        func->setAttr(planName,
                      plan.with("pipeline_loads", BoolAttr::get(&getContext(), done), why));
      };
      const bool gradients = sumsGradients(func) && plan.getInt("warps"); // by warps in step
      if (stages < 2 && !inStep && !gradients)
        return decide(false, "one stage: a block's slot is free only when the block is done");
      if (failed(gradients ? pipelineGradients(runs, stages)
                 : inStep  ? pipelineInStep(runs, stages, plan.getFlag("overlap").value_or(false))
                           : pipeline(runs, stages, plan.getInt("consumers").has_value())))
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

  /// The fills of one ring, run by run.
  struct Loads {
    ArrayRef<scf::ForOp> runs;
    SmallVector<tile::FillOp> fills;
    SmallVector<BlockRow> rows;
    Value ordinal; ///< of the first block

    /// `if (i < total) fill block i`, where that belongs to run `index` or one after it; `i` is
    /// `ahead` of `from`, or that itself where there is none.
    void prefetch(ImplicitLocOpBuilder &b, Value from, int64_t ahead, size_t index) {
      Value i = arith::ConstantIndexOp::create(b, ahead);
      if (from)
        i = ahead ? arith::AddIOp::create(b, from, i) : from;
      Value it = from || ahead ? arith::AddIOp::create(b, ordinal, i) : ordinal;
      PipelineLoads::prefetch(b, i, scf::ForOp(runs.back()).getUpperBound(), it, fills[index], runs,
                              rows, index);
    }
  };

  /// The loads of a ring, which gets its stages. Their rows and the number of blocks are computed
  /// before `anchor`.
  FailureOr<Loads> loadsOf(ArrayRef<scf::ForOp> runs, StringRef name, int64_t stages,
                           Operation *anchor) {
    Loads loads{runs, {}, {}, {}};
    for (scf::ForOp run : runs) {
      tile::FillOp fill = fillOf(run, name);
      if (!fill)
        return run.emitOpError() << "expected a fill of ring \"" << name << "\" in a run";
      loads.fills.push_back(fill);
      loads.rows.emplace_back(run, fill);
    }
    auto ring = loads.fills.front().getRing();
    SmallVector<int64_t> shape(ring.getType().getShape());
    shape[0] = stages;
    ring.setType(tile::RingType::get(&getContext(), shape, ring.getType().getElementType()));
    loads.ordinal = ordinalBase(loads.fills.front(), runs.front());
    if (!loads.ordinal)
      return loads.fills.front().emitOpError(
          "expected the ordinal of a fill to be the run's counter and what was done before");
    moveBefore(scf::ForOp(runs.back()).getUpperBound(), anchor);
    for (const BlockRow &row : loads.rows)
      for (Value input : row.inputs())
        moveBefore(input, anchor);
    return loads;
  }

  /// With a producer that fills `apart` from who multiplies.
  LogicalResult pipeline(ArrayRef<scf::ForOp> runs, int64_t stages, bool apart) {
    SmallVector<StringRef> ahead{"k"}, inPlace{"v"};
    // Of gradients blocks are queries, and Q is what the first product waits for. A producer runs
    // ahead anyway: Q(i + 1) in front of dO(i) would make that wait for all of block i - 1.
    if (!fillOf(runs.front(), "k")) {
      ahead = {"q", "lse"}, inPlace = {"do", "delta"};
      if (apart)
        inPlace.append(ahead), ahead.clear();
    }
    // The first block, before everything else that the tile loads.
    auto fills = runs.front()->getBlock()->getOps<tile::FillOp>();
    Operation *first =
        fills.empty() ? scf::ForOp(runs.front()).getOperation() : (*fills.begin()).getOperation();
    SmallVector<Loads> early;
    for (StringRef name : ahead) {
      FailureOr<Loads> loads = loadsOf(runs, name, stages, first);
      if (failed(loads))
        return failure();
      early.push_back(*loads);
    }
    for (StringRef name : inPlace) // dV alone has no delta
      if (fillOf(runs.front(), name) && failed(loadsOf(runs, name, stages, first)))
        return failure();
    ImplicitLocOpBuilder b(first->getLoc(), first);
    for (Loads &loads : early)
      loads.prefetch(b, Value(), 0, 0);
    for (auto [index, run] : llvm::enumerate(runs)) {
      b.setInsertionPointToStart(scf::ForOp(run).getBody());
      for (Loads &loads : early)
        loads.prefetch(b, scf::ForOp(run).getInductionVar(), 1, index);
    }
    for (Loads &loads : early)
      for (tile::FillOp fill : loads.fills)
        fill.erase();
    return success();
  }

  /// Of warps in step.
  LogicalResult pipelineGradients(ArrayRef<scf::ForOp> runs, int64_t stages) {
    auto fills = runs.front()->getBlock()->getOps<tile::FillOp>();
    Operation *first =
        fills.empty() ? scf::ForOp(runs.front()).getOperation() : (*fills.begin()).getOperation();
    SmallVector<Loads> all;
    for (StringRef name : {"do", "lse", "delta", "q"}) {
      FailureOr<Loads> loads = loadsOf(runs, name, stages, first);
      if (failed(loads))
        return failure();
      all.push_back(*loads);
    }
    ImplicitLocOpBuilder b(first->getLoc(), first);
    const int64_t ahead = std::max<int64_t>(stages - 1, 1);
    for (int64_t i = 0; i < ahead; ++i)
      for (Loads &loads : all)
        loads.prefetch(b, Value(), i, 0);
    for (auto [index, run] : llvm::enumerate(runs)) {
      scf::ForOp loop = run;
      tile::WaitOp last;
      for (auto wait : llvm::make_early_inc_range(loop.getBody()->getOps<tile::WaitOp>())) {
        if (llvm::none_of(
                all, [&](Loads &loads) { return loads.fills[index].getRing() == wait.getRing(); }))
          continue;
        for (Value operand : wait->getOperands())
          if (last)
            moveBefore(operand, last);
        if (last)
          wait->moveAfter(last);
        last = wait;
      }
      if (!last)
        return loop.emitOpError("expected a wait for Q in a run");
      auto products = loop.getBody()->getOps<tile::MmaOp>();
      Operation *behind =
          stages > 1 ? *std::next(products.begin()) : lastReaderOf(loop, all, index);
      b.setInsertionPointAfter(behind);
      for (Loads &loads : all) {
        // Of wide blocks Q comes a product later, or registers run out.
        if (stages > 1 && &loads == &all.back() && columnsOf(loads) > schedule::panelColumns)
          b.setInsertionPointAfter(*std::next(products.begin(), 2));
        loads.prefetch(b, loop.getInductionVar(), ahead, index);
      }
    }
    for (Loads &loads : all)
      for (tile::FillOp fill : loads.fills)
        fill.erase();
    return success();
  }

  static int64_t columnsOf(Loads &loads) {
    return loads.fills.front().getRing().getType().getShape()[2];
  }

  /// The last product or read in run `index`, which is `loop`, of a tile that it loads.
  static Operation *lastReaderOf(scf::ForOp loop, ArrayRef<Loads> all, size_t index) {
    Operation *last = nullptr;
    for (Operation &op : *loop.getBody())
      if (isa<tile::MmaOp, tile::ReadOp>(op) && llvm::any_of(op.getOperands(), [&](Value tile) {
            while (auto slice = tile.getDefiningOp<tile::SliceOp>())
              tile = slice.getTile();
            auto wait = tile.getDefiningOp<tile::WaitOp>();
            return wait && llvm::any_of(all, [&](const Loads &loads) {
                     return tile::FillOp(loads.fills[index]).getRing() == wait.getRing();
                   });
          }))
        last = &op;
    return last;
  }

  LogicalResult pipelineInStep(ArrayRef<scf::ForOp> runs, int64_t stages, bool overlap) {
    const int64_t ahead = std::max<int64_t>(stages - (overlap ? 2 : 1), 0); // of V
    tile::FillOp first = *runs.front()->getBlock()->getOps<tile::FillOp>().begin();
    FailureOr<Loads> k = loadsOf(runs, "k", stages, first), v = loadsOf(runs, "v", stages, first);
    if (failed(k) || failed(v))
      return failure();
    ImplicitLocOpBuilder b(first.getLoc(), first);
    b.setInsertionPointAfter(first);
    for (int64_t i = 0; i < stages; ++i) {
      k->prefetch(b, Value(), i, 0);
      if (i < ahead)
        v->prefetch(b, Value(), i, 0);
    }
    for (auto [index, run] : llvm::enumerate(runs)) {
      scf::ForOp loop = run;
      auto waits = [&](tile::RingOp ring) -> tile::WaitOp {
        for (auto wait : loop.getBody()->getOps<tile::WaitOp>())
          if (wait.getRing() == ring.getRing())
            return wait;
        return {};
      };
      auto ringOf = [](Loads &loads) {
        return loads.fills.front().getRing().getDefiningOp<tile::RingOp>();
      };
      tile::WaitOp kWait = waits(ringOf(*k)), vWait = waits(ringOf(*v));
      tile::ReleaseOp kRelease;
      for (auto release : loop.getBody()->getOps<tile::ReleaseOp>())
        if (release.getRing() == k->fills.front().getRing())
          kRelease = release;
      if (!kWait || !vWait || !kRelease)
        return loop.emitOpError("expected a wait for each of K and V and a release of K in a run");
      b.setInsertionPointAfter(kWait);
      if (ahead == 0)
        v->fills[index]->moveAfter(kWait);
      else
        v->prefetch(b, loop.getInductionVar(), ahead, index);
      vWait->moveAfter(kRelease);
      b.setInsertionPointAfter(vWait);
      k->prefetch(b, loop.getInductionVar(), stages, index);
    }
    for (auto [fillK, fillV] : llvm::zip(k->fills, v->fills)) {
      fillK.erase();
      if (ahead > 0)
        fillV.erase();
    }
    return success();
  }

  /// `if (i < total) fill K(i)`, where block i belongs to run `index` or one after it.
  static void prefetch(ImplicitLocOpBuilder &b, Value i, Value total, Value ordinal,
                       tile::FillOp fill, ArrayRef<scf::ForOp> runs, ArrayRef<BlockRow> rows,
                       size_t index) {
    Value more = arith::CmpIOp::create(b, arith::CmpIPredicate::slt, i, total);
    auto guard = scf::IfOp::create(b, more, /*withElseRegion=*/false);
    OpBuilder::InsertionGuard saved(b);
    b.setInsertionPointToStart(&guard.getThenRegion().front());
    Value row = rows.back().at(b, i);
    for (size_t r = rows.size() - 1; r-- > index;) {
      if (rows[r] == rows[r + 1])
        continue;
      Value here = arith::CmpIOp::create(b, arith::CmpIPredicate::slt, i,
                                         scf::ForOp(runs[r]).getUpperBound());
      row = arith::SelectOp::create(b, here, rows[r].at(b, i), row);
    }
    tile::FillOp::create(b, fill.getView(), fill.getBatch(), fill.getHead(), row, fill.getRing(),
                         ordinal);
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
