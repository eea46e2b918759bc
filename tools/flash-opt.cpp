//===- flash-opt.cpp - mlir-opt with our dialects, passes and pipelines ---===//
#include "flash/Registration.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  mlir::registerAllPasses();
  flash::registerDialects(registry);
  flash::registerPasses();
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, "mlir-opt with the flash dialects and pipelines\n", registry));
}
