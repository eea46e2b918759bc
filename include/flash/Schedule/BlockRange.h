//===- BlockRange.h - which blocks a tile needs -----------------*- C++ -*-===//
//
// keyRuns is what kernels use: the key blocks of one query tile, as runs walked downwards
//
//    block  end-1 ................................ , then  sink-1 ... 0
//           |<- right ->|<- inner ->|<- left ->|           |<- sink ->|
//              masked    no element    masked                 masked
//                        needs a mask
//
// It is tight: every block of a run has a visible element, no block outside has one, and inner
// blocks are visible to every row of the tile that exists. The first block is always masked, which
// pays the ragged end of the sequence. Rows past the sequence are no rows.
//
// queryRuns is the same seen from a tile of keys, for the backward: the blocks of queries that it
// needs, walked downwards too. There the diagonal of a causal mask lies in the left run.
//
// keyRange and queryRange are the reference formulas, which count rows past the sequence too.
//
//===----------------------------------------------------------------------===//

#ifndef FLASH_SCHEDULE_BLOCKRANGE_H
#define FLASH_SCHEDULE_BLOCKRANGE_H

#include "flash/Schedule/Mask.h"

namespace flash::schedule {

/// Counts of the four runs. right >= 1 unless all are 0; a split whose share holds only sink blocks
/// walks them as its right run.
template <class I> struct Runs {
  I end, right, inner, left, sink;
};

/// With `everyRow` the right run goes on until each row that sees a key of the window has seen one
/// in it, as the inner run then may demand.
///
/// The runs of split `split` of `splits` for rows [row0, row0 + rows) of a query tile. With
/// group > 1 rows are packed: row r is query r / group. lenQ counts queries.
///
/// Splits share one sequence of blocks: the window's in ascending order, then the sink tokens' in
/// ascending order. A share that holds the seam thus holds sink blocks from 0 on.
template <class I>
Runs<I> keyRuns(const Mask &mask, I row0, int64_t rows, int64_t block, I lenQ, I lenK,
                int64_t group, I split, I splits, bool everyRow = false) {
  const int64_t one = 1, none = 0;
  I zero = constant(row0, 0);
  I first = row0, last = row0 + (rows - 1);
  if (group > 1) {
    first = floorDiv(first, group);
    last = floorDiv(last, group);
  }
  I offset = lenK - lenQ;
  I lowest = first + offset, highest = min(last, lenQ - one) + offset;

  // Both ends of a row's window grow with the row, and a window always holds its own position, so
  // the rows' windows join to one interval and what all of them see is one too.
  I someTo = select(lessThan(first, lenQ), max(keysTo(mask, highest, lenK), none), zero);
  I end = ceilDiv(someTo, block);
  I begin = min(floorDiv(keysFrom(mask, lowest), block), end);
  I allTo = floorDiv(max(keysTo(mask, lowest, lenK), none), block);
  I allFrom = mask.boundsLeft() ? ceilDiv(keysFrom(mask, highest), block) : zero;

  I main = end - begin, sinks = zero;
  if (mask.hasSinkTokens()) {
    // Sink tokens below the window are a second interval. They pass its end only where a chunk
    // ends before them; then the window's last run goes on to their end.
    I seen = select(lessThan(first, lenQ), max(sinksTo(mask, highest, lenK), none), zero);
    I seenBlocks = ceilDiv(seen, block);
    auto hasWindow = lessThan(zero, main);
    sinks = select(hasWindow, min(seenBlocks, begin), seenBlocks);
    if (mask.chunk > 0)
      main = select(hasWindow, max(end, seenBlocks) - begin, main);
  }

  // This split's share [from, to) of the sequence.
  I total = main + sinks;
  I each = ceilDiv(total, splits);
  I from = min(split * each, total), to = min(from + each, total);

  I myEnd = begin + min(to, main);
  I myBegin = min(begin + from, myEnd);
  I rightBegin = clamp(allTo, myBegin, max(myEnd - one, myBegin));
  if (everyRow) { // the lowest row sees least far: one block more where the run starts at its end
    I unseen = select(lessThan(rightBegin * block, keysTo(mask, lowest, lenK)), zero, zero + one);
    rightBegin = max(rightBegin - unseen, myBegin);
  }
  I innerBegin = clamp(allFrom, myBegin, rightBegin);
  Runs<I> runs{myEnd, myEnd - rightBegin, rightBegin - innerBegin, innerBegin - myBegin, zero};
  if (mask.hasSinkTokens()) {
    auto onlySinks = lessThan(main, from + one);
    I sinkEnd = max(to - main, none);
    runs.end = select(onlySinks, sinkEnd, runs.end);
    runs.right = select(onlySinks, to - from, runs.right);
    runs.sink = select(onlySinks, zero, sinkEnd);
  }
  return runs;
}

/// All of a tile's runs, not split.
template <class I>
Runs<I> keyRuns(const Mask &mask, I row0, int64_t rows, int64_t block, I lenQ, I lenK,
                int64_t group) {
  return keyRuns(mask, row0, rows, block, lenQ, lenK, group, constant(row0, 0), constant(row0, 1));
}

/// The runs of query blocks that keys [key0, key0 + keys) need. The right run is masked for the
/// ragged end, and for queries whose window begins behind a key; the left one, which only a bound
/// on the right makes, for queries that do not see far enough. Where keys are ragged all is right.
/// Each may be empty.
template <class I>
Runs<I> queryRuns(const Mask &mask, I key0, int64_t keys, int64_t block, I lenQ, I lenK) {
  const int64_t one = 1, none = 0;
  I zero = constant(key0, 0), offset = lenK - lenQ;
  I last = min(key0 + keys, lenK) - one; // before key0 where there is no key
  auto chunkOf = [&](I key) { return floorDiv(max(key, none), mask.chunk) * mask.chunk; };

  // Positions that see some key of the tile, and those that see all of them: both ends of a
  // position's window grow with it, so each is an interval. Ends are exclusive.
  I someFrom = zero + offset, someTo = lenK, allFrom = someFrom, allTo = lenK;
  if (mask.right >= 0) {
    someFrom = max(someFrom, key0 - mask.right);
    allFrom = max(allFrom, last - mask.right);
  }
  if (mask.left >= 0) {
    someTo = min(someTo, last + (mask.left + 1));
    allTo = min(allTo, key0 + (mask.left + 1));
  }
  if (mask.chunk > 0) {
    someFrom = max(someFrom, chunkOf(key0));
    allFrom = max(allFrom, chunkOf(last));
    someTo = min(someTo, chunkOf(last) + mask.chunk);
    allTo = min(allTo, chunkOf(key0) + mask.chunk);
  }
  if (mask.hasSinkTokens()) { // every query sees those that its right bound lets it
    auto sinks = lessThan(key0, mask.sinkTokens);
    I from = mask.right >= 0 ? max(zero + offset, key0 - mask.right) : zero + offset;
    someFrom = select(sinks, from, someFrom);
    someTo = select(sinks, lenK, someTo);
  }

  auto queries = [&](I position) { return max(position - offset, none); };
  auto hasKeys = lessThan(key0, lenK);
  I end = select(hasKeys, ceilDiv(queries(someTo), block), zero);
  I begin = min(floorDiv(queries(someFrom), block), end);
  end = select(lessThan(max(someFrom - offset, none), queries(someTo)), end, begin);
  I whole = select(lessThan(lenK, key0 + keys), zero, constant(key0, 1)); // no ragged keys
  I innerEnd = clamp(floorDiv(queries(allTo), block) * whole, begin, end);
  I innerBegin = clamp(ceilDiv(queries(allFrom), block), begin, innerEnd);
  return {end, end - innerEnd, innerEnd - innerBegin, innerBegin - begin, zero};
}

/// The queries lo <= i < hi that see key `key`; sinkEnd is 0.
template <class I> RowInterval<I> queryInterval(const Mask &mask, I key, I lenQ, I lenK) {
  auto runs = queryRuns(mask, key, /*keys=*/1, /*block=*/1, lenQ, lenK);
  return {runs.end - runs.right - runs.inner - runs.left, runs.end, runs.sink};
}

/// Blocks [nMin, nMax) of a split; masked from nMinRightMask on and below nMinBeforeLeftMask, both
/// of which may lie past nMax.
template <class I> struct KeyRange {
  I nMin, nMax, nMinRightMask, nMinBeforeLeftMask;
};

/// A split index in its low 16 bits and the sequence's own number of splits, if not 0, above them.
template <class I> struct SplitShare {
  I split, splits;
};
inline constexpr int64_t splitField = 1 << 16;
template <class I> I packSplit(I split, I splits) { return split + splits * splitField; }
template <class I> SplitShare<I> unpackSplit(I packed, I splits) {
  I own = floorDiv(packed, splitField);
  return {remainder(packed, splitField), select(lessThan(constant(packed, 0), own), own, splits)};
}

/// The reference's key blocks of query tile m, sink tokens left out. `split` may be packed.
template <class I>
KeyRange<I> keyRange(const Mask &mask, I m, int64_t blockM, int64_t blockN, I lenQ, I lenK,
                     int64_t group, I split, I splits) {
  const int64_t none = 0, one = 1;
  const int64_t right = mask.right < 0 ? 0 : mask.right;
  const bool local = mask.kind == MaskKind::local;
  I lo = m * blockM, hi = (m + one) * blockM;
  if (group > 1) {
    hi = floorDiv(hi - one, group) + one;
    lo = floorDiv(lo, group);
  }
  I offset = lenK - lenQ;
  I loAt = lo + offset, hiAt = hi + offset;
  auto chunkEnd = [&](I at) { return ceilDiv(max(at, none), mask.chunk) * mask.chunk; };

  I nMax = ceilDiv(lenK, blockN), nMin = constant(m, 0);
  if (mask.boundsRight()) {
    I to = mask.right < 0 ? lenK : hiAt + right;
    if (mask.chunk > 0)
      to = min(to, chunkEnd(hiAt));
    nMax = min(nMax, ceilDiv(max(to, none), blockN));
  }
  if (local && mask.boundsLeft()) {
    I from = mask.left < 0 ? constant(m, 0) : loAt - mask.left;
    if (mask.chunk > 0)
      from = max(from, floorDiv(max(loAt, none), mask.chunk) * mask.chunk);
    nMin = floorDiv(max(from, none), blockN);
  }

  SplitShare<I> share = unpackSplit(split, splits);
  I each = ceilDiv(max(nMax - nMin, none), share.splits);
  nMin = nMin + share.split * each;
  nMax = min(nMin + each, nMax);

  I rightFrom = local && mask.right < 0 ? lenK : loAt + right;
  if (mask.chunk > 0)
    rightFrom = min(rightFrom, chunkEnd(loAt));
  I nMinRightMask = max(nMin, floorDiv(max(rightFrom, none), blockN));
  I nMinBeforeLeftMask = nMin;
  if (local && mask.boundsLeft()) {
    I leftTo = mask.left < 0 ? constant(m, 0) : hiAt - mask.left;
    if (mask.chunk > 0)
      leftTo = max(leftTo, floorDiv(max(hiAt, none), mask.chunk) * mask.chunk);
    nMinBeforeLeftMask = max(nMin, ceilDiv(max(leftTo, none), blockN));
  }
  return {nMin, nMax, nMinRightMask, nMinBeforeLeftMask};
}

/// Query tiles [mMin, mMax) of the backward.
template <class I> struct QueryRange {
  I mMin, mMax;
};

/// The query tiles that key block n needs. With a chunk the bounds may be loose, never short.
template <class I>
QueryRange<I> queryRange(const Mask &mask, I n, int64_t blockM, int64_t blockN, I lenQ, I lenK) {
  const int64_t none = 0, one = 1;
  I offset = lenQ - lenK;
  I mMin = constant(n, 0), mMax = ceilDiv(lenQ, blockM);
  if (mask.left >= 0) {
    I to = max((n + one) * blockN + offset + mask.left, none);
    I bound = min(mMax, ceilDiv(to, blockM));
    mMax = select(lessThan(n, ceilDiv(mask.sinkTokens, blockN)), mMax, bound);
  }
  if (mask.right >= 0)
    mMin = floorDiv(max(n * blockN + offset - mask.right, none), blockM);
  return {mMin, mMax};
}

} // namespace flash::schedule

#endif // FLASH_SCHEDULE_BLOCKRANGE_H
