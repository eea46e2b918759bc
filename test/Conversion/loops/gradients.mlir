// RUN: flash-opt %s --convert-flash-tile-to-loops | FileCheck %s --enable-var-scope

// CHECK: func.func private @flash_turn_await(memref<?xi32, strided<[?], offset: ?>>, index, index)
// CHECK: func.func private @flash_turn_pass(memref<?xi32, strided<[?], offset: ?>>, index, index)

// In any order each element is added in one step; in its turn a store is alone.
// CHECK-LABEL: func @sums
// CHECK-SAME: flash.turns
// CHECK: memref.atomic_rmw addf
// CHECK: call @flash_turn_await(%[[T:.*]], %[[AT:.*]], %[[IS:.*]])
// CHECK-NOT: atomic_rmw
// CHECK: vector.load
// CHECK: arith.addf
// CHECK: vector.store
// CHECK: call @flash_turn_pass(%[[T2:.*]], %[[AT]], %[[IS]])
func.func @sums(%m: memref<?x?x?x16xf32>, %turns: memref<?xi32>, %i: index, %x: f32) attributes {flash.kernel} {
  %v = flash_tile.view %m : memref<?x?x?x16xf32> -> <16xf32>
  %f = flash_tile.splat %x : f32 -> <4x16xf32>
  flash_tile.store sum %f -> %v[%i, %i, %i] : <4x16xf32> -> <16xf32>
  flash_tile.store sum %f -> %v[%i, %i, %i] turn(%turns[%i] is %i : memref<?xi32>) : <4x16xf32> -> <16xf32>
  return
}

// Sequence b begins at row 8 * (cu[b] / 8 + b), and its rows are a multiple of 8.
// CHECK-LABEL: func @padded
// CHECK-SAME: %[[CU:arg[0-9]+]]: memref<?xi32>
// CHECK: memref.load %[[CU]]
// CHECK: %[[TILES:.*]] = arith.divui %{{.*}}, %[[C8:c8.*]] : index
// CHECK: arith.muli %[[TILES]], %{{c8.*}} : index
// CHECK: %[[START:.*]] = memref.load %[[CU]]
// CHECK: arith.divui
// CHECK: arith.addi %{{.*}}, %arg2 : index
// CHECK-LABEL: func @whole
func.func @padded(%cu: memref<?xi32>, %m: memref<?x?xf32>, %i: index, %x: f32) attributes {flash.kernel} {
  %v = flash_tile.view %m cu_seqlens(%cu : memref<?xi32>) {padded = 8 : i64} : memref<?x?xf32> -> <1xf32>
  %f = flash_tile.splat %x : f32 -> <8x1xf32>
  flash_tile.store %f -> %v[%i, %i, %i] : <8x1xf32> -> <1xf32>
  return
}

// Sums of rows, then of all.
func.func @whole(%m: memref<?xf32>, %i: index, %x: f32) attributes {flash.kernel} {
  %v = flash_tile.view %m : memref<?xf32> -> <1xf32>
  %f = flash_tile.splat %x : f32 -> <4x16xf32>
  // CHECK: scf.for {{.*}} -> (f32)
  // CHECK: scf.for {{.*}} -> (vector<16xf32>)
  %s = flash_tile.sum %f : <4x16xf32> -> <1x1xf32>
  // CHECK: memref.store %{{.*}}, %{{.*}}[%{{.*}}] : memref<?xf32>
  flash_tile.store %s -> %v[%i, %i, %i] : <1x1xf32> -> <1xf32>
  return
}

// A column fills a row; a fragment is written behind it and read back.
// CHECK-LABEL: func @rows
func.func @rows(%m: memref<?x?x?xf32>, %i: index, %x: f32) attributes {flash.kernel} {
  %v = flash_tile.view %m : memref<?x?x?xf32> -> <1xf32>
  %r = flash_tile.ring "lse" : <1x1x16xf32>
  %w = flash_tile.ring "ds" : <1x8x16xf32>
  // CHECK: scf.if {{.*}} -> (f32)
  flash_tile.fill %v[%i, %i, %i] -> %r[%i] : <1xf32> -> <1x1x16xf32>
  %t = flash_tile.wait %r[%i] : <1x1x16xf32> -> <1x16xf32>
  %l = flash_tile.read %t : <1x16xf32> -> <1x16xf32>
  %f = flash_tile.splat %x : f32 -> <4x16xf32>
  // The one row stands for all.
  // CHECK: %[[L:.*]] = vector.load %{{.*}}[%c0{{.*}}, %{{.*}}] : memref<1x16xf32>
  %p = flash_tile.map %f, %l : !flash_tile.frag<4x16xf32>, !flash_tile.frag<1x16xf32> -> <4x16xf32> {
  ^bb0(%a: f32, %b: f32):
    %z = arith.subf %a, %b : f32
    flash_tile.yield %z : f32
  }
  // CHECK: memref.reinterpret_cast {{.*}} to offset: [%{{.*}}], sizes: [4, 16]
  flash_tile.write %p -> %w[%i] row %i : <4x16xf32> -> <1x8x16xf32>
  %d = flash_tile.wait %w[%i] : <1x8x16xf32> -> <8x16xf32>
  // A transposed left operand is turned first.
  // CHECK: vector.shuffle
  // CHECK: math.fma
  %q = flash_tile.mma %d trans, %d : !flash_tile.tile<8x16xf32>, <8x16xf32> -> <16x16xf32>
  %s = flash_tile.mma_wait %q : <16x16xf32> -> <16x16xf32>
  return
}
