//===- Plan.h - from a problem to a plan ------------------------*- C++ -*-===//
//
// makePlan answers four questions in this order: how large is a tile, which mask is it really, are
// the keys split, in which order do tiles run. Every answer carries its reason. What a caller fixed
// by hand is kept and checked.
//
//===----------------------------------------------------------------------===//

#ifndef FLASH_SCHEDULE_PLAN_H
#define FLASH_SCHEDULE_PLAN_H

#include "flash/Schedule/BlockRange.h"
#include "flash/Schedule/Layout.h"
#include "flash/Schedule/Splits.h"
#include "flash/Schedule/Tile.h"
#include "flash/Schedule/WorkOrder.h"

namespace flash::schedule {

/// A size that is only known at run time.
inline constexpr int64_t unknown = -1;

struct Problem {
  Target target = Target::cpu;
  ElementType element = ElementType::f32;
  int64_t headSize = 0, headSizeV = 0;
  MaskRequest mask = {};
  bool softcap = false;
  bool sink = false; ///< a learnable logit per query head
  int64_t batch = unknown, heads = unknown, kvHeads = unknown;
  int64_t lenQ = unknown, lenK = unknown; ///< of the longest sequence, or a bound of it
  bool backward = false;                  ///< the gradients
  bool deterministic = false;             ///< the same bits every run; forwards always are
  int64_t numSplits = 0;                  ///< 0: the planner's choice
  std::optional<bool> packGqa = {};       ///< none: the planner's choice
  int64_t sms = 0;                        ///< 0: the machine table's; on the cpu, worker threads
  bool packedQ = false, packedK = false;  ///< sequences one after the other (cu_seqlens)
  int64_t totalQ = unknown;               ///< rows of packed q
  bool usedQ = false, usedK = false;      ///< lengths in use (seqused)
  std::optional<int64_t> pageSize = {};   ///< of paged keys; none: not paged
  bool batchIdx = false, leftpad = false; ///< chosen cache rows; rows before the keys
  bool append = false;                    ///< new rows are written behind those in use
  int64_t rotary = 0;                     ///< pairs of columns turned in q and new keys
  bool rotaryInterleaved = false;         ///< whether pairs are neighbours
  /// Query heads of a KV head where heads are unknown but their ratio is not; 0 asks heads.
  int64_t group = 0;
};

/// Whether tables say which rows are a sequence's.
inline bool hasTables(const Problem &p) {
  return p.packedQ || p.packedK || p.usedQ || p.usedK || p.pageSize || p.batchIdx || p.leftpad ||
         p.append;
}

/// Whether sequences differ in their lengths.
inline bool isRagged(const Problem &p) { return p.packedQ || p.packedK || p.usedQ || p.usedK; }

/// A split index must fit 16 bits (BlockRange.h).
inline constexpr int64_t maxSplitIndex = (1 << 16) - 1;

/// How K and V reach shared memory.
enum class Transfer { tma, gather };

std::string_view transferName(Transfer transfer);
std::optional<Transfer> parseTransfer(std::string_view name);

/// Why each decision fell as it did; one sentence fragment each.
struct Reasons {
  std::string mask, tile, roles, ownDv, packGqa, splits, order, ordered, stealing, transfer,
      staging, readOnce;
};

struct Plan {
  Mask mask;
  int64_t tileM = 0, tileN = 0;
  int64_t headTile = 0, headTileV = 0; ///< padded head sizes
  int64_t stages = 1;
  int64_t consumers = 1;
  SplitBy splitBy = SplitBy::rows;
  int64_t producerRegisters = 0, consumerRegisters = 0; ///< a thread; 0: no register roles
  bool pvFromRegisters = true, overlap = false;
  bool qInRegisters = false, earlyWait = false, pingPong = false;
  /// Backward: dV has a kernel of its own, as consumers hold only one of dK and dV.
  bool ownDv = false;
  /// Then Q and dO, as wide, take turns in two slots: Q of the next block comes where dO was.
  bool alternate = false;
  /// Backward: V follows the first block's queries; what needs dP stays behind the exponentials.
  bool lateV = false, lateDp = false;
  bool deferMax = false;  ///< unmasked blocks are measured against an older maximum
  bool multicast = false; ///< two blocks share keys and values, each fetches half for both
  bool packGqa = false;
  int64_t group = 1; ///< query heads that share a tile: 1 unless packed
  int64_t splits = 1;
  bool splitsAtLaunch = false; ///< keys are split, and each launch's sizes say into how many parts
  bool ownSplits = false;      ///< at most so many: each sequence has its own number, by a schedule
  WorkOrder order = WorkOrder::fixed;
  int64_t l2Section = 0; ///< (batch, head) pairs; 0: from the lengths at run time
  bool persistent = true;
  bool stealing = false; ///< tiles from an atomic counter instead of a static stride
  bool ordered = false;  ///< backward: tiles of dQ are summed in the order of the key tiles
  Transfer transfer = Transfer::tma;
  /// Columns of the output that a consumer stages in shared memory at once, for the copy engine to
  /// store beside the next tile; 0: stored from registers.
  int64_t stagedColumns = 0;
  Join join = joinOfRows;  ///< of split keys, on a GPU
  bool readOnce = false;   ///< the L2 cache gives up the lines of K and V before others
  bool roles = true;       ///< copies and products are programs of their own; else all warps do all
  int64_t sharedBytes = 0; ///< of a block, mbarriers included; 0 on the cpu
  int64_t threads = 1;     ///< of a block
  Reasons reasons;
};

/// What a caller fixed by hand, or a record advises.
struct PlanOverrides {
  std::optional<int64_t> tileM = {}, tileN = {}, stages = {}, consumers = {};
  bool hasRoles = false;             ///< `consumers` were named as roles, not as warps
  std::optional<int64_t> warps = {}; ///< that `consumers` were named as
  std::optional<SplitBy> splitBy = {};
  std::optional<int64_t> producerRegisters = {}, consumerRegisters = {};
  std::optional<bool> pvFromRegisters = {}, overlap = {}, ownDv = {}, alternate = {}, lateV = {},
                      lateDp = {};
  std::optional<bool> qInRegisters = {}, earlyWait = {}, pingPong = {};
  std::optional<bool> deferMax = {}, multicast = {};
  std::optional<Transfer> transfer = {};
  std::optional<bool> packGqa = {};
  std::optional<int64_t> splits = {};
  std::optional<WorkOrder> order = {};
  std::optional<int64_t> l2Section = {};
  std::optional<bool> persistent = {}, stealing = {}, ordered = {};
  std::optional<bool> roles = {}, exactCounts = {}; ///< passes, which need a machine with roles
  std::optional<int64_t> stagedColumns = {};
  std::optional<bool> readOnce = {};
  std::optional<Join> join = {};
  std::string why = "set by hand";
};

/// Why there is no plan. `notBuilt` is right input for which this build has no kernel.
struct Refusal {
  enum Kind { invalid, notBuilt } kind;
  std::string sentence;
};

/// The sentence for a problem that no target computes: head sizes, heads, mask, element type,
/// sizes.
std::optional<std::string> whyNotProblem(const Problem &problem);

/// The sentence for columns that no attention has, neither of keys nor of values; `owner` has them.
std::optional<std::string> whyNotHeadSize(std::string_view owner, int64_t size);

std::variant<Plan, Refusal> makePlan(const Problem &problem, const PlanOverrides &overrides = {});

/// The default tile of a plan's problem for any number of queries: plans name what differs from it.
inline std::optional<TileRow> anyRowsTile(const Problem &problem, const Plan &plan) {
  return defaultTile(problem.target, {plan.headTile, plan.headTileV}, plan.mask.kind, unlimited,
                     hasTables(problem), problem.softcap);
}

/// makePlan for gradients, from a plan that has its mask and head tile.
std::variant<Plan, Refusal> planBackward(Plan plan, const Problem &problem,
                                         const PlanOverrides &overrides);
/// Its tiles at run time: those of keys, of KV heads. All sizes must be known.
WorkShape<int64_t> backwardShapeOf(const Plan &plan, const Problem &problem);

/// Whether consumers keep the statistics of a block's queries beside S and dP, dK and dV.
bool keepsStatistics(int64_t tileM, int64_t headTile, int64_t headTileV, int64_t registers);

/// Without roles: whether warps have parts of the rows of P, which products need whole.
bool sharesKeys(int64_t warps, int64_t tileN, SplitBy by);

/// Columns of the pieces of dQ that are multiplied and added one after the other: all of a wide one
/// would fill the registers beside dK and dV of `warps` in step, or (0) beside a consumer's dK.
std::vector<int64_t> piecesOfDq(int64_t headTile, int64_t warps, bool ownDv);

/// Slots of Q and of dO in the kernel of dV, which has no V; and those in which they alternate.
inline constexpr int64_t stagesOfDv = 2, alternatingSlots = 2;

/// Rows that the kernels beside the main one take at once on a GPU, of a tile's.
int64_t sideRows(int64_t tileM, int64_t columns);

/// What the kernels of gradients write for each other, of 4-byte elements, by the kernels' names.
struct Part {
  std::string_view name;
  std::vector<int64_t> sizes;
  bool headsFirst = false; ///< in memory all rows of a head follow one another
};
/// Of a workspace, what `elements` take: parts lie one behind the other, each at such a multiple.
inline constexpr int64_t workspaceAlign = 16;
inline int64_t workspaceBytes(int64_t elements, int64_t elementBytes) {
  return ceilDiv(elements * elementBytes, workspaceAlign) * workspaceAlign;
}
/// Tiles of queries of all sequences.
int64_t backwardQueryTiles(const Plan &plan, const Problem &problem);
/// All sizes must be known, and the rows of packed queries.
std::vector<Part> backwardParts(const Plan &plan, const Problem &problem);

/// A kernel of gradients, by its op's name; on the cpu, tiles that workers share.
struct BackwardKernel {
  std::string_view op;
  int64_t blocks, threads;
};
/// In the order of their launches. All sizes must be known, or blocks are not; packed keys have
/// another number of blocks.
std::vector<BackwardKernel> backwardKernels(const Plan &plan, const Problem &problem);

/// Whether tiles of keys are walked from the last to the first, so that dQ is summed in that order.
bool descends(WorkOrder order);

/// The sentence for a plan the machine cannot run or that does not fit the problem.
std::optional<std::string> whyNot(const Plan &plan, const Problem &problem);

/// The shared tiles a plan needs on a GPU: q, k, v, the tiles taken where they come from a counter,
/// keys that are redone, and the output where it is staged.
std::vector<RingNeed> ringsOf(const Plan &plan, ElementType element);

/// Whether tiles have so few rows that reading keys and values takes all time, each by a block that
/// fills a multiprocessor.
bool streamsKeys(const Plan &plan, Target target);

/// The plan's tile as the tile table would hold it.
Tile tileOf(const Plan &plan);

//===----------------------------------------------------------------------===//
// A plan with run-time sizes
//===----------------------------------------------------------------------===//

/// All sizes must be known. `section` is the plan's, or from the lengths.
WorkShape<int64_t> workShapeOf(const Plan &plan, const Problem &problem);

/// Parts of the keys for sizes that are all known.
int64_t splitsOf(const Plan &plan, const Problem &problem);

/// Blocks to launch: every tile, or at most one block an SM where persistent; whole clusters.
int64_t gridOf(const Plan &plan, const Problem &problem);

/// The sentence for more tiles than a GPU's blocks can count. All sizes must be known.
std::optional<std::string> whyNotTiles(const Plan &plan, const Problem &problem);

/// True when every size that planning can use is known.
bool sizesKnown(const Problem &problem);

/// problem.sms, or the machine table's.
int64_t smsOf(const Problem &problem);

/// Query heads of a KV head, or `unknown`.
int64_t groupOf(const Problem &problem);

} // namespace flash::schedule

#endif // FLASH_SCHEDULE_PLAN_H
