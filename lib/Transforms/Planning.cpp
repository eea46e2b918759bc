//===- Planning.cpp - flash ops as the planning library sees them ---------===//
#include "flash/Planning.h"
#include "flash/Schedule/Int.h"
#include "flash/Schedule/Splits.h"
#include "mlir/AsmParser/AsmParser.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace flash;

schedule::Problem flash::problemOf(ProblemOpInterface op, schedule::Target target) {
  schedule::Problem problem = op.problem();
  problem.target = target;
  return problem;
}

PlanAttr flash::parsePlan(StringRef text, MLIRContext *context) {
  text = text.trim();
  const std::string whole =
      text.starts_with("#") ? text.str() : ("#flash.plan<" + text + ">").str();
  return dyn_cast_or_null<PlanAttr>(parseAttribute(whole, context));
}

schedule::PlanOverrides flash::overridesOf(PlanAttr plan) {
  schedule::PlanOverrides fixed;
  if (!plan)
    return fixed;
  fixed.tileM = plan.getInt("tile", 0);
  fixed.tileN = plan.getInt("tile", 1);
  fixed.stages = plan.getInt("stages");
  fixed.consumers = plan.getInt("consumers");
  fixed.hasRoles = fixed.consumers.has_value();
  fixed.warps = plan.getInt("warps");
  if (fixed.warps)
    fixed.consumers = schedule::ceilDiv(*fixed.warps, schedule::warpgroupWarps);
  fixed.producerRegisters = plan.getInt("registers", 0);
  fixed.consumerRegisters = plan.getInt("registers", 1);
  if (auto name = plan.getText("split_by"))
    fixed.splitBy = schedule::parseSplitBy(*name);
  fixed.overlap = plan.getFlag("overlap");
  fixed.qInRegisters = plan.getFlag("q_in_regs");
  fixed.earlyWait = plan.getFlag("early_wait");
  fixed.ownDv = plan.getFlag("own_dv");
  fixed.alternate = plan.getFlag("alternate");
  fixed.lateV = plan.getFlag("late_v");
  fixed.lateDp = plan.getFlag("late_dp");
  fixed.pingPong = plan.getFlag("ping_pong");
  fixed.deferMax = plan.getFlag("defer_max");
  fixed.multicast = plan.getFlag("multicast");
  fixed.stagedColumns = plan.getInt("staged_columns");
  fixed.readOnce = plan.getFlag("read_once");
  if (plan.getInt("join", 0))
    fixed.join = schedule::Join{*plan.getInt("join", 0), *plan.getInt("join", 1)};
  fixed.packGqa = plan.getFlag("pack_gqa");
  fixed.splits = plan.getInt("splits");
  if (auto name = plan.getText("transfer"))
    fixed.transfer = schedule::parseTransfer(*name);
  if (auto name = plan.getText("order"))
    fixed.order = schedule::parseOrder(*name);
  fixed.persistent = plan.getFlag("persistent");
  fixed.stealing = plan.getFlag("stealing");
  fixed.ordered = plan.getFlag("ordered");
  fixed.roles = plan.getFlag("roles");
  fixed.exactCounts = plan.getFlag("exact_counts");
  if (auto reasons = plan.getFields().getAs<DictionaryAttr>("why"))
    if (auto why = reasons.getAs<StringAttr>("tile"))
      fixed.why = why.str();
  return fixed;
}

FailureOr<schedule::Plan> flash::planOf(ProblemOpInterface op, schedule::PlanOverrides fixed) {
  if (auto attention = dyn_cast<AttentionOp>(op.getOperation());
      attention && attention.isPartial()) {
    const int64_t several = 2; // where only the caller knows how many
    int64_t splits = attention.getOutputType().getDimSize(0);
    fixed.splits = ShapedType::isDynamic(splits) ? fixed.splits.value_or(several) : splits;
  }
  auto plan = schedule::makePlan(problemOf(op, op.getTargetAttr().target()), fixed);
  if (auto *refusal = std::get_if<schedule::Refusal>(&plan))
    return op->emitOpError() << refusal->sentence;
  return std::get<schedule::Plan>(plan);
}

LogicalResult flash::isTiled(ProblemOpInterface op) {
  if (op.getTargetAttr() && op.getPlanAttr() && op.getPlanAttr().getInt("tile", 0))
    return success();
  return op->emitOpError("expected a target and a plan with a tile; run flash-select-tiles before");
}

PlanAttr flash::filled(PlanAttr plan, StringRef field, Attribute value, StringRef why) {
  if (!plan)
    plan = PlanAttr::get(value.getContext(), DictionaryAttr::get(value.getContext()));
  return plan.getFields().contains(field) ? plan : plan.with(field, value, why);
}

PlanAttr flash::combinePlan(PlanAttr plan, TargetAttr target, int64_t headSizeV, int64_t cpuRows,
                            schedule::Join join) {
  Builder builder(target.getContext());
  if (target.target() == schedule::Target::cpu)
    return filled(plan, "tile", pairOf(builder, cpuRows, 1));
  if (plan) // by hand
    join.aside = plan.getInt("aside").value_or(1);
  if (join.aside > 1)
    plan = filled(plan, "aside", builder.getI64IntegerAttr(join.aside));
  return filled(plan, "tile",
                pairOf(builder, schedule::combineRows(headSizeV, join.aside), join.atOnce));
}

ArrayAttr flash::pairOf(Builder &builder, int64_t first, int64_t second) {
  return builder.getI64ArrayAttr({first, second});
}
