//===- ScheduleProblemTest.cpp - what no target computes ------------------===//

#include "flash/Schedule/Plan.h"

#include <gtest/gtest.h>

using namespace flash::schedule;

namespace {
Problem problem(Target target, int64_t d = 128, int64_t dv = 128) {
  Problem p;
  p.target = target;
  p.element = ElementType::bf16;
  p.headSize = d;
  p.headSizeV = dv;
  p.batch = 2;
  p.heads = p.kvHeads = 8;
  p.lenQ = p.lenK = 1024;
  return p;
}
} // namespace

TEST(Problem, SaysWhatNoTargetComputes) {
  EXPECT_EQ(whyNotProblem(problem(Target::sm90, 520, 520)),
            "expected q's head size (520) to be a multiple of 8 from 8 to 256");
  EXPECT_EQ(whyNotProblem(problem(Target::cpu, 128, 512)),
            "expected v's head size (512) to be a multiple of 8 from 8 to 256, or 512 where q's "
            "(128) is 64");
  Problem p = problem(Target::cpu);
  p.heads = 3;
  p.kvHeads = 2;
  EXPECT_EQ(whyNotProblem(p), "expected q's heads (3) to be a multiple of k's (2)");
  p = problem(Target::cpu);
  p.kvHeads = 0;
  EXPECT_EQ(whyNotProblem(p), "expected a number of k's heads from 1 to 2^31 - 1, it is 0");
  p = problem(Target::cpu);
  p.lenK = int64_t(1) << 31;
  EXPECT_EQ(whyNotProblem(p), "expected a number of keys from 0 to 2^31 - 1, it is 2147483648");
  p = problem(Target::cpu);
  p.mask = {.left = -1, .right = -3};
  EXPECT_NE(whyNotProblem(p), std::nullopt);
  p = problem(Target::sm90);
  p.element = ElementType::f32;
  EXPECT_EQ(whyNotProblem(p),
            "expected f16 or bf16 on sm_90a, the element type is f32, which only cpu computes");
  p = problem(Target::cpu);
  p.lenQ = p.lenK = p.batch = p.heads = 0; // a no-op, not an error
  p.element = ElementType::f32;
  EXPECT_EQ(whyNotProblem(p), std::nullopt);
  EXPECT_EQ(tilesOf(workShapeOf(std::get<Plan>(makePlan(p)), p)), 0);
}
