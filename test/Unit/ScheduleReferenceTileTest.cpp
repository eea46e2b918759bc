//===- ScheduleReferenceTileTest.cpp - the reference's rows fit, too ------===//

#include "flash/Schedule/Tile.h"

#include <gtest/gtest.h>

using namespace flash::schedule;

TEST(Tile, ReferenceRowsFitSharedMemoryAndRegisters) {
  for (int64_t d = 32; d <= 256; d += 32)
    for (int64_t dv : {d, int64_t(256), int64_t(512)})
      for (int causal : {0, 1})
        for (int local : {0, 1}) {
          if (d > 64 && dv != d)
            continue;
          const TileQuery query{
              .headSize = d, .headSizeV = dv, .causal = causal != 0, .local = local != 0};
          SCOPED_TRACE("head sizes " + std::to_string(d) + ", " + std::to_string(dv));
          const Sm90Tile tile = referenceTileSm90(query);
          const int64_t bytes = 2, stages = 2, m = tile.tileM, n = tile.tileN;
          const int64_t p = tile.pvFromRegisters ? 0 : m * n;
          EXPECT_LE(bytes * (m * d + stages * n * (d + dv) + p),
                    machineOf(Target::sm90).sharedBytesPerBlock);
          // A wide output is divided among two consumers, as rows are otherwise.
          const int64_t consumers = std::max<int64_t>(m / machineOf(Target::sm90).mmaRows, 1);
          const Tile ours{m,
                          n,
                          stages,
                          dv == 512 ? 2 : consumers,
                          dv == 512 ? SplitBy::columns : SplitBy::rows,
                          24,
                          consumers == 3 ? 160 : 240,
                          tile.pvFromRegisters,
                          tile.overlap,
                          {}};
          EXPECT_EQ(whyNotTile(ours, {d, dv}, ElementType::bf16, machineOf(Target::sm90)),
                    std::nullopt);
        }
}

TEST(Tile, ReferenceRowsOfOlderMachinesFitSharedMemory) {
  for (Target target : {Target::sm80, Target::sm86, Target::sm89})
    for (int64_t d : {64, 96, 128, 192, 256})
      for (int flags = 0; flags < 16; ++flags) {
        const TileQuery query{.headSize = d,
                              .headSizeV = d,
                              .local = (flags & 1) != 0,
                              .paged = (flags & 2) != 0,
                              .varlenAndSplit = (flags & 4) != 0,
                              .appendKv = (flags & 8) != 0,
                              .sm86Or89 = target != Target::sm80};
        const Sm8xTile tile = referenceTileSm8x(query);
        const int64_t bytes = 2, q = tile.tileM * d, kv = tile.stages * tile.tileN * d;
        const int64_t held = tile.qInRegisters ? kv + std::max(q, kv) : q + 2 * kv;
        EXPECT_LE(bytes * held, machineOf(target).sharedBytesPerBlock) << d << " " << flags;
        EXPECT_EQ(tile.tileM % (16 * tile.warps), 0);
        EXPECT_EQ(tile.tileN % 16, 0);
      }
}

TEST(Tile, BackwardStartsFromTheReferencesTiles) {
  auto expect = [](Target target, int64_t d, bool causal, bool softcap, int64_t m, int64_t n) {
    BackwardTile tile = referenceTileBackward(target, d, causal, false, softcap);
    EXPECT_EQ(tile.tileM, m) << targetName(target) << " " << d;
    EXPECT_EQ(tile.tileN, n) << targetName(target) << " " << d;
    EXPECT_FALSE(tile.reason.empty());
  };
  expect(Target::sm90, 64, true, true, 96, 128);
  expect(Target::sm90, 64, true, false, 128, 128);
  expect(Target::sm90, 128, false, false, 80, 128);
  expect(Target::sm90, 128, true, false, 64, 128);
  expect(Target::sm90, 192, false, false, 64, 96);
  expect(Target::sm80, 128, false, false, 64, 128);
  expect(Target::sm80, 192, false, false, 64, 80);
  expect(Target::sm89, 96, false, false, 64, 128);
  expect(Target::sm86, 256, false, false, 32, 64);
  EXPECT_EQ(referenceTileBackward(Target::sm90, 192, false, false, false).consumers, 3);
}
