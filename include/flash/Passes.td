#ifndef FLASH_PASSES_TD
#define FLASH_PASSES_TD

include "mlir/Pass/PassBase.td"

#endif // FLASH_PASSES_TD
