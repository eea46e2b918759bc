//===- JitSymbols.h - what jitted code may call -----------------*- C++ -*-===//
#ifndef FLASH_LIB_RUNTIME_JITSYMBOLS_H
#define FLASH_LIB_RUNTIME_JITSYMBOLS_H

#include "llvm/ExecutionEngine/Orc/CoreContainers.h"
#include "llvm/ExecutionEngine/Orc/Mangling.h"

namespace flash {

/// This library's own copies of libm's, libc's, libgcc's functions and of the baton: nothing is
/// looked up by name in the host process.
llvm::orc::SymbolMap jitSymbols(llvm::orc::MangleAndInterner intern);

} // namespace flash

#endif // FLASH_LIB_RUNTIME_JITSYMBOLS_H
