//===- SelectTiles.cpp - tile, stages, roles and registers ----------------===//
//
// The planning library decides; this pass writes down what it decided, and the mask in its
// canonical form, so that a window as wide as the sequences is the same kernel as none.
//
//===----------------------------------------------------------------------===//
#include "flash/Passes.h"
#include "flash/Planning.h"
#include "flash/Schedule/Splits.h"
#include "mlir/IR/Builders.h"

namespace flash {
#define GEN_PASS_DEF_FLASHSELECTTILES
#include "flash/Passes.h.inc"
} // namespace flash

using namespace mlir;
using namespace flash;

namespace {
/// Rows of a tile of flash.combine on a CPU where no attention says how many.
constexpr int64_t combineRows = 64;
/// And of flash.append on a CPU: few rows are new.
constexpr int64_t appendRows = 16;

/// The tile and its slots, which every op's plan has.
PlanAttr withTile(Builder &builder, PlanAttr attr, const schedule::Plan &plan) {
  attr = filled(attr, "tile", pairOf(builder, plan.tileM, plan.tileN), plan.reasons.tile);
  return filled(attr, "stages", builder.getI64IntegerAttr(plan.stages));
}

LogicalResult selectTile(AttentionOp op) {
  FailureOr<schedule::Plan> plan = planOf(op);
  if (failed(plan))
    return failure();
  Builder builder(op.getContext());
  PlanAttr attr = withTile(builder, op.getPlanAttr(), *plan);
  if (op.getTarget()->target() !=
      schedule::Target::cpu) { // a CPU runs roles only where a hand asks for them
    if (plan->roles) {
      attr = filled(attr, "consumers", builder.getI64IntegerAttr(plan->consumers));
    } else {
      attr = filled(attr, "warps",
                    builder.getI64IntegerAttr(plan->consumers * schedule::warpgroupWarps));
      attr = filled(attr, "in_step", builder.getBoolAttr(true),
                    "the warps that compute copy, and wait for a slot with each other");
    }
    attr = filled(attr, "registers",
                  pairOf(builder, plan->producerRegisters, plan->consumerRegisters));
  }
  if (plan->roles && plan->transfer != schedule::Transfer::tma)
    attr = filled(attr, "transfer", builder.getStringAttr(schedule::transferName(plan->transfer)),
                  plan->reasons.transfer);
  if (plan->splitBy != schedule::SplitBy::rows)
    attr = filled(attr, "split_by", builder.getStringAttr(schedule::splitByName(plan->splitBy)));
  attr = filled(attr, "overlap", builder.getBoolAttr(plan->overlap));
  const auto anyRows = schedule::anyRowsTile(problemOf(op, op.getTarget()->target()), *plan);
  for (auto [field, on] : {std::pair{"q_in_regs", plan->qInRegisters},
                           {"early_wait", plan->earlyWait},
                           {"ping_pong", plan->pingPong},
                           {"defer_max", plan->deferMax},
                           {"multicast", plan->multicast}})
    // Off where left out, but for what the tile of any number of queries has on.
    if (on || (field == StringRef("defer_max") && anyRows && anyRows->tile.deferMax))
      attr = filled(attr, field, builder.getBoolAttr(on));
  if (plan->stagedColumns)
    attr = filled(attr, "staged_columns", builder.getI64IntegerAttr(plan->stagedColumns),
                  plan->reasons.staging);
  if (plan->readOnce)
    attr = filled(attr, "read_once", builder.getBoolAttr(true), plan->reasons.readOnce);
  attr = filled(attr, "pack_gqa", builder.getBoolAttr(plan->packGqa), plan->reasons.packGqa);
  op.setPlanAttr(attr);
  op.setMaskAttr(MaskAttr::get(op.getContext(), plan->mask));
  return success();
}

LogicalResult selectTile(AttentionBackwardOp op) {
  if (PlanAttr plan = op.getPlanAttr(); plan && plan.getFlag("in_step").value_or(false))
    return op.emitOpError("a plan of gradients has no in_step; leave it out");
  FailureOr<schedule::Plan> plan = planOf(op);
  if (failed(plan))
    return failure();
  Builder builder(op.getContext());
  PlanAttr attr = withTile(builder, op.getPlanAttr(), *plan);
  if (op.getTarget()->target() != schedule::Target::cpu) {
    attr = filled(attr, "persistent", builder.getBoolAttr(plan->persistent));
    if (plan->roles) {
      attr = filled(attr, "consumers", builder.getI64IntegerAttr(plan->consumers));
      attr = filled(attr, "registers",
                    pairOf(builder, plan->producerRegisters, plan->consumerRegisters));
    } else {
      attr = filled(attr, "warps",
                    builder.getI64IntegerAttr(plan->consumers * schedule::warpgroupWarps));
      if (plan->splitBy != schedule::SplitBy::rows)
        attr =
            filled(attr, "split_by", builder.getStringAttr(schedule::splitByName(plan->splitBy)));
    }
  }
  if (plan->overlap)
    attr = filled(attr, "overlap", builder.getBoolAttr(true));
  if (plan->ownDv)
    attr = filled(attr, "own_dv", builder.getBoolAttr(true), plan->reasons.ownDv);
  for (auto [field, on] : {std::pair<StringRef, bool>{"alternate", plan->alternate},
                           {"late_v", plan->lateV},
                           {"late_dp", plan->lateDp}})
    if (on)
      attr = filled(attr, field, builder.getBoolAttr(true));
  if (plan->stagedColumns)
    attr = filled(attr, "staged_columns", builder.getI64IntegerAttr(plan->stagedColumns),
                  plan->reasons.staging);
  attr = filled(attr, "ordered", builder.getBoolAttr(plan->ordered), plan->reasons.ordered);
  op.setPlanAttr(attr);
  op.setMaskAttr(MaskAttr::get(op.getContext(), plan->mask));
  return success();
}

LogicalResult selectTile(CombineOp op) {
  PlanAttr plan =
      combinePlan(op.getPlanAttr(), *op.getTarget(), op.getOutputType().getShape().back(),
                  combineRows, schedule::joinOfRows);
  if (auto why = schedule::whyNotJoin({*plan.getInt("tile", 1), plan.getInt("aside").value_or(1)}))
    return op.emitOpError() << *why;
  op.setPlanAttr(plan);
  return success();
}
/// Rows by 1.
LogicalResult selectTile(AppendOp op) {
  auto columns = [](Value x) { return cast<MemRefType>(x.getType()).getShape().back(); };
  const int64_t rows =
      op.getTarget()->target() == schedule::Target::cpu
          ? appendRows
          : schedule::combineRows(std::max(columns(op.getKNew()), columns(op.getVNew())));
  Builder builder(op.getContext());
  PlanAttr plan = filled(op.getPlanAttr(), "tile", pairOf(builder, rows, 1));
  if (plan.getInt("tile", 1) != 1)
    return op.emitOpError() << "expected a tile of rows by 1, it has " << *plan.getInt("tile", 1)
                            << " columns";
  op.setPlanAttr(plan);
  return success();
}

struct SelectTiles : flash::impl::FlashSelectTilesBase<SelectTiles> {
  using FlashSelectTilesBase::FlashSelectTilesBase;

  LogicalResult initialize(MLIRContext *context) override {
    StringRef name =
        target.empty() ? StringRef(schedule::targetName(schedule::Target::cpu)) : StringRef(target);
    fallback =
        TargetAttr::getChecked([&] { return emitError(UnknownLoc::get(context)); }, context, name);
    return success(fallback != nullptr);
  }

  void runOnOperation() override {
    auto select = [&](auto op) -> WalkResult {
      if (!op.getTarget())
        op.setTargetAttr(fallback);
      return selectTile(op);
    };
    WalkResult result = getOperation()->walk([&](Operation *op) -> WalkResult {
      if (auto attention = dyn_cast<AttentionOp>(op))
        return select(attention);
      if (auto backward = dyn_cast<AttentionBackwardOp>(op))
        return select(backward);
      if (auto combine = dyn_cast<CombineOp>(op))
        return select(combine);
      if (auto append = dyn_cast<AppendOp>(op))
        return select(append);
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }

  TargetAttr fallback;
};
} // namespace
