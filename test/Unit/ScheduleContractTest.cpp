//===- ScheduleContractTest.cpp - formulas over another integer -----------===//
//
// The formulas must get by with the operations of Int.h, and never divide a negative number.
//
//===----------------------------------------------------------------------===//

#include "Random.h"
#include "flash/Schedule/BlockRange.h"
#include "flash/Schedule/WorkOrder.h"

#include <gtest/gtest.h>

namespace foreign {
struct Integer {
  int64_t value;
};
struct Truth {
  bool value;
};
#define FOREIGN_OPERATOR(op)                                                                       \
  Integer operator op(Integer a, Integer b) { return {a.value op b.value}; }                       \
  Integer operator op(Integer a, int64_t b) { return {a.value op b}; }
FOREIGN_OPERATOR(+)
FOREIGN_OPERATOR(-)
FOREIGN_OPERATOR(*)
#undef FOREIGN_OPERATOR
#define FOREIGN_DIVISION(name)                                                                     \
  Integer name(Integer a, Integer b) {                                                             \
    EXPECT_GE(a.value, 0);                                                                         \
    EXPECT_GE(b.value, 1);                                                                         \
    return {flash::schedule::name(a.value, b.value)};                                              \
  }                                                                                                \
  Integer name(Integer a, int64_t b) { return name(a, Integer{b}); }
FOREIGN_DIVISION(floorDiv)
FOREIGN_DIVISION(ceilDiv)
FOREIGN_DIVISION(remainder)
#undef FOREIGN_DIVISION
Integer min(Integer a, Integer b) { return a.value < b.value ? a : b; }
Integer min(Integer a, int64_t b) { return min(a, Integer{b}); }
Integer max(Integer a, Integer b) { return a.value < b.value ? b : a; }
Integer max(Integer a, int64_t b) { return max(a, Integer{b}); }
Truth lessThan(Integer a, Integer b) { return {a.value < b.value}; }
Truth lessThan(Integer a, int64_t b) { return {a.value < b}; }
Integer select(Truth c, Integer a, Integer b) { return c.value ? a : b; }
Integer constant(Integer, int64_t value) { return {value}; }
} // namespace foreign

using namespace flash;
using namespace flash::schedule;
using foreign::Integer;

TEST(Contract, BlockRangesAndRowsGiveTheSame) {
  Random random(5);
  for (int round = 0; round < 3000; ++round) {
    const Mask mask = canonical(random.mask(20), -1, -1);
    const int64_t lenQ = random.upTo(1, 50), lenK = random.upTo(0, 50), rows = random.upTo(1, 16);
    const int64_t block = random.upTo(1, 16), group = random.upTo(1, 3);
    const int64_t splits = random.upTo(1, 4), split = random.upTo(0, splits - 1);
    const int64_t m = random.upTo(0, lenQ * group / rows), row0 = m * rows, n = lenK / block;

    auto runs = keyRuns<int64_t>(mask, row0, rows, block, lenQ, lenK, group, split, splits);
    auto same =
        keyRuns<Integer>(mask, {row0}, rows, block, {lenQ}, {lenK}, group, {split}, {splits});
    EXPECT_EQ(runs.end, same.end.value);
    EXPECT_EQ(runs.right, same.right.value);
    EXPECT_EQ(runs.inner, same.inner.value);
    EXPECT_EQ(runs.left, same.left.value);
    EXPECT_EQ(runs.sink, same.sink.value);

    auto keys = keyRange<int64_t>(mask, m, rows, block, lenQ, lenK, group, split, splits);
    auto sameKeys =
        keyRange<Integer>(mask, {m}, rows, block, {lenQ}, {lenK}, group, {split}, {splits});
    EXPECT_EQ(keys.nMin, sameKeys.nMin.value);
    EXPECT_EQ(keys.nMax, sameKeys.nMax.value);

    auto queries = queryRange<int64_t>(mask, n, rows, block, lenQ, lenK);
    auto sameQueries = queryRange<Integer>(mask, {n}, rows, block, {lenQ}, {lenK});
    EXPECT_EQ(queries.mMin, sameQueries.mMin.value);
    EXPECT_EQ(queries.mMax, sameQueries.mMax.value);

    auto row = rowInterval<int64_t>(mask, lenQ - 1, lenQ, lenK);
    auto sameRow = rowInterval<Integer>(mask, {lenQ - 1}, {lenQ}, {lenK});
    EXPECT_EQ(row.lo, sameRow.lo.value);
    EXPECT_EQ(row.hi, sameRow.hi.value);
    EXPECT_EQ(row.sinkEnd, sameRow.sinkEnd.value);
  }
}

TEST(Contract, WorkOrdersGiveTheSame) {
  const WorkShape<int64_t> shape{5, 3, 4, 2, 8};
  for (WorkOrder order : allWorkOrders)
    for (int64_t t = 0; t < tilesOf(shape); ++t) {
      auto work = workAt<int64_t>(order, t, shape);
      auto same = workAt<Integer>(order, {t}, {{5}, {3}, {4}, {2}, {8}});
      EXPECT_EQ(work.m, same.m.value);
      EXPECT_EQ(work.head, same.head.value);
      EXPECT_EQ(work.batch, same.batch.value);
      EXPECT_EQ(work.split, same.split.value);
    }
}
