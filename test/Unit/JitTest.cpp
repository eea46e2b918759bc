//===- JitTest.cpp - attention on the CPU against float64 -----------------===//
#include "Cpu.h"
#include "flash/Passes.h"
#include "flash/Pipelines.h"
#include "mlir/Pass/PassManager.h"
#include "gtest/gtest.h"

using namespace flash;
using namespace flash::test;
using schedule::MaskKind;

namespace {

/// Compiles and runs the plainest kernel of a problem; what is wrong with it, or nothing.
std::string wrong(const Problem &problem, const std::string &plan, unsigned workers = 2,
                  const CpuOptions &options = {}) {
  auto context = makeContext();
  auto module = compile(*context, opText(problem, plan), [](mlir::OpPassManager &pm) {
    pm.addPass(createFlashLowerToTile());
    pm.addPass(createConvertFlashTileToLoops());
  });
  if (!module)
    return llvm::toString(module.takeError());
  auto program = CpuProgram::create(**module, options);
  if (!program)
    return llvm::toString(program.takeError());
  Inputs inputs = drawInputs(problem);
  auto got = runKernels(**program, problem, inputs, workers);
  if (!got)
    return llvm::toString(got.takeError());
  return differs(problem, *got, expected(problem, inputs)).value_or("");
}

TEST(Jit, EveryElementType) {
  for (const char *element : {"f32", "f16", "bf16"}) {
    Problem p{.element = element,
              .batch = 2,
              .heads = 2,
              .kvHeads = 2,
              .lenQ = 37,
              .lenK = 53,
              .d = 40,
              .dv = 24};
    EXPECT_EQ(wrong(p, "tile = [16, 32]"), "") << p.describe();
  }
}

TEST(Jit, EveryMask) {
  schedule::Mask masks[] = {{},
                            {.kind = MaskKind::causal, .right = 0},
                            {.kind = MaskKind::local, .left = 5, .right = 2},
                            {.kind = MaskKind::local, .left = -1, .right = 3},
                            {.kind = MaskKind::local, .left = 7, .right = 0, .chunk = 8},
                            {.kind = MaskKind::local, .left = 3, .right = 1, .sinkTokens = 2}};
  for (const schedule::Mask &mask : masks)
    for (auto [lenQ, lenK] :
         {std::pair(13, 29), std::pair(29, 13), std::pair(1, 1), std::pair(5, 0)}) {
      Problem p{.heads = 2, .kvHeads = 1, .lenQ = lenQ, .lenK = lenK, .mask = mask};
      EXPECT_EQ(wrong(p, "tile = [4, 4]"), "") << p.describe();
    }
}

TEST(Jit, SinkSoftcapPackedSplit) {
  Problem p{.element = "bf16",
            .heads = 6,
            .kvHeads = 2,
            .lenQ = 11,
            .lenK = 30,
            .d = 16,
            .dv = 16,
            .mask = {.kind = MaskKind::causal, .right = 0},
            .sink = true};
  EXPECT_EQ(wrong(p, "tile = [8, 8]"), "") << p.describe();
  EXPECT_EQ(wrong(p, "tile = [8, 8], pack_gqa = true"), "") << p.describe();
  p.softcap = 2;
  EXPECT_EQ(wrong(p, "tile = [8, 8]"), "") << p.describe();
  p.sink = false, p.splits = 3;
  EXPECT_EQ(wrong(p, "tile = [8, 8], splits = 3"), "") << p.describe();
  EXPECT_EQ(wrong(p, "tile = [8, 8], splits = 3, pack_gqa = true"), "") << p.describe();
}

TEST(Jit, EveryOrderAndAnyNumberOfWorkers) {
  Problem p{.batch = 3,
            .heads = 4,
            .kvHeads = 2,
            .lenQ = 21,
            .lenK = 17,
            .mask = {.kind = MaskKind::causal, .right = 0}};
  for (const char *order : {"single", "static", "dynamic"})
    for (unsigned workers : {1u, 3u, 100u})
      EXPECT_EQ(wrong(p, std::string("tile = [8, 8], order = \"") + order + "\"", workers), "")
          << order;
}

TEST(Jit, PlainProcessor) {
  Problem p{.element = "bf16", .heads = 2, .kvHeads = 2, .lenQ = 70, .lenK = 90, .d = 64, .dv = 64};
  EXPECT_EQ(wrong(p, "tile = [32, 32]", 2, {.cpu = "x86-64-v3"}), "");
  EXPECT_EQ(wrong(p, "tile = [32, 32]", 2, {.cpu = "host"}), "");
}

} // namespace
