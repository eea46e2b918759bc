// RUN: flash-opt %s --flash-select-tiles | FileCheck %s --check-prefixes=CHECK,CPU
// RUN: flash-opt %s --flash-select-tiles=target=sm_90a | FileCheck %s --check-prefixes=CHECK,SM90
// A second run changes nothing.
// RUN: flash-opt %s --flash-select-tiles > %t && flash-opt %t --flash-select-tiles=target=sm_90a | diff %t -
// Without an op there is nothing to do.
// RUN: echo 'module {}' | flash-opt --flash-select-tiles

!q = tensor<2x1000x8x128xbf16>
!v512 = tensor<?x?x8x512xbf16>
!q64 = tensor<?x?x8x64xbf16>

// CHECK-LABEL: func.func @filled
// CPU: flash.attention {{.*}} by <causal> {plan = #flash.plan<tile = [64, 64], stages = 1, overlap = false, pack_gqa = false,
// CPU-NOT: consumers
// CPU-SAME: why = {pack_gqa = "every query head has a KV head of its own", tile = "row cpu: {{[^"]+}}"}>,
// CPU-SAME: target = #flash.target<"cpu">}
// SM90: flash.attention {{.*}} by <causal> {plan = #flash.plan<tile = [128, 128], stages = 2, consumers = 2,
// SM90-SAME: registers = [40, 232], overlap = true, pack_gqa = false, defer_max = true, staged_columns = 128, why = {{.*}}tile = "row sm90-128: {{[^"]+}}"}>,
// SM90-SAME: target = #flash.target<"sm_90a">}
func.func @filled(%q: !q) -> !q {
  %o = flash.attention %q, %q, %q by <causal> : !q, !q, !q -> !q
  return %o : !q
}

// CHECK-LABEL: func.func @own_target
// CHECK: plan = #flash.plan<tile = [64, 64], stages = 2, consumers = 2, registers = [40, 232], split_by = "columns",
// CHECK-SAME: target = #flash.target<"sm_90a">
func.func @own_target(%q: !q64, %v: !v512) -> !v512 {
  %o = flash.attention %q, %q, %v by <dense> {target = #flash.target<"sm_90a">} : !q64, !q64, !v512 -> !v512
  return %o : !v512
}

// A plan by hand is kept, and has no reason; roles stay on a CPU where a hand wrote them.
// CHECK-LABEL: func.func @by_hand
// CHECK: plan = #flash.plan<tile = [4, 4], stages = 3, consumers = 2, overlap = true, pack_gqa = true, splits = 2>
func.func @by_hand(%q: !q) -> !q {
  %o = flash.attention %q, %q, %q by <causal> {target = #flash.target<"cpu">,
      plan = #flash.plan<tile = [4, 4], stages = 3, consumers = 2, overlap = true, pack_gqa = true, splits = 2>}
      : !q, !q, !q -> !q
  return %o : !q
}

// A window as wide as the sequences is the same kernel as none.
// CHECK-LABEL: func.func @wide_window
// CHECK: flash.attention {{.*}} by <causal>
// CHECK: flash.attention {{.*}} by <dense>
// CHECK: flash.attention {{.*}} by <local, left = 999, right = 99>
func.func @wide_window(%q: !q, %long: tensor<2x1001x8x128xbf16>) -> (!q, !q, !q) {
  %a = flash.attention %q, %q, %q by <local, left = 999, right = 0> : !q, !q, !q -> !q
  %b = flash.attention %q, %q, %q by <local, left = 4096> : !q, !q, !q -> !q
  %c = flash.attention %q, %long, %long by <local, left = 999, right = 99>
      : !q, tensor<2x1001x8x128xbf16>, tensor<2x1001x8x128xbf16> -> !q
  return %a, %b, %c : !q, !q, !q
}

// Of a known group, short queries are packed; a size that is not known is a reason not to.
// CHECK-LABEL: func.func @packed
// CPU: pack_gqa = true, why = {pack_gqa = "the rows of 8 query heads fill tiles better than those of one"
// CPU: pack_gqa = false, why = {pack_gqa = "the number of query heads of a KV head is not known"
// SM90: pack_gqa = true, defer_max = true, why = {pack_gqa = "the rows of 8 query heads fill tiles better than those of one"
func.func @packed(%q: tensor<1x10x8x64xf16>, %k: tensor<1x99x1x64xf16>, %qd: tensor<1x10x?x64xf16>) -> (tensor<1x10x8x64xf16>, tensor<1x10x?x64xf16>) {
  %a = flash.attention %q, %k, %k by <dense> : tensor<1x10x8x64xf16>, tensor<1x99x1x64xf16>, tensor<1x99x1x64xf16> -> tensor<1x10x8x64xf16>
  %b = flash.attention %qd, %k, %k by <dense> : tensor<1x10x?x64xf16>, tensor<1x99x1x64xf16>, tensor<1x99x1x64xf16> -> tensor<1x10x?x64xf16>
  return %a, %b : tensor<1x10x8x64xf16>, tensor<1x10x?x64xf16>
}

// CHECK-LABEL: func.func @combine
// CHECK: flash.combine {{.*}} {plan = #flash.plan<tile = [64, 1]>, target = #flash.target<"cpu">}
func.func @combine(%o: tensor<3x1x8x2x64xf32>, %lse: tensor<3x1x2x8xf32>) -> tensor<1x8x2x64xf16> {
  %r = flash.combine %o, %lse {target = #flash.target<"cpu">} : tensor<3x1x8x2x64xf32>, tensor<3x1x2x8xf32> -> tensor<1x8x2x64xf16>
  return %r : tensor<1x8x2x64xf16>
}
