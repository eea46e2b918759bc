// RUN: flash-opt %s --flash-select-tiles --flash-split-kv --split-input-file | FileCheck %s
// A second run changes nothing.
// RUN: flash-opt %s --flash-select-tiles --flash-split-kv --split-input-file > %t
// RUN: flash-opt %t --flash-select-tiles --flash-split-kv --split-input-file | diff %t -

// Splits by hand, over tensors. The sink joins once, in the combine.
// CHECK-LABEL: func.func @tensors
// CHECK-SAME: (%[[Q:.*]]: tensor<?x?x16x128xbf16>, %[[K:.*]]: {{.*}}, %[[V:.*]]: {{.*}}, %[[SINK:.*]]: tensor<16xf32>,
// CHECK: %[[P:.*]]:2 = flash.attention %[[Q]], %[[K]], %[[V]] scale %{{.*}} softcap %{{.*}} by <causal>
// CHECK-SAME: note = "kept"
// CHECK-SAME: splits = 3
// CHECK-SAME: -> tensor<3x?x?x16x128xf32>, tensor<3x?x16x?xf32>
// CHECK: %[[R:.*]]:2 = flash.combine %[[P]]#0, %[[P]]#1 sink(%[[SINK]] : tensor<16xf32>)
// CHECK-SAME: {plan = #flash.plan<tile = [8, 1]>, target = #flash.target<"cpu">}
// CHECK-SAME: -> tensor<?x?x16x128xbf16>, tensor<?x16x?xf32>
// CHECK: return %[[R]]#0, %[[R]]#1
func.func @tensors(%q: tensor<?x?x16x128xbf16>, %k: tensor<?x?x4x128xbf16>, %v: tensor<?x?x4x128xbf16>,
    %sink: tensor<16xf32>, %scale: f32, %cap: f32) -> (tensor<?x?x16x128xbf16>, tensor<?x16x?xf32>) {
  %o, %lse = flash.attention %q, %k, %v sink(%sink : tensor<16xf32>) scale %scale softcap %cap by <causal>
      {plan = #flash.plan<tile = [8, 4], splits = 3>, note = "kept"}
      : tensor<?x?x16x128xbf16>, tensor<?x?x4x128xbf16>, tensor<?x?x4x128xbf16>
      -> tensor<?x?x16x128xbf16>, tensor<?x16x?xf32>
  return %o, %lse : tensor<?x?x16x128xbf16>, tensor<?x16x?xf32>
}

// -----

// Over memrefs the parts are buffers; without lse the combine writes none.
// CHECK-LABEL: func.func @memrefs
// CHECK-SAME: %[[O:[^:]*]]: memref<?x7x?x32xf32, strided<[?, ?, ?, 1], offset: ?>>)
// CHECK-DAG: %[[C0:.*]] = arith.constant 0
// CHECK-DAG: %[[B:.*]] = memref.dim %[[O]], %[[C0]]
// CHECK-DAG: %[[C2:.*]] = arith.constant 2
// CHECK-DAG: %[[H:.*]] = memref.dim %[[O]], %[[C2]]
// CHECK: %[[OP:.*]] = memref.alloc(%[[B]], %[[H]]) : memref<2x?x7x?x32xf32>
// CHECK: %[[LP:.*]] = memref.alloc(%[[B]], %[[H]]) : memref<2x?x?x7xf32>
// CHECK: flash.attention {{.*}} outs(%[[OP]], %[[LP]] : memref<2x?x7x?x32xf32>, memref<2x?x?x7xf32>)
// CHECK: flash.combine %[[OP]], %[[LP]] outs(%[[O]] : memref<?x7x?x32xf32, strided<[?, ?, ?, 1], offset: ?>>)
// CHECK: memref.dealloc %[[OP]]
// CHECK: memref.dealloc %[[LP]]
!m = memref<?x7x?x32xf32, strided<[?, ?, ?, 1], offset: ?>>
func.func @memrefs(%q: !m, %o: !m) {
  flash.attention %q, %q, %q outs(%o : !m) by <dense> {plan = #flash.plan<splits = 2>} : !m, !m, !m
  return
}

// -----

// The planner splits where the keys of a head leave the cache, and says why; not where it cannot know.
// CHECK-LABEL: func.func @planned
// CHECK: flash.attention {{.*}} splits = [[N:[0-9]+]], why = {{.*}}splits = "{{.+}}"{{.*}} -> tensor<[[N]]x1x200x1x64xf32>
// CHECK: flash.combine
// CHECK-LABEL: func.func @sizes_unknown
// CHECK: splits = 1, why = {{.*}}splits = "sizes are not known"
// CHECK-NOT: flash.combine
!q = tensor<1x200x1x64xf16>
!k = tensor<1x500000x1x64xf16>
!d = tensor<?x200x1x64xf16>
func.func @planned(%q: !q, %k: !k) -> !q {
  %o = flash.attention %q, %k, %k by <dense> : !q, !k, !k -> !q
  return %o : !q
}
func.func @sizes_unknown(%q: !d, %k: !k) -> !d {
  %o = flash.attention %q, %k, %k by <dense> : !d, !k, !k -> !d
  return %o : !d
}

// -----

// A GPU reads eight parts at a time, in rows that fill warps; of few rows sixteen, four by threads of their own.
// CHECK-LABEL: func.func @gpu
// CHECK: flash.combine {{.*}} {plan = #flash.plan<tile = [4, 8]>, target = #flash.target<"sm_90a">}
!q = tensor<1x200x1x96xf16>
!one = tensor<1x1x1x96xf16>
func.func @gpu(%q: !q) -> !q {
  %o = flash.attention %q, %q, %q by <dense> {target = #flash.target<"sm_90a">, plan = #flash.plan<splits = 2>} : !q, !q, !q -> !q
  return %o : !q
}
// CHECK-LABEL: func.func @few_rows
// CHECK: flash.combine {{.*}} {plan = #flash.plan<tile = [1, 16], aside = 4>, target = #flash.target<"sm_90a">}
func.func @few_rows(%q: !one, %k: !q) -> !one {
  %o = flash.attention %q, %k, %k by <dense> {target = #flash.target<"sm_90a">, plan = #flash.plan<splits = 2>} : !one, !q, !q -> !one
  return %o : !one
}
// CHECK-LABEL: func.func @by_hand
// CHECK: flash.combine {{.*}} {plan = #flash.plan<tile = [2, 6], aside = 2>, target = #flash.target<"sm_90a">}
func.func @by_hand(%q: !q) -> !q {
  %o = flash.attention %q, %q, %q by <dense> {target = #flash.target<"sm_90a">, plan = #flash.plan<splits = 2, join = [6, 2]>} : !q, !q, !q -> !q
  return %o : !q
}
