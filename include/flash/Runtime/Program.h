//===- Program.h - a compiled problem ---------------------------*- C++ -*-===//
#ifndef FLASH_RUNTIME_PROGRAM_H
#define FLASH_RUNTIME_PROGRAM_H

#include "flash/Runtime/CpuProgram.h"
#include "flash/Runtime/Cuda.h"
#include "flash/Runtime/Request.h"

#include <memory>
#include <vector>

namespace flash {

class Program {
public:
  /// Plans and compiles what `text` asks (Flash.h describes it).
  static Or<std::unique_ptr<Program>> compile(const std::string &text);

  /// The program that `blob` was made of by the same build.
  static Or<std::unique_ptr<Program>> load(const std::string &blob);
  std::string blob() const;

  /// Turns PTX into a cubin if there is an assembler.
  Outcome assemble();

  /// "mlir", "plan", "metadata", "ptx", "cubin" or "report"; empty where there is none.
  Or<std::string> part(const std::string &name) const;

  /// What of a program a call runs: everything, or what fills the operand "schedule".
  enum class Goal { all, schedule };

  /// Runs on the CPU, and returns when done.
  Outcome run(const Operands &operands, FlashScalars scalars, int workers, Goal goal = Goal::all);

  /// Bytes that a launch on `device` needs as the operand "workspace".
  Or<int64_t> workspaceBytes(const Operands &operands, const FlashScalars &scalars,
                             int device) const;

  /// Queues on a GPU.
  Outcome launch(const Operands &operands, FlashScalars scalars, int device, void *stream,
                 Goal goal = Goal::all);

  /// Fills the operand "schedule" alone, on the CPU at once.
  Outcome prepare(const Operands &operands, FlashScalars scalars, int device, void *stream) {
    return onGpu() ? launch(operands, scalars, device, stream, Goal::schedule)
                   : run(operands, scalars, /*workers=*/1, Goal::schedule);
  }

  /// The counters of what was launched on a device.
  Or<cuda::Loaded::Bytes> counters(int device);

  /// What the passes have against a plan by hand that the planner took.
  static Outcome refuse(const Request &request);

private:
  explicit Program(Request request);
  Outcome compile();
  void writeMetadata(mlir::ModuleOp module);
  Outcome readMetadata();
  void loadImage();
  bool onGpu() const { return request.problem.target != schedule::Target::cpu; }
  Or<schedule::Problem> sized(const Operands &operands, const FlashScalars &scalars) const;
  /// The same on a device; multiprocessors are the device's.
  Or<schedule::Problem> sizedOn(const Operands &operands, const FlashScalars &scalars,
                                int device) const;

  Request request;
  std::string mlir, metadata, ptx, cubin, report;
  std::vector<cuda::Kernel> kernels; ///< in the order in which they run
  std::unique_ptr<cuda::Loaded> loaded;
  std::unique_ptr<CpuProgram> cpu;
};

} // namespace flash

#endif // FLASH_RUNTIME_PROGRAM_H
