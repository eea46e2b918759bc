//===- Pipelines.cpp - the passes in order --------------------------------===//
#include "flash/Passes.h"
#include "flash/Registration.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "flash/Tile.h"

namespace flash {
#define GEN_PASS_REGISTRATION
#include "flash/Passes.h.inc"
} // namespace flash

void flash::registerPasses() {
}
