// The output is stored through a slot of each consumer's own.
// RUN: flash-opt %s --flash-lower-to-tile --flash-tile-split-roles --flash-tile-stage-store --canonicalize --verify-roundtrip | FileCheck %s
!t = memref<?x?x2x8xbf16>
!p = memref<3x?x?x2x8xf32>
!l = memref<3x?x2x?xf32>

// CHECK-LABEL: func.func @rows
// CHECK: %[[R:.*]] = flash_tile.ring "o" : <2x2x4xbf16>
// CHECK: flash_tile.roles
// CHECK: ^bb0(%{{[^:]*}}: index):
// CHECK: ^bb0(%[[W:[^:]*]]: index):
// CHECK: flash_tile.store %{{.*}} via %[[R]][%[[W]]] : !flash_tile.ring<2x2x4xbf16> : <2x8xbf16> -> <8xbf16>
func.func @rows(%q: !t, %k: !t, %v: !t, %o: !t) {
  flash.attention %q, %k, %v outs(%o : !t) by #flash.mask<causal>
    {plan = #flash.plan<tile = [4, 6], consumers = 2, staged_columns = 4>} : !t, !t, !t
  return
}

// Consumers that divide columns stage their own; more than these there are not.
// CHECK-LABEL: func.func @columns
// CHECK: %[[R:.*]] = flash_tile.ring "o" : <2x4x4xbf16>
// CHECK: flash_tile.store %{{.*}} col %{{.*}} via %[[R]][%{{.*}}] : !flash_tile.ring<2x4x4xbf16> : <4x4xbf16> -> <8xbf16>
func.func @columns(%q: !t, %k: !t, %v: !t, %o: !t) {
  flash.attention %q, %k, %v outs(%o : !t) by #flash.mask<causal>
    {plan = #flash.plan<tile = [4, 6], consumers = 2, split_by = "columns", staged_columns = 64>} : !t, !t, !t
  return
}

// CHECK-LABEL: func.func @alone
// CHECK: %[[R:.*]] = flash_tile.ring "o" : <1x4x8xbf16>
// CHECK: via %[[R]][%c0]
func.func @alone(%q: !t, %k: !t, %v: !t, %o: !t) {
  flash.attention %q, %k, %v outs(%o : !t) by #flash.mask<causal>
    {plan = #flash.plan<tile = [4, 6], roles = false, staged_columns = 8>} : !t, !t, !t
  return
}

// CHECK-LABEL: func.func @off
// CHECK-NOT: via
func.func @off(%q: !t, %k: !t, %v: !t, %o: !t) {
  flash.attention %q, %k, %v outs(%o : !t) by #flash.mask<causal>
    {plan = #flash.plan<tile = [4, 6], consumers = 2, staged_columns = 0>} : !t, !t, !t
  return
}

// CHECK: @parts{{.*}}staged_columns = 0{{.*}}staged_columns = "keys are split: parts are stored as they are computed, in f32"
func.func @parts(%q: !t, %k: !t, %v: !t, %o: !p, %l: !l) {
  flash.attention %q, %k, %v outs(%o, %l : !p, !l) by #flash.mask<causal>
    {plan = #flash.plan<tile = [4, 6], staged_columns = 8>} : !t, !t, !t
  return
}

// CHECK-LABEL: func.func @tables
// CHECK: flash_tile.view %{{.*}} seqused(%{{.*}}) : {{.*}} -> <8xbf16>
// CHECK: via %{{.*}} : !flash_tile.ring<1x4x8xbf16>
func.func @tables(%q: !t, %k: !t, %v: !t, %o: !t, %n: memref<?xi32>) {
  flash.attention %q, %k, %v seqused_q(%n : memref<?xi32>) outs(%o : !t) by #flash.mask<causal>
    {plan = #flash.plan<tile = [4, 6], staged_columns = 8>} : !t, !t, !t
  return
}

// CHECK: @packed{{.*}}staged_columns = 0{{.*}}staged_columns = "the rows of a tile belong to several heads"
func.func @packed(%q: !t, %k: memref<?x?x1x8xbf16>, %v: memref<?x?x1x8xbf16>, %o: !t) {
  flash.attention %q, %k, %v outs(%o : !t) by #flash.mask<causal>
    {plan = #flash.plan<tile = [4, 6], pack_gqa = true, staged_columns = 8>} : !t, memref<?x?x1x8xbf16>, memref<?x?x1x8xbf16>
  return
}

// CHECK: @elsewhere{{.*}}staged_columns = 0, why = {staged_columns = "the kernel has no view of where the output is stored"}
func.func @elsewhere(%v: !flash_tile.view<8xf32>, %f: !flash_tile.frag<4x8xf32>, %i: index) attributes {flash.kernel, flash.plan = #flash.plan<staged_columns = 8>} {
  flash_tile.store %f -> %v[%i, %i, %i] : <4x8xf32> -> <8xf32>
  return
}

// CHECK: @none{{.*}}staged_columns = 0, why = {staged_columns = "the output is not stored in one place"}
func.func @none() attributes {flash.kernel, flash.plan = #flash.plan<staged_columns = 8>} { return }
