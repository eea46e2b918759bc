// REQUIRES: ptxas
// RUN: flash-compile %s --emit=cubin -o %t.cubin && llvm-readelf -h -s %t.cubin | FileCheck %s
// CHECK: Machine: {{.*}}CUDA
// CHECK: FUNC GLOBAL {{.*}} f

// A kernel that is slower than its source is said to be.
// RUN: printf '#!/bin/sh\necho "info (C7512) Potential Performance Loss: products are serialized"\necho "ptxas assembler 1"\n' > %t.ptxas
// RUN: chmod +x %t.ptxas && env FLASH_PTXAS=%t.ptxas flash-compile %s --emit=cubin -o %t.none 2>&1 | FileCheck %s --check-prefix=SLOW
// SLOW: compile-cubin.mlir:{{.*}} warning: info (C7512) Potential Performance Loss: products are serialized; a smaller tile may help

// RUN: env FLASH_PTXAS=none not flash-compile %s --emit=cubin -o %t.none 2>&1 | FileCheck %s --check-prefix=NONE
// NONE: error: expected ptxas where FLASH_PTXAS says, there is none; use --emit=ptx
func.func @f(%q: tensor<2x300x4x64xbf16>, %k: tensor<2x500x2x64xbf16>, %v: tensor<2x500x2x64xbf16>)
    -> tensor<2x300x4x64xbf16> {
  %o = flash.attention %q, %k, %v by <dense>
      : tensor<2x300x4x64xbf16>, tensor<2x500x2x64xbf16>, tensor<2x500x2x64xbf16> -> tensor<2x300x4x64xbf16>
  return %o : tensor<2x300x4x64xbf16>
}
