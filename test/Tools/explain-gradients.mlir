// Gradients have a plan, whose reasons stand in their op's text and nowhere else.
// RUN: not flash-compile --explain %s 2>&1 | FileCheck %s
// CHECK: error: plans of gradients are not explained; their op's text behind flash-select-tiles says why
// RUN: flash-opt --flash-select-tiles %s | FileCheck %s --check-prefix=WHY
// WHY: why = {{{.*}}tile = "
func.func @f(%q: tensor<2x300x4x64xbf16>, %lse: tensor<2x4x300xf32>) {
  %dq, %dk, %dv = flash.attention_backward %q, %q, %q, %q, %lse, %q by <causal>
      : tensor<2x300x4x64xbf16>, tensor<2x300x4x64xbf16>, tensor<2x300x4x64xbf16>, tensor<2x300x4x64xbf16>, tensor<2x4x300xf32>, tensor<2x300x4x64xbf16>
      -> tensor<2x300x4x64xbf16>, tensor<2x300x4x64xbf16>, tensor<2x300x4x64xbf16>
  return
}
