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

int64_t numSplits(const SplitQuestion &q) {
  if (q.tiles <= 0)
    return 1;
  if (10 * q.tiles >= 8 * q.sms) { // four fifths of the machine are busy
    // Tiles come in any order, but keys that outgrow the L2 cache are read from memory each time.
    bool outgrows = q.kvHeadBytes > l2SplitBudget && q.mTiles >= 2 * q.sms && !q.causalOrLocal;
    return outgrows ? min(ceilDiv(q.kvHeadBytes, l2SplitBudget), q.maxSplits) : 1;
  }
  const int64_t tooFewToSplit = 4;
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

int64_t combineRows(int64_t headSizeV) {
  return warpThreads / std::gcd(ceilDiv(headSizeV, combineColumns), warpThreads);
}

int64_t reachableKeyTiles(int64_t lenK, int64_t windowLeft, int64_t windowRight, int64_t tileM,
                          int64_t tileN) {
  return ceilDiv(min(lenK, windowLeft + windowRight + 1 + tileM), tileN);
}

} // namespace flash::schedule
