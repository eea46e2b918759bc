//===- Layout.cpp - shared memory and registers of a block ----------------===//

#include "flash/Schedule/Layout.h"

#include <algorithm>

namespace flash::schedule {

static int64_t roundUp(int64_t bytes, int64_t align) { return ceilDiv(bytes, align) * align; }

std::variant<BlockLayout, std::string> layOut(std::span<const RingNeed> rings,
                                              const Machine &machine) {
  BlockLayout layout;
  int64_t end = 0, mostStages = 1;
  for (const RingNeed &ring : rings) {
    const int64_t slot = roundUp(ring.bytes, ring.align);
    layout.slotBytes.push_back(slot);
    mostStages = max(mostStages, ring.stages);
    if (ring.alias.empty()) {
      layout.offsets.push_back(roundUp(end, ring.align));
      end = layout.offsets.back() + slot * ring.stages;
      continue;
    }
    auto host = std::find_if(rings.begin(), rings.begin() + (&ring - rings.data()),
                             [&](const RingNeed &other) { return other.name == ring.alias; });
    if (&*host == &ring)
      return "ring " + ring.name + " reuses the bytes of " + ring.alias +
             ", which is no ring before it";
    const int64_t room = layout.slotBytes[host - rings.begin()] * host->stages;
    if (slot * ring.stages > room)
      return "ring " + ring.name + " needs " + std::to_string(slot * ring.stages) +
             " bytes, its host " + host->name + " has " + std::to_string(room) +
             "; give it fewer stages or bytes of its own";
    layout.offsets.push_back(layout.offsets[host - rings.begin()]);
  }
  end = roundUp(end, barrierBytes);
  for (const RingNeed &ring : rings) {
    layout.barrierOffsets.push_back(ring.barriers ? end : -1);
    end += ring.barriers ? 2 * barrierBytes * ring.stages : 0;
  }
  layout.sharedBytes = end;
  if (end > machine.sharedBytesPerBlock)
    return "plan needs " + std::to_string(end) + " bytes of shared memory, " +
           std::string(machine.name) + " has " + std::to_string(machine.sharedBytesPerBlock) +
           (mostStages > 1 ? "; use fewer stages" : "; use a smaller tile");
  return layout;
}

int64_t launchedRegisters(const Machine &machine, int64_t threads) {
  const int64_t step = machine.roles ? 8 : 1; // setmaxnreg's
  return min(machine.registersPerSm / threads, machine.maxRegistersPerThread) / step * step *
         threads;
}

} // namespace flash::schedule
