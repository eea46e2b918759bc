// RUN: flash-opt %s | flash-opt | FileCheck %s --enable-var-scope
// RUN: flash-opt %s --mlir-print-op-generic | flash-opt | FileCheck %s --enable-var-scope

// What gradients need besides: transposed scores, sums in global memory, rows that fill whole tiles.

// CHECK-LABEL: func @moving
func.func @moving(%acc: memref<?x4x64xf32>, %lse: memref<4x?xf32>, %one: memref<?xf32>, %cu: memref<?xi32>, %turns: memref<?xi32>,
                  %i: index, %f: !flash_tile.frag<32x64xf32>, %d: !flash_tile.frag<64x32xbf16>) {
  // CHECK: flash_tile.view %{{.*}} cu_seqlens(%{{.*}} : memref<?xi32>) {padded = 32 : i64} : memref<?x4x64xf32> -> <64xf32>
  %a = flash_tile.view %acc cu_seqlens(%cu : memref<?xi32>) {padded = 32 : i64} : memref<?x4x64xf32> -> <64xf32>
  // CHECK: flash_tile.view %{{.*}} : memref<?xf32> -> <1xf32>
  %b = flash_tile.view %one : memref<?xf32> -> <1xf32>
  %l = flash_tile.view %lse cu_seqlens(%cu : memref<?xi32>) {padded = 32 : i64} : memref<4x?xf32> -> <1xf32>
  %qr = flash_tile.ring "q" : <2x32x64xbf16>
  // CHECK: flash_tile.ring "lse" with %{{.*}} : !flash_tile.ring<2x32x64xbf16> : <2x1x32xf32>
  %lr = flash_tile.ring "lse" with %qr : !flash_tile.ring<2x32x64xbf16> : <2x1x32xf32>
  %dr = flash_tile.ring "ds" {writers = 2 : i64} : <1x128x32xbf16>
  // CHECK: flash_tile.fill %{{.*}}[%{{.*}}, %{{.*}}, %{{.*}}] -> %{{.*}}[%{{.*}}] : <1xf32> -> <2x1x32xf32>
  flash_tile.fill %l[%i, %i, %i] -> %lr[%i] : <1xf32> -> <2x1x32xf32>
  // CHECK: flash_tile.write %{{.*}} -> %{{.*}}[%{{.*}}] row %{{.*}} : <64x32xbf16> -> <1x128x32xbf16>
  flash_tile.write %d -> %dr[%i] row %i : <64x32xbf16> -> <1x128x32xbf16>
  // CHECK: flash_tile.store sum %{{.*}} -> %{{.*}}[%{{.*}}, %{{.*}}, %{{.*}}] : <32x64xf32> -> <64xf32>
  flash_tile.store sum %f -> %a[%i, %i, %i] : <32x64xf32> -> <64xf32>
  // CHECK: flash_tile.store sum %{{.*}} -> %{{.*}}[%{{.*}}, %{{.*}}, %{{.*}}] turn(%{{.*}}[%{{.*}}] is %{{.*}} : memref<?xi32>) : <32x64xf32> -> <64xf32>
  flash_tile.store sum %f -> %a[%i, %i, %i] turn(%turns[%i] is %i : memref<?xi32>) : <32x64xf32> -> <64xf32>
  // CHECK: flash_tile.store sum kept %{{.*}} -> %{{.*}}[%{{.*}}, %{{.*}}, %{{.*}}] : <32x64xf32> -> <64xf32>
  flash_tile.store sum kept %f -> %a[%i, %i, %i] : <32x64xf32> -> <64xf32>
  // CHECK: flash_tile.keep_turn %{{.*}}[%{{.*}}] is %{{.*}} : memref<?xi32>
  flash_tile.keep_turn %turns[%i] is %i : memref<?xi32>
  return
}

// CHECK-LABEL: func @computing
func.func @computing(%i: index, %s: !flash_tile.frag<128x32xf32>, %l: !flash_tile.frag<1x32xf32>) {
  %kr = flash_tile.ring "k" : <1x128x64xbf16>
  %dr = flash_tile.ring "ds" : <1x128x32xbf16>
  %k = flash_tile.wait %kr[%i] : <1x128x64xbf16> -> <128x64xbf16>
  %d = flash_tile.wait %dr[%i] : <1x128x32xbf16> -> <128x32xbf16>
  // CHECK: flash_tile.mma %{{.*}} trans, %{{.*}} : !flash_tile.tile<128x32xbf16>, <128x64xbf16> -> <32x64xf32>
  %q = flash_tile.mma %d trans, %k : !flash_tile.tile<128x32xbf16>, <128x64xbf16> -> <32x64xf32>
  // CHECK: flash_tile.block_range queries by <causal> rows[%{{.*}}, 128] block 32 lengths(%{{.*}}, %{{.*}}) split(%{{.*}}, %{{.*}})
  %end, %right, %inner, %left, %sink = flash_tile.block_range queries by <causal> rows[%i, 128] block 32 lengths(%i, %i) split(%i, %i)
  // CHECK: flash_tile.mask %{{.*}} by <causal> at[%{{.*}}, %{{.*}}] lengths(%{{.*}}, %{{.*}}) trans : <128x32xf32>
  %m = flash_tile.mask %s by <causal> at[%i, %i] lengths(%i, %i) trans : <128x32xf32>
  // CHECK: flash_tile.map %{{.*}}, %{{.*}} : !flash_tile.frag<128x32xf32>, !flash_tile.frag<1x32xf32> -> <128x32xf32>
  %p = flash_tile.map %m, %l : !flash_tile.frag<128x32xf32>, !flash_tile.frag<1x32xf32> -> <128x32xf32> {
  ^bb0(%x: f32, %y: f32):
    %z = arith.subf %x, %y : f32
    flash_tile.yield %z : f32
  }
  // CHECK: flash_tile.sum %{{.*}} : <128x32xf32> -> <128x1xf32>
  %r = flash_tile.sum %p : <128x32xf32> -> <128x1xf32>
  // CHECK: flash_tile.sum %{{.*}} : <128x32xf32> -> <1x1xf32>
  %a = flash_tile.sum %p : <128x32xf32> -> <1x1xf32>
  return
}
