//===- Pipelines.cpp - the passes in order --------------------------------===//
#include "flash/Passes.h"
#include "flash/Registration.h"

namespace flash {
#define GEN_PASS_REGISTRATION
#include "flash/Passes.h.inc"
} // namespace flash

void flash::registerPasses() { registerFlashPasses(); }
