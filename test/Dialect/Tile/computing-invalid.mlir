// What mma and ops on fragments demand.
// RUN: flash-opt %s --split-input-file --verify-diagnostics

func.func @f(%a: !flash_tile.tile<4x64xf16>, %b: !flash_tile.tile<8x64xbf16>) {
  // expected-error @below {{needs operands of one element type, has 'f16' and 'bf16'}}
  %f = flash_tile.mma %a, %b trans : !flash_tile.tile<4x64xf16>, <8x64xbf16> -> <4x8xf32>
  return
}
// -----
func.func @f(%a: !flash_tile.tile<4x64xf16>, %b: !flash_tile.tile<8x64xf16>) {
  // expected-error @below {{contracts 64 with 8}}
  %f = flash_tile.mma %a, %b : !flash_tile.tile<4x64xf16>, <8x64xf16> -> <4x64xf32>
  return
}
// -----
func.func @f(%a: !flash_tile.tile<4x64xf16>, %b: !flash_tile.tile<8x64xf16>) {
  // expected-error @below {{gives 4x8, its type says 4x4}}
  %f = flash_tile.mma %a, %b trans : !flash_tile.tile<4x64xf16>, <8x64xf16> -> <4x4xf32>
  return
}
// -----
func.func @f(%a: !flash_tile.tile<4x64xf16>, %b: !flash_tile.tile<8x64xf16>) {
  // expected-error @below {{accumulates in f32, its type says 'f16'}}
  %f = flash_tile.mma %a, %b trans : !flash_tile.tile<4x64xf16>, <8x64xf16> -> <4x8xf16>
  return
}
// -----
func.func @f(%a: !flash_tile.tile<4x64xf16>, %b: !flash_tile.tile<8x64xf16>, %c: !flash_tile.frag<4x4xf32>) {
  // expected-error @below {{needs acc of the result's shape and element type, has '!flash_tile.frag<4x4xf32>'}}
  %f = flash_tile.mma %a, %b trans acc %c : !flash_tile.frag<4x4xf32> : !flash_tile.tile<4x64xf16>, <8x64xf16> -> <4x8xf32>
  return
}
// -----
func.func @f(%f: !flash_tile.flight<4x4xf32>) {
  // expected-error @below {{needs the flight of an mma in the same region, has a block argument or another op's result}}
  %s = flash_tile.mma_wait %f : <4x4xf32> -> <4x4xf32>
  return
}
// -----
func.func @f(%a: !flash_tile.tile<4x64xf16>) {
  %f = flash_tile.mma %a, %a trans : !flash_tile.tile<4x64xf16>, <4x64xf16> -> <4x4xf32>
  // expected-error @below {{needs a fragment of the flight's shape and element type}}
  %s = flash_tile.mma_wait %f : <4x4xf32> -> <4x8xf32>
  return
}
// -----
func.func @f(%s: !flash_tile.frag<4x8xf32>) {
  // expected-error @below {{needs fragments of one shape}}
  %c = flash_tile.cast %s : <4x8xf32> -> <4x4xf16>
  return
}
// -----
func.func @f(%s: !flash_tile.frag<4x8xf32>) {
  // expected-error @below {{needs a region that yields one 'f32'}}
  %c = flash_tile.map %s : !flash_tile.frag<4x8xf32> -> <4x8xf32> {
  ^bb0(%x: f32):
    flash_tile.yield
  }
  return
}
// -----
func.func @f(%s: !flash_tile.frag<4x8xf32>) {
  // expected-error @below {{needs one block argument an input, has 0 for 1}}
  %c = flash_tile.map %s : !flash_tile.frag<4x8xf32> -> <4x8xf32> {
    %x = arith.constant 0.0 : f32
    flash_tile.yield %x : f32
  }
  return
}
// -----
func.func @f(%s: !flash_tile.frag<4x8xf32>) {
  // expected-error @below {{needs a block argument of type 'f32', has 'f16'}}
  %c = flash_tile.map %s : !flash_tile.frag<4x8xf32> -> <4x8xf32> {
  ^bb0(%x: f16):
    %y = arith.constant 0.0 : f32
    flash_tile.yield %y : f32
  }
  return
}
// -----
func.func @f(%s: !flash_tile.frag<4x8xf32>) {
  // expected-error @below {{region may hold pure scalar ops only, has flash_tile.ring}}
  %c = flash_tile.map %s : !flash_tile.frag<4x8xf32> -> <4x8xf32> {
  ^bb0(%x: f32):
    %r = flash_tile.ring "k" : <2x4x64xf16>
    flash_tile.yield %x : f32
  }
  return
}
// -----
func.func @f(%s: !flash_tile.frag<8x1xf32>) {
  // expected-error @below {{needs one value a row of '!flash_tile.frag<4x8xf32>', has '!flash_tile.frag<8x1xf32>'}}
  %c = flash_tile.map %s : !flash_tile.frag<8x1xf32> -> <4x8xf32> {
  ^bb0(%x: f32):
    flash_tile.yield %x : f32
  }
  return
}
// -----
func.func @f(%s: !flash_tile.frag<4x8xf16>, %i: index) {
  // expected-error @below {{needs fragments of f32, has '!flash_tile.frag<4x8xf16>'}}
  %c = flash_tile.mask %s by <dense> at[%i, %i] lengths(%i, %i) : <4x8xf16>
  return
}
// -----
func.func @f(%s: !flash_tile.frag<4x8xf32>, %i: index) {
  // expected-error @below {{needs a positive group, has 0}}
  %c = flash_tile.mask %s by <dense> at[%i, %i] lengths(%i, %i) {group = 0} : <4x8xf32>
  return
}
// -----
func.func @f(%s: !flash_tile.frag<4x8xf32>, %x: f32) {
  // expected-error @below {{needs one value a row of '!flash_tile.frag<4x8xf32>', has '!flash_tile.frag<4x8xf32>'}}
  %p, %m1, %l1, %a = flash_tile.softmax_step online %s, %s, %s scale %x : <4x8xf32>, <4x8xf32>
  return
}
// -----
func.func @f(%m: !flash_tile.frag<4x1xf32>, %x: f32, %s: !flash_tile.frag<4x8xf16>) {
  // expected-error @below {{needs fragments of f32, has '!flash_tile.frag<4x8xf16>'}}
  %p, %m1, %l1, %a = flash_tile.softmax_step online %s, %m, %m scale %x : <4x8xf16>, <4x1xf32>
  return
}
// -----
func.func @f(%s: !flash_tile.frag<4x8xf32>, %m: !flash_tile.frag<8x1xf32>) {
  // expected-error @below {{needs one value a row of}}
  %o = flash_tile.rescale %s, %m : <4x8xf32>, <8x1xf32>
  return
}
// -----
func.func @f(%m: !flash_tile.frag<4x1xf32>, %s: !flash_tile.frag<4x8xf16>) {
  // expected-error @below {{needs fragments of f32}}
  %o = flash_tile.rescale %s, %m : <4x8xf16>, <4x1xf32>
  return
}
