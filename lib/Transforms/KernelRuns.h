//===- KernelRuns.h - the runs of key blocks in a kernel --------*- C++ -*-===//
//
// The passes of the tile level find the loops over key blocks by the attribute that the pass which
// made them wrote: `flash_tile.run`. Runs of one body stand in one block, in the order they are
// executed; each begins where the one before ends.
//
//===----------------------------------------------------------------------===//
#ifndef FLASH_TRANSFORMS_KERNELRUNS_H
#define FLASH_TRANSFORMS_KERNELRUNS_H

#include "flash/Tile.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace flash {

inline constexpr llvm::StringLiteral runName = "flash_tile.run";
/// On a run: it never has more than one block.
inline constexpr llvm::StringLiteral atMostOneName = "flash_tile.at_most_one";
inline constexpr llvm::StringLiteral kernelName = "flash.kernel";
inline constexpr llvm::StringLiteral planName = "flash.plan";

/// A kernel's plan, or null if the function is none.
inline PlanAttr planOfKernel(mlir::func::FuncOp func) {
  return func->hasAttr(kernelName) ? func->getAttrOfType<PlanAttr>(planName) : PlanAttr();
}

/// The runs of key blocks below `root`, in order.
inline llvm::SmallVector<mlir::scf::ForOp> runsIn(mlir::Operation *root) {
  llvm::SmallVector<mlir::scf::ForOp> runs;
  root->walk<mlir::WalkOrder::PreOrder>([&](mlir::scf::ForOp loop) {
    if (loop->hasAttr(runName))
      runs.push_back(loop);
  });
  return runs;
}

} // namespace flash

#endif // FLASH_TRANSFORMS_KERNELRUNS_H
