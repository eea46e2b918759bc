//===- ScheduleLayoutTest.cpp - shared memory, splits, explanations -------===//

#include "flash/Schedule/Explain.h"
#include "flash/Schedule/PackGqa.h"
#include "flash/Schedule/Splits.h"

#include <gtest/gtest.h>

using namespace flash::schedule;

TEST(Layout, RingsInOrderBarriersLast) {
  const RingNeed rings[] = {
      {.name = "q", .bytes = 1000, .stages = 2},
      {.name = "k", .bytes = 2048, .stages = 3},
      {.name = "o", .bytes = 512, .stages = 2, .barriers = false, .alias = "q"},
      {.name = "work", .bytes = 4, .align = 16, .stages = 2}};
  auto made = layOut(rings, machineOf(Target::sm90));
  ASSERT_TRUE(std::holds_alternative<BlockLayout>(made));
  const BlockLayout &layout = std::get<BlockLayout>(made);
  EXPECT_EQ(layout.offsets, (std::vector<int64_t>{0, 2048, 0, 8192}));
  EXPECT_EQ(layout.slotBytes, (std::vector<int64_t>{1024, 2048, 1024, 16}));
  EXPECT_EQ(layout.barrierOffsets, (std::vector<int64_t>{8224, 8256, -1, 8304}));
  EXPECT_EQ(layout.sharedBytes, 8336);
}

TEST(Layout, RegistersOfABlockAreAMultipleOf8AThread) {
  EXPECT_EQ(launchedRegisters(machineOf(Target::sm90), 384), 168 * 384);
  EXPECT_EQ(launchedRegisters(machineOf(Target::sm90), 640), 96 * 640);
  EXPECT_EQ(launchedRegisters(machineOf(Target::sm90), 128), 248 * 128); // a thread names 255
  EXPECT_EQ(launchedRegisters(machineOf(Target::sm80), 256), 255 * 256); // and keeps them
}

TEST(Layout, SaysWhatDoesNotFit) {
  auto sentence = [](std::vector<RingNeed> rings) {
    auto made = layOut(rings, machineOf(Target::sm90));
    auto *text = std::get_if<std::string>(&made);
    return text ? *text : "fits";
  };
  EXPECT_EQ(sentence({{.name = "k", .bytes = 64 * kib, .stages = 4}}),
            "plan needs 262208 bytes of shared memory, sm_90a has 232448; use fewer stages");
  EXPECT_EQ(sentence({{.name = "k", .bytes = 256 * kib}}),
            "plan needs 262160 bytes of shared memory, sm_90a has 232448; use a smaller tile");
  EXPECT_EQ(sentence({{.name = "q", .bytes = 1024},
                      {.name = "o", .bytes = 1024, .stages = 2, .alias = "q"}}),
            "ring o needs 2048 bytes, its host q has 1024; give it fewer stages or bytes of its "
            "own");
  EXPECT_EQ(sentence({{.name = "o", .bytes = 1024, .alias = "q"}, {.name = "q", .bytes = 1024}}),
            "ring o reuses the bytes of q, which is no ring before it");
}

TEST(Splits, WorkedExamples) {
  EXPECT_EQ(numSplits({.tiles = 48,
                       .mTiles = 48,
                       .nTiles = 64,
                       .kvHeadBytes = 0,
                       .sms = 108,
                       .causalOrLocal = false}),
            2);
  EXPECT_EQ(numSplits({.tiles = 0,
                       .mTiles = 0,
                       .nTiles = 64,
                       .kvHeadBytes = 0,
                       .sms = 108,
                       .causalOrLocal = false}),
            1);
  // Where keys stream: one wave as full as can be, but no parts that rounding leaves as long.
  auto streamed = [](int64_t tiles, int64_t nTiles) {
    return streamedSplits({.tiles = tiles,
                           .mTiles = 1,
                           .nTiles = nTiles,
                           .kvHeadBytes = 0,
                           .sms = 132,
                           .causalOrLocal = false});
  };
  EXPECT_EQ(streamed(8, 32), 16); // 2 key tiles each; 11 to 15 parts would have 3
  EXPECT_EQ(streamed(8, 33), 11);
  EXPECT_EQ(streamed(8, 1024), 16);
  EXPECT_EQ(streamed(32, 128), 4);
  EXPECT_EQ(streamed(72, 128), 5);   // three waves of 26 instead of one of 128 on half the machine
  EXPECT_EQ(streamed(144, 128), 8);  // nine waves of 16 instead of two of 128
  EXPECT_EQ(streamed(128, 1024), 1); // busy enough
  EXPECT_EQ(streamed(512, 1024), 1);
  EXPECT_EQ(streamed(1, 4), 1);
  EXPECT_EQ(streamed(1, 1 << 20), defaultMaxSplits);
  EXPECT_EQ(streamed(0, 64), 1);
  // A window bounds what one query tile can load, and with it the splits.
  EXPECT_EQ(reachableKeyTiles(100000, 128, 0, 64, 64), 4);
  EXPECT_EQ(reachableKeyTiles(100, 128, 0, 64, 64), 2);
  EXPECT_TRUE(shouldPackGqa(false, 100, 8, 128));
  EXPECT_FALSE(shouldPackGqa(false, 0, 8, 128));
}

