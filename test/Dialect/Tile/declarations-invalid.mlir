// What declarations and for_work demand.
// RUN: flash-opt %s --split-input-file --verify-diagnostics --allow-unregistered-dialect

func.func @f(%m: memref<?x64xf16>) {
  // expected-error @below {{needs a memref of rank 4 for '!flash_tile.view<64xf16>', or 3 where all is one batch, has 'memref<?x64xf16>'}}
  %v = flash_tile.view %m : memref<?x64xf16> -> <64xf16>
  return
}
// -----
func.func @f(%m: memref<?x?xf32>) {
  // expected-error @below {{needs a memref of rank 4 for '!flash_tile.view<1xf32>' of partials, or 3 where all is one batch}}
  %v = flash_tile.view %m {partial} : memref<?x?xf32> -> <1xf32>
  return
}
// -----
func.func @f(%m: memref<*xf16>) {
  // expected-error @below {{expected builtin.memref, but found 'memref<*xf16>'}}
  %v = flash_tile.view %m : memref<*xf16> -> <64xf16>
  return
}
// -----
func.func @f(%m: memref<?x?x?x64xf16>) {
  // expected-error @below {{needs memref and view of one element type}}
  %v = flash_tile.view %m : memref<?x?x?x64xf16> -> <64xbf16>
  return
}
// -----
func.func @f(%m: memref<?x?x?x64xf16>) {
  // expected-error @below {{needs a memref of 32 columns}}
  %v = flash_tile.view %m : memref<?x?x?x64xf16> -> <32xf16>
  return
}
// -----
func.func @f(%m: memref<?x?x?x64xf16, strided<[?, ?, ?, 2]>>) {
  // expected-error @below {{needs a strided memref with contiguous rows}}
  %v = flash_tile.view %m : memref<?x?x?x64xf16, strided<[?, ?, ?, 2]>> -> <64xf16>
  return
}
// -----
func.func @f(%m: memref<?x?x?x64xf16>) {
  // expected-error @below {{needs a positive group, has 0}}
  %v = flash_tile.view %m {group = 0} : memref<?x?x?x64xf16> -> <64xf16>
  return
}
// -----
func.func @f() {
  // expected-error @below {{needs positive writers and releases, has -1 and 1}}
  %r = flash_tile.ring "k" {writers = -1} : <2x4x64xf16>
  return
}
// -----
func.func @f() {
  // expected-error @below {{needs offset and barriers of at least 0}}
  %r = flash_tile.ring "k" {offset = -8} : <2x4x64xf16>
  return
}
// -----
func.func @f() {
  %q = flash_tile.ring "q" : <2x4x64xf16>
  // expected-error @below {{needs as many stages as the ring it is with, has '!flash_tile.ring<1x1x4xf32>' with '!flash_tile.ring<2x4x64xf16>'}}
  %r = flash_tile.ring "lse" with %q : !flash_tile.ring<2x4x64xf16> : <1x1x4xf32>
  return
}
// -----
func.func @f(%i: index) {
  // expected-error @below {{needs positive rows and block}}
  %a, %b, %c, %d, %e = flash_tile.block_range by <dense> rows[%i, 0] block 4 lengths(%i, %i) split(%i, %i)
  return
}
// -----
func.func @f(%i: index) {
  // expected-error @below {{needs a positive group, has -1}}
  %a, %b, %c, %d, %e = flash_tile.block_range by <dense> rows[%i, 4] block 4 lengths(%i, %i) split(%i, %i) {group = -1}
  return
}
// -----
func.func @f(%x: f16) {
  // expected-error @below {{needs a fragment of the value's type, has '!flash_tile.frag<4x4xf32>' of 'f16'}}
  %a = flash_tile.splat %x : f16 -> <4x4xf32>
  return
}
// -----
func.func @f(%i: index) {
  // expected-error @below {{attribute 'order' failed to satisfy constraint: a work order (single, static, dynamic, varlen_dynamic, backward_lpt, backward_spt)}}
  flash_tile.for_work "random"(%i, %i, %i, %i) {
  ^bb0(%m: index, %h: index, %b: index, %s: index):
    flash_tile.yield
  }
  return
}
// -----
func.func @f(%i: index) {
  // expected-error @below {{body needs 4 coordinates and 0 carried values, has 3 arguments}}
  flash_tile.for_work "single"(%i, %i, %i, %i) {
  ^bb0(%m: index, %h: index, %b: index):
    flash_tile.yield
  }
  return
}
// -----
func.func @f(%i: index) {
  // expected-error @below {{body needs coordinates of type index, has 'i32'}}
  flash_tile.for_work "single"(%i, %i, %i, %i) {
  ^bb0(%m: i32, %h: index, %b: index, %s: index):
    flash_tile.yield
  }
  return
}
// -----
func.func @f(%i: index) {
  // expected-error @below {{body needs to end in flash_tile.yield}}
  flash_tile.for_work "single"(%i, %i, %i, %i) {
  ^bb0(%m: index, %h: index, %b: index, %s: index):
    "test.end"() : () -> ()
  }
  return
}
// -----
func.func @f(%i: index) {
  // expected-error @below {{carried values, block arguments, yielded values and results need the same types}}
  flash_tile.for_work "single"(%i, %i, %i, %i) iter(%i : index) -> index {
  ^bb0(%m: index, %h: index, %b: index, %s: index, %t: index):
    flash_tile.yield
  }
  return
}
// -----
func.func @f(%i: index) {
  // expected-error @below {{region #0 ('body') failed to verify constraint: region with 1 blocks}}
  flash_tile.for_work "single"(%i, %i, %i, %i) {
  }
  return
}
