// RUN: flash-opt %s --flash-lower-to-tile --flash-tile-skip-blocks --flash-tile-pipeline-loads --canonicalize --cse | FileCheck %s

// K of the first block before Q, K of the next block at the top of each block, across the seam of the runs.
// CHECK-LABEL: func.func @causal(
// CHECK-SAME:    stages = 2, skip_blocks = true, pipeline_loads = true
// CHECK:         %[[KR:.*]] = flash_tile.ring "k" : <2x4x64xf32>
// CHECK:         %[[VR:.*]] = flash_tile.ring "v" : <2x4x64xf32>
// CHECK:         ^bb0({{.*}}, %[[T:.*]]: index, %[[N:.*]]: index):
// CHECK:           %[[TOTAL:.*]] = arith.addi %{{.*}}, %{{.*}}
// CHECK:           %[[SOME:.*]] = arith.cmpi sgt, %[[TOTAL]], %{{.*}}
// CHECK:           scf.if %[[SOME]]
// CHECK:             flash_tile.fill {{.*}} -> %[[KR]][%[[N]]]
// CHECK:           flash_tile.fill {{.*}} -> %{{.*}}[%[[T]]]
// CHECK:           scf.for %[[I:[a-z0-9]+]] = %{{.*}}
// CHECK:             %[[NEXT:.*]] = arith.addi %[[I]], %{{.*}}
// CHECK:             %[[ITN:.*]] = arith.addi %[[N]], %[[NEXT]]
// CHECK:             %[[MORE:.*]] = arith.cmpi slt, %[[NEXT]], %[[TOTAL]]
// CHECK:             scf.if %[[MORE]]
// CHECK:               flash_tile.fill {{.*}} -> %[[KR]][%[[ITN]]]
// CHECK:             %[[IT:.*]] = arith.addi %[[N]], %[[I]]
// CHECK:             flash_tile.fill {{.*}} -> %[[VR]][%[[IT]]]
// CHECK:             flash_tile.wait %[[KR]][%[[IT]]]
// CHECK:           {flash_tile.run = "right"}
// CHECK:               flash_tile.fill {{.*}} -> %[[KR]]
// CHECK:           {flash_tile.run = "inner"}
func.func @causal(%q: memref<?x?x?x64xf32>, %k: memref<?x?x?x64xf32>, %v: memref<?x?x?x64xf32>, %o: memref<?x?x?x64xf32>) {
  flash.attention %q, %k, %v outs(%o : memref<?x?x?x64xf32>) by #flash.mask<causal> {plan = #flash.plan<tile = [4, 4], stages = 2>}
      : memref<?x?x?x64xf32>, memref<?x?x?x64xf32>, memref<?x?x?x64xf32>
  return
}

// With sink tokens the block after the window lies elsewhere: which one is chosen by the counter.
// CHECK-LABEL: func.func @sinks(
// CHECK:         scf.for
// CHECK:           scf.if
// CHECK:             %[[ROW:.*]] = arith.select
// CHECK:             flash_tile.fill %{{.*}}[%{{.*}}, %{{.*}}, %[[ROW]]]
// CHECK:         {flash_tile.run = "right"}
func.func @sinks(%q: memref<?x?x?x64xf32>, %k: memref<?x?x?x64xf32>, %v: memref<?x?x?x64xf32>, %o: memref<?x?x?x64xf32>) {
  flash.attention %q, %k, %v outs(%o : memref<?x?x?x64xf32>) by #flash.mask<local, left = 5, right = 0, sink_tokens = 2> {plan = #flash.plan<tile = [4, 4], stages = 2>}
      : memref<?x?x?x64xf32>, memref<?x?x?x64xf32>, memref<?x?x?x64xf32>
  return
}

// One slot cannot hold two blocks: left alone, and the plan says why.
// CHECK-LABEL: func.func @one_stage(
// CHECK-SAME:    pipeline_loads = false, why = {pipeline_loads = "one stage: a block's slot is free only when the block is done"
// CHECK:         flash_tile.ring "k" : <1x4x64xf32>
func.func @one_stage(%q: memref<?x?x?x64xf32>, %k: memref<?x?x?x64xf32>, %v: memref<?x?x?x64xf32>, %o: memref<?x?x?x64xf32>) {
  flash.attention %q, %k, %v outs(%o : memref<?x?x?x64xf32>) by #flash.mask<causal> {plan = #flash.plan<tile = [4, 4], stages = 1>}
      : memref<?x?x?x64xf32>, memref<?x?x?x64xf32>, memref<?x?x?x64xf32>
  return
}

