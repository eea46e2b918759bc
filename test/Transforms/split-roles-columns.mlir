// Consumers that split V's columns compute all scores; and plans without roles.
// RUN: flash-opt %s --flash-lower-to-tile --flash-tile-split-roles --verify-roundtrip | FileCheck %s

!q = memref<?x?x2x8xf32>
!k = memref<?x?x2x8xf32>
!v = memref<?x?x2x16xf32>
!lse = memref<?x2x?xf32>

// CHECK-LABEL: func.func @columns
// CHECK-DAG: %[[QR:.*]] = flash_tile.ring "q" {releases = 2 : i64} : <1x4x8xf32>
// CHECK-DAG: %[[KR:.*]] = flash_tile.ring "k" {releases = 2 : i64} : <1x6x8xf32>
// CHECK-DAG: %[[VR:.*]] = flash_tile.ring "v" {releases = 2 : i64} : <1x6x16xf32>
// CHECK: flash_tile.roles [#flash_tile.role<"producer", instances = 1, warps = 4, registers = 0, units = [copy]>
// CHECK: flash_tile.fill %{{.*}}[%{{.*}}, %{{.*}}, %[[ROW:.*]]] -> %[[QR]][%[[T:.*]]] :
// CHECK-NOT: -> %[[QR]]
// CHECK: flash_tile.fill %{{.*}} -> %[[KR]]
// CHECK-NEXT: flash_tile.fill %{{.*}} -> %[[VR]]
// CHECK: ^bb0(%[[W:.*]]: index):
// CHECK: %[[FIRST:.*]] = arith.muli %[[W]], %c8{{.*}}
// CHECK: %[[WRITES:.*]] = arith.cmpi eq, %[[W]], %{{.*}}
// CHECK: ^bb0(%{{.*}}: index, %{{.*}}: index, %{{.*}}: index, %{{.*}}: index, %[[T:.*]]: index, %{{.*}}: index):
// CHECK: flash_tile.wait %[[QR]][%[[T]]]
// CHECK: scf.for {{.*}} -> (!flash_tile.frag<4x8xf32>, !flash_tile.frag<4x1xf32>, !flash_tile.frag<4x1xf32>)
// CHECK: flash_tile.softmax_step {{.*}} : <4x6xf32>, <4x1xf32>
// CHECK: flash_tile.rescale {{.*}} : <4x8xf32>, <4x1xf32>
// CHECK: %[[V:.*]] = flash_tile.wait %[[VR]]
// CHECK: %[[PART:.*]] = flash_tile.slice %[[V]][%[[FIRST]]] : <6x16xf32> -> <6x8xf32>
// CHECK: flash_tile.mma %{{.*}}, %[[PART]] acc {{.*}} -> <4x8xf32>
// CHECK: flash_tile.finalize {{.*}} : <4x8xf32>, <4x1xf32>
// CHECK: flash_tile.store %{{.*}} -> %{{.*}} col %[[FIRST]] : <4x8xf32> -> <16xf32>
// CHECK: scf.if %[[WRITES]] {
// CHECK-NEXT: flash_tile.store %{{.*}} : <4x1xf32> -> <1xf32>
// CHECK-NEXT: }
func.func @columns(%q: !q, %k: !k, %v: !v, %o: !v, %lse: !lse) {
  flash.attention %q, %k, %v outs(%o, %lse : !v, !lse) by #flash.mask<dense>
    {plan = #flash.plan<tile = [4, 6], consumers = 2, split_by = "columns">} : !q, !k, !v
  return
}

// CHECK-LABEL: func.func @one_program
// CHECK-NOT: flash_tile.roles
func.func @one_program(%q: !q, %k: !k, %v: !v, %o: !v) {
  flash.attention %q, %k, %v outs(%o : !v) by #flash.mask<dense> {plan = #flash.plan<tile = [4, 6]>} : !q, !k, !v
  return
}

// CHECK-LABEL: func.func @switched_off
// CHECK-NOT: flash_tile.roles
func.func @switched_off(%q: !q, %k: !k, %v: !v, %o: !v) {
  flash.attention %q, %k, %v outs(%o : !v) by #flash.mask<dense>
    {plan = #flash.plan<tile = [4, 6], consumers = 2, roles = false>} : !q, !k, !v
  return
}

// CHECK-LABEL: func.func @no_even_share
// CHECK-SAME: roles = false, why = {roles = "3 consumers do not divide 4 rows"}
// CHECK-NOT: flash_tile.roles
func.func @no_even_share(%q: !q, %k: !k, %v: !v, %o: !v) {
  flash.attention %q, %k, %v outs(%o : !v) by #flash.mask<dense>
    {plan = #flash.plan<tile = [4, 6], consumers = 3>} : !q, !k, !v
  return
}

// CHECK-LABEL: func.func @few_warps
// CHECK: flash_tile.roles [#flash_tile.role<"consumer", instances = 1,
func.func @few_warps(%q: !q, %k: !k, %v: !v, %o: !v) {
  flash.attention %q, %k, %v outs(%o : !v) by #flash.mask<dense>
    {plan = #flash.plan<tile = [4, 6], warps = 1, split_by = "columns">} : !q, !k, !v
  return
}

// CHECK-LABEL: func.func @nothing_to_copy
// CHECK-SAME: why = {roles = "nothing is copied through rings"}
// CHECK-NOT: flash_tile.roles
!parts = memref<?x?x?x2x16xf32>
!part_lse = memref<?x?x2x?xf32>
func.func @nothing_to_copy(%op: !parts, %lp: !part_lse, %o: !v) {
  flash.combine %op, %lp outs(%o : !v) {plan = #flash.plan<tile = [4, 6], consumers = 2>} : !parts, !part_lse
  return
}
