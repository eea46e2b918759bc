//===- TileQueries.h - what several tile passes ask -------------*- C++ -*-===//
#ifndef FLASH_TRANSFORMS_TILEQUERIES_H
#define FLASH_TRANSFORMS_TILEQUERIES_H

#include "KernelRuns.h"
#include <optional>
#include <string>

namespace flash {

/// Why a pass leaves a kernel alone; none if it does not.
using Reason = std::optional<std::string>;

/// Calls `visit` for each kernel below `root` that has a plan.
inline void forEachKernel(mlir::Operation *root,
                          llvm::function_ref<void(mlir::func::FuncOp, PlanAttr)> visit) {
  root->walk([&](mlir::func::FuncOp kernel) {
    if (PlanAttr plan = planOfKernel(kernel))
      visit(kernel, plan);
  });
}

/// Writes into the plan that a pass left the kernel alone, and why.
inline void leaveAlone(mlir::func::FuncOp kernel, llvm::StringRef field, llvm::StringRef why) {
  auto off = mlir::BoolAttr::get(kernel.getContext(), false);
  kernel->setAttr(planName, planOfKernel(kernel).with(field, off, why));
}

/// The wait that gave `tile`, or the tile it is a slice of; null for other values.
inline tile::WaitOp waitOf(mlir::Value tile) {
  while (auto slice = tile.getDefiningOp<tile::SliceOp>())
    tile = slice.getTile();
  return tile.getDefiningOp<tile::WaitOp>();
}

/// Rows and columns of what lives in registers; empty for other types.
inline llvm::ArrayRef<int64_t> registerShape(mlir::Type type) {
  if (auto frag = mlir::dyn_cast<tile::FragType>(type))
    return frag.getShape();
  if (auto flight = mlir::dyn_cast<tile::FlightType>(type))
    return flight.getShape();
  return {};
}

} // namespace flash

#endif // FLASH_TRANSFORMS_TILEQUERIES_H
