// RUN: flash-opt %s --flash-to-tile --split-input-file | FileCheck %s

// The unmasked run measures against an older maximum; what overflows is redone by its consumer alone,
// from blocks of 16 keys, and Q is released behind that.
// CHECK-LABEL: func.func @causal(
// CHECK:         %[[EXACT:.*]] = flash_tile.ring "exact" {{.*}} : <2x16x128xbf16>
// CHECK:         #flash_tile.role<"consumer", {{.*}} units = [tensor, vector, copy]>
// CHECK:         flash_tile.block_range by <causal> {{.*}} {every_row}
// CHECK:         softmax_step first
// CHECK:         softmax_step online
// CHECK:         {flash_tile.run = "right"}
// CHECK:         softmax_step deferred
// CHECK:         flash_tile.rescale %{{.*}}, %{{.*}} rare
// CHECK:         {flash_tile.run = "inner"}
// CHECK:         %[[BAD:.*]] = flash_tile.overflowed
// CHECK:         scf.if %[[BAD]]
// CHECK:           scf.for
// CHECK:             flash_tile.fill %{{.*}} -> %[[EXACT]]
// CHECK:             flash_tile.mma %{{.*}} trans : {{.*}} -> <64x16xf32>
// CHECK:             flash_tile.mask
// CHECK:             softmax_step online
// CHECK:             flash_tile.fill %{{.*}} -> %[[EXACT]]
// CHECK:         flash_tile.release %{{.*}} : <2x64x128xbf16>
// CHECK-NEXT:    flash_tile.finalize
func.func @causal(%q: memref<?x?x?x128xbf16>, %k: memref<?x?x?x128xbf16>, %v: memref<?x?x?x128xbf16>, %o: memref<?x?x?x128xbf16>) {
  flash.attention %q, %k, %v outs(%o : memref<?x?x?x128xbf16>) by <causal> {target = #flash.target<"sm_90a">, plan = #flash.plan<defer_max = true, exact_counts = false, stealing = false>}
      : memref<?x?x?x128xbf16>, memref<?x?x?x128xbf16>, memref<?x?x?x128xbf16>
  return
}

// -----

// Without an unmasked run there is nothing to defer: left alone, and the plan says why.
// CHECK-LABEL: func.func @masked(
// CHECK-SAME:    defer_max = false
// CHECK-SAME:    defer_max = "there is no unmasked run"
// CHECK-NOT:     overflowed
func.func @masked(%q: memref<?x?x?x64xf32>, %k: memref<?x?x?x64xf32>, %v: memref<?x?x?x64xf32>, %o: memref<?x?x?x64xf32>) {
  flash.attention %q, %k, %v outs(%o : memref<?x?x?x64xf32>) by <causal> {plan = #flash.plan<tile = [16, 16], defer_max = true, skip_blocks = false>}
      : memref<?x?x?x64xf32>, memref<?x?x?x64xf32>, memref<?x?x?x64xf32>
  return
}
