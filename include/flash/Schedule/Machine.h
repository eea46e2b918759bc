//===- Machine.h - what a target offers -------------------------*- C++ -*-===//
//
// One table of machine facts. Nothing else in the project knows a machine's numbers.
//
//===----------------------------------------------------------------------===//

#ifndef FLASH_SCHEDULE_MACHINE_H
#define FLASH_SCHEDULE_MACHINE_H

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

namespace flash::schedule {

enum class Target { cpu, sm80, sm86, sm89, sm90 };

inline constexpr Target allTargets[] = {Target::cpu, Target::sm80, Target::sm86, Target::sm89,
                                        Target::sm90};

inline constexpr int64_t kib = 1024;
inline constexpr int64_t mib = 1024 * kib;

// Shares of the L2 cache that planning counts on, the same for every machine.
inline constexpr int64_t l2SplitBudget = 50 * mib;    ///< keys and values that stay without a split
inline constexpr int64_t l2SectionBudget = 32 * mib;  ///< keys and values of a forward section
inline constexpr int64_t l2StreamBudget = 128 * mib;  ///< keys and values that make way for others
inline constexpr int64_t l2BackwardBudget = 40 * mib; ///< Q, dO and dQ of a backward section

/// The machine has no such limit.
inline constexpr int64_t unlimited = std::numeric_limits<int64_t>::max();

/// What all GPUs here share.
inline constexpr int64_t warpThreads = 32;
inline constexpr int64_t warpgroupWarps = 4; ///< a consumer is a warpgroup
inline constexpr int64_t warpRows = 16;      ///< rows that a warp multiplies at a time

struct Machine {
  std::string_view name;
  Target target;
  int64_t sharedBytesPerBlock;   ///< the most one block may ask for
  int64_t sharedBytesPerSm;      ///< of one multiprocessor, all its blocks together
  int64_t registersPerSm;        ///< 32-bit registers
  int64_t maxRegistersPerThread; ///< as an instruction can name them
  int64_t maxThreads;            ///< of one block
  int64_t sms;                   ///< of the largest common part; a launcher knows the real number
  int64_t l2Bytes;               ///< of that part
  int64_t namedBarriers;         ///< of one block, barrier 0 included
  int64_t mmaRows;               ///< rows of the smallest product one consumer issues
  bool addsFours;                ///< four neighbouring f32 are added to global memory at once
  bool kernelsOverlap;           ///< a kernel may begin before the one that it waits for has ended
  bool roles; ///< one thread copies a tile, and roles have registers of their own
};

const Machine &machineOf(Target target);

/// "cpu", "sm_80", "sm_86", "sm_89", "sm_90a".
std::optional<Target> parseTarget(std::string_view name);
std::string_view targetName(Target target);

} // namespace flash::schedule

#endif // FLASH_SCHEDULE_MACHINE_H
