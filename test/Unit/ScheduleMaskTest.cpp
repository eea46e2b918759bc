//===- ScheduleMaskTest.cpp - canonical masks and row intervals -----------===//

#include "Random.h"
#include "flash/Schedule/BlockRange.h"

#include <gtest/gtest.h>

using namespace flash;
using namespace flash::schedule;

TEST(Mask, WindowsAsWideAsTheSequencesAreTheSameKernel) {
  const Mask dense{MaskKind::dense, -1, -1, 0, 0}, causal{MaskKind::causal, -1, 0, 0, 0};
  EXPECT_EQ(canonical({}, 100, 100), dense);
  EXPECT_EQ(canonical({.left = 99, .right = 49}, 50, 100), dense);
  EXPECT_EQ(canonical({.causal = true}, 100, 100), causal);
  EXPECT_EQ(canonical({.left = 99, .right = 0}, 100, 100), causal);
  EXPECT_EQ(canonical({.causal = true, .sinkTokens = 4}, 100, 100), causal);
  EXPECT_EQ(canonical({.causal = true}, 1, 100), dense); // a decoded token sees all keys
  EXPECT_EQ(canonical({.left = 98, .right = 0}, 100, 100), (Mask{MaskKind::local, 98, 0, 0, 0}));
  EXPECT_EQ(canonical({.left = 99, .right = 0}, -1, -1), (Mask{MaskKind::local, 99, 0, 0, 0}));
}

TEST(Mask, ChunksNarrowWindows) {
  EXPECT_EQ(canonical({.chunk = 64}, 500, 500), (Mask{MaskKind::local, 63, 63, 64, 0}));
  EXPECT_EQ(canonical({.causal = true, .left = 7, .chunk = 64}, 500, 500),
            (Mask{MaskKind::local, 7, 0, 64, 0}));
}

TEST(Mask, SaysWhatMakesNoSense) {
  EXPECT_EQ(whyNotMask({.left = -1, .right = -3}),
            "expected the window's right side to be at least 0, or -1 for unbounded, it is -3");
  EXPECT_EQ(whyNotMask({.causal = true, .right = 2}),
            "a causal mask ends at the diagonal, the window's right side is 2; leave causal out, "
            "or the right side -1 or 0");
  EXPECT_EQ(whyNotMask({.chunk = -1}),
            "expected an attention chunk of at least 1, or 0 for none, it is -1");
  EXPECT_EQ(whyNotMask({.sinkTokens = -2}), "expected at least 0 sink tokens, there are -2");
  EXPECT_EQ(whyNotMask({.causal = true, .left = 3, .right = 0}), std::nullopt);
}

TEST(Mask, RowIntervalsSayWhatTheConditionSays) {
  Random random(1);
  for (int round = 0; round < 3000; ++round) {
    const int64_t lenQ = random.upTo(1, 24), lenK = random.upTo(0, 24);
    const MaskRequest request = random.mask(10);
    const bool known = random.oneIn(2);
    const Mask mask = canonical(request, known ? lenQ : -1, known ? lenK : -1);
    for (int64_t i = 0; i < lenQ; ++i) {
      auto row = rowInterval<int64_t>(mask, i, lenQ, lenK);
      ASSERT_GE(row.lo, 0);
      for (int64_t j = 0; j < lenK; ++j)
        ASSERT_EQ((row.lo <= j && j < row.hi) || j < row.sinkEnd, sees(request, i, j, lenQ, lenK))
            << "query " << i << " of " << lenQ << ", key " << j << " of " << lenK << ", left "
            << request.left << ", right " << request.right << ", causal " << request.causal
            << ", chunk " << request.chunk << ", sinks " << request.sinkTokens;
      ASSERT_LE(row.hi, lenK);
      ASSERT_LE(row.sinkEnd, lenK);
    }
    for (int64_t j = 0; j < lenK + 2; ++j) { // and seen from a key
      auto seen = queryInterval<int64_t>(mask, j, lenQ, lenK);
      for (int64_t i = 0; i < lenQ + 2; ++i)
        ASSERT_EQ(seen.lo <= i && i < seen.hi,
                  i < lenQ && j < lenK && sees(request, i, j, lenQ, lenK))
            << "query " << i << " of " << lenQ << ", key " << j << " of " << lenK;
    }
  }
}
