// RUN: flash-opt %s --convert-flash-tile-to-loops --canonicalize --cse --split-input-file | FileCheck %s

!mem = memref<?x?x?x32xf32, strided<[?, ?, ?, 1], offset: ?>>
!S = !flash_tile.frag<8x32xf32>
!C = !flash_tile.frag<8x1xf32>

// A product sums chains of at most 32 fused multiply-adds over blocks of 4 rows and 16 columns; the transposed operand is turned
// first. The accumulator's buffer takes the sum, and rescale, cast and mask work where their operand lies.
// CHECK-LABEL: func.func @products(
// CHECK-DAG:     %[[S:.*]] = memref.alloc() {{.*}} : memref<8x32xf32>
// CHECK-DAG:     %[[TURNED:.*]] = memref.alloc() {{.*}} : memref<32x32xf32>
// CHECK:         vector.shuffle {{.*}} [0, 8, 2, 10, 4, 12, 6, 14]
// CHECK:         vector.store %{{.*}}, %[[TURNED]]
// CHECK:         scf.for %[[J:.*]] = %c0 to %c32 step %c16
// CHECK:           scf.for %[[I:.*]] = %c0 to %c8 step %c4
// CHECK:             %[[SUMS:.*]]:4 = scf.for %[[K:.*]] = %c0 to %c32 step %c1 iter_args({{.*}}) -> (vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>)
// CHECK:               %[[B:.*]] = vector.load %[[TURNED]][%[[K]], %[[J]]]
// CHECK:               %[[A:.*]] = memref.load %{{.*}}[%[[I]], %[[K]]]
// CHECK:               %[[LEFT:.*]] = vector.broadcast %[[A]]
// CHECK:               math.fma %[[LEFT]], %[[B]]
// CHECK:             %[[SUM:.*]] = arith.addf %[[SUMS]]#0,
// CHECK:             vector.store %[[SUM]], %[[S]][%[[I]], %[[J]]]
// CHECK:         arith.truncf %{{.*}} : vector<16xf32> to vector<16xf16>
// CHECK:         vector.store %{{.*}}, %[[S]]
// CHECK:         %[[ACC:.*]] = vector.load %[[O:.*]][%{{.*}}, %{{.*}}] : memref<8x32xf32>, vector<16xf32>
// CHECK:         math.fma
// CHECK:         vector.store %{{.*}}, %[[O]]
// CHECK-NOT:     memref.alloc
func.func @products(%q: memref<?x?x?x32xf16>) attributes {flash.kernel} {
  %one = arith.constant 1 : index
  %zero = arith.constant 0 : index
  %f0 = arith.constant 0.0 : f32
  %v = flash_tile.view %q : memref<?x?x?x32xf16> -> !flash_tile.view<32xf16>
  %ar = flash_tile.ring "a" : !flash_tile.ring<1x8x32xf16>
  %br = flash_tile.ring "b" : !flash_tile.ring<1x32x32xf16>
  flash_tile.for_work "single"(%one, %one, %one, %one) {
  ^bb0(%m: index, %h: index, %b: index, %s: index):
    %o = flash_tile.splat %f0 : f32 -> !S
    flash_tile.fill %v[%b, %h, %zero] -> %ar[%zero] : !flash_tile.view<32xf16> -> !flash_tile.ring<1x8x32xf16>
    flash_tile.fill %v[%b, %h, %zero] -> %br[%zero] : !flash_tile.view<32xf16> -> !flash_tile.ring<1x32x32xf16>
    %at = flash_tile.wait %ar[%zero] : !flash_tile.ring<1x8x32xf16> -> !flash_tile.tile<8x32xf16>
    %bt = flash_tile.wait %br[%zero] : !flash_tile.ring<1x32x32xf16> -> !flash_tile.tile<32x32xf16>
    %sf = flash_tile.mma %at, %bt trans : !flash_tile.tile<8x32xf16>, !flash_tile.tile<32x32xf16> -> !flash_tile.flight<8x32xf32>
    %s0 = flash_tile.mma_wait %sf : !flash_tile.flight<8x32xf32> -> !S
    %p = flash_tile.cast %s0 : !S -> !flash_tile.frag<8x32xf16>
    %of = flash_tile.mma %p, %bt acc %o : !S : !flash_tile.frag<8x32xf16>, !flash_tile.tile<32x32xf16> -> !flash_tile.flight<8x32xf32>
    %o1 = flash_tile.mma_wait %of : !flash_tile.flight<8x32xf32> -> !S
    %o16 = flash_tile.cast %o1 : !S -> !flash_tile.frag<8x32xf16>
    flash_tile.store %o16 -> %v[%b, %h, %zero] : !flash_tile.frag<8x32xf16> -> !flash_tile.view<32xf16>
    flash_tile.release %ar[%zero] : !flash_tile.ring<1x8x32xf16>
    flash_tile.release %br[%zero] : !flash_tile.ring<1x32x32xf16>
    flash_tile.yield
  }
  return
}

