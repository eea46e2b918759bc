//===- Pipelines.h - the passes in order ------------------------*- C++ -*-===//
//
// flash-opt, flash-compile, the plugin, the C API and Python all build their pipelines here.
//
//===----------------------------------------------------------------------===//
#ifndef FLASH_PIPELINES_H
#define FLASH_PIPELINES_H

#include "mlir/Pass/PassOptions.h"

namespace mlir {
class OpPassManager;
} // namespace mlir

namespace flash {

/// Every optional pass by name; all on unless said otherwise. A plan may switch them off as well.
struct PipelineOptions : mlir::PassPipelineOptions<PipelineOptions> {
  Option<std::string> target{*this, "target", llvm::cl::desc("target of ops that name none")};
  Option<bool> splitKV{*this, "split-kv",
                       llvm::cl::desc("split the keys where the planner says so"),
                       llvm::cl::init(true)};
  Option<bool> orderWork{*this, "order-work", llvm::cl::desc("choose the order of tiles"),
                         llvm::cl::init(true)};
  Option<bool> skipBlocks{*this, "skip-blocks", llvm::cl::desc("visit only needed key blocks"),
                          llvm::cl::init(true)};
  Option<bool> pipelineLoads{*this, "pipeline-loads", llvm::cl::desc("load one block ahead"),
                             llvm::cl::init(true)};
  Option<bool> splitRoles{*this, "split-roles", llvm::cl::desc("producer and consumers"),
                          llvm::cl::init(true)};
  Option<bool> exactCounts{*this, "exact-counts",
                           llvm::cl::desc("each consumer computes its own rows' blocks"),
                           llvm::cl::init(true)};
  Option<bool> overlapSoftmax{*this, "overlap-softmax",
                              llvm::cl::desc("QK of the next block beside the softmax"),
                              llvm::cl::init(true)};
  Option<bool> overlapSums{*this, "overlap-sums",
                           llvm::cl::desc("a block's dQ beside the next block's softmax"),
                           llvm::cl::init(true)};
  Option<bool> deferMax{*this, "defer-max",
                        llvm::cl::desc("unmasked blocks measured against an older maximum"),
                        llvm::cl::init(true)};
  Option<bool> holdQ{*this, "hold-q", llvm::cl::desc("Q in registers where the plan says so"),
                     llvm::cl::init(true)};
  Option<bool> pingPong{*this, "ping-pong",
                        llvm::cl::desc("consumers take turns where the plan says so"),
                        llvm::cl::init(true)};
  Option<bool> multicast{*this, "multicast",
                         llvm::cl::desc("two blocks share keys where the plan says so"),
                         llvm::cl::init(true)};
  Option<bool> stageStore{*this, "stage-store",
                          llvm::cl::desc("o through shared memory where the plan says so"),
                          llvm::cl::init(true)};
  Option<std::string> clock{*this, "clock", llvm::cl::desc("cpu: eager or late"),
                            llvm::cl::init("eager")};
};

/// From flash ops to kernels of tile ops, laid out and checked: what both pipelines share.
void buildFlashToTile(mlir::OpPassManager &pm, const PipelineOptions &options);

/// From flash ops to kernels in the LLVM dialect with NVVM ops; target sm_90a unless given.
void buildFlashToNVVM(mlir::OpPassManager &pm, const PipelineOptions &options);

/// From flash ops to functions in memref, scf, arith and math that a worker runs; target cpu unless
/// given.
void buildFlashToCPU(mlir::OpPassManager &pm, const PipelineOptions &options);

} // namespace flash

#endif // FLASH_PIPELINES_H
