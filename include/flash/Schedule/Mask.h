//===- Mask.h - which keys a query sees -------------------------*- C++ -*-===//
//
// A mask in canonical form (spec: "Masks, made canonical first") and the interval of keys that one
// query row sees. Query i stands at position p = i + lenK - lenQ: the last query sees the last key.
//
//   key j is visible  iff  lo <= j < hi  or  j < sinkEnd
//
// Block ranges (BlockRange.h) and element masks are both made from keysFrom, keysTo and sinksTo, so
// they cannot disagree.
//
//===----------------------------------------------------------------------===//

#ifndef FLASH_SCHEDULE_MASK_H
#define FLASH_SCHEDULE_MASK_H

#include "flash/Schedule/Int.h"

#include <optional>
#include <string>
#include <string_view>

namespace flash::schedule {

enum class MaskKind { dense, causal, local };

inline constexpr MaskKind allMaskKinds[] = {MaskKind::dense, MaskKind::causal, MaskKind::local};

std::string_view maskName(MaskKind kind);

/// What a caller asks for; -1 leaves a side of the window unbounded.
struct MaskRequest {
  bool causal = false;
  int64_t left = -1;
  int64_t right = -1;
  int64_t chunk = 0;
  int64_t sinkTokens = 0;
};

/// The canonical mask. Dense and causal carry nothing else; local keeps -1 for an unbounded side.
struct Mask {
  MaskKind kind = MaskKind::dense;
  int64_t left = -1;
  int64_t right = -1;
  int64_t chunk = 0;
  int64_t sinkTokens = 0;

  bool boundsLeft() const { return left >= 0 || chunk > 0; }
  bool boundsRight() const { return right >= 0 || chunk > 0; }
  bool hasSinkTokens() const { return sinkTokens > 0; }
  bool operator==(const Mask &) const = default;
};

/// The sentence for a request that makes no sense, or nothing.
std::optional<std::string> whyNotMask(const MaskRequest &request);

/// The canonical mask of a valid request. Lengths below 0 are unknown: then only what holds for
/// every length is simplified.
Mask canonical(const MaskRequest &request, int64_t lenQ, int64_t lenK);

/// First key of position p's window; never below 0.
template <class I> I keysFrom(const Mask &mask, I p) {
  I from = constant(p, 0);
  if (mask.left >= 0)
    from = max(from, p - mask.left);
  if (mask.chunk > 0)
    from = max(from, floorDiv(max(p, int64_t(0)), mask.chunk) * mask.chunk);
  return from;
}

/// End (exclusive) of position p's window; at most lenK, 0 or below where the window is empty.
template <class I> I keysTo(const Mask &mask, I p, I lenK) {
  I to = lenK;
  if (mask.right >= 0)
    to = min(to, p + (mask.right + 1));
  if (mask.chunk > 0) // positions before the first key lie in chunks that hold none
    to = min(to, select(lessThan(p, int64_t(0)), constant(p, 0),
                        (floorDiv(max(p, int64_t(0)), mask.chunk) + int64_t(1)) * mask.chunk));
  return to;
}

/// End (exclusive) of the sink tokens that position p sees; 0 or below where it sees none.
template <class I> I sinksTo(const Mask &mask, I p, I lenK) {
  I to = min(lenK, mask.sinkTokens);
  if (mask.right >= 0)
    to = min(to, p + (mask.right + 1));
  return to;
}

template <class I> struct RowInterval {
  I lo, hi, sinkEnd;
};

/// What query `row` (not a packed row) sees: lo <= j < hi or j < sinkEnd. Without sink tokens
/// sinkEnd is the constant 0.
template <class I> RowInterval<I> rowInterval(const Mask &mask, I row, I lenQ, I lenK) {
  I p = row + lenK - lenQ;
  I sinkEnd = mask.hasSinkTokens() ? sinksTo(mask, p, lenK) : constant(p, 0);
  return {keysFrom(mask, p), keysTo(mask, p, lenK), sinkEnd};
}

} // namespace flash::schedule

#endif // FLASH_SCHEDULE_MASK_H
