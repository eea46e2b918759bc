//===- Structure.h - work, roles and ranges as scf --------------*- C++ -*-===//
#ifndef FLASH_CONVERSION_NVVM_STRUCTURE_H
#define FLASH_CONVERSION_NVVM_STRUCTURE_H

#include "TileEmitter.h"

namespace flash::nvvm {

/// Rewrites for_work, roles, block_range and length of the kernel as scf and arith.
mlir::LogicalResult expandStructure(Kernel &kernel, TileEmitter &emitter);

/// Inlines every in_turn between its barriers: products keep one block, where their waits count
/// what is in flight. Goes before everything else.
void expandTurns(Kernel &kernel, TileEmitter &emitter);

} // namespace flash::nvvm

#endif // FLASH_CONVERSION_NVVM_STRUCTURE_H
