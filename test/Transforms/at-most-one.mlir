// Without a bound the masked run is one block, which is peeled: no masked loop is left.
// RUN: flash-opt %s --flash-lower-to-tile --flash-tile-skip-blocks --flash-tile-pipeline-loads --flash-tile-overlap-softmax --canonicalize --cse | FileCheck %s

!t = memref<?x?x2x8xbf16>
// CHECK-LABEL: func.func @dense
// CHECK: scf.if
// CHECK: flash_tile.mask
// CHECK: flash_tile.softmax_step first
// CHECK-NOT: flash_tile.mask
// CHECK: scf.for %{{.*}} = %c1 to %{{.*}} step
// CHECK: } {flash_tile.run = "inner"}
// CHECK-NOT: scf.for
// CHECK: else
func.func @dense(%q: !t, %k: !t, %v: !t, %o: !t) {
  flash.attention %q, %k, %v outs(%o : !t) by #flash.mask<dense>
    {plan = #flash.plan<tile = [4, 6], stages = 2, overlap = true>} : !t, !t, !t
  return
}

// A bound on the left alone cuts no block but the last, yet the run is not said to be one.
// CHECK-LABEL: func.func @left
// CHECK: } {flash_tile.run = "right"}
func.func @left(%q: !t, %k: !t, %v: !t, %o: !t) {
  flash.attention %q, %k, %v outs(%o : !t) by #flash.mask<local, left = 5>
    {plan = #flash.plan<tile = [4, 6], stages = 2, overlap = true>} : !t, !t, !t
  return
}
