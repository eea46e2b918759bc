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

namespace {
struct Length {
  int64_t mTiles, nTiles;
  int64_t work() const { return mTiles * nTiles; }
};

/// What the kernel that fills a schedule does, sequence by sequence.
std::vector<std::vector<int64_t>> fill(const std::vector<Length> &lengths, int64_t heads,
                                       int64_t sms, int64_t maxSplits, int64_t keyTileBytes) {
  const int64_t batch = int64_t(lengths.size());
  std::vector<std::vector<int64_t>> table(scheduleRows, std::vector<int64_t>(lengths.size() + 1));
  int64_t pairs = 0;
  for (const Length &each : lengths)
    pairs += each.work();
  const int64_t share = keyShare(pairs, heads, sms);
  for (int64_t b = 0; b < batch; ++b) {
    const Length &mine = lengths[size_t(b)];
    int64_t place = 0, start = 0;
    for (int64_t i = 0; i < batch; ++i) {
      const Length &other = lengths[size_t(i)];
      const int64_t first = comesFirst(other.work(), i, mine.work(), b);
      place += first;
      start += first * other.mTiles * heads * splitsOfSequence(other.nTiles, share, maxSplits);
    }
    const int64_t splits = splitsOfSequence(mine.nTiles, share, maxSplits);
    table[startsRow][size_t(place)] = start;
    table[sequenceRow][size_t(place)] = b;
    table[splitsRow][size_t(b)] = splits;
    table[sectionRow][size_t(b)] = sectionOfSequence<int64_t>(mine.nTiles, keyTileBytes, 1, heads);
    if (place + 1 == batch)
      table[startsRow][size_t(batch)] = start + mine.mTiles * heads * splits;
  }
  return table;
}

Work<int64_t> workIn(const std::vector<std::vector<int64_t>> &table, int64_t t, int64_t heads) {
  size_t place = 0;
  while (place + 2 < table[startsRow].size() && table[startsRow][place + 1] <= t)
    ++place;
  const size_t b = size_t(table[sequenceRow][place]);
  return scheduledWorkAt(t,
                         {table[startsRow][place], table[startsRow][place + 1], int64_t(b),
                          table[splitsRow][b], table[sectionRow][b]},
                         heads);
}
} // namespace

TEST(WorkOrder, ScheduledTilesOfEverySequenceComeOnceAndFitTheGrid) {
  Random random(7);
  for (int round = 0; round < 1000; ++round) {
    std::vector<Length> lengths;
    for (int64_t i = random.upTo(1, 40); i > 0; --i)
      lengths.push_back({random.oneIn(4) ? 0 : random.upTo(1, 6),
                         random.oneIn(4) ? 0 : random.upTo(1, random.oneIn(5) ? 2000 : 50)});
    const int64_t heads = random.upTo(1, 6), sms = random.upTo(1, 132),
                  maxSplits = random.upTo(1, 8);
    const auto table = fill(lengths, heads, sms, maxSplits, random.upTo(1, 1 << 20));
    std::set<Key> seen, expected;
    int64_t whole = 0;
    for (int64_t b = 0; b < int64_t(lengths.size()); ++b) {
      const int64_t splits = table[splitsRow][size_t(b)], section = table[sectionRow][size_t(b)];
      ASSERT_TRUE(splits >= 1 && splits <= maxSplits);
      ASSERT_TRUE(section >= 1 && section <= heads);
      whole += lengths[size_t(b)].mTiles * heads;
      for (int64_t m = 0; m < lengths[size_t(b)].mTiles; ++m)
        for (int64_t head = 0; head < heads; ++head)
          for (int64_t split = 0; split < splits; ++split)
            expected.insert({m, head, b, packSplit(split, splits)});
    }
    const int64_t tiles = table[startsRow].back();
    ASSERT_LE(tiles, whole + sharesOfAnSm * sms);
    walk(tiles, random.upTo(1, 200), [&](int64_t t) {
      ASSERT_TRUE(seen.insert(keyOf(workIn(table, t, heads))).second) << "at " << t;
    });
    ASSERT_EQ(seen, expected);
  }
}

TEST(WorkOrder, TheMostWorkComesFirstAndIsSplitMost) {
  const int64_t one = 1;
  const auto table = fill({{one, 100}, {one, 1000}, {one, 10}, {one, 100}}, 1, 10, 128, 1 << 16);
  EXPECT_EQ(table[sequenceRow], (std::vector<int64_t>{1, 0, 3, 2, 0}));
  // An even share is ceil(1210 / 10 / 4) = 31 key tiles, with a tenth more 35.
  EXPECT_EQ(table[splitsRow], (std::vector<int64_t>{3, 29, 1, 3, 0}));
  EXPECT_EQ(table[startsRow], (std::vector<int64_t>{0, 29, 32, 35, 36}));
  EXPECT_EQ(splitsOfSequence<int64_t>(1000, 34, 8), 8);
  EXPECT_EQ(keyShare<int64_t>(100, 1, 132), leastShare);
}

TEST(WorkOrder, SectionsOfSequencesFitTheCache) {
  const int64_t tile = 128 * 256 * 2; // bytes
  EXPECT_EQ(sectionOfSequence<int64_t>(0, tile, 1, 32), 16);
  EXPECT_EQ(sectionOfSequence<int64_t>(0, tile, 1, 8), 8);
  EXPECT_EQ(sectionOfSequence<int64_t>(100, tile, 1, 32), 8); // 6.25 MiB a head, 50 in all
  EXPECT_EQ(sectionOfSequence<int64_t>(101, tile, 1, 32), 4);
  EXPECT_EQ(sectionOfSequence<int64_t>(101, tile, 4, 32), 16);
  EXPECT_EQ(sectionOfSequence<int64_t>(1 << 20, tile, 1, 32), 1);
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
