// Debian's mlir-opt with our plugin runs the whole pipeline, as flash-opt does.
// RUN: mlir-opt --load-dialect-plugin=%plugin --load-pass-plugin=%plugin \
// RUN:   --pass-pipeline='builtin.module(flash-to-nvvm)' %s | FileCheck %s
// RUN: flash-opt --flash-to-nvvm %s | FileCheck %s

// CHECK: llvm.func @f({{.*}}nvvm.kernel
// CHECK: wgmma.mma_async
func.func @f(%q: tensor<1x128x2x64xf16>, %k: tensor<1x256x2x64xf16>, %v: tensor<1x256x2x64xf16>)
    -> tensor<1x128x2x64xf16> {
  %o = flash.attention %q, %k, %v by <causal>
      : tensor<1x128x2x64xf16>, tensor<1x256x2x64xf16>, tensor<1x256x2x64xf16> -> tensor<1x128x2x64xf16>
  return %o : tensor<1x128x2x64xf16>
}
