// Each consumer computes the blocks of its own rows and gives the others back unread.
// RUN: flash-opt %s --split-input-file --flash-lower-to-tile --flash-tile-skip-blocks --flash-tile-pipeline-loads --canonicalize --cse \
// RUN:   --flash-tile-split-roles --flash-tile-exact-counts --canonicalize --cse --verify-roundtrip | FileCheck %s

!q = memref<?x?x2x8xbf16>

// CHECK-LABEL: func.func @causal
// CHECK-SAME: exact_counts = true
// CHECK-DAG: %[[C0:.*]] = arith.constant 0 : index
// CHECK-DAG: %[[KR:.*]] = flash_tile.ring "k"
// CHECK-DAG: %[[VR:.*]] = flash_tile.ring "v"
//
// The producer fills what any row of the tile needs.
// CHECK: ^bb0
// CHECK: flash_tile.block_range by <causal> rows[%{{.*}}, 4]
// CHECK-NOT: flash_tile.block_range
//
// CHECK: ^bb0(%{{.*}}: index):
// CHECK: ^bb0({{.*}}, %[[N:.*]]: index):
// CHECK: %[[END:.*]], %[[RIGHT:.*]], %[[INNER:.*]], %{{.*}}, %{{.*}} = flash_tile.block_range by <causal> rows[%{{.*}}, 4]
// CHECK: %[[TOTAL:.*]] = arith.addi %[[RIGHT]], %[[INNER]]
// CHECK: %[[MYEND:.*]], %[[MYRIGHT:.*]], %[[MYINNER:.*]], %{{.*}}, %{{.*}} = flash_tile.block_range by <causal> rows[%{{.*}}, 2]
// CHECK: %[[AFTER:.*]] = arith.subi %[[END]], %[[MYEND]]
// CHECK: %[[SKIP:.*]] = arith.minsi %[[AFTER]], %[[TOTAL]]
// CHECK: scf.for %[[I:.*]] = %[[C0]] to %[[SKIP]]
// CHECK-NEXT: %[[IT:.*]] = arith.addi %[[N]], %[[I]]
// CHECK-NEXT: flash_tile.wait %[[KR]][%[[IT]]]
// CHECK-NEXT: flash_tile.release %[[KR]][%[[IT]]]
// CHECK-NEXT: flash_tile.wait %[[VR]][%[[IT]]]
// CHECK-NEXT: flash_tile.release %[[VR]][%[[IT]]]
// CHECK-NEXT: }
// CHECK-NEXT: %[[A:.*]] = arith.addi %[[SKIP]], %[[MYRIGHT]]
// CHECK-NEXT: %[[B:.*]] = arith.addi %[[A]], %[[MYINNER]]
// CHECK-NEXT: %{{.*}} = scf.for %{{.*}} = %[[SKIP]] to %[[A]]
// CHECK: } {flash_tile.run = "right"}
// CHECK-NEXT: %{{.*}} = scf.for %{{.*}} = %[[A]] to %[[B]]
// CHECK: } {flash_tile.run = "inner"}
// CHECK-NOT: scf.for
// CHECK: arith.addi %[[N]], %[[TOTAL]]
func.func @causal(%q: !q, %k: !q, %v: !q, %o: !q) {
  flash.attention %q, %k, %v outs(%o : !q) by #flash.mask<causal>
    {plan = #flash.plan<tile = [4, 6], stages = 2, consumers = 2>} : !q, !q, !q
  return
}

// -----

// A bound on the left leaves blocks at the other end too.
!q = memref<?x?x2x8xbf16>
// CHECK-LABEL: func.func @window
// CHECK-SAME: exact_counts = true
// CHECK: flash_tile.softmax_step
// CHECK: } {flash_tile.run = "left"}
// CHECK-NEXT: scf.for %[[I:.*]] = %[[FROM:.*]] to %[[TO:.*]] step
// CHECK-NEXT: %[[IT:.*]] = arith.addi %{{.*}}, %[[I]]
// CHECK-NEXT: flash_tile.wait %[[KR:.*]][%[[IT]]]
// CHECK-NEXT: flash_tile.release %[[KR]][%[[IT]]]
// CHECK-NEXT: flash_tile.wait %[[VR:.*]][%[[IT]]]
// CHECK-NEXT: flash_tile.release %[[VR]][%[[IT]]]
// CHECK-NEXT: }
// CHECK: flash_tile.release
func.func @window(%q: !q, %k: !q, %v: !q, %o: !q) {
  flash.attention %q, %k, %v outs(%o : !q) by #flash.mask<local, left = 5, right = 0>
    {plan = #flash.plan<tile = [4, 6], stages = 2, consumers = 2>} : !q, !q, !q
  return
}

// -----

// What is left alone, and why.
!q = memref<?x?x2x8xbf16>
// CHECK-LABEL: func.func @sinks
// CHECK-SAME: exact_counts = false, why = {exact_counts = "with sink tokens a row's blocks lie in two pieces"}
func.func @sinks(%q: !q, %k: !q, %v: !q, %o: !q) {
  flash.attention %q, %k, %v outs(%o : !q) by #flash.mask<local, left = 5, sink_tokens = 2>
    {plan = #flash.plan<tile = [4, 6], stages = 2, consumers = 2>} : !q, !q, !q
  return
}
// CHECK-LABEL: func.func @dense
// CHECK-SAME: exact_counts = false, why = {exact_counts = "every row needs every block"}
func.func @dense(%q: !q, %k: !q, %v: !q, %o: !q) {
  flash.attention %q, %k, %v outs(%o : !q) by #flash.mask<dense>
    {plan = #flash.plan<tile = [4, 6], stages = 2, consumers = 2>} : !q, !q, !q
  return
}
// CHECK-LABEL: func.func @columns
// CHECK-SAME: exact_counts = false, why = {exact_counts = "consumers share all rows of a tile"}
func.func @columns(%q: !q, %k: !q, %v: !q, %o: !q) {
  flash.attention %q, %k, %v outs(%o : !q) by #flash.mask<causal>
    {plan = #flash.plan<tile = [4, 6], stages = 2, consumers = 2, split_by = "columns">} : !q, !q, !q
  return
}
// CHECK-LABEL: func.func @off
// CHECK-SAME: exact_counts = false
// CHECK-COUNT-2: flash_tile.block_range
// CHECK-NOT: flash_tile.block_range
func.func @off(%q: !q, %k: !q, %v: !q, %o: !q) {
  flash.attention %q, %k, %v outs(%o : !q) by #flash.mask<causal>
    {plan = #flash.plan<tile = [4, 6], stages = 2, consumers = 2, exact_counts = false>} : !q, !q, !q
  return
}
// CHECK-LABEL: func.func @no_roles
// CHECK-NOT: exact_counts
func.func @no_roles(%q: !q, %k: !q, %v: !q, %o: !q) {
  flash.attention %q, %k, %v outs(%o : !q) by #flash.mask<causal> {plan = #flash.plan<tile = [4, 6], stages = 2>} : !q, !q, !q
  return
}
