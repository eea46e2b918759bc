//===- flash-opt.cpp - mlir-opt with our dialects, passes and pipelines ---===//
#include "flash/Registration.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "llvm/Support/CommandLine.h"

static llvm::cl::extrahelp examples(R"(
EXAMPLES:
  flash-opt f.mlir                                         check and print
  flash-opt --flash-to-nvvm f.mlir                         the whole way to NVVM
  flash-opt --flash-to-cpu f.mlir                          the whole way to LLVM on the host
  flash-opt --flash-select-tiles=target=sm_90a f.mlir      one pass: the plan, with reasons
  flash-opt --flash-to-nvvm --mlir-print-ir-after-change f.mlir    every step
)");

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
