//===- Plan.cpp - the planner ---------------------------------------------===//

#include "flash/Schedule/Plan.h"
#include "flash/Schedule/PackGqa.h"
#include "flash/Schedule/Splits.h"
#include <limits>

namespace flash::schedule {

static std::string number(int64_t value) { return std::to_string(value); }

std::string_view transferName(Transfer transfer) {
  return transfer == Transfer::tma ? "tma" : "gather";
}

std::optional<Transfer> parseTransfer(std::string_view name) {
  for (Transfer transfer : {Transfer::tma, Transfer::gather})
    if (transferName(transfer) == name)
      return transfer;
  return std::nullopt;
}

static const char byHand[] = "set by hand";

Tile tileOf(const Plan &plan) {
  return {plan.tileM,
          plan.tileN,
          plan.stages,
          plan.consumers,
          plan.splitBy,
          plan.producerRegisters,
          plan.consumerRegisters,
          plan.pvFromRegisters,
          plan.overlap,
          {},
          plan.qInRegisters,
          plan.earlyWait,
          plan.pingPong,
          plan.deferMax};
}

bool streamsKeys(const Plan &plan, Target target) {
  return machineOf(target).roles && plan.consumers == 1;
}

std::vector<RingNeed> ringsOf(const Plan &plan, ElementType element) {
  auto slot = [&](int64_t rows, int64_t columns) {
    return tileBytes(rows, columns, elementBytes(element));
  };
  // Every consumer that owns rows has a slot of Q, which it frees by itself.
  const int64_t instances = plan.roles ? plan.consumers : 1;
  const int64_t slotsQ = plan.splitBy == SplitBy::rows ? instances : 1;
  std::vector<RingNeed> rings = {
      {.name = "q", .bytes = slot(plan.tileM / slotsQ, plan.headTile), .stages = slotsQ},
      {.name = "k", .bytes = slot(plan.tileN, plan.headTile), .stages = plan.stages},
      {.name = "v", .bytes = slot(plan.tileN, plan.headTileV), .stages = plan.stages}};
  if (plan.stealing)
    rings.push_back(
        {.name = "work", .bytes = ordinalBytes, .align = ordinalBytes, .stages = workStages});
  if (plan.deferMax)
    rings.push_back({.name = "exact",
                     .bytes = slot(min(redoneKeys, plan.tileN), max(plan.headTile, plan.headTileV)),
                     .stages = instances});
  for (RingNeed &ring : rings)
    ring.barriers = plan.roles;
  if (plan.stagedColumns)
    rings.push_back({.name = "o",
                     .bytes = slot(plan.tileM / slotsQ, plan.stagedColumns),
                     .stages = instances,
                     .barriers = false});
  return rings;
}

//===----------------------------------------------------------------------===//
// The four questions
//===----------------------------------------------------------------------===//

static void chooseMask(Plan &plan, const Problem &problem) {
  const Mask asked = canonical(problem.mask, unknown, unknown);
  plan.mask = canonical(problem.mask, problem.lenQ, problem.lenK);
  plan.reasons.mask =
      plan.mask.kind == asked.kind
          ? "as asked for"
          : "asked for " + std::string(maskName(asked.kind)) + ", but no row reaches a bound of it";
}

/// Rows that read the same keys, as far as a tile may hold them.
static int64_t rowsOf(const Problem &problem, const PlanOverrides &overrides) {
  const std::optional<bool> pack = overrides.packGqa ? overrides.packGqa : problem.packGqa;
  const int64_t group = pack.value_or(true) ? groupOf(problem) : 1;
  return problem.lenQ == unknown || group == unknown ? unlimited : problem.lenQ * group;
}

static void chooseTile(Plan &plan, const Problem &problem, const TileRow &row,
                       const PlanOverrides &overrides) {
  const Tile &tile = row.tile;
  plan.tileM = overrides.tileM.value_or(tile.tileM);
  plan.tileN = overrides.tileN.value_or(tile.tileN);
  plan.stages = overrides.stages.value_or(tile.stages);
  plan.splitBy = overrides.splitBy.value_or(tile.splitBy);
  // Consumers follow a tile set by hand, and registers follow consumers.
  const Machine &machine = machineOf(problem.target);
  int64_t consumers = tile.consumers;
  if (overrides.tileM && plan.splitBy == SplitBy::rows && machine.mmaRows > 1 &&
      (machine.roles || plan.tileM % (machine.mmaRows * consumers) != 0))
    consumers = max(plan.tileM / machine.mmaRows, 1);
  plan.consumers = overrides.consumers.value_or(consumers);
  RoleRegisters registers{plan.consumers, tile.producerRegisters, tile.consumerRegisters};
  if (plan.consumers != tile.consumers && machine.roles)
    registers = roleRegistersOf(plan.consumers).value_or(registers);
  plan.producerRegisters = overrides.producerRegisters.value_or(registers.producer);
  // All warps of a block have the same, of what a multiprocessor has.
  const int64_t most = machine.roles ? unlimited
                                     : machine.registersPerSm /
                                           (warpgroupWarps * warpThreads * max(plan.consumers, 1));
  plan.consumerRegisters = overrides.consumerRegisters.value_or(min(registers.consumer, most));
  if (!machine.roles)
    plan.producerRegisters = plan.consumerRegisters;
  plan.pvFromRegisters = overrides.pvFromRegisters.value_or(tile.pvFromRegisters);
  plan.overlap = overrides.overlap.value_or(tile.overlap);
  plan.qInRegisters = overrides.qInRegisters.value_or(tile.qInRegisters);
  plan.earlyWait = overrides.earlyWait.value_or(tile.earlyWait);
  plan.pingPong = overrides.pingPong.value_or(tile.pingPong);
  plan.deferMax = overrides.deferMax.value_or(tile.deferMax && plan.splitBy == SplitBy::rows);
  plan.roles = machine.roles || machine.target == Target::cpu;
  plan.multicast = overrides.multicast.value_or(false);

  const bool kept = !overrides.tileM && !overrides.tileN && !overrides.stages &&
                    !overrides.consumers && !overrides.splitBy;
  plan.reasons.tile =
      kept ? "row " + std::string(row.name) + ": " + std::string(tile.reason) : overrides.why;
}

/// A tensor map describes boxes of K and V: the rows of a tile must follow each other in memory.
/// Why they do not, or nothing.
static std::optional<std::string> whyNoBoxes(const Plan &plan, const Problem &problem) {
  const int64_t size = problem.pageSize.value_or(0), rows = machineOf(problem.target).mmaRows;
  const bool gpu = problem.target != Target::cpu;
  // Pages that divide a tile are copied one by one, as far as that is less work than row by row.
  const int64_t fewest = 8;
  const bool divides =
      gpu && (size == fewest || size % redoneKeys == 0) && plan.tileN % max(size, 1) == 0;
  if (size == unknown || (size % plan.tileN != 0 && !divides))
    return "a tile of " + number(plan.tileN) + " keys spans pages of " +
           (size == unknown ? "any size" : number(size));
  if (problem.pageSize && problem.leftpad)
    return "rows before the keys shift tiles across pages";
  // A box holds all heads of a query, and none of another's.
  if (gpu && plan.packGqa && rows % plan.group != 0)
    return "a copy of " + number(rows) + " rows would split the " + number(plan.group) +
           " heads of a query";
  return std::nullopt;
}

static void chooseTransfer(Plan &plan, const Problem &problem, const PlanOverrides &overrides) {
  const auto noBoxes = whyNoBoxes(plan, problem);
  plan.transfer = !plan.roles || noBoxes ? Transfer::gather : Transfer::tma;
  plan.reasons.transfer = !plan.roles ? "the machine has no engine that copies tiles"
                                      : noBoxes.value_or("a tile's rows follow each other");
  if (overrides.transfer) {
    plan.transfer = *overrides.transfer;
    plan.reasons.transfer = overrides.why;
  }
}

/// Gives the producer what it needs to look rows up, where the consumers can spare it.
static void shareRegisters(Plan &plan, const Problem &problem, const PlanOverrides &overrides) {
  if (!hasTables(problem) || !machineOf(problem.target).roles || plan.transfer != Transfer::tma ||
      overrides.producerRegisters || overrides.consumerRegisters)
    return;
  const int64_t held =
      fragmentRegisters(tileOf(plan), {plan.headTile, plan.headTileV}, problem.element);
  auto registers = roleRegistersOf(plan.consumers, /*looksUp=*/true);
  if (!registers || held + registersBesideFragments >= registers->consumer)
    return;
  plan.producerRegisters = registers->producer;
  plan.consumerRegisters = registers->consumer;
}

static std::optional<Refusal> choosePacking(Plan &plan, const Problem &problem,
                                            const PlanOverrides &overrides) {
  const std::optional<bool> asked = overrides.packGqa ? overrides.packGqa : problem.packGqa;
  const int64_t group = groupOf(problem);
  if (group == 1) {
    plan.reasons.packGqa = "every query head has a KV head of its own";
    return std::nullopt;
  }
  if (group == unknown) {
    if (asked.value_or(false))
      return Refusal{Refusal::invalid, "pack_gqa needs the number of query heads of a KV head when "
                                       "the kernel is compiled; give static head counts"};
    plan.reasons.packGqa = "the number of query heads of a KV head is not known";
    return std::nullopt;
  }
  if (!asked && plan.multicast) {
    plan.reasons.packGqa = "blocks that share keys take the rows of one head";
    return std::nullopt;
  }
  if (!asked && problem.lenQ == unknown && !problem.packedQ && !problem.usedQ) {
    plan.reasons.packGqa = "the number of queries is not known";
    return std::nullopt;
  }
  const bool varies = problem.packedQ || problem.usedQ;
  plan.packGqa = asked ? *asked : shouldPackGqa(varies, problem.lenQ, group, plan.tileM);
  plan.group = plan.packGqa ? group : 1;
  plan.reasons.packGqa = asked          ? byHand
                         : varies       ? "sequences differ in their number of queries"
                         : plan.packGqa ? "the rows of " + number(group) +
                                              " query heads fill tiles better than those of one"
                                        : "one query head's rows fill tiles well enough";
  return std::nullopt;
}

static int64_t queryTiles(const Plan &plan, const Problem &problem) {
  return ceilDiv(problem.lenQ * plan.group, plan.tileM);
}

/// Query tiles of all sequences, as varlenDynamic counts them.
static std::optional<int64_t> packedTiles(const Plan &plan, const Problem &problem) {
  if (!problem.packedQ || problem.totalQ == unknown)
    return std::nullopt;
  return problem.batch > 0 ? packedStart(problem.totalQ, problem.batch, plan.group, plan.tileM) : 0;
}

static int64_t keyTiles(const Plan &plan, const Problem &problem) {
  auto side = [](int64_t asked, int64_t whole) { return asked < 0 ? max(whole - 1, 0) : asked; };
  int64_t left = side(plan.mask.left, problem.lenK), right = side(plan.mask.right, problem.lenQ);
  return plan.mask.kind == MaskKind::local
             ? reachableKeyTiles(problem.lenK, left, right, plan.tileM, plan.tileN)
             : ceilDiv(problem.lenK, plan.tileN);
}

static SplitQuestion splitQuestion(const Plan &plan, const Problem &problem) {
  const int64_t mTiles = queryTiles(plan, problem);
  const int64_t heads = plan.packGqa ? problem.kvHeads : problem.heads;
  const int64_t bytes =
      problem.lenK * (problem.headSize + problem.headSizeV) * elementBytes(problem.element);
  const int64_t tiles =
      plan.ownSplits ? mTiles : packedTiles(plan, problem).value_or(problem.batch * mTiles);
  return {.tiles = heads * tiles,
          .mTiles = mTiles,
          .nTiles = keyTiles(plan, problem),
          .kvHeadBytes = bytes,
          .sms = smsOf(problem),
          .causalOrLocal = plan.mask.kind != MaskKind::dense};
}

/// Of all sequences; where each has its own number, the most that any has: what a long one gets
/// whose fellows have no key.
static int64_t plannedSplits(const Plan &plan, const Problem &problem) {
  const SplitQuestion question = splitQuestion(plan, problem);
  return streamsKeys(plan, problem.target) ? streamedSplits(question) : numSplits(question);
}

/// Lets each sequence have its own number of splits where one for all may starve the longest.
static void chooseOwnSplits(Plan &plan, const Problem &problem, const PlanOverrides &overrides) {
  if (!isRagged(problem) || problem.batch < 2 || problem.batch > mostScheduled ||
      overrides.order.value_or(WorkOrder::varlenDynamic) != WorkOrder::varlenDynamic ||
      ceilDiv(keyTiles(plan, problem), plan.splits) <= leastShare)
    return;
  Plan own = plan;
  own.ownSplits = own.splitsAtLaunch = true;
  own.splits = plannedSplits(own, problem);
  own.reasons.splits =
      "sequences differ in length: each is split by its share of the work, which a "
      "kernel before finds";
  if (own.splits > 1)
    plan = own;
}

static std::optional<Refusal> chooseSplits(Plan &plan, const Problem &problem,
                                           const PlanOverrides &overrides) {
  plan.join =
      overrides.join.value_or(streamsKeys(plan, problem.target) ? joinOfFewRows : joinOfRows);
  if (auto sentence = whyNotJoin(plan.join))
    return Refusal{Refusal::invalid, *sentence};
  const int64_t asked = overrides.splits.value_or(problem.numSplits);
  if (asked != 0) {
    plan.splits = asked;
    plan.reasons.splits = byHand;
  } else if (plan.multicast) {
    plan.reasons.splits = "blocks that share keys take whole tiles";
  } else if (!sizesKnown(problem)) {
    plan.reasons.splits = "sizes are not known";
  } else {
    plan.splits = plannedSplits(plan, problem);
    plan.splitsAtLaunch = plan.splits > 1;
    plan.reasons.splits =
        plan.splits == 1 ? "tiles fill the SMs, or keys are too few to split"
        : streamsKeys(plan, problem.target)
            ? "reading keys takes all time: the fewest key tiles a block and wave"
        : fillsMachine(splitQuestion(plan, problem))
            ? "a head's keys and values outgrow the L2 cache, a part of them stays in it"
            : "tiles alone leave SMs idle";
    chooseOwnSplits(plan, problem, overrides);
  }
  return std::nullopt;
}

static void chooseOrder(Plan &plan, const Problem &problem, const PlanOverrides &overrides) {
  const bool split = plan.splits > 1, dense = plan.mask.kind == MaskKind::dense;
  const bool ragged =
      isRagged(problem) && (problem.packedQ || problem.target == Target::cpu || plan.ownSplits);
  const bool uneven = isRagged(problem) && !ragged;
  plan.order = ragged             ? WorkOrder::varlenDynamic
               : split            ? WorkOrder::single
               : dense && !uneven ? WorkOrder::fixed
                                  : WorkOrder::dynamic;
  plan.reasons.order = ragged   ? "sequences differ in length: the longest first"
                       : split  ? "splits even out the work, so that one tile a block will do"
                       : uneven ? "sequences differ in length, so that their tiles do"
                       : dense  ? "all tiles cost the same"
                                : "tiles differ: the longest first";
  // Several blocks share a multiprocessor there, and it starts them in the order of their numbers.
  if (!plan.roles && !split)
    plan.reasons.order += "; the hardware hands them out";
  if (overrides.order) {
    plan.order = *overrides.order;
    plan.reasons.order = overrides.why;
  }
  plan.persistent = overrides.persistent.value_or(plan.roles && plan.order != WorkOrder::single);
  plan.l2Section = overrides.l2Section.value_or(0);
  const bool roles = machineOf(problem.target).roles, gathers = plan.transfer == Transfer::gather;
  const bool isUneven = plan.order == WorkOrder::dynamic || plan.order == WorkOrder::varlenDynamic;
  plan.stealing = overrides.stealing.value_or(roles && !gathers && isUneven && plan.persistent);
  plan.reasons.stealing = overrides.stealing ? overrides.why
                          : plan.stealing    ? "tiles differ, so whoever is done takes the next"
                          : !roles           ? "without roles nobody takes tiles from a counter"
                          : gathers          ? "the threads that gather have none that takes tiles"
                          : isUneven         ? "a block has one tile"
                                             : "a static stride shares tiles evenly";
}

/// Why no tensor map describes where a tile of the output goes, or nothing.
static std::optional<std::string> whyNotStaged(const Plan &plan, const Problem &problem) {
  const Machine &machine = machineOf(problem.target);
  if (!machine.roles && problem.target != Target::cpu)
    return "the machine has no engine that copies tiles";
  if (plan.packGqa)
    return "a tile's rows are those of several heads";
  if (plan.splits > 1)
    return "parts of split keys are joined in f32";
  return std::nullopt;
}

/// Columns of a 128-byte panel of 16-bit elements.

static void chooseStaging(Plan &plan, const Problem &problem, const PlanOverrides &overrides) {
  plan.stagedColumns = 0;
  if (overrides.stagedColumns) {
    plan.stagedColumns = *overrides.stagedColumns;
    plan.reasons.staging = overrides.why;
    return;
  }
  const std::optional<std::string> why = problem.target == Target::cpu
                                             ? "a cpu has no engine that copies tiles"
                                             : whyNotStaged(plan, problem);
  if (why) {
    plan.reasons.staging = *why;
    return;
  }
  // All columns of a consumer, or as many panels as fit: those that wait for each other still
  // measured 2 % faster than stores from registers at 512 keys, and as fast at 8192.
  plan.reasons.staging = "the copy engine stores it beside the next tile";
  const int64_t all = outputColumns(tileOf(plan), {plan.headTile, plan.headTileV});
  for (plan.stagedColumns = all; plan.stagedColumns > 0;
       plan.stagedColumns = floorDiv(plan.stagedColumns - 1, panelColumns) * panelColumns)
    if (std::holds_alternative<BlockLayout>(
            layOut(ringsOf(plan, problem.element), machineOf(problem.target))))
      return;
  plan.reasons.staging = "keys and values leave no shared memory for it";
}

/// Bytes of all keys and values; their sizes must be known.
static int64_t keyBytes(const Problem &problem) {
  return problem.batch * problem.kvHeads * problem.lenK * (problem.headSize + problem.headSizeV) *
         elementBytes(problem.element);
}

/// Keys and values that one block reads, once, need not take the place of what others left in the
/// L2 cache, and what was written there need not leave for them.
static void chooseReadOnce(Plan &plan, const Problem &problem, const PlanOverrides &overrides) {
  if (overrides.readOnce) {
    plan.readOnce = *overrides.readOnce;
    plan.reasons.readOnce = overrides.why;
    return;
  }
  const int64_t readers = plan.packGqa ? 1 : groupOf(problem);
  plan.readOnce = streamsKeys(plan, problem.target) && plan.transfer == Transfer::tma &&
                  sizesKnown(problem) && readers == 1 && queryTiles(plan, problem) == 1 &&
                  keyBytes(problem) <= l2StreamBudget;
  plan.reasons.readOnce = "one block reads them, and no other";
}

/// What a CPU, which runs a GPU's plans, has no use for, as the end of a reason.
static std::string unusedOnCpu(const PlanOverrides &overrides) {
  std::string fields;
  for (auto [given, name] : {std::pair{overrides.consumerRegisters.has_value(), "registers"},
                             {overrides.transfer.has_value(), "transfer"},
                             {overrides.readOnce.has_value(), "read_once"}})
    if (given)
      fields += (fields.empty() ? "" : ", ") + std::string(name);
  return fields.empty() ? "" : "; of GPUs, and without effect on cpu: " + fields;
}

static std::variant<Plan, Refusal> planOf(const Problem &problem, const PlanOverrides &overrides) {
  if (auto sentence = whyNotProblem(problem))
    return Refusal{Refusal::invalid, *sentence};
  if (problem.element == ElementType::f8)
    return Refusal{Refusal::notBuilt, "f8e4m3 is not built; use f16 or bf16"};

  const Machine &machine = machineOf(problem.target);
  if (overrides.hasRoles && overrides.warps)
    return Refusal{Refusal::invalid,
                   "expected consumers or warps, the plan has both; leave one out"};
  if (overrides.hasRoles && !machine.roles && problem.target != Target::cpu)
    return Refusal{Refusal::invalid, std::string(machine.name) +
                                         " has no roles (consumers), all its warps copy and "
                                         "compute; set warps instead"};
  if (const bool roles = overrides.roles.value_or(false);
      !machine.roles && problem.target != Target::cpu &&
      (roles || overrides.exactCounts.value_or(false)))
    return Refusal{Refusal::invalid, std::string(machine.name) +
                                         " has no roles, all its warps copy and compute; leave " +
                                         (roles ? "roles" : "exact_counts") + " out"};
  if (!problem.backward && overrides.warps && machine.roles)
    return Refusal{Refusal::invalid, std::string(machine.name) +
                                         " has roles, its warps do not copy and compute in step; "
                                         "set consumers instead of warps"};
  if (!problem.backward && !machine.roles && problem.target != Target::cpu &&
      overrides.producerRegisters != overrides.consumerRegisters)
    return Refusal{Refusal::invalid, "expected registers of one number twice, all warps of " +
                                         std::string(machine.name) + " have the same; they are " +
                                         number(overrides.producerRegisters.value_or(0)) + " and " +
                                         number(overrides.consumerRegisters.value_or(0))};
  if (!problem.backward && overrides.ordered)
    return Refusal{Refusal::invalid,
                   "ordered is of gradients, attention sums nothing across blocks; leave it out"};
  const char *ofGradients = overrides.ownDv       ? "own_dv"
                            : overrides.alternate ? "alternate"
                            : overrides.lateV     ? "late_v"
                            : overrides.lateDp    ? "late_dp"
                                                  : nullptr;
  if (!problem.backward && ofGradients)
    return Refusal{Refusal::invalid, std::string(ofGradients) +
                                         " is of gradients, which multiply more, and other tiles; "
                                         "leave it out"};
  if (overrides.warps.value_or(0) % warpgroupWarps != 0)
    return Refusal{Refusal::invalid, "expected warps in multiples of " + number(warpgroupWarps) +
                                         ", there are " + number(*overrides.warps)};

  Plan plan;
  chooseMask(plan, problem);
  const HeadTile head = headTileOf(problem.target, problem.headSize, problem.headSizeV);
  plan.headTile = head.d;
  plan.headTileV = head.dv;
  if (problem.backward)
    return planBackward(std::move(plan), problem, overrides);
  const std::optional<TileRow> row =
      defaultTile(problem.target, head, plan.mask.kind,
                  overrides.tileM ? unlimited : rowsOf(problem, overrides), hasTables(problem),
                  problem.softcap);
  if (!row)
    return Refusal{Refusal::notBuilt, "kernels of head sizes " + number(head.d) + " and " +
                                          number(head.dv) + " are not built for " +
                                          std::string(targetName(problem.target)) + "; use " +
                                          std::string(targetName(Target::sm90)) + " or " +
                                          std::string(targetName(Target::cpu))};
  chooseTile(plan, problem, *row, overrides);
  if (plan.tileM < 1 || plan.tileN < 1) // packing and splits divide by them
    return Refusal{Refusal::invalid, *whyNot(plan, problem)};
  if (auto refusal = choosePacking(plan, problem, overrides))
    return *refusal;
  chooseTransfer(plan, problem, overrides);
  shareRegisters(plan, problem, overrides);
  if (auto refusal = chooseSplits(plan, problem, overrides))
    return *refusal;
  if (plan.splits > 1) // a part would redo the others' keys too
    plan.deferMax = overrides.deferMax.value_or(false);
  chooseOrder(plan, problem, overrides);
  chooseStaging(plan, problem, overrides);
  chooseReadOnce(plan, problem, overrides);

  if (auto sentence = whyNot(plan, problem))
    return Refusal{Refusal::invalid, *sentence};
  plan.threads = threadsOf(tileOf(plan), machine);
  if (problem.target != Target::cpu)
    plan.sharedBytes =
        std::get<BlockLayout>(layOut(ringsOf(plan, problem.element), machine)).sharedBytes;
  return plan;
}

std::variant<Plan, Refusal> makePlan(const Problem &problem, const PlanOverrides &overrides) {
  auto made = planOf(problem, overrides);
  auto *plan = std::get_if<Plan>(&made);
  if (!plan)
    return made;
  if (problem.target == Target::cpu)
    plan->reasons.tile += unusedOnCpu(overrides);
  else if (sizesKnown(problem) && !(problem.packedQ && problem.totalQ == unknown))
    if (auto sentence = whyNotTiles(*plan, problem))
      return Refusal{Refusal::invalid, *sentence};
  return made;
}

//===----------------------------------------------------------------------===//
// Checking
//===----------------------------------------------------------------------===//

static std::optional<std::string> whyNotOrder(const Plan &plan, const Problem &problem) {
  switch (plan.order) {
  case WorkOrder::single:
  case WorkOrder::fixed:
  case WorkOrder::dynamic:
    return std::nullopt;
  case WorkOrder::varlenDynamic:
    if (isRagged(problem))
      return std::nullopt;
    return "order varlen_dynamic needs packed sequences, the problem has none; use dynamic";
  case WorkOrder::backwardLpt:
  case WorkOrder::backwardSpt:
    return "order " + std::string(orderName(plan.order)) +
           " is the backward's, the problem is a forward; use dynamic";
  }
  __builtin_unreachable();
}

/// Two blocks that share K and V take tiles side by side, and each copies half of a block's rows.
static std::optional<std::string> whyNotMulticast(const Plan &plan, const Problem &problem) {
  if (plan.packGqa || plan.splits > 1)
    return "blocks that share keys (multicast) are not built for " +
           std::string(plan.packGqa ? "packed query heads" : "split keys") +
           "; leave multicast out";
  const Machine &machine = machineOf(problem.target);
  if (problem.target != Target::cpu && !machine.roles)
    return "blocks share keys (multicast) by a copy engine, " + std::string(machine.name) +
           " has none; leave multicast out";
  if (plan.order == WorkOrder::varlenDynamic)
    return "blocks that share keys (multicast) need tiles of one sequence side by side, order "
           "varlen_dynamic counts tiles through all; leave multicast out";
  if (!plan.persistent)
    return "blocks that share keys (multicast) take several tiles, order " +
           std::string(orderName(plan.order)) +
           (plan.order == WorkOrder::single
                ? " has one tile a block; use dynamic or static"
                : " is not persistent; leave persistent or multicast out");
  if (problem.target != Target::cpu && plan.transfer == Transfer::gather)
    return "blocks share keys (multicast) by the copy engine, transfer gather copies by threads; "
           "use tma";
  return std::nullopt;
}

static std::optional<std::string> whyNotStagedColumns(const Plan &plan, const Problem &problem) {
  if (auto why = whyNotStaged(plan, problem))
    return "storing via shared memory (staged_columns) takes a tensor map, " + *why +
           "; leave staged_columns out";
  const int64_t all = outputColumns(tileOf(plan), {plan.headTile, plan.headTileV});
  if (problem.target != Target::cpu && plan.stagedColumns != all &&
      (plan.stagedColumns > all || plan.stagedColumns % panelColumns))
    return "expected staged columns to be all " + number(all) + " of a consumer's output, or a " +
           "multiple of " + number(panelColumns) + " of them, they are " +
           number(plan.stagedColumns);
  return std::nullopt;
}

std::optional<std::string> whyNot(const Plan &plan, const Problem &problem) {
  const Machine &machine = machineOf(problem.target);
  const HeadTile head{plan.headTile, plan.headTileV};
  if (auto sentence = whyNotTile(tileOf(plan), head, problem.element, machine))
    return sentence;
  if (head.d < problem.headSize || head.dv < problem.headSizeV)
    return "plan holds head sizes up to " + number(head.d) + " and " + number(head.dv) +
           ", the problem's are " + number(problem.headSize) + " and " + number(problem.headSizeV) +
           "; use a wider head tile";
  if (plan.splits < 1 || plan.splits > maxSplitIndex)
    return "expected splits from 1 to " + number(maxSplitIndex) + ", there are " +
           number(plan.splits);
  const int64_t group = plan.packGqa ? groupOf(problem) : 1;
  if (group != unknown && plan.group != group)
    return "plan packs " + number(plan.group) + " query heads, the problem has " + number(group) +
           " a KV head";
  if (plan.l2Section < 0)
    return "expected an l2 section of at least 1, or 0 for the lengths' own, it is " +
           number(plan.l2Section);
  if (auto sentence = whyNotOrder(plan, problem))
    return sentence;
  if (!machine.roles && problem.target != Target::cpu && plan.transfer == Transfer::tma)
    return std::string(machine.name) + " has no tma; use transfer gather";
  if (problem.target != Target::cpu && plan.transfer == Transfer::tma)
    if (auto why = whyNoBoxes(plan, problem))
      return "transfer tma copies rows that follow each other, " + *why + "; use gather";
  if (problem.target != Target::cpu && !machine.roles && (plan.stealing || plan.pingPong))
    return std::string(machine.name) + " has no roles, " +
           (plan.stealing
                ? "and nobody who takes tiles from a counter (stealing); leave stealing out"
                : "whose consumers take turns (ping_pong); leave ping_pong out");
  if (plan.stealing && problem.target != Target::cpu && plan.transfer == Transfer::gather)
    return "tiles from a counter (stealing) need one thread that starts copies, transfer gather "
           "has many; use tma";
  if (plan.stealing && !plan.persistent)
    return "tiles from a counter (stealing) need blocks that take several, order " +
           std::string(orderName(plan.order)) +
           (plan.order == WorkOrder::single
                ? " has one tile a block; use dynamic or static"
                : " is not persistent; leave persistent or stealing out");
  if (plan.multicast)
    if (auto sentence = whyNotMulticast(plan, problem))
      return sentence;
  if (plan.readOnce && problem.target != Target::cpu && plan.transfer == Transfer::gather)
    return "keys and values that are read once (read_once) come by the copy engine, transfer "
           "gather copies by threads; leave read_once out";
  if (plan.readOnce && plan.multicast)
    return "blocks share keys and values (multicast), which read_once denies; leave one out";
  if (plan.stagedColumns)
    if (auto sentence = whyNotStagedColumns(plan, problem))
      return sentence;
  if (problem.target != Target::cpu) {
    auto layout = layOut(ringsOf(plan, problem.element), machine);
    if (auto *sentence = std::get_if<std::string>(&layout))
      return *sentence;
  }
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// A plan with run-time sizes
//===----------------------------------------------------------------------===//

WorkShape<int64_t> workShapeOf(const Plan &plan, const Problem &problem) {
  if (problem.backward)
    return backwardShapeOf(plan, problem);
  const int64_t heads = plan.packGqa ? problem.kvHeads : problem.heads;
  const int64_t pairs = heads * problem.batch;
  const int64_t section =
      plan.l2Section > 0
          ? plan.l2Section
          : keySection(problem.lenK, problem.headSize, problem.headSizeV,
                       elementBytes(problem.element), groupOf(problem), plan.packGqa, pairs);
  if (auto tiles = packedTiles(plan, problem); tiles && plan.order == WorkOrder::varlenDynamic)
    return {*tiles, heads, 1, splitsOf(plan, problem), section};
  return {queryTiles(plan, problem), heads,   problem.batch,
          splitsOf(plan, problem),   section, plan.multicast ? multicastBlocks : 1};
}

int64_t splitsOf(const Plan &plan, const Problem &problem) {
  return plan.splitsAtLaunch ? plannedSplits(plan, problem) : plan.splits;
}

int64_t gridOf(const Plan &plan, const Problem &problem) {
  WorkShape<int64_t> shape = workShapeOf(plan, problem);
  if (plan.ownSplits)
    shape.splits = 1;
  int64_t tiles = tilesOf(shape);
  const int64_t clusters = max(smsOf(problem) / shape.cluster, 1);
  if (plan.ownSplits) // the device alone knows how many; a share adds a tile at most
    tiles += sharesOfAnSm * smsOf(problem);
  return plan.persistent ? min(tiles, clusters * shape.cluster) : tiles;
}

std::optional<std::string> whyNotTiles(const Plan &plan, const Problem &problem) {
  if (problem.backward && problem.packedK) // how many rows of keys there are a launch knows
    return std::nullopt;
  const WorkShape<int64_t> shape = workShapeOf(plan, problem);
  // 32 bits hold an ordinal, and a block that walks asks for one behind the last. Sizes are of 31
  // bits each, their product may be past 64.
  const int64_t most = std::numeric_limits<int32_t>::max() - (plan.persistent ? smsOf(problem) : 0);
  const double mTiles = double(ceilDiv(shape.mTiles, shape.cluster) * shape.cluster);
  if (mTiles * double(shape.heads) * double(shape.batch) * double(shape.splits) <= double(most))
    return std::nullopt;
  return "expected at most " + number(most) +
         " tiles in one launch, the problem has more; "
         "split the batch";
}

} // namespace flash::schedule
