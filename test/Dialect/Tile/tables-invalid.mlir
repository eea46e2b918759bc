// What views with tables, and rotate, demand.
// RUN: flash-opt %s --split-input-file --verify-diagnostics

func.func @f(%m: memref<?x?x4x64xf16>, %t: memref<?xi32>) {
  // expected-error @below {{needs a memref without a batch for cu_seqlens}}
  %v = flash_tile.view %m cu_seqlens(%t : memref<?xi32>) : memref<?x?x4x64xf16> -> <64xf16>
  return
}
// -----
func.func @f(%m: memref<?x?x4x64xf16>, %i: index) {
  // expected-error @below {{needs seqused besides appended}}
  %v = flash_tile.view %m appended %i : memref<?x?x4x64xf16> -> <64xf16>
  return
}
// -----
func.func @f(%m: memref<?x?x4x64xf16>, %t: memref<?x?xi32>) {
  // expected-error @below {{needs seqused besides page_table: pages say nothing of lengths}}
  %v = flash_tile.view %m page_table(%t : memref<?x?xi32>) : memref<?x?x4x64xf16> -> <64xf16>
  return
}
// -----
func.func @f(%m: memref<?x4x64xf16>, %t: memref<?x?xi32>, %u: memref<?xi32>) {
  // expected-error @below {{needs a memref of pages x page size x heads x columns for page_table}}
  %v = flash_tile.view %m seqused(%u : memref<?xi32>) page_table(%t : memref<?x?xi32>) : memref<?x4x64xf16> -> <64xf16>
  return
}
// -----
func.func @f(%m: memref<?x4x64xf16>, %u: memref<?xi32>) {
  // expected-error @below {{needs several sequences for batch_idx}}
  %v = flash_tile.view %m batch_idx(%u : memref<?xi32>) : memref<?x4x64xf16> -> <64xf16>
  return
}
// -----
func.func @f(%m: memref<?x?x4x64xf16>, %u: memref<?xi32, strided<[?]>>) {
  // expected-error @below {{needs tables with contiguous elements}}
  %v = flash_tile.view %m seqused(%u : memref<?xi32, strided<[?]>>) : memref<?x?x4x64xf16> -> <64xf16>
  return
}
// -----
func.func @f(%m: memref<?x?x4x64xf16>, %u: memref<?xi64>) {
  // expected-error @below {{must be 1D memref of 32-bit signless integer values, but got 'memref<?xi64>'}}
  %v = flash_tile.view %m seqused(%u : memref<?xi64>) : memref<?x?x4x64xf16> -> <64xf16>
  return
}
// -----
func.func @f(%x: !flash_tile.frag<16x64xf16>, %c: memref<?x?xf16>, %i: index) {
  // expected-error @below {{needs cos and sin of positions x a known number of contiguous pairs}}
  %y = flash_tile.rotate %x by(%c, %c : memref<?x?xf16>) at %i : <16x64xf16>
  return
}
// -----
func.func @f(%x: !flash_tile.frag<16x64xf16>, %c: memref<?x32xbf16>, %i: index) {
  // expected-error @below {{needs cos and fragment of one element type}}
  %y = flash_tile.rotate %x by(%c, %c : memref<?x32xbf16>) at %i : <16x64xf16>
  return
}
// -----
func.func @f(%x: !flash_tile.frag<16x64xf16>, %c: memref<?x40xf16>, %i: index) {
  // expected-error @below {{needs a fragment at least twice as wide as cos}}
  %y = flash_tile.rotate %x by(%c, %c : memref<?x40xf16>) at %i : <16x64xf16>
  return
}
// -----
func.func @f(%t: memref<?xi32>, %i: index) {
  // expected-error @below {{needs order varlen_dynamic for packed sequences, has dynamic}}
  flash_tile.for_work "dynamic"(%i, %i, %i, %i) packed(%t : memref<?xi32>) attributes {tile = 64} {
  ^bb0(%m: index, %h: index, %b: index, %s: index):
    flash_tile.yield
  }
  return
}
// -----
func.func @f(%t: memref<?xi32>, %i: index) {
  // expected-error @below {{needs packed and a positive tile together or none of them}}
  flash_tile.for_work "varlen_dynamic"(%i, %i, %i, %i) packed(%t : memref<?xi32>) {
  ^bb0(%m: index, %h: index, %b: index, %s: index):
    flash_tile.yield
  }
  return
}
// -----
func.func @f(%i: index) {
  // expected-error @below {{needs packed and a positive tile together or none of them}}
  flash_tile.for_work "varlen_dynamic"(%i, %i, %i, %i) attributes {tile = 64} {
  ^bb0(%m: index, %h: index, %b: index, %s: index):
    flash_tile.yield
  }
  return
}
// -----
func.func @f(%s: memref<?x?xi32>, %i: index) {
  // expected-error @below {{needs order varlen_dynamic and single blocks for a schedule, which says where all tiles are, packed or not}}
  flash_tile.for_work "dynamic"(%i, %i, %i, %i) schedule(%s : memref<?x?xi32>) {
  ^bb0(%m: index, %h: index, %b: index, %p: index):
    flash_tile.yield
  }
  return
}
// -----
func.func @f(%i: index) {
  // expected-error @below {{body needs one index and to yield a value for each total}}
  %x = flash_tile.total %i -> index {
  ^bb0(%j: index):
    flash_tile.yield
  }
  return
}
