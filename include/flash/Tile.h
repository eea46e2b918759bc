//===- Tile.h - the flash_tile dialect: how one block works -----*- C++ -*-===//
#ifndef FLASH_TILE_H
#define FLASH_TILE_H

#include "flash/Flash.h"
#include "flash/Schedule/WorkOrder.h"

#include "flash/TileDialect.h.inc"
#include "flash/TileEnums.h.inc"
#define GET_TYPEDEF_CLASSES
#include "flash/TileTypes.h.inc"
#define GET_ATTRDEF_CLASSES
#include "flash/TileAttrs.h.inc"
#include "flash/TileInterfaces.h.inc"
#define GET_OP_CLASSES
#include "flash/TileOps.h.inc"

namespace flash {

/// On a kernel: the flash op that it is made of, and which of its kernels.
inline constexpr llvm::StringLiteral sourceName = "flash.op";

/// Whether it is the one of an op's kernels that sums gradients up.
inline bool sumsGradients(mlir::Operation *kernel) {
  auto op = kernel->getAttrOfType<mlir::StringAttr>(sourceName);
  return op && (op.getValue() == "attention_backward" || op.getValue() == "attention_backward_dv");
}

} // namespace flash

namespace flash::tile {

/// The product that a flight comes from, also out of an in_turn; null for a block argument.
MmaOp mmaOf(mlir::Value flight);

} // namespace flash::tile

#endif // FLASH_TILE_H
