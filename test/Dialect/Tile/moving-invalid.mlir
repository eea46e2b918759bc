// What roles and ops that move tiles demand.
// RUN: flash-opt %s --split-input-file --verify-diagnostics

func.func @f() {
  // expected-error @below {{needs one region a role, has 1 regions and 2 roles}}
  flash_tile.roles [#flash_tile.role<"a", instances = 1, warps = 4, registers = 0, units = [copy]>, #flash_tile.role<"a", instances = 1, warps = 4, registers = 0, units = [copy]>] {
  ^bb0(%w: index):
    flash_tile.yield
  }
  return
}
// -----
func.func @f() {
  // expected-error @below {{needs #flash_tile.role attributes, has 3}}
  flash_tile.roles [3] {
  ^bb0(%w: index):
    flash_tile.yield
  }
  return
}
// -----
func.func @f() {
  // expected-error @below {{role a needs positive instances and warps}}
  flash_tile.roles [#flash_tile.role<"a", instances = 0, warps = 4, registers = 0, units = [copy]>] {
  ^bb0(%w: index):
    flash_tile.yield
  }
  return
}
// -----
func.func @f() {
  // expected-error @below {{role a needs one block argument, its instance's number}}
  flash_tile.roles [#flash_tile.role<"a", instances = 1, warps = 4, registers = 0, units = [copy]>] {
    flash_tile.yield
  }
  return
}
// -----
func.func @f(%x: f32) {
  // expected-error @below {{role a may not execute flash_tile.splat, which is a vector op}}
  flash_tile.roles [#flash_tile.role<"a", instances = 1, warps = 4, registers = 0, units = [copy]>] {
  ^bb0(%w: index):
    %a = flash_tile.splat %x : f32 -> <4x4xf32>
    flash_tile.yield
  }
  return
}
// -----
func.func @f(%f: !flash_tile.frag<4x4xf32>) {
  // expected-error @below {{role a may not use a fragment, flight or tile from outside, flash_tile.cast does}}
  flash_tile.roles [#flash_tile.role<"a", instances = 1, warps = 4, registers = 0, units = [vector]>] {
  ^bb0(%w: index):
    %a = flash_tile.cast %f : <4x4xf32> -> <4x4xf16>
    flash_tile.yield
  }
  return
}
// -----
func.func @f(%v: !flash_tile.view<64xf16>, %r: !flash_tile.ring<2x4x64xbf16>, %i: index) {
  // expected-error @below {{needs view and ring of one element type}}
  flash_tile.fill %v[%i, %i, %i] -> %r[%i] : <64xf16> -> <2x4x64xbf16>
  return
}
// -----
func.func @f(%v: !flash_tile.view<64xf16>, %r: !flash_tile.ring<2x4x32xf16>, %i: index) {
  // expected-error @below {{needs slots as wide as the view}}
  flash_tile.fill %v[%i, %i, %i] -> %r[%i] : <64xf16> -> <2x4x32xf16>
  return
}
// -----
func.func @f(%r: !flash_tile.ring<2x4x64xf16>, %i: index) {
  // expected-error @below {{needs a tile of the ring's slot type, has '!flash_tile.tile<8x64xf16>' of '!flash_tile.ring<2x4x64xf16>'}}
  %t = flash_tile.wait %r[%i] : <2x4x64xf16> -> <8x64xf16>
  return
}
// -----
func.func @f(%r: !flash_tile.ring<2x4x64xf16>, %i: index) {
  %t = flash_tile.wait %r[%i] : <2x4x64xf16> -> <4x64xf16>
  // expected-error @below {{releases a tile that is read afterwards}}
  flash_tile.release %r[%i] : <2x4x64xf16>
  %f = flash_tile.mma %t, %t trans : !flash_tile.tile<4x64xf16>, <4x64xf16> -> <4x4xf32>
  %s = flash_tile.mma_wait %f : <4x4xf32> -> <4x4xf32>
  return
}
// -----
func.func @f(%r: !flash_tile.ring<2x4x64xf16>, %i: index) {
  %t = flash_tile.wait %r[%i] : <2x4x64xf16> -> <4x64xf16>
  %u = flash_tile.slice %t[%i] : <4x64xf16> -> <4x32xf16>
  // expected-note @below {{the mma}}
  %f = flash_tile.mma %u, %u trans : !flash_tile.tile<4x32xf16>, <4x32xf16> -> <4x4xf32>
  // expected-error @below {{releases a tile that an mma in flight still reads; put its mma_wait before}}
  flash_tile.release %r[%i] : <2x4x64xf16>
  %s = flash_tile.mma_wait %f : <4x4xf32> -> <4x4xf32>
  return
}
// -----
func.func @f(%t: !flash_tile.tile<4x64xf16>, %i: index) {
  // expected-error @below {{needs a slice of the tile's rows and element type, no wider than the tile}}
  %u = flash_tile.slice %t[%i] : <4x64xf16> -> <4x128xf16>
  return
}
// -----
func.func @f(%v: !flash_tile.view<64xf16>, %i: index) {
  // expected-error @below {{needs view and fragment of one element type}}
  %f = flash_tile.load %v[%i, %i, %i] : <64xf16> -> <4x64xf32>
  return
}
// -----
func.func @f(%v: !flash_tile.view<64xf32>, %i: index) {
  // expected-error @below {{needs parts aside that divide its 4 rows, has 3}}
  %f = flash_tile.load %v[%i, %i, %i] parts(%i) aside 3 : <64xf32> -> <4x64xf32>
  return
}
// -----
func.func @f(%v: !flash_tile.view<64xf32>, %i: index) {
  // expected-error @below {{needs to know how many parts are left where it reads several aside}}
  %f = flash_tile.load %v[%i, %i, %i] aside 2 : <64xf32> -> <4x64xf32>
  return
}
// -----
func.func @f(%m: memref<?x?x?x64xf32>, %i: index) {
  %v = flash_tile.view %m : memref<?x?x?x64xf32> -> <64xf32>
  // expected-error @below {{reads parts, which a partial view has; its view is of another tensor}}
  %f = flash_tile.load %v[%i, %i, %i] parts(%i) : <64xf32> -> <4x64xf32>
  return
}
// -----
func.func @f(%x: !flash_tile.frag<4x64xf32>, %m: !flash_tile.frag<4x1xf32>) {
  // expected-error @below {{needs as many results of each value, has 3 of 2}}
  %a:3 = flash_tile.split_rows %x, %m : !flash_tile.frag<4x64xf32>, !flash_tile.frag<4x1xf32>
      -> !flash_tile.frag<2x64xf32>, !flash_tile.frag<2x64xf32>, !flash_tile.frag<4x1xf32>
  return
}
// -----
func.func @f(%x: !flash_tile.frag<4x64xf32>) {
  // expected-error @below {{needs 2 results of equal rows from '!flash_tile.frag<4x64xf32>', has one of '!flash_tile.frag<1x64xf32>'}}
  %a:2 = flash_tile.split_rows %x : !flash_tile.frag<4x64xf32> -> !flash_tile.frag<2x64xf32>, !flash_tile.frag<1x64xf32>
  return
}
// -----
func.func @f(%x: !flash_tile.frag<4x64xbf16>) {
  // expected-error @below {{needs fragments of f32, has '!flash_tile.frag<4x64xbf16>'}}
  %a:2 = flash_tile.split_rows %x : !flash_tile.frag<4x64xbf16> -> !flash_tile.frag<2x64xbf16>, !flash_tile.frag<2x64xbf16>
  return
}
// -----
func.func @f(%v: !flash_tile.view<64xf16>, %i: index, %f: !flash_tile.frag<4x64xf32>) {
  // expected-error @below {{needs fragment and view of one element type}}
  flash_tile.store %f -> %v[%i, %i, %i] : <4x64xf32> -> <64xf16>
  return
}
// -----
func.func @f(%v: !flash_tile.view<64xf32>, %i: index, %f: !flash_tile.frag<4x64xf32>) {
  %r = flash_tile.ring "o" : <1x4x128xf32>
  // expected-error @below {{needs slots of the fragment's rows and element type, no wider than it}}
  flash_tile.store %f -> %v[%i, %i, %i] via %r[%i] : !flash_tile.ring<1x4x128xf32> : <4x64xf32> -> <64xf32>
  return
}
// -----
func.func @f(%v: !flash_tile.view<64xf32>, %i: index, %f: !flash_tile.frag<4x64xf32>) {
  %r = flash_tile.ring "o" : <1x4x64xf32>
  %t = flash_tile.wait %r[%i] : <1x4x64xf32> -> <4x64xf32>
  // expected-error @below {{needs a ring that only stores use, its ring has a flash_tile.wait}}
  flash_tile.store %f -> %v[%i, %i, %i] via %r[%i] : !flash_tile.ring<1x4x64xf32> : <4x64xf32> -> <64xf32>
  return
}
