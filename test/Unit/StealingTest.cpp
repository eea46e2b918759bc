//===- StealingTest.cpp - tiles from a counter, under the baton -----------===//
#include "Cpu.h"
#include "flash/Passes.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "gtest/gtest.h"

using namespace flash;
using namespace flash::test;
using schedule::MaskKind;

namespace {

// Outputs start as NaN, so a tile that nobody takes is seen; so is a counter that an earlier run
// has not left at 0, for then tiles are missing.
TEST(Stealing, EveryTileInEveryRunForAnyNumberOfBlocks) {
  Problem p{.batch = 2,
            .heads = 3,
            .kvHeads = 3,
            .lenQ = 21,
            .lenK = 26,
            .mask = {.kind = MaskKind::causal, .right = 0}};
  Inputs inputs = drawInputs(p);
  const Outputs want = expected(p, inputs);
  for (const char *order : {"static", "dynamic"}) {
    for (const char *clock : {"eager", "late"}) {
      SCOPED_TRACE(std::string(order) + " " + clock);
      auto context = makeContext();
      std::string plan = "tile = [8, 8], stages = 2, consumers = 2, overlap = true, "
                         "stealing = true, order = \"" +
                         std::string(order) + "\"";
      auto module = compile(*context, opText(p, plan), [&](mlir::OpPassManager &pm) {
        pm.addPass(createFlashLowerToTile());
        pm.addPass(createFlashTileSkipBlocks());
        pm.addPass(createFlashTilePipelineLoads());
        pm.addPass(createFlashTileSplitRoles());
        pm.addPass(createFlashTileExactCounts());
        pm.addPass(createFlashTileOverlapSoftmax());
        pm.addPass(createConvertFlashTileToLoops({.clock = clock}));
      });
      ASSERT_TRUE(bool(module)) << llvm::toString(module.takeError());
      auto program = CpuProgram::create(**module, {.optimize = false});
      ASSERT_TRUE(bool(program)) << llvm::toString(program.takeError());
      for (unsigned workers : {1u, 3u, 17u, 18u, 19u, 100u, 2u}) { // of 18 tiles
        auto got = runKernels(**program, p, inputs, workers);
        ASSERT_TRUE(bool(got)) << workers << " blocks: " << llvm::toString(got.takeError());
        ASSERT_EQ(differs(p, *got, want), std::nullopt) << workers << " blocks";
      }
    }
  }
}

} // namespace
