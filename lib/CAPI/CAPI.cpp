//===- CAPI.cpp - the C API of libflashc.so -------------------------------===//
#include "flash-c/Flash.h"

const char *flash_version(void) { return FLASH_VERSION; }
