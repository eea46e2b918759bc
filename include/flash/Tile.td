#ifndef FLASH_TILE_TD
#define FLASH_TILE_TD

include "mlir/IR/OpBase.td"

def Tile_Dialect : Dialect {
  let name = "flash_tile";
  let cppNamespace = "::flash::tile";
  let summary = "How one block of an attention kernel works, without naming hardware";
}

#endif // FLASH_TILE_TD
