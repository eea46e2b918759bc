// K(i + 1) is awaited between the softmax of block i and the wait for PV(i - 1), across the seams of runs.
// RUN: flash-opt %s --flash-lower-to-tile --flash-tile-skip-blocks --flash-tile-pipeline-loads --canonicalize --cse \
// RUN:   --flash-tile-split-roles --flash-tile-overlap-softmax --canonicalize --cse --verify-roundtrip | FileCheck %s
!t = memref<?x?x2x8xbf16>

// CHECK-LABEL: func.func @causal
// CHECK-SAME: early_wait = true
// CHECK: %[[KR:.*]] = flash_tile.ring "k"
// CHECK: ^bb0({{.*}}, %{{.*}}: index):
// CHECK: ^bb0({{.*}}, %[[N:.*]]: index):
// CHECK: %{{.*}}, %[[RIGHT:.*]], %[[INNER:.*]], %{{.*}}, %{{.*}} = flash_tile.block_range
// CHECK: %[[TOTAL:.*]] = arith.addi %[[RIGHT]], %[[INNER]]
// The consumer's: the peeled block awaits the K of the next.
// CHECK: flash_tile.softmax_step first
// CHECK: %[[MORE:.*]] = arith.cmpi sgt, %[[TOTAL:.*]], %c1
// CHECK: scf.if %[[MORE]] {
// CHECK-NEXT: flash_tile.wait %[[KR]][%{{.*}}]
// CHECK-NEXT: }
// CHECK: scf.for %[[I:.*]] = %c1 to
// CHECK: %[[IT:.*]] = arith.addi %{{.*}}, %[[I]]
// CHECK-NEXT: %[[K:.*]] = flash_tile.wait again %[[KR]][%[[IT]]]
// CHECK-NEXT: flash_tile.mma %{{.*}}, %[[K]] trans
// CHECK: flash_tile.softmax_step online
// CHECK-NEXT: %[[NEXT:.*]] = arith.addi %[[I]], %c1
// CHECK-NEXT: %[[MORE:.*]] = arith.cmpi slt, %[[NEXT]], %[[TOTAL]]
// CHECK-NEXT: %[[NEXTIT:.*]] = arith.addi %[[IT]], %c1
// CHECK-NEXT: scf.if %[[MORE]] {
// CHECK-NEXT: flash_tile.wait %[[KR]][%[[NEXTIT]]]
// CHECK-NEXT: }
// CHECK-NEXT: flash_tile.mma_wait
// CHECK: } {flash_tile.run = "right"}
// CHECK: flash_tile.wait again
// CHECK: } {flash_tile.run = "inner"}
func.func @causal(%q: !t, %k: !t, %v: !t, %o: !t) {
  flash.attention %q, %k, %v outs(%o : !t) by #flash.mask<causal>
    {plan = #flash.plan<tile = [4, 6], stages = 2, consumers = 2, overlap = true, early_wait = true>} : !t, !t, !t
  return
}

// With one slot V(i) waits for V(i - 1), and K(i + 1) is filled behind it.
// CHECK-LABEL: func.func @one_stage
// CHECK-SAME: overlap = true, early_wait = false
// CHECK-SAME: early_wait = "V(i) waits for the one slot of V, and K(i + 1) is filled behind it"
// CHECK-NOT: flash_tile.wait again
func.func @one_stage(%q: !t, %k: !t, %v: !t, %o: !t) {
  flash.attention %q, %k, %v outs(%o : !t) by #flash.mask<causal>
    {plan = #flash.plan<tile = [4, 6], stages = 1, consumers = 2, overlap = true, early_wait = true>} : !t, !t, !t
  return
}
