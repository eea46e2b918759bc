// Every tool explains itself with examples.
// RUN: flash-compile --version | FileCheck %s --check-prefix=VERSION
// VERSION: flash-compile {{[0-9]+\.[0-9]+\.[0-9]+}} on LLVM 22.

// RUN: flash-opt --help | FileCheck %s --check-prefix=OPT
// OPT: USAGE: flash-opt
// OPT: EXAMPLES:
// OPT: flash-opt --flash-to-nvvm

// RUN: flash-lsp-server --help | FileCheck %s --check-prefix=LSP
// LSP: USAGE: flash-lsp-server
// LSP: EXAMPLES:

// RUN: flash-compile --help | FileCheck %s --check-prefix=COMPILE
// COMPILE: USAGE: flash-compile
// COMPILE: EXAMPLES:
// COMPILE: flash-compile f.mlir --emit=ptx
