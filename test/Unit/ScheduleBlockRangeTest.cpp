//===- ScheduleBlockRangeTest.cpp - runs against brute force --------------===//

#include "Random.h"
#include "flash/Schedule/BlockRange.h"

#include <gtest/gtest.h>

using namespace flash;
using namespace flash::schedule;

namespace {
/// A random tile of a random problem.
struct Case {
  MaskRequest request;
  Mask mask;
  int64_t lenQ, lenK, group, rows, block, row0, splits;

  explicit Case(Random &random) {
    lenQ = random.upTo(1, 40);
    lenK = random.upTo(0, 60);
    group = random.oneIn(2) ? 1 : random.upTo(2, 5);
    rows = random.upTo(1, 16);
    block = random.upTo(1, 12);
    row0 = random.upTo(0, ceilDiv(lenQ * group, rows)) * rows; // one tile past the end, too
    splits = random.oneIn(2) ? 1 : random.upTo(2, 9);
    request = random.mask(random.oneIn(2) ? 8 : 50);
    const bool known = random.oneIn(2);
    mask = canonical(request, known ? lenQ : -1, known ? lenK : -1);
  }

  /// How much of key block n the tile's rows see.
  enum Seen { nothing, something, everything };
  Seen seen(int64_t n) const {
    bool any = false, all = true;
    for (int64_t r = row0; r < std::min(row0 + rows, lenQ * group); ++r)
      for (int64_t j = n * block; j < (n + 1) * block; ++j)
        if (sees(request, r / group, j, lenQ, lenK))
          any = true;
        else
          all = false;
    return !any ? nothing : all ? everything : something;
  }

  std::string words() const {
    return "queries " + std::to_string(lenQ) + ", keys " + std::to_string(lenK) + ", group " +
           std::to_string(group) + ", rows " + std::to_string(row0) + " + " + std::to_string(rows) +
           ", block " + std::to_string(block) + ", splits " + std::to_string(splits) + ", causal " +
           std::to_string(request.causal) + ", left " + std::to_string(request.left) + ", right " +
           std::to_string(request.right) + ", chunk " + std::to_string(request.chunk) + ", sinks " +
           std::to_string(request.sinkTokens);
  }
};
} // namespace

TEST(BlockRange, RunsHoldEveryNeededBlockOnceAndNoOther) {
  Random random(2);
  for (int round = 0; round < 6000; ++round) {
    const Case c(random);
    SCOPED_TRACE(c.words());
    std::vector<int> visits(size_t(ceilDiv(c.lenK, c.block)), 0);
    int64_t total = 0, largestShare = 0;
    for (int64_t split = 0; split < c.splits; ++split) {
      auto runs = keyRuns<int64_t>(c.mask, c.row0, c.rows, c.block, c.lenQ, c.lenK, c.group, split,
                                   c.splits);
      const int64_t share = runs.right + runs.inner + runs.left + runs.sink;
      for (int64_t count : {runs.right, runs.inner, runs.left, runs.sink})
        ASSERT_GE(count, 0);
      ASSERT_EQ(runs.right > 0, share > 0); // the first block is masked
      if (!c.mask.boundsLeft() && !c.mask.boundsRight())
        ASSERT_LE(runs.right, 1); // the ragged end
      auto visit = [&](int64_t n, bool masked, bool first) {
        ASSERT_GE(n, 0);
        ASSERT_LT(n, int64_t(visits.size()));
        ++visits[size_t(n)];
        const Case::Seen seen = c.seen(n);
        ASSERT_NE(seen, Case::nothing) << "block " << n;
        if (!masked)
          ASSERT_EQ(seen, Case::everything) << "block " << n;
        else if (!first && !c.mask.hasSinkTokens())
          ASSERT_EQ(seen, Case::something) << "block " << n << " needs no mask";
      };
      for (int64_t i = 0; i < share - runs.sink; ++i)
        visit(runs.end - 1 - i, i < runs.right || i >= runs.right + runs.inner, i == 0);
      for (int64_t i = 0; i < runs.sink; ++i)
        visit(runs.sink - 1 - i, true, false);
      total += share;
      largestShare = std::max(largestShare, share);
      if (HasFatalFailure())
        return;
    }
    ASSERT_LE(largestShare, ceilDiv(total, c.splits));
    for (size_t n = 0; n < visits.size(); ++n)
      ASSERT_EQ(visits[n], c.seen(int64_t(n)) != Case::nothing) << "block " << n;
  }
}

