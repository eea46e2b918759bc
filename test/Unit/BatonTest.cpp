//===- BatonTest.cpp - the rules of rings, one program against another ----===//
#include "flash/Runtime/Baton.h"
#include "gtest/gtest.h"

using flash::Baton;

extern "C" {
void flash_baton_acquire(int64_t, int64_t);
void flash_baton_commit(int64_t, int64_t);
void flash_baton_wait(int64_t, int64_t);
bool flash_baton_release(int64_t, int64_t);
void flash_baton_wait_again(int64_t, int64_t);
void flash_baton_enter(int64_t, int64_t);
void flash_baton_leave(int64_t, int64_t);
}

namespace {

void fill(int64_t ordinal) {
  flash_baton_acquire(0, ordinal);
  flash_baton_commit(0, ordinal);
}
void read(int64_t ordinal) {
  flash_baton_wait(0, ordinal);
  flash_baton_release(0, ordinal);
}

/// What the baton says of two programs over a ring of 2 stages, whatever the order of steps.
std::string said(std::function<void()> producer, std::function<void()> consumer,
                 int64_t writers = 1, int64_t releases = 1) {
  std::string first;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Baton baton({{"k", 2, writers, releases}}, seed);
    std::string sentence =
        llvm::toString(baton.run({{"producer", producer}, {"consumer", consumer}}));
    if (seed == 0)
      first = sentence;
    EXPECT_EQ(sentence, first) << "seed " << seed;
  }
  return first;
}

TEST(Baton, LetsARightProgramPass) {
  auto all = [](void (*step)(int64_t)) {
    return [step] {
      for (int64_t it = 0; it < 7; ++it)
        step(it);
    };
  };
  EXPECT_EQ(said(all(fill), all(read)), "");
}

TEST(Baton, NamesWhoWaitsForWhat) {
  EXPECT_EQ(said([] { fill(0); }, [] { read(0), read(1); }),
            "deadlock: consumer waits for ordinal 1 of ring k: it has 0 of 1 fills");
  EXPECT_EQ(
      said([] { fill(0), fill(1), fill(2); }, [] { read(1); }),
      "deadlock: producer waits to fill ordinal 2 of ring k: ordinal 0 of its slot has 0 of 1 "
      "releases");
}

TEST(Baton, RefusesGapsOverrunsAndLeftovers) {
  EXPECT_EQ(said([] { fill(0), fill(1), fill(1); }, [] {}),
            "overrun: producer fills ordinal 1 of ring k, which has its 1 fills");
  EXPECT_EQ(said([] { fill(0); }, [] { read(0), flash_baton_release(0, 0); }),
            "overrun: consumer releases ordinal 0 of ring k, which has its 1 releases");
  EXPECT_EQ(said([] { fill(0), fill(1); }, [] { read(0); }),
            "unmatched: slot 1 of ring k ends with 1 fills by 1 and 0 releases by 1");
  EXPECT_EQ(said([] { fill(-1); }, [] {}), "producer names ordinal -1 of ring k");
}

TEST(Baton, KeepsTheOrderOfTurns) {
  auto turns = [](int64_t instance, int count) {
    return [=] {
      for (int i = 0; i < count; ++i)
        flash_baton_enter(instance, 2), flash_baton_leave(instance, 2);
    };
  };
  EXPECT_EQ(said(turns(0, 3), turns(1, 3)), "");
  EXPECT_EQ(said(turns(0, 3), turns(1, 2)),
            "unmatched: instance 1 took fewer turns than the one before it");
  EXPECT_EQ(said(turns(0, 3), turns(1, 1)),
            "deadlock: producer waits for its turn: instance 1 has not entered as often");
}

TEST(Baton, ATileIsAwaitedBeforeItIsAwaitedAgain) {
  auto again = [](bool first) {
    return [first] {
      if (first)
        flash_baton_wait(0, 0);
      flash_baton_wait_again(0, 0);
    };
  };
  EXPECT_EQ(said([] { fill(0); }, [&] { again(true)(), flash_baton_release(0, 0); }), "");
  bool noticed = false;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Baton baton({{"k", 2, 1, 1}}, seed);
    std::string sentence =
        llvm::toString(baton.run({{"producer", [] { fill(0); }}, {"consumer", again(false)}}));
    noticed |=
        sentence == "early: consumer reads ordinal 0 of ring k without a wait, which is not filled";
  }
  EXPECT_TRUE(noticed);
}

TEST(Baton, CountsWritersAndReleases) {
  EXPECT_EQ(said([] { fill(0), fill(0); }, [] { read(0), flash_baton_release(0, 0); },
                 /*writers=*/2, /*releases=*/2),
            "");
}

} // namespace
