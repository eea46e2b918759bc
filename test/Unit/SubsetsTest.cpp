//===- SubsetsTest.cpp - every optional pass may be left out --------------===//
//
// Random small problems with random plans: whatever subset of the passes runs, on either clock and
// in any order that the rings allow, the CPU gives the same bits as the plainest kernel.
//
//===----------------------------------------------------------------------===//
#include "Cpu.h"
#include "flash/Passes.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "gtest/gtest.h"
#include <algorithm>
#include <random>

using namespace flash;
using namespace flash::test;
using schedule::Mask;
using schedule::MaskKind;

namespace {

enum Pass : unsigned {
  skipBlocks = 1,
  pipelineLoads = 2,
  splitRoles = 4,
  overlap = 8,
  exactCounts = 16,
  holdQ = 32,
  pingPong = 64,
  multicast = 128,
  stageStore = 256,
  all = 511,
  deferMax = 512 // changes numbers, by rounding only
};

struct Trial {
  Problem problem;
  std::string plan;
};

class Draw {
public:
  explicit Draw(uint64_t seed) : random(seed) {}
  int64_t among(int64_t low, int64_t high) { return low + int64_t(random() % (high - low + 1)); }
  template <class T> T of(std::initializer_list<T> values) {
    return values.begin()[random() % values.size()];
  }

  Mask mask() {
    switch (among(0, 3)) {
    case 0:
      return {};
    case 1:
      return {.kind = MaskKind::causal, .right = 0};
    default:
      Mask local{.kind = MaskKind::local, .left = among(-1, 6), .right = among(-1, 4)};
      local.chunk = of<int64_t>({0, 0, 5, 8});
      local.sinkTokens = of<int64_t>({0, 0, 3});
      if (local.left < 0 && local.right < 0 && !local.chunk)
        local.left = 2;
      return local;
    }
  }

