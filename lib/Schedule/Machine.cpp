//===- Machine.cpp - the machine table ------------------------------------===//
//
// Limits are the CUDA C++ Programming Guide's ("Technical Specifications per Compute Capability").
// SMs and L2 cache are those of a common large part (A100, A10, L40S, H100 SXM and H200).
//
//===----------------------------------------------------------------------===//

#include "flash/Schedule/Machine.h"

namespace flash::schedule {

static constexpr Machine machines[] = {
    {.name = "cpu",
     .target = Target::cpu,
     .sharedBytesPerBlock = unlimited,
     .sharedBytesPerSm = unlimited,
     .registersPerSm = unlimited,
     .maxRegistersPerThread = unlimited,
     .maxThreads = unlimited,
     .sms = 1,
     .l2Bytes = 1 * mib,
     .namedBarriers = unlimited,
     .mmaRows = 1,
     .addsFours = false,
     .kernelsOverlap = false,
     .roles = false},
    {.name = "sm_80",
     .target = Target::sm80,
     .sharedBytesPerBlock = 163 * kib,
     .sharedBytesPerSm = 164 * kib,
     .registersPerSm = 64 * kib,
     .maxRegistersPerThread = 255,
     .maxThreads = 1024,
     .sms = 108,
     .l2Bytes = 40 * mib,
     .namedBarriers = 16,
     .mmaRows = 64,
     .addsFours = false,
     .kernelsOverlap = false,
     .roles = false},
    {.name = "sm_86",
     .target = Target::sm86,
     .sharedBytesPerBlock = 99 * kib,
     .sharedBytesPerSm = 100 * kib,
     .registersPerSm = 64 * kib,
     .maxRegistersPerThread = 255,
     .maxThreads = 1024,
     .sms = 72,
     .l2Bytes = 6 * mib,
     .namedBarriers = 16,
     .mmaRows = 64,
     .addsFours = false,
     .kernelsOverlap = false,
     .roles = false},
    {.name = "sm_89",
     .target = Target::sm89,
     .sharedBytesPerBlock = 99 * kib,
     .sharedBytesPerSm = 100 * kib,
     .registersPerSm = 64 * kib,
     .maxRegistersPerThread = 255,
     .maxThreads = 1024,
     .sms = 142,
     .l2Bytes = 96 * mib,
     .namedBarriers = 16,
     .mmaRows = 64,
     .addsFours = false,
     .kernelsOverlap = false,
     .roles = false},
    {.name = "sm_90a",
     .target = Target::sm90,
     .sharedBytesPerBlock = 227 * kib,
     .sharedBytesPerSm = 228 * kib,
     .registersPerSm = 64 * kib,
     .maxRegistersPerThread = 255,
     .maxThreads = 1024,
     .sms = 132,
     .l2Bytes = 50 * mib,
     .namedBarriers = 16,
     .mmaRows = 64,
     .addsFours = true,
     .kernelsOverlap = true,
     .roles = true},
};

const Machine &machineOf(Target target) {
  for (const Machine &machine : machines)
    if (machine.target == target)
      return machine;
  __builtin_unreachable(); // a test looks up every target
}

std::optional<Target> parseTarget(std::string_view name) {
  for (const Machine &machine : machines)
    if (machine.name == name)
      return machine.target;
  return std::nullopt;
}

std::string_view targetName(Target target) { return machineOf(target).name; }

} // namespace flash::schedule
