// The plan and why, for people and for programs.
// RUN: flash-compile --explain %s | FileCheck %s
// CHECK-LABEL: attention on sm_90a: bf16, head sizes 64 and 64
// CHECK: mask causal
// CHECK: tile
// CHECK-NEXT: because:
// CHECK: shared {{.*}} of 232448 bytes
// CHECK: registers {{.*}} of 65536
// CHECK: blocks {{.*}} skipped, {{.*}} masked
// CHECK: splits
// CHECK: order
// CHECK: waves

// RUN: flash-compile --explain --json --target=cpu %s | %python -c "import json, sys; \
// RUN:   plan = json.load(sys.stdin); print(plan['target'], plan['problem']['keys'], plan['blocks']['all'] > 0)" \
// RUN:   | FileCheck %s --check-prefix=JSON
// JSON: cpu 500 True

func.func @f(%q: tensor<2x300x4x64xbf16>, %k: tensor<2x500x2x64xbf16>, %v: tensor<2x500x2x64xbf16>)
    -> tensor<2x300x4x64xbf16> {
  %o = flash.attention %q, %k, %v by <causal>
      : tensor<2x300x4x64xbf16>, tensor<2x500x2x64xbf16>, tensor<2x500x2x64xbf16> -> tensor<2x300x4x64xbf16>
  return %o : tensor<2x300x4x64xbf16>
}
