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
