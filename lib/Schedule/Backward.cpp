//===- Backward.cpp - the planner of gradients ----------------------------===//
//
// A block owns a tile of keys of a KV head and walks the query tiles that see them, of all query
// heads that read it: dK and dV stay in registers, dQ is added up in global memory.
//
//===----------------------------------------------------------------------===//

#include "flash/Schedule/Layout.h"
#include "flash/Schedule/Plan.h"
#include "flash/Schedule/Splits.h"
#include <algorithm>
#include <numeric>

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
static const char *forwardsOwn(const PlanOverrides &o, bool hasWarps) {
  return o.splitBy && !hasWarps           ? "split_by"
         : o.warps && !hasWarps           ? "warps"
         : o.packGqa.value_or(false)      ? "pack_gqa"
         : o.splits.value_or(1) != 1      ? "splits"
         : o.qInRegisters.value_or(false) ? "q_in_regs"
         : o.earlyWait.value_or(false)    ? "early_wait"
         : o.pingPong.value_or(false)     ? "ping_pong"
         : o.deferMax.value_or(false)     ? "defer_max"
         : o.multicast.value_or(false)    ? "multicast"
         : o.stealing.value_or(false)     ? "stealing"
         : o.readOnce.value_or(false)     ? "read_once"
         : o.join                         ? "join"
                                          : nullptr;
}

/// A tile, and how its warps divide it.
struct WarpTile : BackwardTile {
  SplitBy splitBy;
};

/// Where sm_80's kernels start from: dK and dV stay in registers, K, V, Q, dO and dS in shared
/// memory, in panels of 64 columns. Two warps that share 16 keys have half of the columns of dK and
/// dV each, and of P and dS, which meet in shared memory.
static WarpTile sm80Tile(Target target, int64_t headSize, bool ordered, bool softcap) {
  const bool small =
      machineOf(target).sharedBytesPerBlock < machineOf(Target::sm80).sharedBytesPerBlock;
  const bool wide = target == Target::sm80 && headSize != 96;
  // Warps of 32 rows, where they have registers for their parts of dK, dV and the scores.
  const SplitBy columns =
      wide || (headSize <= 64 && !machineOf(target).roles) ? SplitBy::columns : SplitBy::rows;
  const bool roomy = wide && !softcap && !ordered; // scores before a cap, and turns, take registers
  if (headSize <= 64 && !(softcap && machineOf(target).roles)) // which spills there
    return {{wide && !softcap ? 128 : 64, 128, 2, roomy ? 2 : 1, 1, true,
             "dK and dV of 128 keys fit 8 warps' registers"},
            columns};
  if (headSize <= 128 && wide && !ordered)
    return {{64, 128, 2, roomy ? 2 : 1, 1, true, "dK and dV fill the registers of 8 warps"},
            columns};
  if (headSize <= 128)
    return {{64, 64, 2, 1, 1, true, "two warps share 16 keys, or the masked runs spill"}, columns};
  if (roomy)
    return {{64, 64, 2, 1, 1, true, "parts of dQ fit beside dK and dV"}, columns};
  if (headSize <= 192 || !small)
    return {{32, 64, 2, 1, 1, true, "with more queries dQ fills the registers beside dK and dV"},
            SplitBy::rows};
  return {{32, 32, 1, 1, 1, true, "the shared memory of sm_86"}, SplitBy::rows};
}

/// Without roles: the warps of a block.
static int64_t warpsOf(const Plan &plan) { return plan.consumers * warpgroupWarps; }

bool sharesKeys(int64_t warps, int64_t tileN, SplitBy by) { return warps * leastRows(by) > tileN; }