TEST(BlockRange, ReferenceBoundsAreNeverShortAndRunsNeverLooser) {
  Random random(3);
  for (int round = 0; round < 6000; ++round) {
    Case c(random);
    c.request.sinkTokens = c.mask.sinkTokens = 0; // the reference leaves them out
    SCOPED_TRACE(c.words());
    const int64_t m = c.row0 / c.rows;
    auto range = keyRange<int64_t>(c.mask, m, c.rows, c.block, c.lenQ, c.lenK, c.group, 0, 1);
    auto runs = keyRuns<int64_t>(c.mask, c.row0, c.rows, c.block, c.lenQ, c.lenK, c.group);
    const int64_t count = runs.right + runs.inner + runs.left;
    if (count > 0) {
      ASSERT_LE(runs.end, range.nMax);
      ASSERT_GE(runs.end - count, range.nMin);
    }
    for (int64_t n = range.nMinBeforeLeftMask; n < std::min(range.nMax - 1, range.nMinRightMask);
         ++n) // the first block is masked for the ragged end
      ASSERT_EQ(c.seen(n) == Case::everything || c.row0 >= c.lenQ * c.group, true) << "block " << n;
  }
}

TEST(BlockRange, QueryTilesAreNeverMissing) {
  Random random(4);
  for (int round = 0; round < 3000; ++round) {
    Case c(random);
    c.group = 1;
    SCOPED_TRACE(c.words());
    for (int64_t n = 0; n * c.block < c.lenK; ++n) {
      auto range = queryRange<int64_t>(c.mask, n, c.rows, c.block, c.lenQ, c.lenK);
      for (int64_t m = 0; m * c.rows < c.lenQ; ++m) {
        c.row0 = m * c.rows;
        if (c.seen(n) != Case::nothing)
          ASSERT_TRUE(range.mMin <= m && m < range.mMax) << "tile " << m << ", block " << n;
      }
    }
  }
}

TEST(BlockRange, QueryRunsHoldEveryNeededBlockAndNoOther) {
  Random random(5);
  for (int round = 0; round < 6000; ++round) {
    Case c(random);
    c.group = 1;
    SCOPED_TRACE(c.words());
    const int64_t keys = c.block, tiles = ceilDiv(c.lenQ, c.rows);
    for (int64_t n = 0; n <= ceilDiv(c.lenK, keys); ++n) { // one tile past the end, too
      auto runs = queryRuns<int64_t>(c.mask, n * keys, keys, c.rows, c.lenQ, c.lenK);
      auto range = queryRange<int64_t>(c.mask, n, c.rows, keys, c.lenQ, c.lenK);
      const int64_t count = runs.right + runs.inner + runs.left;
      for (int64_t part : {runs.right, runs.inner, runs.left, count - runs.right, runs.end - count})
        ASSERT_GE(part, 0);
      ASSERT_EQ(runs.sink, 0);
      if (!c.mask.boundsRight())
        ASSERT_EQ(runs.left, 0);
      if (count > 0) { // no looser than the reference
        ASSERT_LE(runs.end, range.mMax);
        ASSERT_GE(runs.end - count, range.mMin);
      }
      for (int64_t m = 0; m < tiles; ++m) {
        const int64_t at = runs.end - 1 - m; // of the walk
        const bool visited = at >= 0 && at < count;
        c.row0 = m * c.rows;
        const Case::Seen seen = c.seen(n);
        ASSERT_EQ(visited, seen != Case::nothing) << "tile " << m << ", keys " << n;
        if (visited && at >= runs.right && at < runs.right + runs.inner)
          ASSERT_EQ(seen, Case::everything) << "tile " << m << ", keys " << n;
        // Whole tiles that see all are masked beside ragged keys only.
        else if (visited && (n + 1) * keys <= c.lenK && (m + 1) * c.rows <= c.lenQ &&
                 !c.mask.hasSinkTokens())
          ASSERT_EQ(seen, Case::something) << "tile " << m << ", keys " << n;
      }
    }
  }
}

TEST(BlockRange, KeysAndQueriesMeetInTheSamePairs) {
  // What a tile of queries counts as its key tiles is who adds to its gradient, in that order.
  Random random(6);
  for (int round = 0; round < 3000; ++round) {
    Case c(random);
    SCOPED_TRACE(c.words());
    for (int64_t m = 0; m * c.rows < c.lenQ; ++m) {
      auto keys = keyRuns<int64_t>(c.mask, m * c.rows, c.rows, c.block, c.lenQ, c.lenK, 1);
      const int64_t main = keys.right + keys.inner + keys.left, begin = keys.end - main;
      for (int64_t n = 0; n * c.block < c.lenK; ++n) {
        auto queries = queryRuns<int64_t>(c.mask, n * c.block, c.block, c.rows, c.lenQ, c.lenK);
        const int64_t count = queries.right + queries.inner + queries.left;
        ASSERT_EQ(n < keys.sink || (n >= begin && n < keys.end),
                  m < queries.end && m >= queries.end - count)
            << "queries " << m << ", keys " << n;
      }
    }
  }
}

TEST(BlockRange, HalfOfACausalSquareAndItsDiagonal) {
  int64_t computed = 0;
  for (int64_t m = 0; m < 32; ++m) {
    auto runs = keyRuns<int64_t>({MaskKind::causal, -1, 0, 0, 0}, m * 128, 128, 128, 4096, 4096, 1);
    EXPECT_EQ(runs.right, 1);
    EXPECT_EQ(runs.inner, m);
    computed += runs.right + runs.inner;
  }
  EXPECT_EQ(computed, 528); // of 1024
}
