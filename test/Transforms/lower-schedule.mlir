// A schedule is filled by a kernel before: each sequence finds its place among all, and writes its entries. The attention and the
// combine read how many parts the keys of their sequence have.
// RUN: flash-opt %s --flash-select-tiles=target=sm_90a --flash-order-work --flash-lower-to-tile --canonicalize | FileCheck %s

!rows = memref<?xi32>
!table = memref<?x?xi32>
!q = memref<?x8x64xbf16>
!cache = memref<?x?x2x64xbf16>

// CHECK-LABEL: func.func @decode_prepare(
// CHECK-SAME:    %[[CU:[a-z0-9]+]]: {{[^%]*}} {flash.arg = "cu_seqlens_q"}, %[[USED:[a-z0-9]+]]: {{[^%]*}} {flash.arg = "seqused_k"}, %[[S:[a-z0-9]+]]: memref<?x?xi32, strided<[?, 1], offset: ?>> {flash.arg = "schedule"}, %[[MOST:[a-z0-9]+]]: index {flash.arg = "max_splits"}, %[[SMS:[a-z0-9]+]]: index {flash.arg = "sms"})
// CHECK-SAME:    flash.op = "prepare", flash.plan = #flash.plan<tile = [1, 1]>
// CHECK-DAG:     %[[C0:.*]] = arith.constant 0 : index
// CHECK-DAG:     %[[C1:.*]] = arith.constant 1 : index
// CHECK-DAG:     %[[C2:.*]] = arith.constant 2 : index
// CHECK-DAG:     %[[C3:.*]] = arith.constant 3 : index
// CHECK-DAG:     %[[QV:.*]] = flash_tile.view %{{.*}} cu_seqlens(%[[CU]] : {{.*}}) {group = 4 : i64}
// CHECK-DAG:     %[[KV:.*]] = flash_tile.view %{{.*}} seqused(%[[USED]] : {{.*}})
// CHECK:         %[[BATCH:.*]] = arith.subi
// CHECK:         flash_tile.for_work "single"(%[[C1]], %[[C1]], %[[BATCH]], %[[C1]]) {
// CHECK:         ^bb0(%{{.*}}: index, %{{.*}}: index, %[[B:.*]]: index, %{{.*}}: index):
// CHECK:           %[[PAIRS:.*]] = flash_tile.total %[[BATCH]] -> index {
// CHECK:           ^bb0(%[[I:.*]]: index):
// CHECK-DAG:         flash_tile.length %[[QV]][%[[I]]]
// CHECK-DAG:         flash_tile.length %[[KV]][%[[I]]]
// CHECK:           %[[SHARE:.*]] = arith.maxsi %{{.*}}, %c16
// CHECK:           %[[BEFORE:.*]]:2 = flash_tile.total %[[BATCH]] -> index, index {
// CHECK:             arith.minsi %{{.*}}, %[[MOST]]
// CHECK:           memref.store %{{.*}}, %[[S]][%[[C0]], %[[BEFORE]]#0]
// CHECK:           memref.store %{{.*}}, %[[S]][%[[C1]], %[[BEFORE]]#0]
// CHECK:           memref.store %{{.*}}, %[[S]][%[[C2]], %[[B]]]
// CHECK:           memref.store %{{.*}}, %[[S]][%[[C3]], %[[B]]]
// CHECK:           scf.if
// CHECK:             memref.store %{{.*}}, %[[S]][%[[C0]], %[[BATCH]]]

// CHECK-LABEL: func.func @decode(
// CHECK-SAME:    %[[S:[a-z0-9]+]]: memref<?x?xi32, strided<[?, 1], offset: ?>> {flash.arg = "schedule"})
// CHECK-SAME:    flash.follows
// CHECK:         %[[SPLITS:.*]] = memref.dim %{{.*}}, %{{.*}} : memref<?x?x?x64xf32
// CHECK:         flash_tile.for_work "varlen_dynamic"(%{{.*}}, %[[SPLITS]]) schedule(%[[S]] : {{.*}}) iter
// CHECK:         ^bb0(%{{.*}}: index, %[[H:.*]]: index, %{{.*}}: index, %[[BOTH:.*]]: index, %{{.*}}: index, %{{.*}}: index):
// CHECK:           %[[OWN:.*]] = arith.divui %[[BOTH]], %c65536
// CHECK:           %[[PART:.*]] = arith.remui %[[BOTH]], %c65536
// CHECK:           flash_tile.block_range {{.*}} split(%[[PART]], %[[OWN]])
// CHECK:           %[[HEAD:.*]] = arith.muli %[[H]], %[[SPLITS]]
// CHECK:           %[[AT:.*]] = arith.addi %[[HEAD]], %[[PART]]
// CHECK:           flash_tile.store %{{.*}}[%{{.*}}, %[[AT]], %{{.*}}]

// CHECK-LABEL: func.func @decode_combine(
// CHECK-SAME:    %[[CU:[a-z0-9]+]]: {{[^%]*}} {flash.arg = "cu_seqlens_q"}, %{{[a-z0-9]+}}: index {flash.arg = "max_seqlen_q"}, %[[S:[a-z0-9]+]]: {{[^%]*}} {flash.arg = "schedule"})
// CHECK:         flash_tile.view %{{.*}} cu_seqlens(%[[CU]] : {{.*}}) {partial}
// CHECK:         %[[BATCH:.*]] = arith.subi
// CHECK:         flash_tile.for_work "single"(%{{.*}}, %{{.*}}, %[[BATCH]], %{{.*}})
// CHECK:         ^bb0(%{{.*}}: index, %{{.*}}: index, %[[B:.*]]: index, %{{.*}}: index):
// CHECK:           %[[N:.*]] = memref.load %[[S]][%c2, %[[B]]]
// CHECK:           %[[OWN:.*]] = arith.index_cast %[[N]]
// CHECK:           %[[ANY:.*]] = arith.select %{{.*}}, %[[OWN]], %c0
// CHECK:           scf.for %{{.*}} = %c0 to %[[ANY]] step
func.func @decode(%q: !q, %k: !cache, %cu: !rows, %used: !rows, %s: !table, %op: memref<?x?x8x64xf32>, %lp: memref<?x8x?xf32>,
    %o: !q, %most: index) {
  flash.attention %q, %k, %k cu_seqlens_q(%cu : !rows) max_seqlen_q %most seqused_k(%used : !rows) schedule(%s : !table)
      outs(%op, %lp : memref<?x?x8x64xf32>, memref<?x8x?xf32>) by <dense>
      {plan = #flash.plan<tile = [64, 128], pack_gqa = true, order = "varlen_dynamic">} : !q, !cache, !cache
  flash.combine %op, %lp cu_seqlens_q(%cu : !rows) max_seqlen_q %most schedule(%s : !table) outs(%o : !q)
      : memref<?x?x8x64xf32>, memref<?x8x?xf32>
  return
}
