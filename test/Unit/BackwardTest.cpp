//===- BackwardTest.cpp - gradients through the tile level ----------------===//
//
// Random small problems with random plans: they agree with the definition in float64, and whatever
// subset of the passes runs, on either clock and with any number of workers, the bits are the same.
//
//===----------------------------------------------------------------------===//
#include "Cpu.h"
#include "flash/Passes.h"
#include "flash/Schedule/Plan.h"
#include "mlir/Pass/PassManager.h"
#include "gtest/gtest.h"
#include <cmath>
#include <random>

using namespace flash;
using namespace flash::test;
using schedule::Mask;
using schedule::MaskKind;

namespace {
struct Variant {
  bool skipBlocks, pipelineLoads;
  const char *clock;
  unsigned workers;
  bool splitRoles = false;
  uint64_t steps = 0; ///< seed of the order in which roles go on
};
using Grads = std::vector<Buffer>; // dq, dk, dv, dsink

class Backward {
public:
  explicit Backward(uint64_t seed) : random(seed) {
    p.seed = seed, p.sink = true;
    p.batch = among(1, 2), p.kvHeads = among(1, 2), p.heads = p.kvHeads * among(1, 3);
    p.lenQ = among(1, 24), p.lenK = among(1, 28), p.d = 8 * among(1, 2), p.dv = 8 * among(1, 2);
    if (among(0, 5) == 0)
      p.d = 136; // a piece of dQ, and one of 8 columns
    p.softcap = among(0, 2) ? 0 : 1.5;
    if (int64_t kind = among(0, 3); kind == 1)
      p.mask = {.kind = MaskKind::causal, .right = 0};
    else if (kind > 1)
      p.mask = {MaskKind::local, among(0, 6), among(-1, 4), among(0, 2) ? 0 : 5, among(0, 1) * 9};
    M = among(1, 2) * 4, N = among(1, 2) * 4;
    const char *orders[] = {"single", "backward_lpt", "backward_spt"};
    plan = "tile = [" + std::to_string(M) + ", " + std::to_string(N) +
           "], stages = " + std::to_string(among(1, 3)) + ", order = \"" + orders[among(0, 2)] +
           "\"";
    consumers = 2 * among(1, N / 4);
    if (among(0, 3) == 0) // queries enough to divide dQ by rows
      M = 64 * consumers;
    plan = "tile = [" + std::to_string(M) + ", " + std::to_string(N) +
           "], consumers = " + std::to_string(consumers) + plan.substr(plan.find("], stages") + 1);
    plan += among(0, 2) ? ", overlap = true" : "";
    plan += among(0, 1) ? ", late_v = true, late_dp = true" : "";
    if (among(0, 1))
      plan += own, parts = int64_t(schedule::piecesOfDq(p.d, 0, /*ownDv=*/true).size());
    plan += among(0, 1) ? ", staged_columns = 4" : ""; // of sums in any order
    in = drawInputs(p), out = emptyOutputs(p);
    dO = Buffer(p.element, {p.batch, p.lenQ, p.heads, p.dv});
    std::normal_distribution<float> normal;
    for (Buffer *buffer : {&out.o, &out.lse, &dO})
      for (size_t i = 0; i < buffer->count(); ++i)
        buffer->set(i, normal(random));
  }

