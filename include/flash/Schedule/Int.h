//===- Int.h - the integer contract of the planning formulas ----*- C++ -*-===//
//
// Block ranges, row intervals and work orders are templates over an integer type I. Tests and the
// planner evaluate them with int64_t, the passes emit them as IR through a thin wrapper over a
// value: one formula, several readers. A formula only uses
//
//   a + b, a - b, a * b                  between I and I, or I and int64_t (on the right)
//   floorDiv(a, b), ceilDiv(a, b), remainder(a, b)
//   min(a, b), max(a, b)                 b an I or an int64_t
//   lessThan(a, b) -> Bool               b an I or an int64_t
//   select(Bool, a, b)
//   constant(like, int64_t) -> I         a constant where `like` lives
//
// found by argument-dependent lookup. Numerators of the three divisions are never negative and
// divisors never below 1 (formulas clamp first), so an emitter may divide unsigned. Everything else
// may be negative. Facts known when a kernel is compiled (mask, tile, group) are plain C++ values.
//
//===----------------------------------------------------------------------===//

#ifndef FLASH_SCHEDULE_INT_H
#define FLASH_SCHEDULE_INT_H

#include <cstdint>

namespace flash::schedule {

constexpr int64_t floorDiv(int64_t a, int64_t b) { return a / b; }
constexpr int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t remainder(int64_t a, int64_t b) { return a % b; }
constexpr int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t max(int64_t a, int64_t b) { return a < b ? b : a; }
constexpr bool lessThan(int64_t a, int64_t b) { return a < b; }
constexpr int64_t select(bool condition, int64_t a, int64_t b) { return condition ? a : b; }
constexpr int64_t constant(int64_t /*like*/, int64_t value) { return value; }

/// a >= low and a <= high; high wins where they contradict.
template <class I> constexpr I clamp(I a, I low, I high) { return min(max(a, low), high); }

} // namespace flash::schedule

#endif // FLASH_SCHEDULE_INT_H
