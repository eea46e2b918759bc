//===- Flash.h - the flash dialect: what attention computes -----*- C++ -*-===//
#ifndef FLASH_FLASH_H
#define FLASH_FLASH_H

#include "mlir/IR/Dialect.h"

#include "flash/FlashDialect.h.inc"

#endif // FLASH_FLASH_H
