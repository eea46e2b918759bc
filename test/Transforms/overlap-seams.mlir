// The seams: from one run to the next, from the last run to the last PV, and programs without roles.
// RUN: flash-opt %s --split-input-file --flash-lower-to-tile --flash-tile-skip-blocks --flash-tile-pipeline-loads \
// RUN:   --flash-tile-split-roles --flash-tile-overlap-softmax --canonicalize --cse --verify-roundtrip | FileCheck %s
!t = memref<?x?x2x8xf32>

// Four runs hand O, P, m and l on; each waits for the V of the ordinal before its own. Only the first starts late.
// CHECK-LABEL: func.func @four_runs
// CHECK-DAG: %[[VR:.*]] = flash_tile.ring "v"
// CHECK: "consumer"
// CHECK: ^bb0(%{{.*}}: index):
// CHECK: ^bb0(%{{.*}}: index):
// CHECK: ^bb0({{.*}}, %[[N:.*]]: index):
// CHECK: %{{.*}}, %[[RIGHT:.*]], %[[INNER:.*]], %[[LEFT:.*]], %[[SINK:.*]] = flash_tile.block_range
// CHECK: %[[TO_INNER:.*]] = arith.addi %[[RIGHT]], %[[INNER]]
// CHECK: %[[TO_LEFT:.*]] = arith.addi %[[TO_INNER]], %[[LEFT]]
// CHECK: %[[TOTAL:.*]] = arith.addi %[[TO_LEFT]], %[[SINK]]
// CHECK: scf.if
// CHECK: flash_tile.softmax_step first
// CHECK: %[[R:.*]]:4 = scf.for %[[I:.*]] = %c1{{.*}} to %[[RIGHT]]
// CHECK: %[[IT:.*]] = arith.addi %[[N]], %[[I]]
// CHECK: %[[PREV:.*]] = arith.subi %[[IT]], %c1
// CHECK-NEXT: flash_tile.wait %[[VR]][%[[PREV]]]
// CHECK: flash_tile.release %[[VR]][%[[PREV]]]
// CHECK: } {flash_tile.run = "right"}
// CHECK: %[[S:.*]]:4 = scf.for %{{.*}} = %[[RIGHT]] to %[[TO_INNER]] {{.*}} iter_args(%{{.*}} = %[[R]]#0, %{{.*}} = %[[R]]#1, %{{.*}} = %[[R]]#2, %{{.*}} = %[[R]]#3)
// CHECK: } {flash_tile.run = "inner"}
// CHECK: %[[L:.*]]:4 = scf.for %{{.*}} = %[[TO_INNER]] to %[[TO_LEFT]] {{.*}} iter_args(%{{.*}} = %[[S]]#0, %{{.*}} = %[[S]]#1, %{{.*}} = %[[S]]#2, %{{.*}} = %[[S]]#3)
// CHECK: } {flash_tile.run = "left"}
// CHECK: %[[K:.*]]:4 = scf.for %[[I:.*]] = %[[TO_LEFT]] to %[[TOTAL]] {{.*}} iter_args(%{{.*}} = %[[L]]#0, %{{.*}} = %[[L]]#1, %{{.*}} = %[[L]]#2, %{{.*}} = %[[L]]#3)
// CHECK: %[[IT:.*]] = arith.addi %[[N]], %[[I]]
// CHECK: %[[PREV:.*]] = arith.subi %[[IT]], %c1
// CHECK-NEXT: flash_tile.wait %[[VR]][%[[PREV]]]
// CHECK: } {flash_tile.run = "sink"}
// CHECK: %[[LAST:.*]] = arith.subi %[[TOTAL]], %c1
// CHECK-NEXT: %[[IT:.*]] = arith.addi %[[N]], %[[LAST]]
// CHECK-NEXT: %[[V:.*]] = flash_tile.wait %[[VR]][%[[IT]]]
// CHECK-NEXT: flash_tile.mma %[[K]]#1, %[[V]] acc %[[K]]#0
func.func @four_runs(%q: !t, %k: !t, %v: !t, %o: !t) {
  flash.attention %q, %k, %v outs(%o : !t) by #flash.mask<local, left = 9, right = 2, sink_tokens = 3>
    {plan = #flash.plan<tile = [4, 6], stages = 2, consumers = 2, overlap = true>} : !t, !t, !t
  return
}

// -----
!t = memref<?x?x2x8xf32>
// One program with two stages: V(i) is filled in front of QK(i), while V(i - 1) is still to be read; K stays one ahead.
// CHECK-LABEL: func.func @one_program
// CHECK-SAME: overlap = true
// CHECK-DAG: %[[KR:.*]] = flash_tile.ring "k" : <2x
// CHECK-DAG: %[[VR:.*]] = flash_tile.ring "v" : <2x
// CHECK: scf.if
// CHECK: flash_tile.fill {{.*}} -> %[[KR]]
// CHECK: scf.if
// CHECK: scf.if
// CHECK: flash_tile.fill {{.*}} -> %[[KR]]
// CHECK: flash_tile.fill {{.*}} -> %[[VR]]
// CHECK: flash_tile.softmax_step first
// CHECK: scf.for
// CHECK: scf.if
// CHECK: flash_tile.fill {{.*}} -> %[[KR]]
// CHECK: flash_tile.fill {{.*}} -> %[[VR]][%[[IT:.*]]]
// CHECK: flash_tile.wait %[[KR]][%[[IT]]]
// CHECK: %[[PREV:.*]] = arith.subi %[[IT]], %c1
// CHECK-NEXT: flash_tile.wait %[[VR]][%[[PREV]]]
// CHECK: flash_tile.release %[[KR]][%[[IT]]]
// CHECK: flash_tile.release %[[VR]][%[[PREV]]]
func.func @one_program(%q: !t, %k: !t, %v: !t, %o: !t) {
  flash.attention %q, %k, %v outs(%o : !t) by #flash.mask<causal>
    {plan = #flash.plan<tile = [4, 6], stages = 2, overlap = true>} : !t, !t, !t
  return
}

// -----
!t = memref<?x?x2x8xf32>
// With one stage the fill of V(i) would wait for a release that stands behind it.
// CHECK-LABEL: func.func @one_stage
// CHECK-SAME: overlap = false
// CHECK-SAME: overlap = "without roles the ring of V needs 2 stages to overlap"
// CHECK-NOT: softmax_step first
func.func @one_stage(%q: !t, %k: !t, %v: !t, %o: !t) {
  flash.attention %q, %k, %v outs(%o : !t) by #flash.mask<causal>
    {plan = #flash.plan<tile = [4, 6], stages = 1, overlap = true>} : !t, !t, !t
  return
}

// -----
!t = memref<?x?x2x8xf32>
// With roles one stage is enough: the producer goes on once V(i - 1) is released.
// CHECK-LABEL: func.func @one_stage_of_roles
// CHECK-SAME: overlap = true
// CHECK: flash_tile.ring "v" {releases = 2 : i64} : <1x
// CHECK: softmax_step first
func.func @one_stage_of_roles(%q: !t, %k: !t, %v: !t, %o: !t) {
  flash.attention %q, %k, %v outs(%o : !t) by #flash.mask<causal>
    {plan = #flash.plan<tile = [4, 6], stages = 1, consumers = 2, overlap = true>} : !t, !t, !t
  return
}

// -----
!t = memref<?x?x2x8xf32>
// What lies between QK and the softmax moves along, what lies between V and PV goes with PV.
// CHECK-LABEL: func.func @softcap_and_columns
// CHECK: softmax_step first
// CHECK: scf.for
// CHECK: %[[SF:.*]] = flash_tile.mma {{.*}} trans
// CHECK: %[[V:.*]] = flash_tile.wait
// CHECK-NEXT: %[[PART:.*]] = flash_tile.slice %[[V]]
// CHECK-NEXT: flash_tile.mma {{.*}}, %[[PART]] acc
// CHECK-NEXT: %[[S:.*]] = flash_tile.mma_wait %[[SF]]
// CHECK: %[[CAPPED:.*]] = flash_tile.map %[[S]]
// CHECK: %[[SM:.*]] = flash_tile.mask %[[CAPPED]]
// CHECK: flash_tile.softmax_step online %[[SM]]
func.func @softcap_and_columns(%q: !t, %k: !t, %v: !t, %cap: f32, %o: !t) {
  flash.attention %q, %k, %v softcap %cap outs(%o : !t) by #flash.mask<causal>
    {plan = #flash.plan<tile = [4, 6], stages = 2, consumers = 2, split_by = "columns", overlap = true>} : !t, !t, !t
  return
}

// -----
!t = memref<?x?x2x8xf32>
// CHECK-LABEL: func.func @not_wanted
// CHECK-NOT: softmax_step first
func.func @not_wanted(%q: !t, %k: !t, %v: !t, %o: !t) {
  flash.attention %q, %k, %v outs(%o : !t) by #flash.mask<causal>
    {plan = #flash.plan<tile = [4, 6], stages = 2, consumers = 2, overlap = false>} : !t, !t, !t
  return
}
