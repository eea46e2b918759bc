//===- CpuProgram.h - kernels compiled for this machine ---------*- C++ -*-===//
#ifndef FLASH_RUNTIME_CPUPROGRAM_H
#define FLASH_RUNTIME_CPUPROGRAM_H

#include "flash/Runtime/Baton.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/LogicalResult.h"
#include <memory>
#include <string>
#include <variant>

namespace mlir {
class ModuleOp;
} // namespace mlir

namespace flash {

class MachineCode;

/// Lowers what convert-flash-tile-to-loops leaves to the LLVM dialect.
llvm::LogicalResult lowerLoopsToLLVM(mlir::ModuleOp module);

/// Memory of a tensor; sizes and strides in elements, outermost first.
struct Tensor {
  void *data;
  llvm::SmallVector<int64_t> sizes, strides;
};

/// What is passed for the kernel argument of that name.
struct Argument {
  std::string name;
  std::variant<Tensor, float, int64_t> value; ///< of a memref, an f32, an index
};

struct CpuOptions {
  /// LLVM's name of the processor to compile for, or "host". Empty: x86-64-v3 if the machine has
  /// it, so that results do not hang on the machine; else the host.
  std::string cpu = {};
  /// False compiles twice as fast, for who compiles more than he runs. The same bits.
  bool optimize = true;
};

/// The kernels of one module, as machine code in this process. Thread-safe.
class CpuProgram {
public:
  /// Compiles the kernels (`flash.kernel`) of a module that has gone through
  /// convert-flash-tile-to-loops. The module is lowered on the way and of no further use.
  static llvm::Expected<std::unique_ptr<CpuProgram>> create(mlir::ModuleOp module,
                                                            const CpuOptions &options = {});
  ~CpuProgram();

  /// A program outside its process: what the kernels are called with, and their object code.
  struct Saved {
    std::string description, object;
  };
  const Saved &saved() const { return parts; }
  /// The program that `saved` was taken from; of the same build, on a processor of the same name.
  static llvm::Expected<std::unique_ptr<CpuProgram>> load(Saved saved);
  /// What the object code of those options may use: the processor and its features.
  static std::string processorName(const CpuOptions &options = {});

  /// Runs a kernel on `workers` threads (0: one a hardware thread), which share its tiles, and
  /// returns when all are done. Errors name the argument that is missing or does not fit. A kernel
  /// with roles runs its workers one after the other, under the baton, whose errors it returns;
  /// `seed` is of the order in which its programs take steps.
  llvm::Error run(llvm::StringRef kernel, llvm::ArrayRef<Argument> arguments, unsigned workers = 0,
                  uint64_t seed = 0);

private:
  using Entry = void (*)(void **);
  struct Parameter {
    std::string name;
    enum Kind { tensor, real, index } kind;
    int64_t rank;
  };
  struct Kernel {
    llvm::SmallVector<Parameter> parameters; ///< without worker and workers
    Entry entry = nullptr, reset = nullptr;
    std::vector<std::pair<std::string, Entry>> programs; ///< under the baton instead of entry
    std::vector<Baton::Ring> rings;
    bool turns = false; ///< workers wait for each other
  };
  explicit CpuProgram(Saved saved);
  llvm::Error readDescription();
  llvm::Error resolve();

  llvm::StringMap<Kernel> kernels;
  Saved parts;
  std::unique_ptr<MachineCode> code;
  std::mutex batonMutex; ///< rings under the baton are the module's globals
};

} // namespace flash

#endif // FLASH_RUNTIME_CPUPROGRAM_H
