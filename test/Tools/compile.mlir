// One op in every form that flash-compile writes.
// RUN: flash-compile %s | FileCheck %s --check-prefix=TILE
// TILE: func.func @f({{.*}}flash.kernel
// TILE: flash_tile.mma

// RUN: flash-compile %s --emit=llvm | FileCheck %s --check-prefix=LLVM
// LLVM: define ptx_kernel void @f(

// RUN: flash-compile %s --emit=ptx | FileCheck %s --check-prefix=PTX
// PTX: .target sm_90a
// PTX: .entry f(
// PTX: wgmma.mma_async

// RUN: flash-compile - --target=cpu --emit=llvm < %s 2>&1 | FileCheck %s --check-prefix=CPU
// CPU-NOT: warning
// CPU: define void @f(

func.func @f(%q: tensor<2x300x4x64xbf16>, %k: tensor<2x500x2x64xbf16>, %v: tensor<2x500x2x64xbf16>)
    -> tensor<2x300x4x64xbf16> {
  %o = flash.attention %q, %k, %v by <causal>
      : tensor<2x300x4x64xbf16>, tensor<2x500x2x64xbf16>, tensor<2x500x2x64xbf16> -> tensor<2x300x4x64xbf16>
  return %o : tensor<2x300x4x64xbf16>
}
