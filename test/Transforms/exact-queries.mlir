// Consumers of keys compute the blocks of queries that see some of their own.
// RUN: flash-opt %s --flash-lower-to-tile --flash-tile-skip-blocks --flash-tile-split-roles --flash-tile-exact-counts --canonicalize --cse \
// RUN:   --verify-roundtrip | FileCheck %s --enable-var-scope

!t = memref<2x256x4x64xbf16>
!l = memref<2x4x256xf32>

// The last run gives back what it does not read, and its part of dS is 0.
// CHECK-LABEL: func.func @causal(
// CHECK-SAME: exact_counts = true
// CHECK-DAG: %[[Q:.*]] = flash_tile.ring "q"
// CHECK-DAG: %[[DO:.*]] = flash_tile.ring "do"
// CHECK-DAG: %[[DS:.*]] = flash_tile.ring "ds"
// CHECK: ^bb0(%{{[a-z0-9]+}}: index):
// CHECK: ^bb0(%{{[a-z0-9]+}}: index):
// CHECK: %[[ZERO:.*]] = flash_tile.splat %{{.*}} -> <64x64xf32>
// CHECK: %{{.*}}, %[[R:.*]], %[[I:.*]], %[[L:.*]], %{{.*}} = flash_tile.block_range queries by <causal> rows[%{{.*}}, 128] block 64
// CHECK: %[[RI:.*]] = arith.addi %[[R]], %[[I]]
// CHECK: %[[ALL:.*]] = arith.addi %[[RI]], %[[L]]
// CHECK: %{{.*}}, %[[OWNR:.*]], %[[OWNI:.*]], %[[OWNL:.*]], %{{.*}} = flash_tile.block_range queries by <causal> rows[%{{.*}}, 64] block 64
// CHECK: %[[A:.*]] = arith.addi %[[OWNR]], %[[OWNI]]
// CHECK: %[[OWN:.*]] = arith.addi %[[A]], %[[OWNL]]
// CHECK: scf.for %{{.*}} = %c0 to %[[OWNR]]
// CHECK: scf.for %{{.*}} = %[[OWNR]] to %[[A]]
// CHECK: scf.for %{{.*}} = %[[A]] to %[[OWN]]
// CHECK: } {flash_tile.run = "left"}
// CHECK: scf.for %{{.*}} = %[[OWN]] to %[[ALL]]
// CHECK-NOT: flash_tile.mma
// CHECK: %[[NONE:.*]] = flash_tile.cast %[[ZERO]] : <64x64xf32> -> <64x64xbf16>
// CHECK-NOT: flash_tile.mma
// CHECK: flash_tile.wait %[[Q]]
// CHECK-NOT: flash_tile.mma
// CHECK: flash_tile.wait %[[DO]]
// CHECK-NOT: flash_tile.mma
// CHECK: flash_tile.write %[[NONE]] -> %[[DS]]
// CHECK: flash_tile.mma %{{.*}} trans,
// CHECK-NOT: flash_tile.mma %
// CHECK: flash_tile.store sum
// CHECK: } {flash_tile.run = "none"}
func.func @causal(%q: !t, %k: !t, %v: !t, %o: !t, %lse: !l, %do: !t, %dq: !t, %dk: !t, %dv: !t, %s: f32) {
  flash.attention_backward %q, %k, %v, %o, %lse, %do scale %s outs(%dq, %dk, %dv : !t, !t, !t) by #flash.mask<causal>
      {target = #flash.target<"cpu">, plan = #flash.plan<tile = [64, 128], consumers = 2, ordered = false>} : !t, !t, !t, !t, !l, !t
  return
}

// Where blocks count up, what is not needed comes first.
// CHECK-LABEL: func.func @ascending(
// CHECK: flash_tile.block_range queries by <causal> rows[%{{.*}}, 64] block 64
// CHECK: %[[FIRST:.*]] = arith.subi
// CHECK: scf.for %{{.*}} = %c0 to %[[FIRST]]
// CHECK: } {flash_tile.run = "none"}
// CHECK: scf.for %{{.*}} = %[[FIRST]] to
// CHECK: } {flash_tile.run = "left"}
func.func @ascending(%q: !t, %k: !t, %v: !t, %o: !t, %lse: !l, %do: !t, %dq: !t, %dk: !t, %dv: !t, %s: f32) {
  flash.attention_backward %q, %k, %v, %o, %lse, %do scale %s outs(%dq, %dk, %dv : !t, !t, !t) by #flash.mask<causal>
      {target = #flash.target<"cpu">, plan = #flash.plan<tile = [64, 128], consumers = 2, order = "backward_spt", ordered = true>} : !t, !t, !t, !t, !l, !t
  return
}

// CHECK-LABEL: func.func @wide(
// CHECK-SAME: exact_counts = "each block of queries sees some of a consumer's keys"
func.func @wide(%q: !t, %k: !t, %v: !t, %o: !t, %lse: !l, %do: !t, %dq: !t, %dk: !t, %dv: !t, %s: f32) {
  flash.attention_backward %q, %k, %v, %o, %lse, %do scale %s outs(%dq, %dk, %dv : !t, !t, !t) by #flash.mask<causal>
      {target = #flash.target<"cpu">, plan = #flash.plan<tile = [128, 128], consumers = 2>} : !t, !t, !t, !t, !l, !t
  return
}

// CHECK-LABEL: func.func @dense(
// CHECK-SAME: exact_counts = "only a diagonal hides all of a consumer's keys from a block of queries"
func.func @dense(%q: !t, %k: !t, %v: !t, %o: !t, %lse: !l, %do: !t, %dq: !t, %dk: !t, %dv: !t, %s: f32) {
  flash.attention_backward %q, %k, %v, %o, %lse, %do scale %s outs(%dq, %dk, %dv : !t, !t, !t) by #flash.mask<dense>
      {target = #flash.target<"cpu">, plan = #flash.plan<tile = [64, 128], consumers = 2>} : !t, !t, !t, !t, !l, !t
  return
}
