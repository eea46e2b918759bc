//===- ScheduleTileTest.cpp - tile rows fit their machines ----------------===//

#include "flash/Schedule/Plan.h"

#include <gtest/gtest.h>

using namespace flash::schedule;

namespace {
/// Every pair of head sizes that spec 1 names, as tiles hold them.
std::vector<HeadTile> headTiles(Target target) {
  std::vector<HeadTile> pairs;
  auto add = [&](int64_t d, int64_t dv) { pairs.push_back(headTileOf(target, d, dv)); };
  for (int64_t d = 8; d <= 256; d += 8)
    for (int64_t dv = 8; dv <= 256; dv += 8)
      add(d, dv);
  add(64, 512);
  return pairs;
}

Plan planOf(const Tile &tile, HeadTile head, const Machine &machine) {
  Plan plan;
  plan.roles = machine.roles;
  plan.tileM = tile.tileM;
  plan.tileN = tile.tileN;
  plan.headTile = head.d;
  plan.headTileV = head.dv;
  plan.stages = tile.stages;
  plan.consumers = tile.consumers;
  plan.splitBy = tile.splitBy;
  plan.deferMax = tile.deferMax;
  return plan;
}
} // namespace

TEST(Tile, EveryHeadSizePairAndMaskHasARowThatFits) {
  for (Target target : allTargets)
    for (HeadTile head : headTiles(target))
      for (MaskKind mask : allMaskKinds) {
        SCOPED_TRACE(std::string(targetName(target)) + " " + std::to_string(head.d) + " " +
                     std::to_string(head.dv) + " " + std::string(maskName(mask)));
        for (unsigned bits = 0; bits < 8; ++bits) {
          const int64_t queries = bits & 1 ? 1 : unlimited;
          const auto row = defaultTile(target, head, mask, queries, bits & 2, bits & 4);
          ASSERT_TRUE(row);
          const Machine &machine = machineOf(target);
          EXPECT_EQ(whyNotTile(row->tile, head, ElementType::bf16, machine), std::nullopt);
          auto layout =
              layOut(ringsOf(planOf(row->tile, head, machine), ElementType::bf16), machine);
          if (auto *sentence = std::get_if<std::string>(&layout))
            ADD_FAILURE() << row->name << ": " << *sentence;
        }
      }
}

TEST(Tile, EveryRowIsUsedAndSaysWhy) {
  for (const TileRow &row : tileRows()) {
    EXPECT_FALSE(row.tile.reason.empty()) << row.name;
    bool used = false;
    for (HeadTile head : headTiles(row.target))
      for (MaskKind mask : allMaskKinds)
        if (auto found = defaultTile(row.target, head, mask, row.maxRows, row.looksUp, row.caps))
          used |= found->name == row.name;
    EXPECT_TRUE(used) << row.name;
  }
}

TEST(Tile, HeadSizesPadToTheWiderBesidesTheirOwnPairs) {
  auto expect = [](int64_t d, int64_t dv, int64_t tile, int64_t tileV) {
    HeadTile head = headTileOf(Target::sm90, d, dv);
    EXPECT_EQ(head.d, tile);
    EXPECT_EQ(head.dv, tileV);
  };
  expect(8, 8, 64, 64);
  expect(72, 40, 96, 96);
  expect(64, 128, 128, 128);
  expect(192, 128, 192, 128);
  expect(160, 120, 192, 128);
  expect(64, 256, 64, 256);
  expect(64, 512, 64, 512);
  expect(200, 64, 256, 256);
  EXPECT_EQ(headTileOf(Target::cpu, 72, 40).d, 72);
}

TEST(Machine, NamesComeBackAndLimitsAreTheDocumentedOnes) {
  for (Target target : allTargets)
    EXPECT_EQ(parseTarget(targetName(target)), target);
  EXPECT_EQ(parseTarget("sm_42"), std::nullopt);
  EXPECT_EQ(machineOf(Target::sm90).sharedBytesPerBlock, 232448);
  EXPECT_EQ(machineOf(Target::sm86).sharedBytesPerBlock, 101376);
  EXPECT_EQ(machineOf(Target::sm80).sharedBytesPerBlock, 166912);
  for (ElementType element : allElementTypes)
    EXPECT_EQ(parseElement(elementName(element)), element);
}
