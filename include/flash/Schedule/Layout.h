//===- Layout.h - shared memory and registers of a block --------*- C++ -*-===//
//
// Rings of shared tiles in declaration order, mbarriers behind them:
//
//   | ring 0 | ring 1 | ... | full, empty of ring 0's slots | of ring 1's | ... |
//
//===----------------------------------------------------------------------===//

#ifndef FLASH_SCHEDULE_LAYOUT_H
#define FLASH_SCHEDULE_LAYOUT_H

#include "flash/Schedule/Int.h"
#include "flash/Schedule/Machine.h"

#include <span>
#include <string>
#include <variant>
#include <vector>

namespace flash::schedule {

/// Slots of 128-byte swizzled panels begin at multiples of this.
inline constexpr int64_t ringAlign = 1024;
inline constexpr int64_t barrierBytes = 8;
inline constexpr int64_t panelColumns = 64; ///< of two bytes

/// Bytes of a tile: panels of 128 bytes a row, the swizzle's width, one behind the other.
constexpr int64_t tileBytes(int64_t rows, int64_t columns, int64_t elementBytes) {
  const int64_t panel = 128;
  return rows * ceilDiv(columns * elementBytes, panel) * panel;
}

/// Bytes of a row of `columns` f32.
constexpr int64_t rowBytes(int64_t columns) {
  const int64_t piece = 16;
  return ceilDiv(columns * 4, piece) * piece;
}

struct RingNeed {
  std::string name;
  int64_t bytes;             ///< of one slot
  int64_t align = ringAlign; ///< of the ring and each slot
  int64_t stages = 1;
  bool barriers = true;   ///< full and empty mbarriers for each slot
  std::string alias = {}; ///< name of an earlier ring whose bytes it reuses
};

struct BlockLayout {
  std::vector<int64_t> offsets;   ///< byte of slot 0, one per ring
  std::vector<int64_t> slotBytes; ///< from one slot to the next
  std::vector<int64_t>
      barrierOffsets; ///< slot 0's full barrier, then all full, then all empty; -1: none
  int64_t sharedBytes;
};

/// The layout, or the sentence why there is none.
std::variant<BlockLayout, std::string> layOut(std::span<const RingNeed> rings,
                                              const Machine &machine);

/// Registers that a block of so many threads is launched with, as many for each. Its roles share
/// them: who wants more waits until others have given some back, from no other pool (PTX ISA,
/// "setmaxnreg"); with more than these it would wait for ever.
int64_t launchedRegisters(const Machine &machine, int64_t threads);

} // namespace flash::schedule

#endif // FLASH_SCHEDULE_LAYOUT_H
