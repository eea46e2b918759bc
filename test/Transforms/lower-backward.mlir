// RUN: flash-opt %s --flash-lower-to-tile --canonicalize --cse | FileCheck %s --enable-var-scope
// RUN: flash-opt %s --flash-lower-to-tile --flash-tile-skip-blocks --flash-tile-pipeline-loads --canonicalize --cse | FileCheck %s --check-prefix=RUNS --enable-var-scope

// CHECK-LABEL: func @dense_prepare
// CHECK-SAME: "o"}{{.*}}"do"}{{.*}}"lse"}{{.*}}"lse_log2"}{{.*}}"delta"}{{.*}}"dq_sum"}{{.*}}"turns"}
// CHECK-SAME: flash.op = "attention_backward_prepare"
// CHECK: %[[LSE:.*]] = flash_tile.view %arg3 {padded = 32 : i64}
// CHECK: %[[DELTA:.*]] = flash_tile.view %arg4 {padded = 32 : i64}
// CHECK: %[[SUM:.*]] = flash_tile.view %arg5 {padded = 32 : i64}
// CHECK: memref.store %c0_i32, %arg6
// CHECK: %[[D:.*]] = flash_tile.sum %{{.*}} : <32x16xf32> -> <32x1xf32>
// CHECK: flash_tile.store %[[D]] -> %[[DELTA]]
// CHECK: flash_tile.store %{{.*}} -> %[[LSE]]
// CHECK: flash_tile.store %{{.*}} -> %[[SUM]]

// Scores are transposed; five products, dQ's is added up in turn.
// CHECK-LABEL: func @dense(
// CHECK: flash_tile.for_work "single"
// CHECK: %[[K:.*]] = flash_tile.wait %{{.*}} : <1x64x16xbf16> -> <64x16xbf16>
// CHECK: %[[V:.*]] = flash_tile.wait
// CHECK: scf.for %{{.*}} iter_args(%{{.*}}, %{{.*}}, %{{.*}}) -> (!flash_tile.frag<64x16xf32>, !flash_tile.frag<64x16xf32>, index)
// CHECK: scf.for
// CHECK: %[[Q:.*]] = flash_tile.wait
// CHECK: flash_tile.mma %[[K]], %[[Q]] trans : {{.*}} -> <64x32xf32>
// CHECK: %[[DO:.*]] = flash_tile.wait
// CHECK: flash_tile.mma %[[V]], %[[DO]] trans : {{.*}} -> <64x32xf32>
// CHECK: flash_tile.mma_wait
// CHECK: flash_tile.mask %{{.*}} by <dense> at[%{{.*}}, %{{.*}}] lengths(%{{.*}}, %{{.*}}) trans : <64x32xf32>
// CHECK: flash_tile.read %{{.*}} : <1x32xf32>
// CHECK: %[[P:.*]] = flash_tile.map
// CHECK: flash_tile.mma_wait
// CHECK: flash_tile.read %{{.*}} : <1x32xf32>
// CHECK: flash_tile.map %[[P]],
// CHECK: flash_tile.mma %{{.*}}, %[[DO]] acc
// CHECK: %[[DS:.*]] = flash_tile.cast
// CHECK: flash_tile.write %[[DS]] -> %[[R:.*]][%[[IT:.*]]] : <64x32xbf16>
// CHECK: flash_tile.mma %[[DS]], %[[Q]] acc
// CHECK: %[[T:.*]] = flash_tile.wait %[[R]][%[[IT]]]
// CHECK: flash_tile.mma %[[T]] trans, %[[K]] : {{.*}} -> <32x16xf32>
// CHECK: flash_tile.block_range by <dense> rows[%{{.*}}, 32] block 64
// CHECK: flash_tile.store sum %{{.*}} turn(%{{.*}}[%{{.*}}] is %{{.*}} : memref
// CHECK: {flash_tile.run = "all"}

// CHECK-LABEL: func @dense_finish
// CHECK-LABEL: func @dense_sink
// CHECK: flash_tile.sum %{{.*}} : <32x1xf32> -> <1x1xf32>