// -----

!mem = memref<?x?x?x32xf32, strided<[?, ?, ?, 1], offset: ?>>
!S = !flash_tile.frag<8x32xf32>
!C = !flash_tile.frag<8x1xf32>

// The mask writes -2^100 to both sides of the row's interval; a step measures p against the row's maximum, or
// against 0 where there is none; p by a polynomial. map works on whole vectors.
// CHECK-LABEL: func.func @softmax(
// CHECK-SAME:    %{{.*}}, %[[SCALE:[^:]*]]: f32
// CHECK:         memref.store %cst{{.*}} : memref<8x32xf32>
// CHECK:         arith.addf %{{.*}}, %{{.*}} : vector<16xf32>
// CHECK:         %[[C:.*]] = arith.mulf %[[SCALE]], %{{.*}} : f32
// CHECK:         arith.cmpf ogt
// CHECK:         vector.extract_strided_slice {{.*}} {offsets = [8], sizes = [8], strides = [1]}
// CHECK:         %[[TOP:.*]] = arith.select %{{.*}} : f32
// CHECK:         %[[DEAD:.*]] = arith.cmpf ole, %[[TOP]]
// CHECK:         %[[LEVEL:.*]] = arith.mulf %[[C]], %[[TOP]]
// CHECK:         arith.select %[[DEAD]], %{{.*}}, %[[LEVEL]]
// CHECK-COUNT-7: math.fma {{.*}} : vector<16xf32>
// CHECK:         arith.shli {{.*}} : vector<16xi32>
// CHECK:         math.log2
// CHECK:         arith.divf
// CHECK-NOT:     flash_tile
func.func @softmax(%q: !mem, %scale: f32, %sink: memref<?xf32>, %l: memref<?x?x?xf32>) attributes {flash.kernel} {
  %one = arith.constant 1 : index
  %zero = arith.constant 0 : index
  %f0 = arith.constant 0.0 : f32
  %v = flash_tile.view %q : !mem -> !flash_tile.view<32xf32>
  %lv = flash_tile.view %l : memref<?x?x?xf32> -> !flash_tile.view<1xf32>
  flash_tile.for_work "single"(%one, %one, %one, %one) {
  ^bb0(%m: index, %h: index, %b: index, %s: index):
    %len = flash_tile.length %v[%b] : !flash_tile.view<32xf32>
    %m0 = flash_tile.splat %f0 : f32 -> !C
    %l0 = flash_tile.splat %f0 : f32 -> !C
    %x = flash_tile.load %v[%b, %h, %zero] : !flash_tile.view<32xf32> -> !S
    %masked = flash_tile.mask %x by #flash.mask<causal> at [%zero, %zero] lengths (%len, %len) : !S
    %moved = flash_tile.map %masked, %m0 : !S, !C -> !S {
    ^bb0(%e: f32, %r: f32):
      %sum = arith.addf %e, %r : f32
      flash_tile.yield %sum : f32
    }
    %p, %m1, %l1, %alpha = flash_tile.softmax_step online %moved, %m0, %l0 scale %scale : !S, !C
    %scaled = flash_tile.rescale %p, %alpha : !S, !C
    %o, %lse = flash_tile.finalize %scaled, %m1, %l1 scale %scale sink(%sink[%h, %zero] : memref<?xf32>) : !S, !C
    flash_tile.store %o -> %v[%b, %h, %zero] : !S -> !flash_tile.view<32xf32>
    flash_tile.store %lse -> %lv[%b, %h, %zero] : !C -> !flash_tile.view<1xf32>
    flash_tile.yield
  }
  return
}