  Trial trial() {
    Problem p;
    p.element = of<const char *>({"f32", "f16", "bf16"});
    p.batch = among(1, 2), p.kvHeads = among(1, 2), p.heads = p.kvHeads * among(1, 3);
    p.lenQ = among(1, 24), p.lenK = among(0, 28);
    p.d = of<int64_t>({8, 16}), p.dv = of<int64_t>({8, 16});
    p.mask = mask(), p.seed = random();
    p.softcap = of<double>({0, 0, 1.5}), p.sink = among(0, 2) == 0;
    p.splits = of<int64_t>({1, 1, 3});
    p.sink &= p.splits == 1;
    p.rows = of({Problem::dense, Problem::packed, Problem::paged});
    for (int64_t b = 0; b < p.batch && p.rows != Problem::dense; ++b) {
      p.usedQ.push_back(of({p.lenQ, among(0, p.lenQ)}));
      p.usedK.push_back(of({p.lenK, among(0, p.lenK)}));
    }
    auto number = [](int64_t n) { return std::to_string(n); };
    std::string plan =
        "tile = [" + number(of<int64_t>({4, 8, 16})) + ", " + number(of<int64_t>({4, 8})) +
        "], stages = " + number(among(1, 3)) +
        ", consumers = " + number(of<int64_t>({1, 2, 2, 4})) + ", split_by = \"" +
        of<const char *>({"rows", "rows", "columns"}) +
        "\", registers = [24, 240], overlap = true, q_in_regs = true, ping_pong = true, "
        "early_wait = " +
        of<const char *>({"true", "false"}) + ", order = \"" +
        (p.rows != Problem::dense && among(0, 1)
             ? "varlen_dynamic"
             : of<const char *>({"single", "static", "dynamic"})) +
        "\"";
    if (among(0, 1))
      plan += ", stealing = true";
    if (among(0, 1))
      plan += ", multicast = true";
    if (among(0, 2) == 0)
      plan += ", in_step = true";
    plan += ", staged_columns = " + number(of<int64_t>({3, 4, 8, 16}));
    if (p.splits > 1)
      plan += ", splits = " + number(p.splits);
    if (p.heads > p.kvHeads && among(0, 1))
      plan += ", pack_gqa = true";
    return {p, plan};
  }

private:
  std::mt19937_64 random;
};

llvm::Expected<Outputs> result(const Trial &trial, Inputs &inputs, unsigned passes,
                               const char *clock, uint64_t seed) {
  auto context = makeContext();
  auto module = compile(*context, opText(trial.problem, trial.plan), [&](mlir::OpPassManager &pm) {
    pm.addPass(createFlashLowerToTile());
    if (passes & skipBlocks)
      pm.addPass(createFlashTileSkipBlocks());
    if (passes & pipelineLoads)
      pm.addPass(createFlashTilePipelineLoads());
    if (passes & splitRoles)
      pm.addPass(createFlashTileSplitRoles());
    if (passes & multicast)
      pm.addPass(createFlashTileMulticast());
    if (passes & exactCounts)
      pm.addPass(createFlashTileExactCounts());
    if (passes & overlap)
      pm.addPass(createFlashTileOverlapSoftmax());
    if (passes & deferMax)
      pm.addPass(createFlashTileDeferMax());
    if (passes & holdQ)
      pm.addPass(createFlashTileHoldQ());
    if (passes & pingPong)
      pm.addPass(createFlashTilePingPong());
    if (passes & stageStore)
      pm.addPass(createFlashTileStageStore());
    pm.addPass(mlir::createCanonicalizerPass());
    pm.addPass(mlir::createCSEPass());
    pm.addPass(createConvertFlashTileToLoops({.clock = clock}));
  });
  if (!module)
    return module.takeError();
  auto program = CpuProgram::create(**module, {.optimize = false});
  if (!program)
    return program.takeError();
  return runKernels(**program, trial.problem, inputs, /*workers=*/1 + seed % 3, seed);
}

void check(const Trial &trial, Draw &draw, int subsets) {
  SCOPED_TRACE(trial.problem.describe() + " plan " + trial.plan);
  Inputs inputs = drawInputs(trial.problem);
  std::vector<Outputs> plain;
  for (unsigned skip : {0u, unsigned(skipBlocks)}) {
    auto got = result(trial, inputs, skip, "eager", 0);
    ASSERT_TRUE(bool(got)) << llvm::toString(got.takeError());
    ASSERT_EQ(differs(trial.problem, *got, expected(trial.problem, inputs)), std::nullopt);
    plain.push_back(std::move(*got));
  }
  // Splits share the blocks that are visited, so which split sees a key hangs on skip-blocks.
  if (trial.problem.splits == 1) {
    ASSERT_TRUE(plain[0] == plain[1]);
  }
  for (int i = 0; i < subsets; ++i) {
    unsigned passes = i == 0 ? all : draw.among(0, all);
    const char *clock = draw.of<const char *>({"eager", "late"});
    uint64_t seed = draw.among(0, 1000);
    auto got = result(trial, inputs, passes, clock, seed);
    ASSERT_TRUE(bool(got)) << "passes " << passes << " " << clock << " seed " << seed << ": "
                           << llvm::toString(got.takeError());
    const Outputs &want = plain[passes & skipBlocks];
    ASSERT_TRUE(*got == want) << "passes " << passes << " " << clock << " seed " << seed << ": "
                              << differs(trial.problem, *got, want).value_or("other bits");
  }
}

/// Keys that tower above those before them, in whichever block: a maximum of the blocks so far
/// lets p overflow, and the rows have to be redone.
void raiseKeys(const Problem &p, Inputs &inputs, Draw &draw) {
  for (int64_t n = draw.among(1, 3); n > 0; --n) {
    float factor = draw.of({30.f, 100.f, 3000.f});
    int64_t row = draw.among(0, p.batch * p.lenK * p.kvHeads - 1);
    for (int64_t c = 0; c < p.d; ++c) {
      float value = inputs.k.get(row * p.d + c) * factor;
      inputs.k.set(row * p.d + c, std::clamp(value, -30000.f, 30000.f));
    }
  }
}

/// A deferred maximum beside any other passes against float64, and against the plain kernel where
/// keys tower.
void checkDeferred(Trial trial, Draw &draw, int subsets) {
  trial.plan += ", defer_max = true";
  SCOPED_TRACE(trial.problem.describe() + " plan " + trial.plan);
  Inputs inputs = drawInputs(trial.problem);
  bool raised = draw.among(0, 3) > 0;
  if (raised)
    raiseKeys(trial.problem, inputs, draw);
  auto plain = result(trial, inputs, 0, "eager", 0);
  ASSERT_TRUE(bool(plain)) << llvm::toString(plain.takeError());
  Outputs want = raised ? std::move(*plain) : expected(trial.problem, inputs);
  for (int i = 0; i < subsets; ++i) {
    unsigned passes = skipBlocks | deferMax | draw.among(0, all);
    const char *clock = draw.of<const char *>({"eager", "late"});
    uint64_t seed = draw.among(0, 1000);
    auto got = result(trial, inputs, passes, clock, seed);
    ASSERT_TRUE(bool(got)) << "passes " << passes << " " << clock << " seed " << seed << ": "
                           << llvm::toString(got.takeError());
    ASSERT_EQ(differs(trial.problem, *got, want), std::nullopt)
        << "passes " << passes << " " << clock << " seed " << seed << (raised ? " raised" : "");
  }
}

/// Whether a trial has blocks to defer; f32 would show the rounding of towering scores themselves.
bool defers(const Problem &p) {
  return p.splits == 1 && p.softcap == 0 && p.element != "f32" && p.lenK >= 12;
}

void forEachTrial(llvm::function_ref<void(Trial &, Draw &)> visit) {
  const char *trials = std::getenv("FLASH_TRIALS"), *start = std::getenv("FLASH_SEED");
  for (int i = 0, n = trials ? atoi(trials) : 16; i < n && !testing::Test::HasFatalFailure(); ++i) {
    uint64_t seed = (start ? atoi(start) : 0) + i;
    SCOPED_TRACE("FLASH_SEED=" + std::to_string(seed));
    Draw draw(seed);
    Trial trial = draw.trial();
    visit(trial, draw);
  }
}

TEST(Subsets, GiveTheSameBits) {
  forEachTrial([](Trial &trial, Draw &draw) { check(trial, draw, 4); });
}

TEST(Subsets, ADeferredMaximumChangesNothingButRounding) {
  forEachTrial([](Trial &trial, Draw &draw) {
    while (!defers(trial.problem))
      trial = draw.trial();
    checkDeferred(trial, draw, 2);
  });
}

} // namespace
