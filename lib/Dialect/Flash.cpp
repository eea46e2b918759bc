//===- Flash.cpp - the flash dialect --------------------------------------===//
#include "flash/Flash.h"

#include "flash/FlashDialect.cpp.inc"

void flash::FlashDialect::initialize() {}
