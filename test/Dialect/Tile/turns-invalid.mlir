// What reading and turns demand.
// RUN: flash-opt %s --split-input-file --verify-diagnostics

func.func @f(%t: !flash_tile.tile<4x8xf16>) {
  // expected-error @below {{needs a fragment of the tile's shape and element type, has '!flash_tile.frag<8x4xf16>' of '!flash_tile.tile<4x8xf16>'}}
  %f = flash_tile.read %t : <4x8xf16> -> <8x4xf16>
  return
}
// -----
func.func @f() {
  // expected-error @below {{needs a body without arguments that yields its results}}
  %f = flash_tile.in_turn -> !flash_tile.flight<4x4xf32> {
    flash_tile.yield
  }
  return
}
// -----
func.func @f() {
  flash_tile.in_turn {
    // expected-error @below {{may not stand in another in_turn, which has the turn until its end}}
    flash_tile.in_turn {
      flash_tile.yield
    }
    flash_tile.yield
  }
  return
}
// -----
// A product in a turn reads its tile until it is waited for.
func.func @f(%q: !flash_tile.frag<4x8xf16>, %i: index) {
  %r = flash_tile.ring "k" : <1x4x8xf16>
  %t = flash_tile.wait %r[%i] : <1x4x8xf16> -> <4x8xf16>
  %f = flash_tile.in_turn -> !flash_tile.flight<4x4xf32> {
    // expected-note @below {{the mma}}
    %x = flash_tile.mma %q, %t trans : !flash_tile.frag<4x8xf16>, <4x8xf16> -> <4x4xf32>
    flash_tile.yield %x : !flash_tile.flight<4x4xf32>
  }
  // expected-error @below {{releases a tile that an mma in flight still reads; put its mma_wait before}}
  flash_tile.release %r[%i] : <1x4x8xf16>
  %s = flash_tile.mma_wait %f : <4x4xf32> -> <4x4xf32>
  return
}
