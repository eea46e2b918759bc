// The scores of the next block are issued behind this block's last product and carried: a block begins with its exponentials.
// RUN: flash-opt %s --flash-lower-to-tile --flash-tile-skip-blocks --flash-tile-pipeline-loads --flash-tile-split-roles \
// RUN:   --flash-tile-overlap-scores --canonicalize --cse --verify-roundtrip | FileCheck %s --enable-var-scope
!t = memref<2x256x4x64xbf16>
!l = memref<2x4x256xf32>

// CHECK-LABEL: func @two(
// CHECK: %[[Q:.*]] = flash_tile.ring "q" {{.*}} : <2x128x64xbf16>
// The producer fills a block's tiles in the order of their use.
// CHECK: flash_tile.run = "inner"
// CHECK: scf.if %{{.*}} -> (!flash_tile.frag<64x64xf32>, !flash_tile.frag<64x64xf32>)
// CHECK:   %[[T:.*]] = flash_tile.wait %[[Q]]
// CHECK:   %[[F:.*]] = flash_tile.mma %{{.*}}, %[[T]] trans
// CHECK:   %[[S:.*]] = flash_tile.mma_wait %[[F]]
// CHECK:   scf.for {{.*}} iter_args(%{{.*}}, %{{.*}}, %{{.*}} = %[[S]])
// CHECK:     %[[MINE:.*]] = flash_tile.wait again %[[Q]]
// CHECK:     flash_tile.mma %{{.*}} trans
// CHECK:     flash_tile.mma %{{.*}}, %[[MINE]] acc
// CHECK:     flash_tile.mma_wait
// CHECK:     arith.minsi
// CHECK:     %[[NEXT:.*]] = flash_tile.wait %[[Q]]
// CHECK:     %[[AHEAD:.*]] = flash_tile.mma %{{.*}}, %[[NEXT]] trans
// CHECK:     flash_tile.store sum
// CHECK:     %[[SAHEAD:.*]] = flash_tile.mma_wait %[[AHEAD]]
// CHECK:     flash_tile.release %[[Q]]
// CHECK:     scf.yield %{{.*}}, %{{.*}}, %[[SAHEAD]]
// CHECK:   {flash_tile.run = "right"}
// CHECK: } else {
func.func @two(%q: !t, %k: !t, %v: !t, %o: !t, %lse: !l, %do: !t, %dq: !t, %dk: !t, %dv: !t, %s: f32) {
  flash.attention_backward %q, %k, %v, %o, %lse, %do scale %s outs(%dq, %dk, %dv : !t, !t, !t) by #flash.mask<causal>
      {target = #flash.target<"cpu">, plan = #flash.plan<tile = [128, 128], stages = 2, consumers = 2, overlap = true, ordered = false>} : !t, !t, !t, !t, !l, !t
  return
}

// CHECK: @one{{.*}}overlap = false{{.*}}overlap = "the ring of queries needs 2 stages: two blocks' are held at once"
func.func @one(%q: !t, %k: !t, %v: !t, %o: !t, %lse: !l, %do: !t, %dq: !t, %dk: !t, %dv: !t, %s: f32) {
  flash.attention_backward %q, %k, %v, %o, %lse, %do scale %s outs(%dq, %dk, %dv : !t, !t, !t) by #flash.mask<causal>
      {target = #flash.target<"cpu">, plan = #flash.plan<tile = [128, 128], stages = 1, consumers = 2, overlap = true>} : !t, !t, !t, !t, !l, !t
  return
}

// CHECK: @alone{{.*}}overlap = false{{.*}}overlap = "who multiplies fills the ring of queries, and none is there ahead"
func.func @alone(%q: !t, %k: !t, %v: !t, %o: !t, %lse: !l, %do: !t, %dq: !t, %dk: !t, %dv: !t, %s: f32) {
  flash.attention_backward %q, %k, %v, %o, %lse, %do scale %s outs(%dq, %dk, %dv : !t, !t, !t) by #flash.mask<causal>
      {target = #flash.target<"cpu">, plan = #flash.plan<tile = [128, 128], stages = 2, roles = false, overlap = true>} : !t, !t, !t, !t, !l, !t
  return
}
