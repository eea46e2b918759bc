//===- FlashPlugin.cpp - our dialects and passes for Debian's mlir-opt ----===//
#include "flash/Registration.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Tools/Plugins/DialectPlugin.h"
#include "mlir/Tools/Plugins/PassPlugin.h"
#include "llvm/Config/llvm-config.h"

#define FLASH_EXPORT extern "C" __attribute__((visibility("default")))

FLASH_EXPORT mlir::DialectPluginLibraryInfo mlirGetDialectPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, "Flash", LLVM_VERSION_STRING,
          [](mlir::DialectRegistry *registry) { flash::registerDialects(*registry); }};
}

FLASH_EXPORT mlir::PassPluginLibraryInfo mlirGetPassPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, "FlashPasses", LLVM_VERSION_STRING,
          [] { flash::registerPasses(); }};
}
