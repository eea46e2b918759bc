//===- Splits.cpp - packing and splitting heuristics ----------------------===//

#include "flash/Schedule/Splits.h"
#include "flash/Schedule/Int.h"
#include "flash/Schedule/Machine.h"
#include "flash/Schedule/PackGqa.h"

#include <numeric>

namespace flash::schedule {

bool shouldPackGqa(bool varlenQ, int64_t lenQ, int64_t group, int64_t tileM) {
  if (varlenQ)
    return true;
  if (lenQ <= 0)
    return false;
  // Ratios round to single precision and are compared in double, as the reference does: ties count.
  auto filled = [&](int64_t rows) { return float(rows) / float(ceilDiv(rows, tileM) * tileM); };
  const double clearlyBetter = 0.9;
  return filled(lenQ) < clearlyBetter * filled(lenQ * group);
}

/// Whether four fifths of the machine are busy in so many waves of tiles.
static bool isBusy(int64_t tiles, int64_t sms, int64_t waves) {
  return 10 * tiles >= 8 * sms * waves;
}

bool fillsMachine(const SplitQuestion &q) { return isBusy(q.tiles, q.sms, /*waves=*/1); }

static constexpr int64_t tooFewToSplit = 4; ///< key tiles

int64_t numSplits(const SplitQuestion &q) {
  if (q.tiles <= 0)
    return 1;
  if (fillsMachine(q)) {
    // Tiles come in any order, but keys that outgrow the L2 cache are read from memory each time.
    bool outgrows = q.kvHeadBytes > l2SplitBudget && q.mTiles >= 2 * q.sms && !q.causalOrLocal;
    return outgrows ? min(ceilDiv(q.kvHeadBytes, l2SplitBudget), q.maxSplits) : 1;
  }
  if (q.nTiles <= tooFewToSplit)
    return 1;
  const int64_t most = min(q.maxSplits, min(q.sms, q.nTiles));
  auto efficiency = [&](int64_t splits) { // rounded as shouldPackGqa's
    float waves = float(q.tiles * splits) / float(q.sms);
    return waves / float(ceilDiv(q.tiles * splits, q.sms));
  };
  float best = 0;
  for (int64_t splits = 1; splits <= most; ++splits)
    best = efficiency(splits) > best ? efficiency(splits) : best;
  const double nearlyAsGood = 0.85;
  for (int64_t splits = 1; splits <= most; ++splits)
    if (efficiency(splits) >= nearlyAsGood * best)
      return splits;
  return 1;
}

// What a part costs beside its key tiles, in time of such a tile: starting a block, awaiting the
// first keys, writing and joining the part. On an H200, with 64 KiB a tile, which memory brings
// every multiprocessor in 2 us: a second wave of halves added 4.9, 7.8 and 11.6 us to one, two and
// four waves of whole tiles (16 x 4096, 16 x 16384 and 64 x 16384 keys, 8 heads); at one sequence
// of 65536 and 131072 keys 16 parts on 128 of 132 SMs ran 4 and 5 % faster than 15 and 14, which
// numSplits takes, and 33 and 66 parts slower. Parts that rounding leaves as long are no use: of 32
// key tiles, 11 to 15 parts have 3 each, 16 have 2.
static constexpr int64_t tilesAPart = 2;

int64_t streamedSplits(const SplitQuestion &q) {
  // Memory is as fast for nearly all multiprocessors as for all.
  if (q.tiles <= 0 || q.nTiles <= tooFewToSplit || isBusy(q.tiles, q.sms, ceilDiv(q.tiles, q.sms)))
    return 1;
  int64_t best = 1, least = unlimited;
  for (int64_t splits = 1; splits <= min(q.maxSplits, q.nTiles); ++splits) {
    const int64_t waves = ceilDiv(q.tiles * splits, q.sms);
    const int64_t cost = waves * (ceilDiv(q.nTiles, splits) + tilesAPart);
    if (cost < least)
      best = splits, least = cost;
  }
  return best;
}

int64_t dealtThreads(int64_t rows, int64_t columns) {
  return ceilDiv(rows * ceilDiv(columns, combineColumns), warpThreads) * warpThreads;
}

std::optional<std::string> whyNotJoin(const Join &join) {
  if (join.atOnce > defaultMaxSplits)
    return "a combine joins at most " + std::to_string(defaultMaxSplits) +
           " parts at once, the plan says " + std::to_string(join.atOnce) + "; join fewer";
  if (join.atOnce % join.aside != 0)
    return "parts that a combine reads aside divide those at once, the plan has " +
           std::to_string(join.aside) + " of " + std::to_string(join.atOnce) +
           "; read 1 aside, or a divisor";
  return std::nullopt;
}

int64_t combineRows(int64_t headSizeV, int64_t aside) {
  return warpThreads / std::gcd(ceilDiv(headSizeV, combineColumns) * aside, warpThreads);
}

int64_t reachableKeyTiles(int64_t lenK, int64_t windowLeft, int64_t windowRight, int64_t tileM,
                          int64_t tileN) {
  return ceilDiv(min(lenK, windowLeft + windowRight + 1 + tileM), tileN);
}

} // namespace flash::schedule
