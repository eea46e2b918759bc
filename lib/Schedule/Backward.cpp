//===- Backward.cpp - the planner of gradients ----------------------------===//
//
// A block owns a tile of keys of a KV head and walks the query tiles that see them, of all query
// heads that read it: dK and dV stay in registers, dQ is added up in global memory.
//
//===----------------------------------------------------------------------===//

#include "flash/Schedule/Plan.h"

namespace flash::schedule {

static constexpr int64_t cpuTile = 64; ///< queries, and keys

bool descends(WorkOrder order) {
  switch (order) {
  case WorkOrder::single:
  case WorkOrder::fixed:
  case WorkOrder::backwardLpt:
    return false;
  case WorkOrder::dynamic:
  case WorkOrder::varlenDynamic:
  case WorkOrder::backwardSpt:
    return true;
  }
  __builtin_unreachable();
}

/// The field of a plan by hand that only a forward has, or none.
static const char *forwardsOwn(const PlanOverrides &o) {
  return o.splitBy                        ? "split_by"
         : o.warps                        ? "warps"
         : o.packGqa.value_or(false)      ? "pack_gqa"
         : o.splits.value_or(1) != 1      ? "splits"
         : o.overlap.value_or(false)      ? "overlap"
         : o.qInRegisters.value_or(false) ? "q_in_regs"
         : o.earlyWait.value_or(false)    ? "early_wait"
         : o.pingPong.value_or(false)     ? "ping_pong"
         : o.deferMax.value_or(false)     ? "defer_max"
         : o.multicast.value_or(false)    ? "multicast"
         : o.stealing.value_or(false)     ? "stealing"
                                          : nullptr;
}

static void chooseTile(Plan &plan, const Problem &problem, const PlanOverrides &overrides) {
  BackwardTile tile{cpuTile, cpuTile, 0, 1, 1, true, "a tile's operands stay in a core's caches"};
  if (problem.target != Target::cpu)
    tile = referenceTileBackward(problem.target, max(plan.headTile, plan.headTileV),
                                 plan.mask.kind == MaskKind::causal,
                                 plan.mask.kind == MaskKind::local, problem.softcap);
  plan.tileM = overrides.tileM.value_or(tile.tileM);
  plan.tileN = overrides.tileN.value_or(tile.tileN);
  plan.stages = overrides.stages.value_or(max(tile.stagesQ, 1));
  plan.consumers = overrides.consumers.value_or(max(tile.consumers, 1));
  plan.overlap = plan.stealing = false;
  plan.reasons.tile = overrides.tileM || overrides.tileN || overrides.stages
                          ? overrides.why
                          : std::string(tile.reason);
}

static void chooseOrder(Plan &plan, const Problem &problem, const PlanOverrides &overrides) {
  const bool cpu = problem.target == Target::cpu;
  plan.ordered = overrides.ordered.value_or(problem.deterministic || cpu);
  plan.reasons.ordered = overrides.ordered       ? overrides.why
                         : problem.deterministic ? "deterministic: a sum's order is its bits"
                         : cpu                   ? "a worker that waits for its turn needs no "
                                                   "atomic sums"
                                                 : "sums in any order wait for nobody";
  const bool causal = plan.mask.kind == MaskKind::causal;
  plan.order = problem.packedK          ? WorkOrder::varlenDynamic
               : causal && plan.ordered ? WorkOrder::backwardSpt
               : causal                 ? WorkOrder::backwardLpt
                                        : WorkOrder::single;
  plan.reasons.order =
      problem.packedK ? "sequences differ in length: each has as many tiles as its keys fill"
      : causal && plan.ordered ? "the last keys first: their queries are the first to be done"
      : causal                 ? "tiles differ: the longest first"
                               : "all tiles cost about the same";
  if (overrides.order) {
    plan.order = *overrides.order;
    plan.reasons.order = overrides.why;
  }
  plan.persistent = overrides.persistent.value_or(false);
  plan.l2Section = overrides.l2Section.value_or(0);
}

static std::optional<std::string> whyNotBackward(const Plan &plan, const Problem &problem,
                                                 const PlanOverrides &overrides) {
  if (const char *field = forwardsOwn(overrides))
    return std::string("a plan of gradients has no ") + field + "; leave it out";
  if (problem.pageSize || problem.batchIdx || problem.leftpad || problem.append)
    return "expected keys of their own for gradients, they are a cache's";
  if (auto sentence = whyNotTile(tileOf(plan), {plan.headTile, plan.headTileV}, problem.element,
                                 machineOf(problem.target)))
    return sentence;
  if (problem.deterministic && !plan.ordered)
    return "deterministic gradients sum dQ in an order, the plan says ordered = false; leave it "
           "out";
  if (plan.order == WorkOrder::varlenDynamic && !problem.packedK)
    return "order varlen_dynamic needs packed keys, the problem has none; use backward_lpt";
  if (plan.order == WorkOrder::dynamic || plan.order == WorkOrder::fixed)
    return "order " + std::string(orderName(plan.order)) +
           " is the forward's, the problem is a backward; use backward_lpt";
  return std::nullopt;
}

std::variant<Plan, Refusal> planBackward(Plan plan, const Problem &problem,
                                         const PlanOverrides &overrides) {
  chooseTile(plan, problem, overrides);
  chooseOrder(plan, problem, overrides);
  plan.reasons.packGqa = "a tile of keys walks the query heads of its KV head one by one";
  plan.reasons.splits = "queries are not split";
  plan.reasons.stealing = "the hardware hands out tiles";
  if (problem.target != Target::cpu)
    return Refusal{Refusal::notBuilt, "gradients are not built for " +
                                          std::string(targetName(problem.target)) + "; use " +
                                          std::string(targetName(Target::cpu))};
  if (auto sentence = whyNotBackward(plan, problem, overrides))
    return Refusal{Refusal::invalid, *sentence};
  return plan;
}

WorkShape<int64_t> backwardShapeOf(const Plan &plan, const Problem &problem) {
  const int64_t pairs = problem.kvHeads * problem.batch;
  const int64_t section = plan.l2Section > 0
                              ? plan.l2Section
                              : querySection(problem.lenQ, problem.headSize, problem.headSizeV,
                                             elementBytes(problem.element), pairs);
  return {ceilDiv(problem.lenK, plan.tileN), problem.kvHeads, problem.batch, 1, section};
}

std::vector<Part> backwardParts(const Plan &plan, const Problem &problem) {
  // Whole tiles of queries; sequences begin with one (packedStart).
  const int64_t tiles = problem.packedQ ? packedStart(problem.totalQ, problem.batch, 1, plan.tileM)
                                        : ceilDiv(problem.lenQ, plan.tileM);
  const int64_t rows = tiles * plan.tileM, batch = problem.packedQ ? 1 : problem.batch;
  using Sizes = std::vector<int64_t>;
  const Sizes sum = {rows, problem.heads, plan.headTile}, statistic = {problem.heads, rows};
  auto of = [&](Sizes sizes) {
    if (!problem.packedQ)
      sizes.insert(sizes.begin(), problem.batch);
    return sizes;
  };
  std::vector<Part> parts = {
      {"dq_sum", of(sum)}, {"lse_log2", of(statistic)}, {"delta", of(statistic)}};
  if (plan.ordered) // one of each consumer
    parts.push_back({"turns", {batch * tiles * problem.heads * plan.consumers}});
  return parts;
}

} // namespace flash::schedule
