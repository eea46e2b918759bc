//===- Ptx.h - from the LLVM dialect to PTX ---------------------*- C++ -*-===//
#ifndef FLASH_RUNTIME_PTX_H
#define FLASH_RUNTIME_PTX_H

#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/Error.h"
#include <string>
#include <string_view>

namespace flash {

/// PTX of a module in the LLVM and NVVM dialects (what flash-to-nvvm leaves), optimised. `chip` is
/// a target's name, such as "sm_90a". The context needs registerTranslations(). Thread-safe.
llvm::Expected<std::string> translateToPtx(mlir::ModuleOp module, std::string_view chip);

} // namespace flash

#endif // FLASH_RUNTIME_PTX_H
