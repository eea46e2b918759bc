//===- Explain.h - a plan in words ------------------------------*- C++ -*-===//

#ifndef FLASH_SCHEDULE_EXPLAIN_H
#define FLASH_SCHEDULE_EXPLAIN_H

#include "flash/Schedule/Plan.h"

namespace flash::schedule {

/// Key blocks of one launch, over all tiles, heads and batches.
struct BlockCount {
  int64_t all;       ///< tiles times key blocks
  int64_t computed;  ///< that the mask and the lengths leave
  int64_t masked;    ///< of these, with element masks
  bool exact = true; ///< else counted from a part of very many tiles
};
/// All sizes must be known.
BlockCount countBlocks(const Plan &plan, const Problem &problem);

/// The plan and why: tile, shared memory and registers against their limits, blocks computed,
/// skipped and masked, splits, order, waves. Text for people, or one JSON object.
std::string explain(const Problem &problem, const Plan &plan, bool json);

} // namespace flash::schedule

#endif // FLASH_SCHEDULE_EXPLAIN_H
