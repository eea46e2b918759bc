// Views with tables, and the op that turns rows by a table of angles.
// RUN: flash-opt %s --verify-roundtrip | FileCheck %s
// RUN: flash-opt %s --mlir-print-op-generic | flash-opt | FileCheck %s
// RUN: flash-opt %s --emit-bytecode | flash-opt | FileCheck %s
// RUN: flash-opt %s --mlir-print-op-generic | FileCheck %s --check-prefix=GENERIC

!rows = memref<?xi32>
!V = !flash_tile.view<64xbf16>

// CHECK-LABEL: func.func @packed
func.func @packed(%q: memref<?x4x64xbf16>, %lse: memref<4x?xf32>, %op: memref<3x?x4x64xf32>, %cu: !rows, %used: !rows) {
  // CHECK: flash_tile.view %{{.*}} cu_seqlens(%{{.*}} : memref<?xi32>) {group = 2 : i64} : memref<?x4x64xbf16> -> <64xbf16>
  // GENERIC: "flash_tile.view"({{.*}}) <{group = 2 : i64, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0>, padded = 1 : i64}>
  %v = flash_tile.view %q cu_seqlens(%cu : !rows) {group = 2} : memref<?x4x64xbf16> -> !V
  // CHECK: flash_tile.view %{{.*}} cu_seqlens(%{{.*}} : memref<?xi32>) seqused(%{{.*}} : memref<?xi32>) : memref<4x?xf32> -> <1xf32>
  %l = flash_tile.view %lse cu_seqlens(%cu : !rows) seqused(%used : !rows) : memref<4x?xf32> -> <1xf32>
  // CHECK: flash_tile.view %{{.*}} cu_seqlens(%{{.*}} : memref<?xi32>) {partial} : memref<3x?x4x64xf32> -> <64xf32>
  %p = flash_tile.view %op cu_seqlens(%cu : !rows) {partial} : memref<3x?x4x64xf32> -> <64xf32>
  // CHECK: flash_tile.view %{{.*}} : memref<?x4x64xbf16> -> <64xbf16>
  %one = flash_tile.view %q : memref<?x4x64xbf16> -> !V
  return
}

// CHECK-LABEL: func.func @cached
func.func @cached(%k: memref<?x?x4x64xbf16>, %pages: memref<?x16x4x64xbf16>, %table: memref<?x?xi32, strided<[?, 1], offset: ?>>,
    %used: !rows, %i: index) {
  // CHECK: flash_tile.view %{{.*}} seqused(%{{.*}} : memref<?xi32>) appended %{{.*}} page_table(%{{.*}} : memref<?x?xi32, strided<[?, 1], offset: ?>>) batch_idx(%{{.*}} : memref<?xi32>) leftpad(%{{.*}} : memref<?xi32>) : memref<?x16x4x64xbf16> -> <64xbf16>
  %v = flash_tile.view %pages seqused(%used : !rows) appended %i page_table(%table : memref<?x?xi32, strided<[?, 1], offset: ?>>)
      batch_idx(%used : !rows) leftpad(%used : !rows) : memref<?x16x4x64xbf16> -> !V
  // CHECK: flash_tile.view %{{.*}} leftpad(%{{.*}} : memref<?xi32>) : memref<?x?x4x64xbf16> -> <64xbf16>
  %w = flash_tile.view %k leftpad(%used : !rows) : memref<?x?x4x64xbf16> -> !V
  return
}

// CHECK-LABEL: func.func @work
func.func @work(%cu: !rows, %i: index) {
  // CHECK: flash_tile.for_work "varlen_dynamic"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) section %{{.*}} packed(%{{.*}} : memref<?xi32>) attributes {group = 2 : i64, tile = 64 : i64}
  flash_tile.for_work "varlen_dynamic"(%i, %i, %i, %i) section %i packed(%cu : !rows) attributes {tile = 64, group = 2} {
  ^bb0(%m: index, %h: index, %b: index, %s: index):
    flash_tile.yield
  }
  return
}

// CHECK-LABEL: func.func @scheduled
func.func @scheduled(%s: memref<?x?xi32>, %v: !V, %i: index) {
  // CHECK: flash_tile.for_work "varlen_dynamic"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) schedule(%{{.*}} : memref<?x?xi32>) {
  flash_tile.for_work "varlen_dynamic"(%i, %i, %i, %i) schedule(%s : memref<?x?xi32>) {
  ^bb0(%m: index, %h: index, %b: index, %p: index):
    flash_tile.yield
  }
  // CHECK: %{{.*}}:2 = flash_tile.total %{{.*}} -> index, index {
  // CHECK: ^bb0(%[[I:.*]]: index):
  // CHECK:   %[[X:.*]] = flash_tile.length %{{.*}}[%[[I]]]
  // CHECK:   flash_tile.yield %[[I]], %[[X]] : index, index
  // GENERIC: "flash_tile.total"
  %sums:2 = flash_tile.total %i -> index, index {
  ^bb0(%j: index):
    %x = flash_tile.length %v[%j] : !V
    flash_tile.yield %j, %x : index, index
  }
  return
}

// CHECK-LABEL: func.func @rotate
func.func @rotate(%x: !flash_tile.frag<16x64xbf16>, %cos: memref<?x32xbf16>, %i: index) {
  // CHECK: flash_tile.rotate %{{.*}} by(%{{.*}}, %{{.*}} : memref<?x32xbf16>) at %{{.*}} {interleaved} : <16x64xbf16>
  // GENERIC: "flash_tile.rotate"({{.*}}) <{interleaved}>
  %y = flash_tile.rotate %x by(%cos, %cos : memref<?x32xbf16>) at %i {interleaved} : !flash_tile.frag<16x64xbf16>
  // CHECK: flash_tile.rotate %{{.*}} by(%{{.*}}, %{{.*}} : memref<?x32xbf16>) at %{{.*}} {fixed} : <16x64xbf16>
  %z = flash_tile.rotate %y by(%cos, %cos : memref<?x32xbf16>) at %i {fixed} : !flash_tile.frag<16x64xbf16>
  return
}
