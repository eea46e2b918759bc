//===- Random.h - numbers for property tests --------------------*- C++ -*-===//

#ifndef FLASH_TEST_UNIT_RANDOM_H
#define FLASH_TEST_UNIT_RANDOM_H

#include "flash/Schedule/Mask.h"

#include <random>

namespace flash {

/// Reproducible draws; the same on every platform.
class Random {
public:
  explicit Random(uint64_t seed) : engine(seed) {}

  int64_t upTo(int64_t low, int64_t high) { // both included
    return low + int64_t(engine() % uint64_t(high - low + 1));
  }
  bool oneIn(int64_t n) { return upTo(1, n) == 1; }

  /// Any mask a caller may ask for, window sides up to `reach`.
  schedule::MaskRequest mask(int64_t reach) {
    schedule::MaskRequest request;
    request.causal = oneIn(4);
    request.left = oneIn(2) ? upTo(0, reach) : -1;
    if (!request.causal)
      request.right = oneIn(2) ? upTo(0, reach) : -1;
    request.chunk = oneIn(4) ? upTo(1, reach + 1) : 0;
    request.sinkTokens = oneIn(3) ? upTo(1, reach) : 0;
    return request;
  }

private:
  std::mt19937_64 engine;
};

/// Spec 1's condition, word by word.
inline bool sees(const schedule::MaskRequest &mask, int64_t i, int64_t j, int64_t lenQ,
                 int64_t lenK) {
  const int64_t p = i + lenK - lenQ, right = mask.causal ? 0 : mask.right;
  const bool rightOk = right < 0 || j <= p + right;
  bool window = rightOk && (mask.left < 0 || j >= p - mask.left);
  if (mask.chunk > 0) {
    int64_t start = p / mask.chunk * mask.chunk;
    if (start > p) // C++ rounds to zero
      start -= mask.chunk;
    window = window && j >= start && j < start + mask.chunk;
  }
  return j < lenK && (window || (j < mask.sinkTokens && rightOk));
}

} // namespace flash

#endif // FLASH_TEST_UNIT_RANDOM_H
