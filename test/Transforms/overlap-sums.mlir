// A block multiplies and adds up dQ of the block before, the first adds nothing, and the last block's stands behind the runs.
// RUN: flash-opt %s --flash-lower-to-tile --flash-tile-skip-blocks --flash-tile-pipeline-loads --flash-tile-split-roles \
// RUN:   --flash-tile-overlap-sums --canonicalize --cse --verify-roundtrip | FileCheck %s --enable-var-scope
!t = memref<2x256x4x64xbf16>
!w = memref<2x256x4x256xbf16>
!l = memref<2x4x256xf32>

// CHECK-LABEL: func @two(
// CHECK: %[[DS:.*]] = flash_tile.ring "ds" {{.*}} : <2x128x128xbf16>
// CHECK: flash_tile.run = "left"
// CHECK: %[[R:.*]]:4 = scf.for %[[I:.*]] = %[[C0:.*]] to %{{.*}} iter_args(%{{.*}}, %{{.*}}, %[[IT:.*]] = %{{.*}}, %[[ROW:.*]] = %{{.*}})
// CHECK:   %[[OWN:.*]] = arith.addi %{{.*}}, %[[I]] : index
// CHECK:   flash_tile.write %{{.*}} -> %[[DS]][%[[OWN]]]
// CHECK:   flash_tile.wait %[[DS]][%[[IT]]]
// CHECK:   %[[DQ:.*]] = flash_tile.mma %{{.*}} trans, %{{.*}} -> <64x64xf32>
// CHECK:   %[[DV:.*]] = flash_tile.mma %{{.*}} acc
// CHECK:   %[[DK:.*]] = flash_tile.mma %{{.*}} acc
// CHECK:   %[[SUM:.*]] = flash_tile.mma_wait %[[DQ]]
// CHECK:   %[[OWNROW:.*]] = arith.addi
// CHECK:   %[[LATER:.*]] = arith.cmpi ne, %[[I]], %[[C0]]
// CHECK:   scf.if %[[LATER]] {
// CHECK-NEXT: flash_tile.release %[[DS]][%[[IT]]]
// CHECK-NEXT: flash_tile.store sum %[[SUM]] -> %{{.*}}, %[[ROW]]]
// CHECK-NEXT: }
// CHECK:   flash_tile.mma_wait %[[DV]]
// CHECK:   flash_tile.mma_wait %[[DK]]
// CHECK:   scf.yield %{{.*}}, %{{.*}}, %[[OWN]], %[[OWNROW]]
// CHECK: } {flash_tile.run = "right"}
// CHECK: scf.for %{{.*}} iter_args(%{{.*}} = %[[R]]#0, %{{.*}} = %[[R]]#1, %{{.*}} = %[[R]]#2, %{{.*}} = %[[R]]#3)
// CHECK: %[[L:.*]]:4 = scf.for
// CHECK: } {flash_tile.run = "left"}
// CHECK: scf.if
// CHECK-NEXT: flash_tile.wait %[[DS]][%[[L]]#2]
// CHECK:   %[[LAST:.*]] = flash_tile.mma_wait
// CHECK-NEXT: flash_tile.release %[[DS]][%[[L]]#2]
// CHECK-NEXT: flash_tile.store sum %[[LAST]] -> %{{.*}}, %[[L]]#3]
func.func @two(%q: !t, %k: !t, %v: !t, %o: !t, %lse: !l, %do: !t, %dq: !t, %dk: !t, %dv: !t, %s: f32) {
  flash.attention_backward %q, %k, %v, %o, %lse, %do scale %s outs(%dq, %dk, %dv : !t, !t, !t) by #flash.mask<causal>
      {target = #flash.target<"cpu">, plan = #flash.plan<tile = [128, 128], stages = 2, consumers = 2, overlap = true, ordered = false>} : !t, !t, !t, !t, !l, !t
  return
}

// CHECK: @attention{{.*}}overlap = false{{.*}}overlap = "a block's dQ is multiplied part by part"
func.func @attention(%q: !w, %k: !w, %v: !w, %o: !w, %lse: !l, %do: !w, %dq: !w, %dk: !w, %dv: !w, %s: f32) {
  flash.attention_backward %q, %k, %v, %o, %lse, %do scale %s outs(%dq, %dk, %dv : !w, !w, !w) by #flash.mask<causal>
      {target = #flash.target<"cpu">, plan = #flash.plan<tile = [32, 64], stages = 1, warps = 8, overlap = true, ordered = false>} : !w, !w, !w, !w, !l, !w
  return
}
