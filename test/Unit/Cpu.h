//===- Cpu.h - attention through the CPU pipeline, and what it should be --===//
#ifndef FLASH_TEST_UNIT_CPU_H
#define FLASH_TEST_UNIT_CPU_H

#include "flash/Runtime/CpuProgram.h"
#include "flash/Schedule/Mask.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace mlir {
class OpPassManager;
} // namespace mlir

namespace flash::test {

struct Problem {
  std::string element = "f32"; ///< f32, f16 or bf16
  int64_t batch = 1, heads = 1, kvHeads = 1, lenQ = 1, lenK = 1, d = 8, dv = 8, splits = 1;
  schedule::Mask mask = {};
  double softcap = 0;
  bool sink = false;
  uint64_t seed = 0;
  /// How sequences lie in memory. Other than dense, they have usedQ and usedK rows, of lenQ and
  /// lenK at most; inputs and outputs here are as dense all the same, outputs 0 where no row is.
  enum { dense, packed, paged } rows = dense;
  std::vector<int64_t> usedQ = {}, usedK = {};

  int64_t queries(int64_t b) const { return rows == dense ? lenQ : usedQ[b]; }
  int64_t keys(int64_t b) const { return rows == dense ? lenK : usedK[b]; }

  double scale() const;
  std::string describe() const;
};

/// A tensor of some element type with its memory; starts as NaN.
class Buffer {
public:
  Buffer(std::string element, std::vector<int64_t> sizes);
  float get(size_t i) const;
  void set(size_t i, float value);
  size_t count() const { return total; }
  Tensor tensor();
  bool operator==(const Buffer &) const = default;

private:
  std::string element;
  std::vector<int64_t> sizes;
  size_t total;
  std::vector<uint32_t> words; ///< f32's bits, or 16 bits an entry
  std::vector<uint16_t> halves;
};

struct Inputs {
  Buffer q, k, v, sink;
};
Inputs drawInputs(const Problem &problem);

struct Outputs {
  Buffer o, lse;
  bool operator==(const Outputs &) const = default;
};
Outputs emptyOutputs(const Problem &problem);

/// Float64 from the same rounded inputs.
Outputs expected(const Problem &problem, Inputs &inputs);

/// What is wrong with `got`, or nothing.
std::optional<std::string> differs(const Problem &problem, const Outputs &got, const Outputs &want);

std::string maskText(const schedule::Mask &mask);

/// An attention op of the problem in a function @f, with `plan` between the plan's angle brackets.
std::string opText(const Problem &problem, const std::string &plan);

/// A context with everything the passes need.
std::unique_ptr<mlir::MLIRContext> makeContext();

/// Parses `text` and runs the passes that `build` adds; the diagnostics if that fails.
llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>>
compile(mlir::MLIRContext &context, const std::string &text,
        const std::function<void(mlir::OpPassManager &)> &build);

/// Runs kernel @f (and @f_combine if the problem is split) of a compiled program.
llvm::Expected<Outputs> runKernels(CpuProgram &program, const Problem &problem, Inputs &inputs,
                                   unsigned workers, uint64_t seed = 0);

} // namespace flash::test

#endif // FLASH_TEST_UNIT_CPU_H
