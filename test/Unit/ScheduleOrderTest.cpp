//===- ScheduleOrderTest.cpp - every order is a bijection -----------------===//

#include "Random.h"
#include "flash/Schedule/Machine.h"
#include "flash/Schedule/WorkOrder.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

using namespace flash;
using namespace flash::schedule;

namespace {
using Key = std::tuple<int64_t, int64_t, int64_t, int64_t>;

Key keyOf(const Work<int64_t> &work) { return {work.m, work.head, work.batch, work.split}; }

/// Walks all ordinals as `grid` persistent blocks do and calls visit(t).
template <class F> void walk(int64_t tiles, int64_t grid, F visit) {
  for (int64_t block = 0; block < grid; ++block)
    for (int64_t t = block; t < tiles; t += grid)
      visit(t);
}
} // namespace

TEST(WorkOrder, EveryClosedOrderVisitsEveryTileOnce) {
  Random random(6);
  for (int round = 0; round < 2000; ++round) {
    WorkShape<int64_t> shape{random.upTo(0, 6), random.upTo(0, 5),  random.upTo(0, 5),
                             random.upTo(1, 3), random.upTo(1, 40), random.upTo(1, 3)};
    const int64_t mTiles = ceilDiv(shape.mTiles, shape.cluster) * shape.cluster;
    const int64_t tiles = tilesOf(shape), grid = random.upTo(1, 2 * tiles + 3);
    for (WorkOrder order : allWorkOrders) {
      std::set<Key> seen;
      walk(tiles, grid, [&](int64_t t) {
        auto work = workAt(order, t, shape);
        ASSERT_TRUE(work.m >= 0 && work.m < mTiles && work.head >= 0 && work.head < shape.heads &&
                    work.batch >= 0 && work.batch < shape.batch && work.split >= 0 &&
                    work.split < shape.splits)
            << orderName(order) << " leaves its box at " << t;
        ASSERT_TRUE(seen.insert(keyOf(work)).second) << orderName(order) << " repeats at " << t;
        // Blocks of a cluster have neighbouring tiles, whole clusters taken in the order itself.
        const int64_t rank = t % shape.cluster;
        Work<int64_t> first = work;
        first.m -= rank;
        ASSERT_EQ(keyOf(first), keyOf(workAt(order, t - rank, shape)));
        ASSERT_EQ(work.m % shape.cluster, rank) << orderName(order) << " at " << t;
      });
      ASSERT_EQ(int64_t(seen.size()), tiles) << orderName(order);
    }
  }
}

TEST(WorkOrder, VarlenVisitsEveryTileOfEverySequenceOnce) {
  Random random(7);
  for (int round = 0; round < 2000; ++round) {
    std::vector<int64_t> lengthsQ, lengthsK;
    for (int64_t i = random.upTo(0, 40); i > 0; --i) {
      lengthsQ.push_back(random.oneIn(4) ? 0 : random.upTo(1, 500));
      lengthsK.push_back(random.oneIn(4) ? 0 : random.upTo(1, 3000));
    }
    const VarlenProblem problem{.tileM = 64,
                                .tileN = 64,
                                .heads = random.upTo(1, 6),
                                .group = random.upTo(1, 4),
                                .packed = random.oneIn(2),
                                .headSize = 128,
                                .headSizeV = 128,
                                .elementBytes = 2,
                                .sms = random.upTo(1, 132),
                                .maxSplits = random.upTo(1, 8)};
    const auto sequences = prepareVarlen(problem, lengthsQ, lengthsK);
    const auto prefix = varlenPrefix(sequences, problem.heads);
    std::set<Key> seen, expected;
    for (const VarlenSequence &sequence : sequences) {
      ASSERT_TRUE(sequence.splits >= 1 && sequence.splits <= problem.maxSplits);
      ASSERT_TRUE(sequence.section >= 1 && sequence.section <= problem.heads);
      const int64_t rows = lengthsQ[size_t(sequence.index)] * (problem.packed ? problem.group : 1);
      for (int64_t m = 0; m * problem.tileM < rows; ++m)
        for (int64_t head = 0; head < problem.heads; ++head)
          for (int64_t split = 0; split < sequence.splits; ++split)
            expected.insert({m, head, sequence.index, split});
    }
    walk(prefix.back(), random.upTo(1, 200), [&](int64_t t) {
      auto work = varlenWorkAt(t, sequences, prefix, problem.heads);
      ASSERT_TRUE(work && seen.insert(keyOf(*work)).second) << "at " << t;
    });
    ASSERT_EQ(seen, expected);
    ASSERT_FALSE(varlenWorkAt(prefix.back(), sequences, prefix, problem.heads));
  }
}