// In step: both rings full before the first block; then each fill behind the wait after which the slot is free, V's one
// block later than K's.
// CHECK-LABEL: func.func @in_step(
// CHECK:         %[[KR:.*]] = flash_tile.ring "k" : <2x4x64xf32>
// CHECK:         %[[VR:.*]] = flash_tile.ring "v" : <2x4x64xf32>
// CHECK:         ^bb0({{.*}}, %[[T:.*]]: index, %[[N:.*]]: index):
// CHECK:           flash_tile.fill {{.*}} -> %{{.*}}[%[[T]]]
// CHECK:             flash_tile.fill {{.*}} -> %[[KR]][%[[N]]]
// CHECK:             flash_tile.fill {{.*}} -> %[[VR]][%[[N]]]
// CHECK:           %[[N1:.*]] = arith.addi %[[N]], %c1
// CHECK:             flash_tile.fill {{.*}} -> %[[KR]][%[[N1]]]
// CHECK-NOT:         flash_tile.fill
// CHECK:           scf.for %[[I:[a-z0-9]+]] =
// CHECK:             %[[IT:.*]] = arith.addi %[[N]], %[[I]]
// CHECK:             flash_tile.wait %[[KR]][%[[IT]]]
// CHECK:             %[[I1:.*]] = arith.addi %[[I]], %c1
// CHECK:             %[[IT1:.*]] = arith.addi %[[N]], %[[I1]]
// CHECK:               flash_tile.fill {{.*}} -> %[[VR]][%[[IT1]]]
// CHECK:             flash_tile.mma {{.*}} trans
// CHECK:             flash_tile.release %[[KR]][%[[IT]]]
// CHECK-NEXT:        flash_tile.wait %[[VR]][%[[IT]]]
// CHECK:             %[[I2:.*]] = arith.addi %[[I]], %c2
// CHECK:             %[[IT2:.*]] = arith.addi %[[N]], %[[I2]]
// CHECK:               flash_tile.fill {{.*}} -> %[[KR]][%[[IT2]]]
// CHECK:             flash_tile.softmax_step
// CHECK:           {flash_tile.run = "right"}
func.func @in_step(%q: memref<?x?x?x64xf32>, %k: memref<?x?x?x64xf32>, %v: memref<?x?x?x64xf32>, %o: memref<?x?x?x64xf32>) {
  flash.attention %q, %k, %v outs(%o : memref<?x?x?x64xf32>) by #flash.mask<causal> {plan = #flash.plan<tile = [4, 4], stages = 2, in_step = true>}
      : memref<?x?x?x64xf32>, memref<?x?x?x64xf32>, memref<?x?x?x64xf32>
  return
}

// V(i - 1) is still read where the next QK overlaps: V(i) comes in block i.
// CHECK-LABEL: func.func @in_step_overlapped(
// CHECK:         %[[VR:.*]] = flash_tile.ring "v" : <2x4x64xf32>
// CHECK:         ^bb0({{.*}}, %{{.*}}: index, %[[N:.*]]: index):
// CHECK-NOT:       -> %[[VR]]
// CHECK:           scf.for %[[I:[a-z0-9]+]] =
// CHECK:             %[[IT:.*]] = arith.addi %[[N]], %[[I]]
// CHECK:             flash_tile.wait
// CHECK-NEXT:        flash_tile.fill {{.*}} -> %[[VR]][%[[IT]]]
func.func @in_step_overlapped(%q: memref<?x?x?x64xf32>, %k: memref<?x?x?x64xf32>, %v: memref<?x?x?x64xf32>, %o: memref<?x?x?x64xf32>) {
  flash.attention %q, %k, %v outs(%o : memref<?x?x?x64xf32>) by #flash.mask<causal> {plan = #flash.plan<tile = [4, 4], stages = 2, in_step = true, overlap = true>}
      : memref<?x?x?x64xf32>, memref<?x?x?x64xf32>, memref<?x?x?x64xf32>
  return
}

// Gradients in step: the next block is copied behind the products of scores, beside what follows.
// CHECK-LABEL: func.func @gradients(
// CHECK:         flash_tile.ring "q" : <2x4x64xf32>
// CHECK:         scf.for
// CHECK:           scf.for %[[I:[a-z0-9]+]] =
// CHECK:             arith.addi %[[N:.*]], %[[I]] : index
// CHECK-NOT:         flash_tile.fill
// CHECK:             flash_tile.mma {{.*}} trans
// CHECK-NOT:         flash_tile.fill
// CHECK:             flash_tile.mma {{.*}} trans
// CHECK:             %[[IT1:.*]] = arith.addi %[[N]], %{{.*}}
// CHECK-COUNT-4:     flash_tile.fill {{.*}}[%[[IT1]]]
// CHECK-NOT:         flash_tile.fill
// CHECK:           {flash_tile.run = "right"}
func.func @gradients(%q: memref<?x?x?x64xf32>, %lse: memref<?x?x?xf32>) {
  flash.attention_backward %q, %q, %q, %q, %lse, %q outs(%q, %q, %q : memref<?x?x?x64xf32>, memref<?x?x?x64xf32>, memref<?x?x?x64xf32>) by #flash.mask<causal>
      {plan = #flash.plan<tile = [4, 4], stages = 2, warps = 4>} : memref<?x?x?x64xf32>, memref<?x?x?x64xf32>, memref<?x?x?x64xf32>, memref<?x?x?x64xf32>, memref<?x?x?xf32>, memref<?x?x?x64xf32>
  return
}
