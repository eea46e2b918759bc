// With roles the producer takes tiles from a counter and hands them on.
// RUN: flash-opt %s --split-input-file --flash-lower-to-tile --flash-tile-split-roles --verify-roundtrip | FileCheck %s

!q = memref<?x?x2x8xbf16>

// CHECK-LABEL: func.func @roles
// CHECK-SAME: stealing = true
// CHECK: %[[R:.*]] = flash_tile.ring "work" {releases = 2 : i64} : <2x1x1xi32>
// CHECK: flash_tile.roles
// CHECK: flash_tile.for_work "dynamic"({{.*}}) section %{{.*}} via %[[R]] : !flash_tile.ring<2x1x1xi32> iter({{.*}}) attributes {takes} -> index, index {
// CHECK: flash_tile.for_work "dynamic"({{.*}}) section %{{.*}} via %[[R]] : !flash_tile.ring<2x1x1xi32> iter({{.*}}) -> index, index {
func.func @roles(%q: !q, %k: !q, %v: !q, %o: !q) {
  flash.attention %q, %k, %v outs(%o : !q) by #flash.mask<causal>
    {plan = #flash.plan<tile = [4, 6], consumers = 2, order = "dynamic", stealing = true>} : !q, !q, !q
  return
}

// -----

!q = memref<?x?x2x8xbf16>
// CHECK-LABEL: func.func @without_roles
// CHECK-SAME: stealing = false, why = {stealing = "without roles nobody takes tiles from a counter"}
// CHECK-NOT: via
func.func @without_roles(%q: !q, %k: !q, %v: !q, %o: !q) {
  flash.attention %q, %k, %v outs(%o : !q) by #flash.mask<causal>
    {plan = #flash.plan<tile = [4, 6], consumers = 2, roles = false, order = "dynamic", stealing = true>} : !q, !q, !q
  return
}
