//===- OrderWork.cpp - in which order blocks take tiles -------------------===//
#include "flash/Passes.h"
#include "flash/Planning.h"
#include "mlir/IR/Builders.h"

namespace flash {
#define GEN_PASS_DEF_FLASHORDERWORK
#include "flash/Passes.h.inc"
} // namespace flash

using namespace mlir;
using namespace flash;

namespace {
struct OrderWork : flash::impl::FlashOrderWorkBase<OrderWork> {
  void runOnOperation() override {
    WalkResult result = getOperation()->walk([](ProblemOpInterface op) -> WalkResult {
      if (failed(isTiled(op)))
        return WalkResult::interrupt();
      schedule::PlanOverrides fixed = overridesOf(op.getPlanAttr());
      auto attention = dyn_cast<AttentionOp>(op.getOperation());
      if (attention && !attention.isPartial())
        fixed.splits = 1; // what flash-split-kv has not split runs whole
      FailureOr<schedule::Plan> plan = planOf(op, fixed);
      if (failed(plan))
        return WalkResult::interrupt();
      if (attention && attention.getSchedule() &&
          plan->order != schedule::WorkOrder::varlenDynamic) {
        op->emitOpError() << "expected order "
                          << schedule::orderName(schedule::WorkOrder::varlenDynamic)
                          << " besides schedule, the plan's is " << schedule::orderName(plan->order)
                          << "; set the plan's order, or leave schedule out";
        return WalkResult::interrupt();
      }
      auto order = StringAttr::get(op.getContext(), schedule::orderName(plan->order));
      PlanAttr attr = filled(op.getPlanAttr(), "order", order, plan->reasons.order);
      if (op.getTargetAttr().target() != schedule::Target::cpu)
        attr = filled(attr, "stealing", BoolAttr::get(op.getContext(), plan->stealing),
                      plan->reasons.stealing);
      if (attention && (!plan->roles || !plan->persistent))
        attr = filled(attr, "persistent", BoolAttr::get(op.getContext(), plan->persistent));
      op.setPlanAttr(attr);
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
