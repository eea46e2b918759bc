// Q is read into registers once a tile and given back at once.
// RUN: flash-opt %s --flash-lower-to-tile --flash-tile-split-roles --flash-tile-overlap-softmax --flash-tile-hold-q \
// RUN:   --canonicalize --cse --verify-roundtrip | FileCheck %s
!t = memref<?x?x2x8xbf16>

// CHECK-LABEL: func.func @causal
// CHECK-DAG: %[[QR:.*]] = flash_tile.ring "q"
// CHECK-DAG: %[[KR:.*]] = flash_tile.ring "k"
// CHECK: flash_tile.fill %{{.*}} -> %[[QR]]
// CHECK: ^bb0
// CHECK: %[[T:.*]] = flash_tile.wait %[[QR]][%[[IT:.*]]] :
// CHECK-NEXT: %[[Q:.*]] = flash_tile.read %[[T]] : <2x8xbf16> -> <2x8xbf16>
// CHECK-NEXT: flash_tile.release %[[QR]][%[[IT]]]
// CHECK: %[[K:.*]] = flash_tile.wait %[[KR]]
// CHECK-NEXT: flash_tile.mma %[[Q]], %[[K]] trans : !flash_tile.frag<2x8xbf16>, <6x8xbf16> -> <2x6xf32>
// CHECK: scf.for
// CHECK: flash_tile.mma %[[Q]], %{{.*}} trans
// CHECK-NOT: flash_tile.release %[[QR]]
// CHECK: flash_tile.finalize
func.func @causal(%q: !t, %k: !t, %v: !t, %o: !t) {
  flash.attention %q, %k, %v outs(%o : !t) by #flash.mask<causal>
    {plan = #flash.plan<tile = [4, 6], consumers = 2, overlap = true, q_in_regs = true>} : !t, !t, !t
  return
}

// CHECK-LABEL: func.func @off
// CHECK-NOT: flash_tile.read
func.func @off(%q: !t, %k: !t, %v: !t, %o: !t) {
  flash.attention %q, %k, %v outs(%o : !t) by #flash.mask<causal>
    {plan = #flash.plan<tile = [4, 6], consumers = 2, overlap = true>} : !t, !t, !t
  return
}
