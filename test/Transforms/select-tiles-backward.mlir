// RUN: flash-opt %s --flash-select-tiles --flash-order-work --split-input-file --verify-diagnostics | FileCheck %s --enable-var-scope

// CHECK-LABEL: func @causal
func.func @causal(%q: tensor<1x8x4x64xf32>, %k: tensor<1x9x2x64xf32>, %lse: tensor<1x4x8xf32>) {
  // CHECK: flash.attention_backward {{.*}} by <causal> {plan = #flash.plan<tile = [64, 64], stages = 1, order = "backward_spt", ordered = true
  %dq, %dk, %dv = flash.attention_backward %q, %k, %k, %q, %lse, %q by <local, left = 100, right = 0>
      : tensor<1x8x4x64xf32>, tensor<1x9x2x64xf32>, tensor<1x9x2x64xf32>, tensor<1x8x4x64xf32>, tensor<1x4x8xf32>, tensor<1x8x4x64xf32>
      -> tensor<1x8x4x64xf32>, tensor<1x9x2x64xf32>, tensor<1x9x2x64xf32>
  return
}

// -----

func.func @gpu(%q: tensor<1x8x4x64xf16>, %k: tensor<1x9x2x64xf16>, %lse: tensor<1x4x8xf32>) {
  // expected-error @+1 {{gradients are not built for sm_90a; use cpu}}
  %dq, %dk, %dv = flash.attention_backward %q, %k, %k, %q, %lse, %q by <dense> {target = #flash.target<"sm_90a">}
      : tensor<1x8x4x64xf16>, tensor<1x9x2x64xf16>, tensor<1x9x2x64xf16>, tensor<1x8x4x64xf16>, tensor<1x4x8xf32>, tensor<1x8x4x64xf16>
      -> tensor<1x8x4x64xf16>, tensor<1x9x2x64xf16>, tensor<1x9x2x64xf16>
  return
}
