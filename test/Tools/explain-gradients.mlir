// The plan of gradients and why, what is launched, and the workspace.
// RUN: flash-compile --explain %s | FileCheck %s
// CHECK-LABEL: gradients of attention on sm_90a: bf16, head sizes 64 and 64
// CHECK: mask causal
// CHECK: tile 128 queries x 128 keys
// CHECK-NEXT: because:
// CHECK: shared {{.*}} of 232448 bytes
// Three tiles of keys each of two sequences and two heads, which two query heads read: 6 of 9 pairs.
// CHECK: blocks 48 of 72 computed (66.7 %), 24 skipped, 40 masked
// CHECK-NEXT: because: masked are those that the mask's edges cross, and the last queries and keys
// CHECK: sum of dQ in any order
// CHECK: order backward_lpt
// CHECK: waves 12 tiles
// CHECK: kernels attention_backward_prepare: 24 blocks of 256 threads
// CHECK-NEXT: attention_backward: 12 blocks of 384 threads
// CHECK-NEXT: attention_backward_finish: 24 blocks of 256 threads
// Three tiles of 128 queries, 2 x 4 heads: of 64 columns of f32, and two f32 a row.
// CHECK: workspace 811008 bytes: dq_sum 786432, lse_log2 12288, delta 12288

// RUN: flash-compile --explain --json --target=sm_80 %s | %python -c "import json, sys; \
// RUN:   plan = json.load(sys.stdin); print(plan['backward'], len(plan['kernels']), sum(plan['workspace']['parts'].values()) == plan['workspace']['bytes'])" \
// RUN:   | FileCheck %s --check-prefix=JSON
// JSON: True 3 True

func.func @f(%q: tensor<2x300x4x64xbf16>, %k: tensor<2x300x2x64xbf16>, %lse: tensor<2x4x300xf32>) {
  %dq, %dk, %dv = flash.attention_backward %q, %k, %k, %q, %lse, %q by <causal>
      : tensor<2x300x4x64xbf16>, tensor<2x300x2x64xbf16>, tensor<2x300x2x64xbf16>, tensor<2x300x4x64xbf16>, tensor<2x4x300xf32>, tensor<2x300x4x64xbf16>
      -> tensor<2x300x4x64xbf16>, tensor<2x300x2x64xbf16>, tensor<2x300x2x64xbf16>
  return
}