/// What the main kernel, or that of dV alone, keeps in shared memory, by the names of its rings.
static std::vector<RingNeed> backwardRings(const Plan &plan, ElementType element,
                                           bool ofDv = false) {
  const bool barriers = plan.roles;
  auto ring = [&](const char *name, int64_t rows, int64_t columns, int64_t stages) {
    return RingNeed{.name = name,
                    .bytes = tileBytes(rows, columns, elementBytes(element)),
                    .stages = stages,
                    .barriers = barriers};
  };
  const int64_t stages = ofDv ? stagesOfDv : plan.alternate ? alternatingSlots : plan.stages;
  auto row = [&](const char *name) {
    return RingNeed{.name = name,
                    .bytes = rowBytes(plan.tileM),
                    .align = rowBytes(1),
                    .stages = stages,
                    .barriers = false}; // Q's and dO's
  };
  std::vector<RingNeed> rings = {ring("k", plan.tileN, plan.headTile, 1),
                                 ring("q", plan.tileM, plan.headTile, stages), row("lse")};
  if (ofDv || !plan.alternate)
    rings.push_back(ring("do", plan.tileM, plan.headTileV, stages));
  if (ofDv)
    return rings;
  if (!plan.alternate)
    rings.push_back(row("delta"));
  rings.push_back(ring("v", plan.tileN, plan.headTileV, 1));
  rings.push_back(ring("ds", plan.tileN, plan.tileM, plan.overlap ? 2 : 1));
  if (!plan.roles && sharesKeys(warpsOf(plan), plan.tileN, plan.splitBy))
    rings.push_back(ring("p", plan.tileN, plan.tileM, 1));
  if (plan.stagedColumns)
    rings.push_back(
        {.name = "dq",
         .bytes = tileBytes(plan.tileM * plan.headTile / plan.consumers / plan.stagedColumns,
                            plan.stagedColumns, sizeof(float)),
         .stages = plan.consumers});
  return rings;
}

/// Warps take 16 or 32 rows each, or share them by blocks of 16 columns, whose number is put
/// together of bits.
static bool dividesAmong(const Plan &plan, int64_t rows, int64_t columns) {
  const int64_t warps = warpsOf(plan), most = 4,
                sharing = warps / std::gcd(warps, rows / leastRows(plan.splitBy));
  return sharing <= most && columns % (warpRows * sharing) == 0;
}

static std::optional<std::string> whyNotOnSm80(const Plan &plan, const Problem &problem) {
  auto isOneOf = [](int64_t value, std::initializer_list<int64_t> them) {
    return std::find(them.begin(), them.end(), value) != them.end();
  };
  if (!isOneOf(plan.tileM, {32, 64, 128}) || !isOneOf(plan.tileN, {32, 64, 128}))
    return "expected a tile of 32, 64 or 128 queries and of 32, 64 or 128 keys, it has " +
           std::to_string(plan.tileM) + " and " + std::to_string(plan.tileN);
  const int64_t warps = warpsOf(plan), narrow = min(plan.headTile, plan.headTileV);
  if (!isOneOf(warps, {4, 8}) || !dividesAmong(plan, plan.tileN, min(plan.tileM, narrow)) ||
      !dividesAmong(plan, plan.tileM, piecesOfDq(plan.headTile, warps, /*ownDv=*/false).front()))
    return "expected 4 or 8 warps that divide tiles by 16 rows and columns, there are " +
           std::to_string(warps) + " for " + std::to_string(plan.tileM) + " queries and " +
           std::to_string(plan.tileN) + " keys; set warps or the tile";
  if (plan.stages < 1)
    return "expected stages of at least 1, it is " + std::to_string(plan.stages);
  auto layout = layOut(backwardRings(plan, problem.element), machineOf(problem.target));
  if (auto *sentence = std::get_if<std::string>(&layout))
    return *sentence;
  return std::nullopt;
}

/// What a consumer multiplies at once: its keys, and its queries or columns of dQ.
static constexpr int64_t productRows = warpRows * warpgroupWarps;

/// All that a block of two consumers can have: their fragments alone are 192.
static constexpr RoleRegisters roleRegisters{2, 24, 240};

/// Columns of a product.
static constexpr int64_t productCols = 8;

/// Of the columns of dQ, dK and dV that consumers hold at most.
static constexpr int64_t widestOfRoles = 128;

/// Columns of dQ that a consumer sums: all, of its own queries, or its part of them.
static int64_t summedColumns(const Plan &plan) {
  return plan.tileM % (productRows * plan.consumers) ? plan.headTile / plan.consumers
                                                     : plan.headTile;
}

