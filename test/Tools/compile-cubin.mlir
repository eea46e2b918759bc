// REQUIRES: ptxas
// RUN: flash-compile %s --emit=cubin -o %t.cubin && llvm-readelf -h -s %t.cubin | FileCheck %s
// CHECK: Machine: {{.*}}CUDA
// CHECK: FUNC GLOBAL {{.*}} f
func.func @f(%q: tensor<2x300x4x64xbf16>, %k: tensor<2x500x2x64xbf16>, %v: tensor<2x500x2x64xbf16>)
    -> tensor<2x300x4x64xbf16> {
  %o = flash.attention %q, %k, %v by <dense>
      : tensor<2x300x4x64xbf16>, tensor<2x500x2x64xbf16>, tensor<2x500x2x64xbf16> -> tensor<2x300x4x64xbf16>
  return %o : tensor<2x300x4x64xbf16>
}
