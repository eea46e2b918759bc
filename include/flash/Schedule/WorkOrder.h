//===- WorkOrder.h - in which order tiles run -------------------*- C++ -*-===//
//
// An order is a bijection from the ordinals 0 .. tiles-1 to (m tile, head, batch, split). Who takes
// which ordinal (a grid index, a static stride, an atomic counter) is the launcher's business.
// Ordinals from tiles on are no work.
//
//===----------------------------------------------------------------------===//

#ifndef FLASH_SCHEDULE_WORKORDER_H
#define FLASH_SCHEDULE_WORKORDER_H

#include "flash/Schedule/BlockRange.h"
#include "flash/Schedule/Machine.h"

#include <optional>
#include <string_view>

namespace flash::schedule {

enum class WorkOrder {
  single,        ///< one tile a block, from the block index; natural order
  fixed,         ///< natural order, persistent; printed "static"
  dynamic,       ///< longest first inside L2 sections
  varlenDynamic, ///< the same per sequence, found through the ends of packed sequences
  backwardLpt,   ///< key tiles ascending inside L2 sections: under causal the longest first
  backwardSpt    ///< key tiles descending: the order a deterministic dQ is summed in
};

// Tiles from a counter (stealing): one role of a block takes the ordinal of the block's next tile
// and hands it on to the others through a ring.
inline constexpr int64_t workStages = 2, ordinalBytes = 4;
/// Counters of a module; launches that run at once use different ones. A launch that gets none
/// passes this number: its blocks walk with a static stride.
inline constexpr int64_t workCounters = 1024;
inline constexpr char countersName[] = "flash_counters"; ///< in the module

inline constexpr WorkOrder allWorkOrders[] = {WorkOrder::single,      WorkOrder::fixed,
                                              WorkOrder::dynamic,     WorkOrder::varlenDynamic,
                                              WorkOrder::backwardLpt, WorkOrder::backwardSpt};

/// "single", "static", "dynamic", "varlen_dynamic", "backward_lpt", "backward_spt".
std::string_view orderName(WorkOrder order);
std::optional<WorkOrder> parseOrder(std::string_view name);

/// Blocks of a cluster that fetch each other's keys and values (multicast).
inline constexpr int64_t multicastBlocks = 2;

/// The box of tiles. `heads` are KV heads when queries are packed. `section` counts the (batch,
/// head) pairs that share the L2 cache; natural orders ignore it. `cluster` m tiles that follow
/// each other stay together in every order; the last may lie past the end.
template <class I> struct WorkShape {
  I mTiles, heads, batch, splits, section;
  int64_t cluster = 1;
};

/// Whole clusters.
template <class I> I tilesOf(const WorkShape<I> &shape) {
  I mTiles = shape.mTiles;
  if (shape.cluster > 1)
    mTiles = ceilDiv(mTiles, shape.cluster) * shape.cluster;
  return mTiles * shape.heads * shape.batch * shape.splits;
}

template <class I> struct Work {
  I m, head, batch, split;
};

/// The tile of ordinal t, 0 <= t < tilesOf(shape). Closed form, so not for varlenDynamic, which
/// needs the tables of its sequences (packedWorkAt) and is answered as `dynamic` would be: that is
/// what it is where all sequences are equal. Of clusters, t counts their tiles one by one.
template <class I> Work<I> workAt(WorkOrder order, I t, const WorkShape<I> &shape) {
  if (shape.cluster > 1) {
    Work<I> work = workAt(order, floorDiv(t, shape.cluster),
                          WorkShape<I>{ceilDiv(shape.mTiles, shape.cluster), shape.heads,
                                       shape.batch, shape.splits, shape.section});
    work.m = work.m * shape.cluster + remainder(t, shape.cluster);
    return work;
  }
  switch (order) {
  case WorkOrder::single:
  case WorkOrder::fixed: {
    I column = floorDiv(t, shape.mTiles), head = floorDiv(column, shape.splits);
    return {remainder(t, shape.mTiles), remainder(head, shape.heads), floorDiv(head, shape.heads),
            remainder(column, shape.splits)};
  }
  case WorkOrder::dynamic:
  case WorkOrder::varlenDynamic:
  case WorkOrder::backwardLpt:
  case WorkOrder::backwardSpt:
    break;
  }
  I perPair = shape.mTiles * shape.splits;
  I perSection = shape.section * perPair;
  I firstPair = floorDiv(t, perSection) * shape.section;
  I pairs = min(shape.section, shape.heads * shape.batch - firstPair); // the last may be smaller
  I inSection = remainder(t, perSection);
  I pair = firstPair + remainder(inSection, pairs);
  I column = floorDiv(inSection, pairs);
  I m = remainder(column, shape.mTiles);
  if (order != WorkOrder::backwardLpt)
    m = shape.mTiles - int64_t(1) - m;
  return {m, remainder(pair, shape.heads), floorDiv(pair, shape.heads),
          floorDiv(column, shape.mTiles)};
}

// Packed sequences need no table of their tiles: the rows before each sequence are a prefix sum
// already. Sequence b has the tiles from packedStart(rows before it, b) on to the next one's: as
// many as its rows can fill wherever it begins, and at most one more, which holds no row.
template <class I> I packedStart(I rowsBefore, I sequence, int64_t group, int64_t tileM) {
  return floorDiv(rowsBefore * group, tileM) + sequence;
}

/// The tile of ordinal t in varlenDynamic: `shape.mTiles` are those of all sequences; the sequence
/// is the last one whose `start` is at most packedTileOf(t), `next` the start behind it.
template <class I> I packedTileOf(I t, const WorkShape<I> &shape) {
  return floorDiv(t, shape.heads * shape.splits);
}
template <class I>
Work<I> packedWorkAt(I t, I sequence, I start, I next, const WorkShape<I> &shape) {
  const WorkShape<I> own{next - start, shape.heads, constant(t, 1), shape.splits, shape.section};
  Work<I> work = workAt(WorkOrder::dynamic, t - start * shape.heads * shape.splits, own);
  work.batch = sequence;
  return work;
}

/// (batch, head) pairs of an L2 section in the forward: the largest power of two whose keys and
/// values fit the section budget; times `group` unless packed; all `pairs` without keys.
int64_t keySection(int64_t lenK, int64_t headSize, int64_t headSizeV, int64_t elementBytes,
                   int64_t group, bool packed, int64_t pairs);
/// The same in the backward, where Q, dO and the f32 dQ accumulator of a head are shared.
int64_t querySection(int64_t lenQ, int64_t headSize, int64_t headSizeV, int64_t elementBytes,
                     int64_t pairs);

//===----------------------------------------------------------------------===//
// Sequences that differ in their keys: each has its own number of splits
//===----------------------------------------------------------------------===//

// A kernel of one block a sequence fills a table of i32, scheduleRows x (batch + 1), from the
// lengths where they lie; attention and combine read it. Nothing of it is known to the host.
enum ScheduleRow : int64_t {
  startsRow,   ///< [place]: tiles before it, and at [batch] all tiles; the most work first
  sequenceRow, ///< [place]: the sequence that stands there
  splitsRow,   ///< [sequence]: its own number of splits
  sectionRow,  ///< [sequence]: heads that share the L2 cache
  scheduleRows
};

/// As many shares are cut for each multiprocessor, for whoever is done takes the next: with one,
/// ten equal sequences of eight heads run for 1.7 times an even share, with four for 1.1 times.
inline constexpr int64_t sharesOfAnSm = 4;
/// A share of fewer key tiles costs more than it evens out.
inline constexpr int64_t leastShare = 16;
/// The table is filled by walking all sequences for each of them; more fill the machine by
/// themselves.
inline constexpr int64_t mostScheduled = 1024;

/// Key tiles of a share where all sequences have `tilePairs` of query and key tiles.
template <class I> I keyShare(I tilePairs, I heads, I sms) {
  // A tenth more than an even share, so that rounding up does not add a wave. (I may have 32 bits.)
  const int64_t tenth = 10;
  I even = ceilDiv(tilePairs * heads, sms * sharesOfAnSm);
  return max(even + ceilDiv(even, tenth), leastShare);
}

/// A sequence's own number of splits.
template <class I> I splitsOfSequence(I nTiles, I share, I maxSplits) {
  return clamp(ceilDiv(nTiles, share), constant(nTiles, 1), maxSplits);
}

/// Heads of a sequence that share the L2 cache; `group`: query heads of a KV head, 1 when packed.
template <class I> I sectionOfSequence(I nTiles, int64_t keyTileBytes, I group, I heads) {
  const int64_t one = 1;
  I tiles = max(nTiles, one), fitting = constant(nTiles, one);
  for (int64_t all : {2, 4, 8, 16})
    fitting = select(lessThan(tiles * all, l2SplitBudget / keyTileBytes + 1), constant(nTiles, all),
                     fitting);
  return min(fitting * group, max(heads, one));
}

/// 1 if the other sequence comes first, else 0: the most work first, equal work by number.
template <class I> I comesFirst(I otherWork, I other, I work, I sequence) {
  I yes = constant(work, 1), no = constant(work, 0);
  return select(lessThan(work, otherWork), yes,
                select(lessThan(otherWork, work), no, select(lessThan(other, sequence), yes, no)));
}

/// The tile of ordinal t, which lies in [start, next) of a place of the schedule. The split is
/// packed with the sequence's number of them (unpackSplit).
template <class I> struct Scheduled {
  I start, next, sequence, splits, section;
};
template <class I> Work<I> scheduledWorkAt(I t, const Scheduled<I> &at, I heads) {
  const WorkShape<I> own{floorDiv(at.next - at.start, heads * at.splits), heads, constant(t, 1),
                         at.splits, at.section};
  Work<I> work = workAt(WorkOrder::dynamic, t - at.start, own);
  work.batch = at.sequence;
  work.split = packSplit(work.split, at.splits);
  return work;
}

} // namespace flash::schedule

#endif // FLASH_SCHEDULE_WORKORDER_H