  Grads run(const Variant &variant, bool ordered = true) {
    auto context = makeContext();
    auto module = compile(*context, text(ordered), [&](mlir::OpPassManager &pm) {
      pm.addPass(createFlashSelectTiles());
      pm.addPass(createFlashLowerToTile());
      if (variant.skipBlocks)
        pm.addPass(createFlashTileSkipBlocks());
      if (variant.pipelineLoads)
        pm.addPass(createFlashTilePipelineLoads());
      if (variant.splitRoles)
        pm.addPass(createFlashTileSplitRoles());
      pm.addPass(createFlashTileOverlapSums());
      pm.addPass(createFlashTileStageStore());
      ConvertFlashTileToLoopsOptions loops;
      loops.clock = variant.clock;
      pm.addPass(createConvertFlashTileToLoops(loops));
    });
    Grads grads = {in.q, in.k, in.v, in.sink};
    for (Buffer &grad : grads)
      for (size_t i = 0; i < grad.count(); ++i)
        grad.set(i, std::nanf(""));
    EXPECT_TRUE(bool(module)) << llvm::toString(module.takeError());
    if (!module)
      return grads;
    auto program = CpuProgram::create(**module, {.optimize = false});
    EXPECT_TRUE(bool(program)) << llvm::toString(program.takeError());
    const int64_t tiles = (p.lenQ + M - 1) / M, rows = tiles * M;
    Buffer sum("f32", {p.batch, rows, p.heads, p.d}), lse2("f32", {p.batch, p.heads, rows}),
        delta = lse2;
    std::vector<int32_t> turns(size_t(p.batch * tiles * p.heads * consumers * parts), -1);
    std::vector<Argument> arguments = {
        {"q", in.q.tensor()},
        {"k", in.k.tensor()},
        {"v", in.v.tensor()},
        {"sink", in.sink.tensor()},
        {"o", out.o.tensor()},
        {"lse", out.lse.tensor()},
        {"do", dO.tensor()},
        {"dq", grads[0].tensor()},
        {"dk", grads[1].tensor()},
        {"dv", grads[2].tensor()},
        {"dsink", grads[3].tensor()},
        {"dq_sum", sum.tensor()},
        {"lse_log2", lse2.tensor()},
        {"delta", delta.tensor()},
        {"scale", float(p.scale())},
        {"softcap", float(p.softcap)},
        {"section", int64_t(2)},
        {"turns", Tensor{turns.data(), {int64_t(turns.size())}, {1}}}};
    for (const char *kernel : {"f_prepare", "f_dv", "f", "f_finish", "f_sink"})
      if (hasOwnDv() || kernel != std::string_view("f_dv"))
        if (llvm::Error error = (*program)->run(kernel, arguments, variant.workers, variant.steps))
          ADD_FAILURE() << llvm::toString(std::move(error));
    return grads;
  }

  /// The definition, from the same o and lse.
  std::vector<std::vector<double>> expected() {
    std::vector<std::vector<double>> grads;
    for (size_t count : {in.q.count(), in.k.count(), in.v.count(), in.sink.count()})
      grads.emplace_back(count, 0.0);
    auto dot = [](const Buffer &x, size_t i, const Buffer &y, size_t j, int64_t n) {
      double sum = 0;
      for (int64_t c = 0; c < n; ++c)
        sum += double(x.get(i + c)) * y.get(j + c);
      return sum;
    };
    for (int64_t row = 0; row < p.batch * p.lenQ * p.heads; ++row) {
      const int64_t h = row % p.heads, i = row / p.heads % p.lenQ, b = row / p.heads / p.lenQ;
      const double lse = out.lse.get((b * p.heads + h) * p.lenQ + i);
      const double delta = dot(dO, row * p.dv, out.o, row * p.dv, p.dv);
      grads[3][h] -= std::exp(std::min(in.sink.get(h) - lse, 0.0)) * delta;
      auto seen = schedule::rowInterval<int64_t>(p.mask, i, p.lenQ, p.lenK);
      for (int64_t j = 0; j < p.lenK; ++j) {
        if (!(seen.lo <= j && j < seen.hi) && j >= seen.sinkEnd)
          continue;
        const int64_t key = (b * p.lenK + j) * p.kvHeads + h / (p.heads / p.kvHeads);
        double s = dot(in.q, row * p.d, in.k, key * p.d, p.d) * p.scale(), slope = 1;
        if (p.softcap > 0) {
          const double t = std::tanh(s / p.softcap);
          s = p.softcap * t, slope = 1 - t * t;
        }
        const double weight = std::exp(s - lse);
        const double ds =
            weight * (dot(dO, row * p.dv, in.v, key * p.dv, p.dv) - delta) * slope * p.scale();
        for (int64_t c = 0; c < p.d; ++c) {
          grads[0][row * p.d + c] += ds * in.k.get(key * p.d + c);
          grads[1][key * p.d + c] += ds * in.q.get(row * p.d + c);
        }
        for (int64_t c = 0; c < p.dv; ++c)
          grads[2][key * p.dv + c] += weight * dO.get(row * p.dv + c);
      }
    }
    return grads;
  }

  void agrees(const Grads &got) {
    auto want = expected();
    for (size_t g = 0; g < got.size(); ++g) {
      double error = 0, size = 1;
      for (size_t i = 0; i < got[g].count(); ++i) {
        error += std::pow(got[g].get(i) - want[g][i], 2);
        size += std::pow(want[g][i], 2);
      }
      EXPECT_LE(std::sqrt(error), 1e-5 * std::sqrt(size)) << "gradient " << g;
    }
  }

  bool hasOwnDv() const { return plan.find(own) != std::string::npos; }

  /// The same problem with dV beside dK.
  void join() {
    if (hasOwnDv())
      plan.erase(plan.find(own), std::string_view(own).size()), parts = 1;
  }