static std::optional<std::string> whyNotOnSm90(const Plan &plan, const Problem &problem) {
  const int64_t keys = productRows * plan.consumers, queries = productRows * plan.consumers;
  if (plan.tileN != keys)
    return "expected " + std::to_string(productRows) + " keys for each of " +
           std::to_string(plan.consumers) + " consumers, the tile has " +
           std::to_string(plan.tileN);
  // By columns whole panels, or of a piece what a product may be wide.
  const std::vector<int64_t> pieces = piecesOfDq(plan.headTile, 0, plan.ownDv);
  const int64_t columns = plan.ownDv ? productCols * plan.consumers : keys;
  auto divides = [&](int64_t piece) { return piece % columns == 0; };
  if (plan.tileM != queries &&
      (plan.tileM != productRows || !std::all_of(pieces.begin(), pieces.end(), divides)))
    return "expected consumers to divide dQ in parts of " + std::to_string(productRows) +
           " queries or columns, " + std::to_string(plan.consumers) + " have " +
           std::to_string(plan.tileM) + " by " + std::to_string(plan.headTile);
  if (plan.ownDv && plan.stagedColumns)
    return "expected staged_columns of 0 where dV has a kernel of its own, it is " +
           std::to_string(plan.stagedColumns);
  if (plan.stagedColumns != 0 && plan.stagedColumns != summedColumns(plan))
    return "expected staged_columns of 0 or the " + std::to_string(summedColumns(plan)) +
           " columns of dQ that a consumer sums, it is " + std::to_string(plan.stagedColumns);
  if (plan.ordered && plan.consumers >= warpgroupWarps)
    return "expected a warp of the producer's for each consumer's turns, there are " +
           std::to_string(plan.consumers) + " consumers; leave ordered out";
  // A thread has half of a row of products: dK, dV, P, dP, and capped scores.
  const int64_t sums =
      plan.ownDv ? max(plan.headTile, plan.headTileV) : plan.headTile + plan.headTileV;
  const int64_t held = (sums + (problem.softcap ? 3 : 2) * plan.tileM) / 2;
  if (held > plan.consumerRegisters)
    return "a consumer holds fragments of " + std::to_string(held) +
           " registers a thread, it has " + std::to_string(plan.consumerRegisters) +
           "; use a smaller tile or more registers";
  for (bool ofDv : {false, plan.ownDv}) {
    auto layout = layOut(backwardRings(plan, problem.element, ofDv), machineOf(problem.target));
    if (auto *sentence = std::get_if<std::string>(&layout))
      return *sentence;
  }
  return std::nullopt;
}

