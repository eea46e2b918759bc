//===- Tile.h - the flash_tile dialect: how one block works -----*- C++ -*-===//
#ifndef FLASH_TILE_H
#define FLASH_TILE_H

#include "mlir/IR/Dialect.h"

#include "flash/TileDialect.h.inc"

#endif // FLASH_TILE_H