  /// The same problem with Q and dO in turn in two slots, where dV has a kernel of its own.
  void alternate() {
    if (!hasOwnDv() || p.d != p.dv)
      return;
    plan.replace(plan.find("stages = ") + std::string_view("stages = ").size(), 1, "1");
    plan += ", alternate = true";
  }

  std::string words() const { return p.describe() + " " + plan; }

private:
  std::string text(bool ordered) const {
    auto tensor = [](int64_t heads, int64_t columns) {
      return "tensor<?x?x" + std::to_string(heads) + "x" + std::to_string(columns) + "xf32>";
    };
    const std::string q = tensor(p.heads, p.d), k = tensor(p.kvHeads, p.d),
                      v = tensor(p.kvHeads, p.dv), o = tensor(p.heads, p.dv),
                      lse = "tensor<?x" + std::to_string(p.heads) + "x?xf32>",
                      sink = "tensor<" + std::to_string(p.heads) + "xf32>",
                      grads = q + ", " + k + ", " + v + ", " + sink;
    return "func.func @f(%q: " + q + ", %k: " + k + ", %v: " + v + ", %o: " + o + ", %lse: " + lse +
           ", %do: " + o + ", %sink: " + sink + ", %scale: f32, %cap: f32) -> (" + grads +
           ") {\n  %g:4 = flash.attention_backward %q, %k, %v, %o, %lse, %do sink(%sink : " + sink +
           ") scale %scale" + (p.softcap > 0 ? " softcap %cap" : "") + " by " + maskText(p.mask) +
           " {target = #flash.target<\"cpu\">, plan = #flash.plan<" + plan +
           (ordered ? "" : ", ordered = false") + ">} : " + q + ", " + k + ", " + v + ", " + o +
           ", " + lse + ", " + o + " -> " + grads + "\n  return %g#0, %g#1, %g#2, %g#3 : " + grads +
           "\n}\n";
  }
  static constexpr const char *own = ", own_dv = true";
  int64_t among(int64_t low, int64_t high) { return low + int64_t(random() % (high - low + 1)); }

  std::mt19937_64 random;
  Problem p;
  std::string plan;
  int64_t M = 0, N = 0, consumers = 1, parts = 1;
  Inputs in{Buffer("f32", {}), Buffer("f32", {}), Buffer("f32", {}), Buffer("f32", {})};
  Outputs out{Buffer("f32", {}), Buffer("f32", {})};
  Buffer dO{"f32", {}};
};
} // namespace

TEST(Backward, SameBitsWhateverRuns) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    Backward trial(seed);
    SCOPED_TRACE(trial.words());
    const Grads plain = trial.run({false, false, "eager", 1});
    trial.agrees(plain);
    for (const Variant &variant : {Variant{true, false, "eager", 1},
                                   {true, true, "eager", 3},
                                   {false, true, "late", 2},
                                   {true, true, "late", 1},
                                   {true, false, "late", 1, true, seed},
                                   {false, true, "eager", 1, true, seed + 100},
                                   {true, true, "late", 1, true, seed + 200},
                                   {true, true, "late", 1, true, seed + 300}}) {
      const Grads got = trial.run(variant);
      for (size_t g = 0; g < got.size(); ++g)
        EXPECT_TRUE(got[g] == plain[g])
            << "gradient " << g << ", skip " << variant.skipBlocks << ", pipeline "
            << variant.pipelineLoads << ", " << variant.clock << ", workers " << variant.workers
            << ", roles " << variant.splitRoles;
    }
    trial.alternate();
    EXPECT_TRUE(trial.run({true, true, "late", 1, true, seed}) == plain);
    EXPECT_TRUE(trial.run({true, false, "eager", 3}) == plain);
    Backward joined(seed);
    joined.join();
    EXPECT_TRUE(joined.run({true, true, "late", 1, true, seed}) == plain);
    if (HasFailure())
      return;
  }
}

TEST(Backward, SumsInAnyOrderAgree) {
  for (uint64_t seed = 101; seed <= 106; ++seed) {
    Backward trial(seed);
    SCOPED_TRACE(trial.words());
    trial.agrees(trial.run({true, true, "eager", 3}, /*ordered=*/false));
    trial.agrees(trial.run({true, true, "late", 3, true, seed}, /*ordered=*/false));
    trial.alternate();
    trial.agrees(trial.run({true, true, "eager", 3}, /*ordered=*/false));
    trial.agrees(trial.run({true, true, "late", 3, true, seed}, /*ordered=*/false));
  }
}