// RUNS-LABEL: func @dense(
// RUNS: flash_tile.block_range queries by <dense> rows[%{{.*}}, 64] block 32
// RUNS: {flash_tile.run = "right"}
// RUNS: {flash_tile.run = "inner"}
// RUNS-NOT: flash_tile.run
// RUNS-LABEL: func @dense_finish
func.func @dense(%q: memref<?x?x4x16xbf16>, %k: memref<?x?x2x16xbf16>, %lse: memref<?x4x?xf32>, %s: memref<4xf32>) {
  flash.attention_backward %q, %k, %k, %q, %lse, %q sink(%s : memref<4xf32>)
      outs(%q, %k, %k, %s : memref<?x?x4x16xbf16>, memref<?x?x2x16xbf16>, memref<?x?x2x16xbf16>, memref<4xf32>) by <dense> {plan = #flash.plan<tile = [32, 64], ordered = true>, target = #flash.target<"cpu">}
      : memref<?x?x4x16xbf16>, memref<?x?x2x16xbf16>, memref<?x?x2x16xbf16>, memref<?x?x4x16xbf16>, memref<?x4x?xf32>, memref<?x?x4x16xbf16>
  return
}

// Sums in any order take no turns.
// CHECK-LABEL: func @causal_prepare
// CHECK-NOT: turns
// CHECK-LABEL: func @causal(
// CHECK-SAME: "section"}
// CHECK: flash_tile.for_work "backward_lpt"
// CHECK: flash_tile.store sum %{{[0-9]+}} -> %{{.*}}] : <32x16xf32>

// Q and lse come one block ahead, over the seams of the runs.
// RUNS-LABEL: func @causal(
// RUNS: flash_tile.ring "q" : <2x32x16xbf16>
// RUNS: flash_tile.ring "delta" : <2x1x32xf32>
// RUNS: %[[END:.*]], %[[RIGHT:.*]], %[[INNER:.*]], %[[LEFT:.*]], %{{.*}} = flash_tile.block_range queries by <causal>
// RUNS: scf.if
// RUNS: flash_tile.fill {{.*}} -> <2x32x16xbf16>
// RUNS: scf.for %{{.*}} = %c0 to %[[RIGHT]]
// RUNS: flash_tile.mask
// RUNS: {flash_tile.run = "right"}
// RUNS: scf.for
// RUNS-NOT: flash_tile.mask
// RUNS: {flash_tile.run = "inner"}
// RUNS: flash_tile.mask
// RUNS: {flash_tile.run = "left"}
func.func @causal(%q: memref<?x?x4x16xbf16>, %k: memref<?x?x2x16xbf16>, %lse: memref<?x4x?xf32>, %s: memref<4xf32>) {
  flash.attention_backward %q, %k, %k, %q, %lse, %q sink(%s : memref<4xf32>)
      outs(%q, %k, %k, %s : memref<?x?x4x16xbf16>, memref<?x?x2x16xbf16>, memref<?x?x2x16xbf16>, memref<4xf32>) by <causal> {plan = #flash.plan<tile = [32, 64], stages = 2, order = "backward_lpt">, target = #flash.target<"cpu">}
      : memref<?x?x4x16xbf16>, memref<?x?x2x16xbf16>, memref<?x?x2x16xbf16>, memref<?x?x4x16xbf16>, memref<?x4x?xf32>, memref<?x?x4x16xbf16>
  return
}

// Packed sequences have tiles of their own: of keys, of queries, and in what is written tile by tile.
// CHECK-LABEL: func @packed_prepare
// CHECK: flash_tile.view %arg3 cu_seqlens(%{{.*}}) {padded = 32 : i64}
// CHECK: flash_tile.for_work "varlen_dynamic"({{.*}} packed(%{{.*}}) {{.*}}tile = 32
// CHECK-LABEL: func @packed(
// CHECK: flash_tile.for_work "varlen_dynamic"({{.*}} packed(%{{.*}}) {{.*}}tile = 64

// A turn counts the tiles of keys that the mask leaves. The last keys add first, and walk their queries from the first.
// RUNS-LABEL: func @packed(
// RUNS: %[[END:[a-z0-9]+]], %{{.*}} = flash_tile.block_range queries
// RUNS: %[[LOWEST:.*]] = arith.subi %[[END]], %[[TOTAL:.*]] : index
// RUNS: scf.for %[[I:.*]] = %c0 to
// RUNS: arith.addi %[[LOWEST]], %[[I]] : index
// RUNS: flash_tile.block_range by <local, left = 8, right = 2, sink_tokens = 3> rows[%{{.*}}, 32] block 64
// RUNS: {flash_tile.run = "left"}
// RUNS: {flash_tile.run = "inner"}
// RUNS: to %[[TOTAL]] step
// RUNS: {flash_tile.run = "right"}
// RUNS-NOT: by <dense>
// RUNS-LABEL: func @packed_finish
func.func @packed(%q: memref<?x4x16xbf16>, %k: memref<?x2x16xbf16>, %lse: memref<4x?xf32>, %s: memref<4xf32>, %cq: memref<?xi32>, %ck: memref<?xi32>) {
  flash.attention_backward %q, %k, %k, %q, %lse, %q sink(%s : memref<4xf32>) cu_seqlens_q(%cq : memref<?xi32>) cu_seqlens_k(%ck : memref<?xi32>)
      outs(%q, %k, %k, %s : memref<?x4x16xbf16>, memref<?x2x16xbf16>, memref<?x2x16xbf16>, memref<4xf32>) by <local, left = 8, right = 2, sink_tokens = 3> {plan = #flash.plan<tile = [32, 64], order = "varlen_dynamic", ordered = true>, target = #flash.target<"cpu">}
      : memref<?x4x16xbf16>, memref<?x2x16xbf16>, memref<?x2x16xbf16>, memref<?x4x16xbf16>, memref<4x?xf32>, memref<?x4x16xbf16>
  return
}

// Warps that share keys have parts of P and dS: products take them from shared memory. A wide dQ goes in two parts.
// CHECK-LABEL: func @shared(
// CHECK: flash_tile.ring "p" : <1x64x32xbf16>
// CHECK: %[[P:.*]] = flash_tile.cast
// CHECK: %[[DS:.*]] = flash_tile.cast
// CHECK: flash_tile.write %[[P]] -> %[[PR:.*]][%[[IT:.*]]] : <64x32xbf16>
// CHECK: flash_tile.write %[[DS]] -> %[[R:.*]][%[[IT]]] : <64x32xbf16>
// CHECK: %[[PT:.*]] = flash_tile.wait %[[PR]][%[[IT]]]
// CHECK: flash_tile.mma %[[PT]], %{{.*}} acc
// CHECK: %[[T:.*]] = flash_tile.wait %[[R]][%[[IT]]]
// CHECK: flash_tile.mma %[[T]], %{{.*}} acc
// CHECK: flash_tile.mma %[[T]] trans, %{{.*}} -> <32x128xf32>
// CHECK: flash_tile.release %[[PR]][%[[IT]]]
// CHECK: flash_tile.store sum
// CHECK: %[[PART:.*]] = flash_tile.slice
// CHECK: flash_tile.mma %[[T]] trans, %[[PART]] {{.*}} -> <32x128xf32>
// CHECK: flash_tile.store sum
// CHECK-LABEL: func @shared_finish

// The next block is copied into the one slot behind the last product that reads it, beside dQ.
// RUNS-LABEL: func @shared(
// RUNS: scf.for
// RUNS: scf.if
// RUNS: scf.for
// RUNS-COUNT-2: flash_tile.mma {{.*}} acc
// RUNS: scf.if
// RUNS: flash_tile.fill {{.*}} -> <1x32x256xbf16>
// RUNS: flash_tile.mma {{.*}} trans, {{.*}} -> <32x128xf32>
// RUNS: flash_tile.run
func.func @shared(%q: memref<?x?x4x256xbf16>, %k: memref<?x?x2x256xbf16>, %lse: memref<?x4x?xf32>) {
  flash.attention_backward %q, %k, %k, %q, %lse, %q outs(%q, %k, %k : memref<?x?x4x256xbf16>, memref<?x?x2x256xbf16>, memref<?x?x2x256xbf16>)
      by <dense> {plan = #flash.plan<tile = [32, 64], warps = 8>, target = #flash.target<"sm_80">}
      : memref<?x?x4x256xbf16>, memref<?x?x2x256xbf16>, memref<?x?x2x256xbf16>, memref<?x?x4x256xbf16>, memref<?x4x?xf32>, memref<?x?x4x256xbf16>
  return
}

// By columns, four warps of 32 rows share 64 keys. With two slots dQ's sum goes out in front of dK's product.
// CHECK-LABEL: func @columns(
// CHECK: flash_tile.ring "p" : <1x64x64xbf16>
// CHECK: %[[T:.*]] = flash_tile.wait %{{.*}} : <1x64x64xbf16> -> <64x64xbf16>
// CHECK: flash_tile.mma %{{.*}}, %{{.*}} acc {{.*}} -> <64x128xf32>
// CHECK: flash_tile.mma %[[DS:.*]] trans, %{{.*}} -> <64x128xf32>
// CHECK: flash_tile.store sum
// CHECK: flash_tile.mma %[[DS]], %{{.*}} acc {{.*}} -> <64x128xf32>
// CHECK: flash_tile.run

// RUNS-LABEL: func @columns(
// RUNS: scf.for
// RUNS: scf.if
// RUNS: scf.for
// RUNS-COUNT-4: flash_tile.wait
// RUNS-NOT: flash_tile.wait
// RUNS: scf.if
// RUNS: flash_tile.fill {{.*}} -> <2x64x128xbf16>
// RUNS: flash_tile.mma
// RUNS: flash_tile.run
func.func @columns(%q: memref<?x?x4x128xbf16>, %k: memref<?x?x2x128xbf16>, %lse: memref<?x4x?xf32>) {
  flash.attention_backward %q, %k, %k, %q, %lse, %q outs(%q, %k, %k : memref<?x?x4x128xbf16>, memref<?x?x2x128xbf16>, memref<?x?x2x128xbf16>)
      by <dense> {plan = #flash.plan<tile = [64, 64], stages = 2, warps = 4, split_by = "columns">, target = #flash.target<"sm_80">}
      : memref<?x?x4x128xbf16>, memref<?x?x2x128xbf16>, memref<?x?x2x128xbf16>, memref<?x?x4x128xbf16>, memref<?x4x?xf32>, memref<?x?x4x128xbf16>
  return
}
