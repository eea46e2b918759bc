//===- Cuda.h - loads and launches kernels through libcuda ------*- C++ -*-===//
//
// libcuda is looked for when it is first needed, so that the library runs where there is none; and
// nothing of the CUDA toolkit is needed to build it.
//
//===----------------------------------------------------------------------===//
#ifndef FLASH_RUNTIME_CUDA_H
#define FLASH_RUNTIME_CUDA_H

#include "flash/Runtime/Failure.h"
#include "flash/Runtime/Operands.h"
#include "flash/Schedule/Tile.h"

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace flash::cuda {

/// One parameter of a kernel, as `flash.params` describes it.
struct Param {
  enum Kind {
    tensorMap, ///< CUtensorMap of `operand`, boxes of `rows` rows
    pointer,   ///< of `operand`
    size,      ///< i32: operand's size `dim`
    stride,    ///< i64: operand's stride `dim`, in elements
    scale,     ///< f32
    softcap,   ///< f32
    section,   ///< i32
    longest,   ///< i32: the bound of all sequences of packed queries
    appended,  ///< i32: rows of k_new
    maxSplits, ///< i32: the most parts of a sequence's keys
    sms,       ///< i32: multiprocessors
    counter,   ///< i32: the counter of the module that the launch's blocks take tiles from
  };
  Kind kind;
  Operand operand = Operand::q;
  int64_t dim = 0;
  int64_t rows = 0;
  int64_t group = 1; ///< heads of a KV head that a tensor map takes for neighbouring rows
};

struct Kernel {
  std::string name;
  std::string op;       ///< what it computes: "attention", "combine", "append" or "prepare"
  bool follows = false; ///< may begin while the kernel before it ends: it waits for that by itself
  int64_t threads = 0;
  int64_t sharedBytes = 0;
  int64_t cluster = 1; ///< blocks that run side by side and share memory
  std::vector<Param> params;
};

/// What of a launch is neither tensor nor parameter.
struct Launch {
  int64_t blocks;
  int64_t section, splits, sms;
  bool first; ///< of its call: what runs before it is none of its kernels
  FlashScalars scalars;
  int device;
  void *stream;
};

/// What code is compiled for: "sm_90a" is 9.0 and no other, "sm_86" 8.6 and all that came later.
struct Capability {
  int major = 0, minor = 0;
  bool only = false;

  explicit Capability(std::string_view target);
};

/// Multiprocessors of a device, or why it cannot run code for `needed`.
Or<int64_t> multiprocessors(int device, Capability needed);

/// The kernels of a module and their code, loaded once a context.
class Loaded {
public:
  /// `cubin` may be empty, and runs on no other generation of devices; the driver compiles `ptx`.
  Loaded(std::vector<Kernel> kernels, Capability of, std::string ptx, std::string cubin,
         schedule::ElementType element)
      : kernels(std::move(kernels)), of(of), ptx(std::move(ptx)), cubin(std::move(cubin)),
        element(element) {}

  /// Checks the operands and queues kernel `number`. Waits for nothing.
  Outcome launch(size_t number, const Operands &operands, const Launch &launch);

  struct Bytes {
    void *data = nullptr; ///< of the device
    size_t size = 0;
  };
  /// The counters that blocks take tiles from; none where no launch used any in the context.
  Or<Bytes> counters(int device);

private:
  struct Function {
    void *handle;
    int64_t clusters; ///< that run at once; 0 where blocks stand alone
  };
  struct Module {
    unsigned long long context; ///< the driver's never reused number
    void *handle;
    std::vector<Function> functions; ///< one a kernel
  };
  Or<Function> functionOf(size_t number, unsigned long long context, int device);

  std::vector<Kernel> kernels;
  Capability of;
  std::string ptx, cubin;
  schedule::ElementType element;
  std::mutex mutex;
  std::vector<Module> modules;
};

} // namespace flash::cuda

#endif // FLASH_RUNTIME_CUDA_H