static void chooseTile(Plan &plan, const Problem &problem, const PlanOverrides &overrides) {
  const int64_t wide = max(plan.headTile, plan.headTileV);
  const bool halves = problem.target != Target::cpu && plan.roles && // what fits the registers
                      wide > widestOfRoles;
  plan.ownDv = overrides.ownDv.value_or(halves);
  plan.reasons.ownDv =
      overrides.ownDv ? overrides.why
      : halves ? "consumers hold both dK and dV up to " + std::to_string(widestOfRoles) + " columns"
               : "consumers hold both dK and dV";
  plan.alternate = overrides.alternate.value_or(false);
  plan.lateV = overrides.lateV.value_or(false), plan.lateDp = overrides.lateDp.value_or(false);
  WarpTile tile{{cpuTile, cpuTile, 0, 1, 1, true, "a tile's operands stay in a core's caches"},
                SplitBy::rows};
  const bool consumers = problem.target != Target::cpu && plan.roles;
  if (problem.target != Target::cpu && !plan.roles)
    tile = sm80Tile(problem.target, wide, plan.ordered, problem.softcap);
  else if (halves)
    tile = {{productRows, productRows * roleRegisters.consumers, roleRegisters.consumers, 2, 1,
             true, "two warpgroups of keys"},
            SplitBy::rows};
  else if (problem.target != Target::cpu)
    tile = {referenceTileBackward(problem.target, wide, plan.mask.kind == MaskKind::causal,
                                  plan.mask.kind == MaskKind::local, problem.softcap),
            SplitBy::rows};
  if (consumers) // whole products of dQ
    tile.tileM = max(tile.tileM / productRows, 1) * productRows;
  plan.tileM = overrides.tileM.value_or(tile.tileM);
  plan.tileN = overrides.tileN.value_or(tile.tileN);
  plan.stages = overrides.stages.value_or(max(tile.stagesQ, 1));
  const bool perRows = !plan.roles && overrides.tileN; // 16 keys a warp
  plan.consumers =
      overrides.consumers.value_or(max(perRows ? plan.tileN / productRows : tile.consumers, 1));
  // What a tile's warps do well is known of that tile alone.
  const bool other = plan.tileM != tile.tileM || plan.tileN != tile.tileN ||
                     plan.consumers != max(tile.consumers, 1);
  plan.splitBy = overrides.splitBy.value_or(other ? SplitBy::rows : tile.splitBy);
  plan.stagedColumns = overrides.stagedColumns.value_or(0);
  plan.reasons.staging = overrides.stagedColumns ? overrides.why : "";
  plan.overlap = overrides.overlap.value_or(false);
  if (consumers) {
    auto isTooLarge = [&] {
      return std::holds_alternative<std::string>(
          layOut(backwardRings(plan, problem.element), machineOf(problem.target)));
    };
    if (halves && !overrides.stages && (plan.alternate || isTooLarge()))
      plan.stages = 1;
    plan.alternate = overrides.alternate.value_or(plan.ownDv && plan.stages == 1 &&
                                                  plan.headTile == plan.headTileV);
    plan.overlap = overrides.overlap.value_or(true);
    // Measured: +2 % at head size 128, +1 % at 64 where blocks differ, -1 % else.
    const bool stages = plan.headTile > 64 || plan.mask.kind != MaskKind::dense;
    if (!overrides.stagedColumns && stages && !plan.ordered && !plan.ownDv) {
      plan.stagedColumns = summedColumns(plan);
      plan.reasons.staging = "the copy engine adds dQ while its consumer goes on";
    }
    // A producer that looks rows up spills with fewer; consumers do in 64 columns, and have no
    // room for capped scores, with fewer.
    const RoleRegisters registers = hasTables(problem) && wide > 64 && !problem.softcap
                                        ? *roleRegistersOf(roleRegisters.consumers)
                                        : roleRegisters;
    plan.producerRegisters = overrides.producerRegisters.value_or(registers.producer);
    plan.consumerRegisters = overrides.consumerRegisters.value_or(registers.consumer);
    if (!overrides.stagedColumns && isTooLarge())
      plan.stagedColumns = 0, plan.reasons.staging = {};
    if (!overrides.overlap && isTooLarge())
      plan.overlap = false;
    // Measured at 512 to 16384 queries: both +0.6 to +2 % at head size 64 causal. Else they cost as
    // much as they give, up to 3 %, by how ptxas orders what is around them.
    const bool late = plan.mask.kind != MaskKind::dense && wide <= 64;
    plan.lateV = overrides.lateV.value_or(late);
    plan.lateDp = overrides.lateDp.value_or(late);
  }
  plan.stealing = false;
  plan.reasons.tile = overrides.tileM || overrides.tileN || overrides.stages || overrides.consumers
                          ? overrides.why
                          : std::string(tile.reason);
  if (other && !overrides.splitBy && tile.splitBy != SplitBy::rows)
    plan.reasons.tile += "; split by rows, as " + std::string(splitByName(tile.splitBy)) +
                         " are of the default tile; split_by says otherwise";
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
               : causal || plan.ordered ? WorkOrder::backwardLpt
                                        : WorkOrder::single;
  plan.reasons.order =
      problem.packedK ? "sequences differ in length: each has as many tiles as its keys fill"
      : causal && plan.ordered ? "the last keys first: their queries are the first to be done"
      : causal                 ? "tiles differ: the longest first"
      : plan.ordered           ? "few tiles of a head at once, for each waits for those before it"
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
  const bool hasWarps = !plan.roles && problem.target != Target::cpu;
  if (const char *field = forwardsOwn(overrides, hasWarps))
    return std::string("a plan of gradients has no ") + field + "; leave it out";
  if (problem.pageSize || problem.batchIdx || problem.leftpad || problem.append)
    return "expected keys of their own for gradients, they are a cache's";
  const char *beside = plan.overlap         ? "overlap"
                       : plan.stagedColumns ? "staged_columns"
                       : plan.alternate     ? "alternate"
                       : plan.lateV         ? "late_v"
                       : plan.lateDp        ? "late_dp"
                                            : nullptr;
  if (hasWarps && beside)
    return std::string(beside) +
           " needs products and copies beside other work, warps in step have none; leave it out";
  if (hasWarps && overrides.consumerRegisters)
    return "registers are shared out among roles, warps in step have none; leave registers out";
  if (hasWarps && overrides.exactCounts.value_or(false))
    return "exact_counts are of consumers, warps in step have all keys of a tile; leave it out";
  if (hasWarps && plan.ownDv)
    return "own_dv is for consumers, which hold both dK and dV up to head size " +
           std::to_string(widestOfRoles) + "; leave it out";
  if (hasWarps && overrides.transfer == Transfer::tma)
    return "transfer tma needs a producer, warps in step copy by themselves; use gather";
  if (plan.roles && problem.target != Target::cpu && !overrides.roles.value_or(true))
    return "roles = false leaves consumers without a producer that copies; set warps instead";
  if (auto sentence = problem.target == Target::cpu
                          ? whyNotTile(tileOf(plan), {plan.headTile, plan.headTileV},
                                       problem.element, machineOf(problem.target))
                      : plan.roles ? whyNotOnSm90(plan, problem)
                                   : whyNotOnSm80(plan, problem))
    return sentence;
  if (plan.alternate && (!plan.ownDv || plan.headTile != plan.headTileV || plan.stages > 1))
    return std::string("alternate is for own_dv, one stage and head sizes that are alike, there ") +
           (plan.ownDv ? "are " : "is no own_dv, and ") + std::to_string(plan.stages) + " and " +
           std::to_string(plan.headTile) + ", " + std::to_string(plan.headTileV) +
           "; leave alternate out";
  if (problem.deterministic && !plan.ordered)
    return "deterministic gradients sum dQ in an order, the plan says ordered = false; leave it "
           "out";
  if (plan.order == WorkOrder::varlenDynamic && !problem.packedK)
    return "order varlen_dynamic needs packed keys, the problem has none; use backward_lpt";
  if (plan.order != WorkOrder::varlenDynamic && problem.packedK && problem.target != Target::cpu)
    return "order " + std::string(orderName(plan.order)) +
           " is of sequences of one length, the keys are packed; use varlen_dynamic";
  if (plan.order == WorkOrder::dynamic || plan.order == WorkOrder::fixed)
    return "order " + std::string(orderName(plan.order)) +
           " is the forward's, the problem is a backward; use backward_lpt";
  return std::nullopt;
}

