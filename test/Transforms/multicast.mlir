// Two blocks side by side share K and V: the same blocks of keys for both, work and rings in clusters.
// RUN: flash-opt %s --split-input-file --flash-lower-to-tile --flash-tile-skip-blocks --flash-tile-pipeline-loads --canonicalize --cse \
// RUN:   --flash-tile-split-roles --flash-tile-multicast --flash-tile-exact-counts --canonicalize --cse --verify-roundtrip | FileCheck %s

!q = memref<?x?x2x8xbf16>

// CHECK-LABEL: func.func @causal
// CHECK-SAME: multicast = true
// CHECK-DAG: %[[C2:.*]] = arith.constant 2 : index
// CHECK-DAG: %[[C4:.*]] = arith.constant 4 : index
// CHECK-DAG: flash_tile.ring "q" : <2x2x8xbf16>
// CHECK-DAG: flash_tile.ring "k" {cluster = 2 : i64, releases = 2 : i64}
// CHECK-DAG: flash_tile.ring "v" {cluster = 2 : i64, releases = 2 : i64}
// CHECK-DAG: %[[R:.*]] = flash_tile.ring "work" {cluster = 2 : i64, releases = 2 : i64}
//
// The producer fetches Q of its own rows, and what any row of both tiles needs.
// CHECK: flash_tile.for_work "dynamic"({{.*}}) section %{{.*}} via %[[R]] {{.*}} attributes {cluster = 2 : i64, takes}
// CHECK-NEXT: ^bb0(%[[M:.*]]: index, %{{.*}}: index, %{{.*}}: index, %{{.*}}: index, %{{.*}}: index, %{{.*}}: index):
// CHECK: %[[ROW:.*]] = arith.muli %[[M]], %[[C4]]
// CHECK: %[[RANK:.*]] = arith.remui %[[M]], %[[C2]]
// CHECK: %[[FIRST:.*]] = arith.subi %[[M]], %[[RANK]]
// CHECK: %[[ROW0:.*]] = arith.muli %[[FIRST]], %[[C4]]
// CHECK: flash_tile.block_range by <causal> rows[%[[ROW0]], 8]
// CHECK: flash_tile.fill %{{.*}}[%{{.*}}, %{{.*}}, %[[ROW]]]
//
// A consumer too, and then what its own rows need.
// CHECK: flash_tile.for_work "dynamic"({{.*}}) section %{{.*}} via %[[R]] {{.*}} attributes {cluster = 2 : i64}
// CHECK: flash_tile.block_range by <causal> rows[%{{.*}}, 8]
// CHECK: flash_tile.block_range by <causal> rows[%{{.*}}, 2]
func.func @causal(%q: !q, %k: !q, %v: !q, %o: !q) {
  flash.attention %q, %k, %v outs(%o : !q) by #flash.mask<causal>
    {plan = #flash.plan<tile = [4, 6], stages = 2, consumers = 2, order = "dynamic", stealing = true, multicast = true>} : !q, !q, !q
  return
}

// -----

// Consumers that share a tile's rows give back what the other tile's need.
!q = memref<?x?x2x8xbf16>
// CHECK-LABEL: func.func @columns
// CHECK-SAME: exact_counts = true, multicast = true
// CHECK: flash_tile.ring "q" {releases = 2 : i64}
// CHECK: ^bb0(%{{.*}}: index):
// CHECK: ^bb0(%{{.*}}: index):
// CHECK: flash_tile.block_range by <causal> rows[%{{.*}}, 8]
// CHECK: flash_tile.block_range by <causal> rows[%{{.*}}, 4]
func.func @columns(%q: !q, %k: !q, %v: !q, %o: !q) {
  flash.attention %q, %k, %v outs(%o : !q) by #flash.mask<causal>
    {plan = #flash.plan<tile = [4, 6], stages = 2, consumers = 2, split_by = "columns", multicast = true>} : !q, !q, !q
  return
}

// -----

// What is left alone, and why.
!q = memref<?x?x2x8xbf16>
// CHECK-LABEL: func.func @no_roles
// CHECK-SAME: multicast = false, why = {multicast = "without roles nobody copies for another block"}
// CHECK-NOT: cluster
func.func @no_roles(%q: !q, %k: !q, %v: !q, %o: !q) {
  flash.attention %q, %k, %v outs(%o : !q) by #flash.mask<causal>
    {plan = #flash.plan<tile = [4, 6], stages = 2, multicast = true>} : !q, !q, !q
  return
}
// CHECK-LABEL: func.func @odd
// CHECK-SAME: multicast = false, why = {exact_counts = "every row needs every block", multicast = "2 blocks do not divide 5 keys"}
// CHECK-NOT: cluster
func.func @odd(%q: !q, %k: !q, %v: !q, %o: !q) {
  flash.attention %q, %k, %v outs(%o : !q) by #flash.mask<dense>
    {plan = #flash.plan<tile = [4, 5], stages = 2, consumers = 2, multicast = true>} : !q, !q, !q
  return
}
// CHECK-LABEL: func.func @splits
// CHECK-SAME: multicast = false, why = {{.*}}multicast = "a split's share is one of a tile's own blocks"
// CHECK-NOT: cluster
func.func @splits(%q: !q, %k: !q, %v: !q, %o: memref<3x?x?x2x8xf32>, %lse: memref<3x?x2x?xf32>) {
  flash.attention %q, %k, %v outs(%o, %lse : memref<3x?x?x2x8xf32>, memref<3x?x2x?xf32>) by #flash.mask<causal>
    {plan = #flash.plan<tile = [4, 6], stages = 2, consumers = 2, splits = 3, multicast = true>} : !q, !q, !q
  return
}
// CHECK-LABEL: func.func @off
// CHECK-NOT: cluster
func.func @off(%q: !q, %k: !q, %v: !q, %o: !q) {
  flash.attention %q, %k, %v outs(%o : !q) by #flash.mask<causal>
    {plan = #flash.plan<tile = [4, 6], stages = 2, consumers = 2, multicast = false>} : !q, !q, !q
  return
}