namespace {
std::string explained(Problem problem, bool json) {
  auto made = makePlan(problem);
  return std::holds_alternative<Plan>(made) ? explain(problem, std::get<Plan>(made), json) : "";
}
} // namespace

TEST(Explain, CountsBlocksOfAllTilesAndSaysWhy) {
  Problem p{.target = Target::sm90,
            .element = ElementType::bf16,
            .headSize = 128,
            .headSizeV = 128,
            .mask = {.causal = true},
            .batch = 4,
            .heads = 16,
            .kvHeads = 16,
            .lenQ = 4096,
            .lenK = 4096};
  const std::string text = explained(p, false);
  for (const char *part : {"attention on sm_90a: bf16", "205984 of 232448 bytes", "64512 of 65536",
                           "33792 of 65536 computed (51.6 %), 31744 skipped, 2048 masked",
                           "because: row sm90-128: measured best", "L2 sections of 16 heads",
                           "2048 tiles on 132 SMs: 15.5 waves in 16 rounds, grid 132"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  const std::string json = explained(p, true);
  for (const char *part : {"\"computed\": 33792", "\"limit\": 232448", "\"name\": \"dynamic\""})
    EXPECT_NE(json.find(part), std::string::npos) << part << "\n" << json;
}

TEST(Explain, LeavesOutWhatDependsOnUnknownSizes) {
  Problem p{.target = Target::cpu, .headSize = 64, .headSizeV = 64};
  const std::string text = explained(p, false);
  EXPECT_NE(text.find("any queries"), std::string::npos) << text;
  EXPECT_EQ(text.find("computed"), std::string::npos) << text;
  EXPECT_EQ(explained(p, true).find("\"blocks\""), std::string::npos);
}

TEST(Explain, VeryManyTilesAreCountedInPart) {
  Problem p{.target = Target::cpu,
            .headSize = 64,
            .headSizeV = 64,
            .mask = {.causal = true},
            .batch = 1,
            .heads = 1,
            .kvHeads = 1};
  for (int64_t length : {int64_t(1) << 20, (int64_t(1) << 31) - 1}) {
    p.lenQ = p.lenK = length;
    const Plan plan = std::get<Plan>(makePlan(p, {.splits = 1}));
    BlockCount count = countBlocks(plan, p);
    EXPECT_EQ(count.exact, length < (1 << 30));
    EXPECT_NEAR(double(count.computed) / double(count.all), 0.5, 1e-4);
    EXPECT_NEAR(double(count.masked) * plan.tileM / double(length), 1, 1e-4);
  }
}

TEST(Explain, SplitsShareTheBlocks) {
  Problem p{.target = Target::cpu,
            .headSize = 64,
            .headSizeV = 64,
            .batch = 1,
            .heads = 2,
            .kvHeads = 2,
            .lenQ = 100,
            .lenK = 1000,
            .numSplits = 5};
  const Plan plan = std::get<Plan>(makePlan(p));
  BlockCount count = countBlocks(plan, p);
  EXPECT_EQ(count.all, 2 * 2 * 16);
  EXPECT_EQ(count.computed, count.all);
  EXPECT_EQ(count.masked, 2 * 2 * 4); // 16 blocks by fours leave the fifth split none
}
