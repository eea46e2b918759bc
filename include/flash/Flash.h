//===- Flash.h - the flash dialect: what attention computes -----*- C++ -*-===//
#ifndef FLASH_FLASH_H
#define FLASH_FLASH_H

#include "flash/Schedule/Plan.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include <optional>

#include "flash/FlashDialect.h.inc"
#define GET_ATTRDEF_CLASSES
#include "flash/FlashAttrs.h.inc"
#include "flash/FlashInterfaces.h.inc"
#define GET_OP_CLASSES
#include "flash/FlashOps.h.inc"

#endif // FLASH_FLASH_H