TEST(WorkOrder, VarlenTakesTheMostWorkFirstAndSplitsTheLongest) {
  const VarlenProblem problem{.tileM = 128,
                              .tileN = 128,
                              .heads = 1,
                              .group = 1,
                              .packed = false,
                              .headSize = 128,
                              .headSizeV = 128,
                              .elementBytes = 2,
                              .sms = 10,
                              .maxSplits = 128};
  const std::vector<int64_t> lengthsQ{128, 128, 128}, lengthsK{1280, 12800, 128};
  const auto sequences = prepareVarlen(problem, lengthsQ, lengthsK);
  ASSERT_EQ(sequences.size(), 3u);
  EXPECT_EQ(sequences[0].index, 1);  // 100 of 111 tile pairs
  EXPECT_EQ(sequences[0].splits, 8); // a share is ceil(1.1 * 111 / 10) = 13 blocks
  EXPECT_EQ(sequences[1].index, 0);
  EXPECT_EQ(sequences[1].splits, 1);
}

TEST(WorkOrder, SectionsArePowersOfTwoThatFit) {
  EXPECT_EQ(keySection(8192, 128, 128, 2, 1, false, 64), 8); // a head of 4 MiB
  EXPECT_EQ(keySection(8192, 128, 128, 2, 4, false, 64), 32);
  EXPECT_EQ(keySection(8192, 128, 128, 2, 4, true, 64), 8);
  EXPECT_EQ(keySection(1 << 22, 128, 128, 2, 1, false, 64), 1);
  EXPECT_EQ(keySection(0, 128, 128, 2, 1, false, 64), 64);
  EXPECT_EQ(querySection(8192, 128, 128, 2, 64), 4); // 8 MiB with the accumulator
}

TEST(WorkOrder, NamesComeBack) {
  for (WorkOrder order : allWorkOrders)
    EXPECT_EQ(parseOrder(orderName(order)), order);
  EXPECT_EQ(parseOrder("fixed"), std::nullopt);
}

TEST(WorkOrder, PackedTilesAreCountedThroughTheEndsOfSequences) {
  Random random(8);
  for (int round = 0; round < 2000; ++round) {
    std::vector<int64_t> rowsBefore{0};
    const int64_t tileM = 16 * random.upTo(1, 8), group = random.upTo(1, 4);
    for (int64_t i = random.upTo(1, 40); i > 0; --i)
      rowsBefore.push_back(rowsBefore.back() + (random.oneIn(4) ? 0 : random.upTo(1, 300)));
    const int64_t batch = int64_t(rowsBefore.size()) - 1;
    const int64_t total = rowsBefore.back() + random.upTo(0, 200); // rows behind all sequences
    const WorkShape<int64_t> shape{packedStart(total, batch, group, tileM), random.upTo(1, 4), 1,
                                   random.upTo(1, 3), random.upTo(1, 8)};
    auto startOf = [&](int64_t b) { return packedStart(rowsBefore[size_t(b)], b, group, tileM); };
    std::set<Key> seen, missing;
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t m = 0; m * tileM < (rowsBefore[b + 1] - rowsBefore[b]) * group; ++m)
        for (int64_t head = 0; head < shape.heads; ++head)
          for (int64_t split = 0; split < shape.splits; ++split)
            missing.insert({m, head, b, split});
    const int64_t needed = int64_t(missing.size());
    for (int64_t t = 0; t < tilesOf(shape); ++t) {
      int64_t b = 0;
      while (b + 1 < batch && startOf(b + 1) <= packedTileOf(t, shape))
        ++b;
      const int64_t next = b + 1 < batch ? startOf(b + 1) : shape.mTiles;
      auto work = packedWorkAt(t, b, startOf(b), next, shape);
      ASSERT_TRUE(work.m >= 0 && work.head >= 0 && work.head < shape.heads && work.split >= 0 &&
                  work.split < shape.splits);
      ASSERT_TRUE(seen.insert(keyOf(work)).second) << "repeats at " << t;
      missing.erase(keyOf(work));
    }
    ASSERT_TRUE(missing.empty());
    const int64_t behind = (total - rowsBefore.back()) * group / tileM + 1;
    ASSERT_LE(tilesOf(shape) - needed, (batch + behind) * shape.heads * shape.splits);
  }
}
