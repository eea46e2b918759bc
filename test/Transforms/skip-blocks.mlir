// RUN: flash-opt %s --flash-lower-to-tile --flash-tile-skip-blocks --canonicalize | FileCheck %s

// Dense: the last block pays for the ragged end, the others carry no mask.
// CHECK-LABEL: func.func @dense(
// CHECK:         %[[END:.*]], %[[RIGHT:.*]], %[[INNER:.*]], %{{.*}}, %{{.*}} = flash_tile.block_range by <dense> rows
// CHECK:         %[[TOTAL:.*]] = arith.addi %[[RIGHT]], %[[INNER]]
// CHECK:         %[[X:.*]]:3 = scf.for %{{.*}} = %{{.*}} to %[[RIGHT]]
// CHECK:           flash_tile.mask
// CHECK:         } {flash_tile.at_most_one, flash_tile.run = "right"}
// CHECK:         %[[Y:.*]]:3 = scf.for %[[I:.*]] = %[[RIGHT]] to %[[TOTAL]] step %{{.*}} iter_args({{.*}} = %[[X]]#0,
// CHECK:           %[[LAST:.*]] = arith.subi %[[END]],
// CHECK:           arith.subi %[[LAST]], %[[I]]
// CHECK-NOT:       flash_tile.mask
// CHECK:         } {flash_tile.run = "inner"}
// CHECK-NOT:     flash_tile.run
// CHECK:         flash_tile.finalize %[[Y]]#0
// CHECK:         arith.addi %{{.*}}, %[[TOTAL]]
func.func @dense(%q: memref<?x?x?x64xf32>, %k: memref<?x?x?x64xf32>, %v: memref<?x?x?x64xf32>, %o: memref<?x?x?x64xf32>) {
  flash.attention %q, %k, %v outs(%o : memref<?x?x?x64xf32>) by #flash.mask<dense> {plan = #flash.plan<tile = [4, 4]>}
      : memref<?x?x?x64xf32>, memref<?x?x?x64xf32>, memref<?x?x?x64xf32>
  return
}

// A window cuts on both sides, and the first keys are seen besides.
// CHECK-LABEL: func.func @window(
// CHECK:         %[[END:.*]], %[[RIGHT:.*]], %[[INNER:.*]], %[[LEFT:.*]], %[[SINK:.*]] = flash_tile.block_range by <local, left = 5, right = 0, sink_tokens = 2>
// CHECK:         %[[A:.*]] = arith.addi %[[RIGHT]], %[[INNER]]
// CHECK:         %[[B:.*]] = arith.addi %[[A]], %[[LEFT]]
// CHECK:         %[[C:.*]] = arith.addi
// CHECK:         {flash_tile.run = "right"}
// CHECK:         {flash_tile.run = "inner"}
// CHECK:         scf.for %{{.*}} = %[[A]] to %[[B]]
// CHECK:           flash_tile.mask
// CHECK:         {flash_tile.run = "left"}
// CHECK:         scf.for %{{.*}} = %[[B]] to %{{.*}} step
// CHECK:           flash_tile.mask
// CHECK:         {flash_tile.run = "sink"}
func.func @window(%q: memref<?x?x?x64xf32>, %k: memref<?x?x?x64xf32>, %v: memref<?x?x?x64xf32>, %o: memref<?x?x?x64xf32>) {
  flash.attention %q, %k, %v outs(%o : memref<?x?x?x64xf32>) by #flash.mask<local, left = 5, right = 0, sink_tokens = 2> {plan = #flash.plan<tile = [4, 4]>}
      : memref<?x?x?x64xf32>, memref<?x?x?x64xf32>, memref<?x?x?x64xf32>
  return
}

// Switched off in the plan.
// CHECK-LABEL: func.func @off(
// CHECK-NOT:     flash_tile.block_range
// CHECK:         {flash_tile.run = "all"}
func.func @off(%q: memref<?x?x?x64xf32>, %k: memref<?x?x?x64xf32>, %v: memref<?x?x?x64xf32>, %o: memref<?x?x?x64xf32>) {
  flash.attention %q, %k, %v outs(%o : memref<?x?x?x64xf32>) by #flash.mask<causal> {plan = #flash.plan<tile = [4, 4], skip_blocks = false>}
      : memref<?x?x?x64xf32>, memref<?x?x?x64xf32>, memref<?x?x?x64xf32>
  return
}
