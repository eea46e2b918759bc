// RUN: flash-opt %s --flash-select-tiles --flash-split-kv --flash-order-work | FileCheck %s
// A second run changes nothing.
// RUN: flash-opt %s --flash-select-tiles --flash-split-kv --flash-order-work > %t
// RUN: flash-opt %t --flash-order-work | diff %t -
// Without split-kv the splits that a plan asks for are not made, so the order is that of whole rows.
// RUN: flash-opt %s --flash-select-tiles --flash-order-work | FileCheck %s --check-prefix=WHOLE

!q = tensor<?x?x8x64xf16>

// CHECK-LABEL: func.func @by_mask
// CHECK: by <dense> {{.*}} order = "static", why = {order = "all tiles cost the same"
// CHECK: by <causal> {{.*}} order = "dynamic", why = {order = "tiles differ: the longest first
// CHECK: by <local, left = 9> {{.*}} order = "dynamic"
func.func @by_mask(%q: !q) -> (!q, !q, !q) {
  %a = flash.attention %q, %q, %q by <dense> : !q, !q, !q -> !q
  %b = flash.attention %q, %q, %q by <causal> : !q, !q, !q -> !q
  %c = flash.attention %q, %q, %q by <local, left = 9> : !q, !q, !q -> !q
  return %a, %b, %c : !q, !q, !q
}

// CHECK-LABEL: func.func @split
// CHECK: flash.attention {{.*}} splits = 2, order = "single", why = {order = "splits even out the work
// WHOLE-LABEL: func.func @split
// WHOLE: flash.attention {{.*}} splits = 2, order = "static"
func.func @split(%q: !q) -> !q {
  %o = flash.attention %q, %q, %q by <dense> {plan = #flash.plan<splits = 2>} : !q, !q, !q -> !q
  return %o : !q
}

// CHECK-LABEL: func.func @by_hand
// CHECK: order = "dynamic"
// CHECK-NOT: why = {order
func.func @by_hand(%q: !q) -> !q {
  %o = flash.attention %q, %q, %q by <dense> {plan = #flash.plan<order = "dynamic">} : !q, !q, !q -> !q
  return %o : !q
}

// A GPU's blocks take tiles that differ from a counter.
// CHECK-LABEL: func.func @gpu
// CHECK: by <dense> {{.*}} stealing = false{{.*}}stealing = "a static stride shares tiles evenly"
// CHECK: by <causal> {{.*}} stealing = true{{.*}}stealing = "tiles differ, so whoever is done takes the next"
// CHECK: by <causal> {{.*}} order = "dynamic"{{.*}} stealing = false
func.func @gpu(%q: !q) -> (!q, !q, !q) {
  %a = flash.attention %q, %q, %q by <dense> {target = #flash.target<"sm_90a">} : !q, !q, !q -> !q
  %b = flash.attention %q, %q, %q by <causal> {target = #flash.target<"sm_90a">} : !q, !q, !q -> !q
  %c = flash.attention %q, %q, %q by <causal> {target = #flash.target<"sm_90a">, plan = #flash.plan<stealing = false>} : !q, !q, !q -> !q
  return %a, %b, %c : !q, !q, !q
}
