//===- flash-lsp-server.cpp - the MLIR language server with our dialects --===//
#include "flash/Registration.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/InitAllDialects.h"
#include "mlir/Tools/mlir-lsp-server/MlirLspServerMain.h"
#include "llvm/Support/CommandLine.h"

static llvm::cl::extrahelp examples(R"(
EXAMPLES:
  flash-lsp-server                   speaks the language server protocol on standard input and output;
                                     VS Code: "mlir.server_path": "build/bin/flash-lsp-server"
  flash-lsp-server --lit-test < f    requests separated by // -----
)");

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  flash::registerDialects(registry);
  return mlir::failed(mlir::MlirLspServerMain(argc, argv, registry));
}
