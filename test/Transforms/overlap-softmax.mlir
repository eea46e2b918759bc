// The next block's QK is issued before this block's PV; the first block is peeled, the last PV trails.
// RUN: flash-opt %s --flash-lower-to-tile --flash-tile-skip-blocks --flash-tile-pipeline-loads --canonicalize --cse \
// RUN:   --flash-tile-split-roles --flash-tile-overlap-softmax --canonicalize --cse --verify-roundtrip | FileCheck %s

!q = memref<?x?x2x8xbf16>
!v = memref<?x?x2x16xbf16>

// CHECK-LABEL: func.func @causal
// CHECK-DAG: %[[C1:.*]] = arith.constant 1 : index
// CHECK-DAG: %[[QR:.*]] = flash_tile.ring "q"
// CHECK-DAG: %[[KR:.*]] = flash_tile.ring "k"
// CHECK-DAG: %[[VR:.*]] = flash_tile.ring "v"
// CHECK: "consumer"
//
// The producer is left alone.
// CHECK: ^bb0
// CHECK: scf.for {{.*}} {
// CHECK: } {flash_tile.run = "right"}
// CHECK: scf.for {{.*}} {
// CHECK: } {flash_tile.run = "inner"}
//
// CHECK: ^bb0(%[[W:.*]]: index):
// CHECK: ^bb0({{.*}}, %[[N:.*]]: index):
// CHECK: %[[O0:.*]] = flash_tile.splat {{.*}} -> <2x16xf32>
// CHECK: %[[M0:.*]] = flash_tile.splat {{.*}} -> <2x1xf32>
// CHECK: %[[L0:.*]] = flash_tile.splat {{.*}} -> <2x1xf32>
// CHECK: %{{.*}}, %[[RIGHT:.*]], %[[INNER:.*]], %{{.*}}, %{{.*}} = flash_tile.block_range
// CHECK: %[[TOTAL:.*]] = arith.addi %[[RIGHT]], %[[INNER]]
// CHECK: %[[Q:.*]] = flash_tile.wait %[[QR]][%[[QI:.*]]] :
// CHECK: %[[SOME:.*]] = arith.cmpi sgt, %[[RIGHT]], %c0
// CHECK: %[[RESULT:.*]]:3 = scf.if %[[SOME]] -> (!flash_tile.frag<2x16xf32>, !flash_tile.frag<2x1xf32>, !flash_tile.frag<2x1xf32>)
//
// Block 0, masked, measured against nothing; its V waits.
// CHECK: %[[K:.*]] = flash_tile.wait %[[KR]][%[[N]]]
// CHECK-NEXT: %[[SF:.*]] = flash_tile.mma %[[Q]], %[[K]] trans
// CHECK-NEXT: %[[S:.*]] = flash_tile.mma_wait %[[SF]]
// CHECK-NEXT: flash_tile.release %[[KR]][%[[N]]]
// CHECK-NEXT: %[[SM:.*]] = flash_tile.mask %[[S]]
// CHECK-NEXT: %[[P:.*]], %[[M:.*]], %[[L:.*]], %{{.*}} = flash_tile.softmax_step first %[[SM]], %[[M0]], %[[L0]]
// CHECK-NEXT: %[[P16:.*]] = flash_tile.cast %[[P]]
// CHECK-NOT: flash_tile.wait %[[VR]]
//
// CHECK: %[[X:.*]]:4 = scf.for %[[I:.*]] = %[[C1]] to %[[RIGHT]] step %[[C1]] iter_args(%[[O:.*]] = %[[O0]], %[[PI:.*]] = %[[P16]], %[[MI:.*]] = %[[M]], %[[LI:.*]] = %[[L]])
// CHECK: %[[IT:.*]] = arith.addi %[[N]], %[[I]]
// CHECK-NEXT: %[[K:.*]] = flash_tile.wait %[[KR]][%[[IT]]]
// CHECK-NEXT: %[[SF:.*]] = flash_tile.mma %[[Q]], %[[K]] trans
// CHECK-NEXT: %[[PREV:.*]] = arith.subi %[[IT]], %[[C1]]
// CHECK-NEXT: %[[V:.*]] = flash_tile.wait %[[VR]][%[[PREV]]]
// CHECK-NEXT: %[[OF:.*]] = flash_tile.mma %[[PI]], %[[V]] acc %[[O]]
// CHECK-NEXT: %[[S:.*]] = flash_tile.mma_wait %[[SF]]
// CHECK-NEXT: flash_tile.release %[[KR]][%[[IT]]]
// CHECK-NEXT: %[[SM:.*]] = flash_tile.mask %[[S]]
// CHECK-NEXT: %[[P:.*]], %[[M:.*]], %[[L:.*]], %[[ALPHA:.*]] = flash_tile.softmax_step online %[[SM]], %[[MI]], %[[LI]]
// CHECK-NEXT: %[[O1:.*]] = flash_tile.mma_wait %[[OF]]
// CHECK-NEXT: flash_tile.release %[[VR]][%[[PREV]]]
// CHECK-NEXT: %[[O2:.*]] = flash_tile.rescale %[[O1]], %[[ALPHA]]
// CHECK-NEXT: %[[P16:.*]] = flash_tile.cast %[[P]]
// CHECK-NEXT: scf.yield %[[O2]], %[[P16]], %[[M]], %[[L]]
// CHECK: } {flash_tile.run = "right"}
// CHECK: %[[Y:.*]]:4 = scf.for %{{.*}} = %[[RIGHT]] to %[[TOTAL]] step %[[C1]] iter_args(%{{.*}} = %[[X]]#0, %{{.*}} = %[[X]]#1, %{{.*}} = %[[X]]#2, %{{.*}} = %[[X]]#3)
// CHECK-NOT: flash_tile.mask
// CHECK: } {flash_tile.run = "inner"}
//
// Q is free before the last PV.
// CHECK-NEXT: flash_tile.release %[[QR]][%[[QI]]]
// CHECK-NEXT: %[[LAST:.*]] = arith.subi %[[TOTAL]], %[[C1]]
// CHECK-NEXT: %[[IT:.*]] = arith.addi %[[N]], %[[LAST]]
// CHECK-NEXT: %[[V:.*]] = flash_tile.wait %[[VR]][%[[IT]]]
// CHECK-NEXT: %[[OF:.*]] = flash_tile.mma %[[Y]]#1, %[[V]] acc %[[Y]]#0
// CHECK-NEXT: %[[O:.*]] = flash_tile.mma_wait %[[OF]]
// CHECK-NEXT: flash_tile.release %[[VR]][%[[IT]]]
// CHECK-NEXT: scf.yield %[[O]], %[[Y]]#2, %[[Y]]#3
//
// A tile without keys still gives Q back.
// CHECK: else
// CHECK-NEXT: flash_tile.release %[[QR]][%[[QI]]]
// CHECK-NEXT: scf.yield %[[O0]], %[[M0]], %[[L0]]
// CHECK: flash_tile.finalize %[[RESULT]]#0, %[[RESULT]]#1, %[[RESULT]]#2
// CHECK-NOT: flash_tile.release
func.func @causal(%q: !q, %k: !q, %v: !v, %o: !v) {
  flash.attention %q, %k, %v outs(%o : !v) by #flash.mask<causal>
    {plan = #flash.plan<tile = [4, 6], stages = 2, consumers = 2, overlap = true>} : !q, !q, !v
  return
}
