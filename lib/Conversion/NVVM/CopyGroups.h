//===- CopyGroups.h - how many copies may be pending at a wait --*- C++ -*-===//
//
// A thread's cp.async commit groups complete in order (PTX ISA, "cp.async.wait_group"). Each fill
// is one group, also where its condition does not hold, so that how many groups were committed
// after an ordinal's is known when the kernel is compiled: walking back from a wait over all ways
// there, the least number of fills up to the one whose ordinal is the awaited one.
//
//===----------------------------------------------------------------------===//
#ifndef FLASH_CONVERSION_NVVM_COPYGROUPS_H
#define FLASH_CONVERSION_NVVM_COPYGROUPS_H

#include "flash/Tile.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace flash::nvvm {

/// Takes fills out of the branches that hold nothing else, and gives each its condition.
llvm::DenseMap<mlir::Operation *, mlir::Value> liftGuards(mlir::func::FuncOp kernel);

/// The groups that may still be pending once `wait`'s tile is there. 0 where nothing is known.
unsigned pendingAt(tile::WaitOp wait);

/// Whether warps write the tiles of a ring, instead of copies.
bool isWritten(mlir::Value ring);

/// Whether an earlier wait is one for this tile too: all warps met there when it was complete.
/// `pending`: what pendingAt says of each wait.
bool isCovered(tile::WaitOp wait, const llvm::DenseMap<mlir::Operation *, unsigned> &pending);

/// Whether all warps meet at a wait between the last read of a tile of the ring of `fill` and the
/// fill.
bool isBehindWait(mlir::Operation *fill, mlir::Value ring);

} // namespace flash::nvvm

#endif // FLASH_CONVERSION_NVVM_COPYGROUPS_H