std::variant<Plan, Refusal> planBackward(Plan plan, const Problem &problem,
                                         const PlanOverrides &overrides) {
  chooseOrder(plan, problem, overrides);
  const int64_t wide = max(plan.headTile, plan.headTileV), widest = 256;
  if (problem.target != Target::cpu)
    plan.roles = machineOf(problem.target).roles && !overrides.warps &&
                 overrides.transfer != Transfer::gather; // consumers are filled by tma
  chooseTile(plan, problem, overrides);
  const bool asksForRoles =
      overrides.hasRoles || overrides.ownDv.value_or(false) || overrides.overlap.value_or(false) ||
      overrides.alternate.value_or(false) || overrides.stagedColumns.value_or(0) ||
      overrides.transfer == Transfer::tma;
  if (problem.target != Target::cpu && plan.roles && !asksForRoles) {
    // What consumers cannot do warps in step can.
    if (auto why = whyNotOnSm90(plan, problem)) {
      plan.roles = false;
      chooseTile(plan, problem, overrides);
      plan.reasons.roles = "not a producer and consumers: " + *why;
    }
  }
  plan.reasons.packGqa = "a tile of keys walks the query heads of its KV head one by one";
  plan.reasons.splits = "queries are not split";
  plan.reasons.stealing = "the hardware hands out tiles";
  if (problem.target != Target::cpu && wide > widest)
    return Refusal{Refusal::notBuilt, "gradients of head sizes above " + std::to_string(widest) +
                                          " are not built for " +
                                          std::string(targetName(problem.target)) + "; use " +
                                          std::string(targetName(Target::cpu))};
  if (auto sentence = whyNotBackward(plan, problem, overrides))
    return Refusal{Refusal::invalid, *sentence};
  if (problem.target != Target::cpu) {
    plan.threads = (plan.consumers + plan.roles) * warpgroupWarps * warpThreads;
    auto layout = layOut(backwardRings(plan, problem.element), machineOf(problem.target));
    plan.sharedBytes = std::get<BlockLayout>(layout).sharedBytes;
  }
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

bool keepsStatistics(int64_t tileM, int64_t headTile, int64_t headTileV, int64_t registers) {
  const int64_t addresses = 24, perQuery = 4; // of whose threads each has two queries of eight
  return (headTile + headTileV + 2 * tileM) / 2 + tileM / perQuery + addresses <= registers;
}

std::vector<int64_t> piecesOfDq(int64_t headTile, int64_t warps, bool ownDv) {
  const int64_t widest = 192, ofAWarp = 16, panels = panelColumns * roleRegisters.consumers;
  std::vector<int64_t> pieces;
  for (int64_t left = headTile; left > 0; left -= pieces.back())
    if (ownDv) // a panel of each consumer, or a part of a panel
      pieces.push_back(left >= panels ? panels : min(left, panelColumns));
    else
      pieces.push_back(warps && headTile > widest ? min(left, warps * ofAWarp) : left);
  return pieces;
}

int64_t sideRows(int64_t tileM, int64_t columns) {
  const int64_t threads = 256; // of a block, each with combineColumns
  int64_t rows = tileM;
  while (rows > 1 && (tileM % rows || rows * ceilDiv(columns, combineColumns) > threads))
    --rows;
  return rows;
}

int64_t backwardQueryTiles(const Plan &plan, const Problem &problem) {
  return problem.packedQ ? packedStart(problem.totalQ, problem.batch, 1, plan.tileM)
                         : ceilDiv(problem.lenQ, plan.tileM) * problem.batch;
}

std::vector<Part> backwardParts(const Plan &plan, const Problem &problem) {
  // Whole tiles of queries; sequences begin with one (packedStart).
  const int64_t batch = problem.packedQ ? 1 : problem.batch;
  const int64_t tiles = backwardQueryTiles(plan, problem),
                rows = tiles / max(batch, 1) * plan.tileM;
  using Sizes = std::vector<int64_t>;
  const Sizes sum = {rows, problem.heads, problem.headSize}, statistic = {problem.heads, rows};
  auto of = [&](Sizes sizes) {
    if (!problem.packedQ)
      sizes.insert(sizes.begin(), problem.batch);
    return sizes;
  };
  std::vector<Part> parts = {{"dq_sum", of(sum), /*headsFirst=*/true},
                             {"lse_log2", of(statistic)},
                             {"delta", of(statistic)}};
  if (plan.ordered) // one of each consumer, or part
    parts.push_back(
        {"turns",
         {tiles * problem.heads * (plan.roles ? plan.consumers : 1) *
          int64_t(piecesOfDq(plan.headTile, plan.roles ? 0 : warpsOf(plan), plan.ownDv).size())}});
  return parts;
}

std::vector<BackwardKernel> backwardKernels(const Plan &plan, const Problem &problem) {
  const int64_t wide = max(plan.headTile, plan.headTileV),
                queries = backwardQueryTiles(plan, problem) * problem.heads,
                rows = sideRows(plan.tileM, wide);
  auto side = [&](int64_t rows, int64_t columns) {
    return problem.target == Target::cpu ? 1 : dealtThreads(rows, columns);
  };
  std::vector<BackwardKernel> kernels = {{"attention_backward_prepare", queries, side(rows, wide)}};
  if (plan.ownDv)
    kernels.push_back({"attention_backward_dv", gridOf(plan, problem), plan.threads});
  kernels.push_back({"attention_backward", gridOf(plan, problem), plan.threads});
  kernels.push_back({"attention_backward_finish", queries, side(rows, plan.headTile)});
  if (problem.sink)
    kernels.push_back({"attention_backward_sink", problem.heads, side(plan.tileM, 1)});
  return kernels;
}

} // namespace flash::schedule
