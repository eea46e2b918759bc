//===- Passes.h - constructors of our passes --------------------*- C++ -*-===//
#ifndef FLASH_PASSES_H
#define FLASH_PASSES_H

#include "mlir/Pass/Pass.h"

namespace flash {
#define GEN_PASS_DECL
#include "flash/Passes.h.inc"
} // namespace flash

#endif // FLASH_PASSES_H
