//===- Gather.h - rows to shared memory by cp.async -------------*- C++ -*-===//
//
// The copy of a tile where no tensor map can describe the tensor, and on machines without TMA.
//
//===----------------------------------------------------------------------===//
#ifndef FLASH_CONVERSION_NVVM_GATHER_H
#define FLASH_CONVERSION_NVVM_GATHER_H

#include "Kernel.h"

namespace flash::nvvm {

/// Threads that share a copy on sm_90a.
inline constexpr int64_t gatherThreads = 128;

/// Starts this thread's share of the copy of a view's rows [row, row + rows) into the slot at byte
/// `offset`: 16-byte pieces, zeros outside the length and past the view's columns. `thread` is
/// below `threads`, a multiple of 64. Where `condition` (i1, or null) does not hold, nothing is
/// read and the slot becomes zeros; of gradients it stays as it is.
void emitGather(mlir::ImplicitLocOpBuilder &b, Kernel &kernel, tile::FillOp op,
                tile::FillOp::Adaptor in, mlir::Value offset, mlir::Value thread, int64_t threads,
                mlir::Value condition = {});

/// The same of a column of f32 that becomes a row in the slot, from view row `row` on.
void emitGatherRow(mlir::ImplicitLocOpBuilder &b, Kernel &kernel, tile::FillOp op,
                   tile::FillOp::Adaptor in, mlir::Value offset, mlir::Value thread,
                   int64_t threads, mlir::Value condition = {});

} // namespace flash::nvvm

#endif // FLASH_CONVERSION_NVVM_GATHER_H
