// Without several instances, or products in flight together, nobody takes turns; the plan says why.
// RUN: flash-opt %s --flash-lower-to-tile --flash-tile-split-roles --flash-tile-overlap-softmax --flash-tile-ping-pong \
// RUN:   | FileCheck %s
!t = memref<?x?x2x8xbf16>

// CHECK-NOT: flash_tile.in_turn
// CHECK: @no_roles{{.*}}ping_pong = false{{.*}}ping_pong = "without roles there is one program"
func.func @no_roles(%q: !t, %k: !t, %v: !t, %o: !t) {
  flash.attention %q, %k, %v outs(%o : !t) by #flash.mask<dense>
    {plan = #flash.plan<tile = [4, 6], ping_pong = true>} : !t, !t, !t
  return
}
// CHECK-NOT: flash_tile.in_turn
// CHECK: @one_consumer{{.*}}ping_pong = false{{.*}}ping_pong = "one consumer has every turn"
func.func @one_consumer(%q: !t, %k: !t, %v: !t, %o: !t) {
  flash.attention %q, %k, %v outs(%o : !t) by #flash.mask<dense>
    {plan = #flash.plan<tile = [4, 6], consumers = 1, overlap = true, ping_pong = true>} : !t, !t, !t
  return
}
// CHECK-NOT: flash_tile.in_turn
// CHECK: @no_overlap{{.*}}ping_pong = false{{.*}}ping_pong = "the products of a run are not in flight together, which overlap sees to"
// CHECK-NOT: flash_tile.in_turn
func.func @no_overlap(%q: !t, %k: !t, %v: !t, %o: !t) {
  flash.attention %q, %k, %v outs(%o : !t) by #flash.mask<dense>
    {plan = #flash.plan<tile = [4, 6], consumers = 2, ping_pong = true>} : !t, !t, !t
  return
}
