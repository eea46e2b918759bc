//===- MutantsTest.cpp - planted errors, and who notices ------------------===//
//
// The overlapped kernel with roles is broken in one place. The verifier sees what stands in one
// block, the late clock what is read too late, the baton what the rings forbid, and wrong numbers
// the rest.
//
//===----------------------------------------------------------------------===//
#include "Cpu.h"
#include "flash/Passes.h"
#include "flash/Tile.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "gtest/gtest.h"
#include <set>

using namespace flash;
using namespace flash::test;
using namespace flash::tile;

namespace {

/// The consumers' unmasked run of a kernel, and words for what stands in it; the loop over blocks
/// that a consumer hands back unread.
struct Kernel {
  mlir::ModuleOp module;
  mlir::scf::ForOp run, skip;

  explicit Kernel(mlir::ModuleOp module) : module(module) {
    RolesOp roles;
    module.walk([&](RolesOp op) { roles = op; });
    roles.getBodies()[1].walk([&](mlir::scf::ForOp loop) {
      auto name = loop->getAttrOfType<mlir::StringAttr>("flash_tile.run");
      if (name && name.getValue() == "inner")
        run = loop;
      if (!name && !skip && !loop.getBody()->getOps<ReleaseOp>().empty())
        skip = loop;
    });
  }
  RingOp ring(llvm::StringRef name) {
    RingOp found;
    module.walk([&](RingOp op) { found = op.getName() == name ? op : found; });
    return found;
  }
  template <class Op> Op of(llvm::StringRef ringName) { return of<Op>(run, ringName); }
  template <class Op> Op of(mlir::scf::ForOp loop, llvm::StringRef ringName) {
    for (Op op : loop.getBody()->getOps<Op>())
      if (op.getRing() == ring(ringName).getRing())
        return op;
    return {};
  }
  /// The n-th op of its kind in the run.
  template <class Op> Op nth(unsigned n) {
    return *std::next(run.getBody()->getOps<Op>().begin(), n);
  }
};

struct Mutant {
  const char *name;
  std::function<void(Kernel &)> plant;
  std::set<std::string> noticed;
};

const Mutant mutants[] = {
    {"none", [](Kernel &) {}, {}},
    {"K is released before QK is waited for",
     [](Kernel &k) { k.of<ReleaseOp>("k")->moveBefore(k.nth<MmaWaitOp>(0)); },
     {"verifier", "late"}},
    {"V is released before PV is waited for",
     [](Kernel &k) { k.of<ReleaseOp>("v")->moveBefore(k.nth<MmaWaitOp>(1)); },
     {"verifier", "late"}},
    {"V is never released", [](Kernel &k) { k.of<ReleaseOp>("v").erase(); }, {"deadlock"}},
    {"V of a block without work is not handed back",
     [](Kernel &k) { k.of<ReleaseOp>(k.skip, "v").erase(); },
     {"deadlock"}},
    {"V is of the wrong block",
     [](Kernel &k) {
       mlir::Value it = k.of<WaitOp>("k").getIt();
       k.of<WaitOp>("v").getItMutable().assign(it);
       k.of<ReleaseOp>("v").getItMutable().assign(it);
     },
     {"deadlock"}},
    {"one release too few is counted", [](Kernel &k) { k.ring("v").setReleases(1); }, {"overrun"}},
    {"Q is released before the last product",
     [](Kernel &k) {
       mlir::Value tile = k.nth<MmaOp>(0).getA();
       auto wait = tile.getDefiningOp<WaitOp>();
       mlir::OpBuilder b = mlir::OpBuilder::atBlockBegin(k.run.getBody());
       ReleaseOp::create(b, k.run.getLoc(), wait.getRing(), wait.getIt());
     },
     {"verifier", "overrun"}},
    {"the output is not rescaled",
     [](Kernel &k) {
       auto rescale = k.nth<RescaleOp>(0);
       rescale.getResult().replaceAllUsesWith(rescale.getO());
       rescale.erase();
     },
     {"eager", "late"}},
};

/// Runs a kernel a few times on a clock; what it was noticed by goes into `noticed`.
void runOn(mlir::ModuleOp kernel, const char *clock, const Problem &problem, unsigned workers,
           std::set<std::string> &noticed) {
  Inputs inputs = drawInputs(problem);
  Outputs want = expected(problem, inputs);
  mlir::OwningOpRef<mlir::ModuleOp> module = kernel.clone();
  mlir::PassManager pm(module->getContext());
  pm.enableVerifier(false);
  pm.addPass(createConvertFlashTileToLoops({.clock = clock}));
  ASSERT_TRUE(mlir::succeeded(pm.run(*module)));
  auto program = CpuProgram::create(*module, {.optimize = false});
  ASSERT_TRUE(bool(program)) << llvm::toString(program.takeError());
  for (uint64_t seed = 0; seed < 8; ++seed) {
    auto got = runKernels(**program, problem, inputs, workers, seed);
    if (!got) {
      std::string sentence = llvm::toString(got.takeError());
      noticed.insert(sentence.substr(0, sentence.find(':')));
    } else if (differs(problem, *got, want)) {
      noticed.insert(clock);
    }
  }
}

/// Plants each error in the overlapped kernel of a causal problem whose plan says `structures` too.
void check(const std::string &structures, llvm::ArrayRef<Mutant> mutants, unsigned workers = 1) {
  Problem problem{.heads = 2,
                  .kvHeads = 1,
                  .lenQ = 40,
                  .lenK = 72,
                  .mask = {.kind = schedule::MaskKind::causal, .right = 0}};
  auto context = makeContext();
  auto module =
      compile(*context,
              opText(problem, "tile = [16, 8], stages = 2, consumers = 2, registers = [24, 240], "
                              "overlap = true, exact_counts = true" +
                                  structures),
              [](mlir::OpPassManager &pm) {
                pm.addPass(createFlashLowerToTile());
                pm.addPass(createFlashTileSkipBlocks());
                pm.addPass(createFlashTilePipelineLoads());
                pm.addPass(createFlashTileSplitRoles());
                pm.addPass(createFlashTileMulticast());
                pm.addPass(createFlashTileExactCounts());
                pm.addPass(createFlashTileOverlapSoftmax());
                pm.addPass(createFlashTileHoldQ());
                pm.addPass(createFlashTilePingPong());
                pm.addPass(mlir::createCSEPass());
              });
  ASSERT_TRUE(bool(module)) << llvm::toString(module.takeError());
  for (const Mutant &mutant : mutants) {
    SCOPED_TRACE(mutant.name);
    mlir::OwningOpRef<mlir::ModuleOp> copy = (*module)->clone();
    Kernel kernel(*copy);
    ASSERT_TRUE(kernel.run && kernel.skip);
    mutant.plant(kernel);
    std::set<std::string> noticed;
    {
      mlir::ScopedDiagnosticHandler quiet(context.get(), [](auto &) { return mlir::success(); });
      if (mlir::failed(mlir::verify(*copy)))
        noticed.insert("verifier");
    }
    runOn(*copy, "eager", problem, workers, noticed);
    runOn(*copy, "late", problem, workers, noticed);
    EXPECT_EQ(noticed, mutant.noticed);
  }
}

TEST(Mutants, AreNoticed) { check("", mutants); }

/// The first op of its kind below `root`.
template <class Op> Op first(mlir::Operation *root) {
  Op found;
  root->walk([&](Op op) { found = found ? found : op; });
  return found;
}

TEST(Mutants, OfTurnsAndQInRegistersAreNoticed) {
  const Mutant planted[] = {
      {"none", [](Kernel &) {}, {}},
      {"an empty turn is missing",
       [](Kernel &k) { first<InTurnOp>(k.skip).erase(); },
       {"deadlock"}},
      {"K is not awaited early, but taken for awaited",
       [](Kernel &k) {
         k.run.walk([&](WaitOp wait) {
           if (wait.getTile().use_empty())
             wait.erase();
         });
       },
       {"early"}},
      {"Q is released before it is read",
       [](Kernel &k) {
         auto read = first<ReadOp>(k.module);
         for (auto release : read->getBlock()->getOps<ReleaseOp>())
           if (read->isBeforeInBlock(release)) {
             release->moveBefore(read);
             break;
           }
       },
       {"verifier", "late"}},
  };
  check(", q_in_regs = true, early_wait = true, ping_pong = true", planted);
}

TEST(Mutants, OfClustersAreNoticed) {
  const Mutant planted[] = {
      {"none", [](Kernel &) {}, {}},
      {"a block fetches what its own rows need",
       [](Kernel &k) {
         k.module.walk([](BlockRangeOp range) {
           auto work = llvm::dyn_cast<ForWorkOp>(range->getParentOp());
           if (!work || range.getRows() != 32)
             return;
           mlir::OpBuilder b(range);
           mlir::Value rows = mlir::arith::ConstantIndexOp::create(b, range.getLoc(), 16);
           mlir::Value m = work.getBody().getArgument(0);
           range.getRow0Mutable().assign(mlir::arith::MulIOp::create(b, range.getLoc(), m, rows));
           range.setRows(16);
         });
       },
       {"unmatched"}},
  };
  check(", order = \"static\", multicast = true", planted, /*workers=*/2);
}

} // namespace
