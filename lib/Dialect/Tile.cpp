//===- Tile.cpp - the flash_tile dialect ----------------------------------===//
#include "flash/Tile.h"

#include "flash/TileDialect.cpp.inc"

void flash::tile::TileDialect::initialize() {}
