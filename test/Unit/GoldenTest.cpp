//===- GoldenTest.cpp - test/golden, and what is no golden data -----------===//

#include "Golden.h"

#include <gtest/gtest.h>

using namespace flash;

TEST(Golden, EveryLineOfTheCopyPasses) {
  auto outcome = golden::checkFolder("test/golden");
  for (const std::string &failure : outcome.failures)
    ADD_FAILURE() << failure;
  EXPECT_EQ(outcome.passed, 2217);
}

TEST(Golden, NoticesAWrongAnswer) {
  const std::string line = R"({"kind":"pack_gqa","varlen_q":0,"seqlen_q":100,)"
                           R"("qhead_per_khead":8,"block_m":128,"pack":)";
  EXPECT_EQ(golden::check(line + "1}"), "");
  EXPECT_EQ(golden::check(line + "0}"), "pack is 0, computed 1");
}

TEST(Golden, SaysWhatIsNoGoldenLine) {
  EXPECT_EQ(golden::check("[1, 2"), "expected a JSON object");
  EXPECT_EQ(golden::check("{}"), "expected a string kind");
  EXPECT_EQ(golden::check(R"({"kind":"tides"})"), "unknown kind tides");
  EXPECT_EQ(golden::check(R"({"kind":"num_splits","total_mblocks":"x"})"),
            "expected an integer total_mblocks");
  EXPECT_EQ(golden::checkFolder("test/no-such-folder").failed, 1);
}
