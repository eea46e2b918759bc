#ifndef FLASH_TD
#define FLASH_TD

include "mlir/IR/OpBase.td"

def Flash_Dialect : Dialect {
  let name = "flash";
  let cppNamespace = "::flash";
  let summary = "What attention computes";
}

#endif // FLASH_TD
