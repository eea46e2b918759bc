// RUN: flash-opt %s --split-input-file --verify-diagnostics

func.func @padded(%m: memref<?x?x4x64xf32>) {
  // expected-error @+1 {{needs rows padded to a positive number, has 0}}
  %v = flash_tile.view %m {padded = 0 : i64} : memref<?x?x4x64xf32> -> <64xf32>
  return
}

// -----

func.func @bare(%m: memref<?xf32>) {
  // expected-error @+1 {{needs a memref of rank 4 for '!flash_tile.view<1xf32>' of partials, or 3 where all is one batch, has 'memref<?xf32>'}}
  %v = flash_tile.view %m {partial} : memref<?xf32> -> <1xf32>
  return
}

// -----

func.func @write(%i: index, %f: !flash_tile.frag<64x32xbf16>) {
  %r = flash_tile.ring "ds" : <1x32x32xbf16>
  // expected-error @+1 {{needs a fragment of the slots' columns and element type and at most their rows, has '!flash_tile.frag<64x32xbf16>' for '!flash_tile.ring<1x32x32xbf16>'}}
  flash_tile.write %f -> %r[%i] : <64x32xbf16> -> <1x32x32xbf16>
  return
}

// -----

func.func @sum_of_halves(%v: !flash_tile.view<64xbf16>, %i: index, %f: !flash_tile.frag<64x64xbf16>) {
  // expected-error @+1 {{adds in f32, has '!flash_tile.frag<64x64xbf16>'}}
  flash_tile.store sum %f -> %v[%i, %i, %i] : <64x64xbf16> -> <64xbf16>
  return
}

// -----

func.func @sum_of_column(%v: !flash_tile.view<1xf32>, %i: index, %f: !flash_tile.frag<64x1xf32>) {
  // expected-error @+1 {{adds to rows of several columns, has '!flash_tile.view<1xf32>'}}
  flash_tile.store sum %f -> %v[%i, %i, %i] : <64x1xf32> -> <1xf32>
  return
}

// -----

func.func @turn(%v: !flash_tile.view<64xf32>, %i: index, %t: memref<?xi32>, %f: !flash_tile.frag<64x64xf32>) {
  // expected-error @+1 {{needs sum besides a turn: what is not added needs no order}}
  flash_tile.store %f -> %v[%i, %i, %i] turn(%t[%i] is %i : memref<?xi32>) : <64x64xf32> -> <64xf32>
  return
}

// -----

func.func @kept(%v: !flash_tile.view<64xf32>, %i: index, %t: memref<?xi32>, %f: !flash_tile.frag<64x64xf32>) {
  // expected-error @+1 {{waits for a turn that another role keeps}}
  flash_tile.store sum kept %f -> %v[%i, %i, %i] turn(%t[%i] is %i : memref<?xi32>) : <64x64xf32> -> <64xf32>
  return
}

// -----

func.func @trans(%i: index, %a: !flash_tile.frag<64x32xbf16>) {
  %r = flash_tile.ring "k" : <1x64x32xbf16>
  %t = flash_tile.wait %r[%i] : <1x64x32xbf16> -> <64x32xbf16>
  // expected-error @+1 {{needs a tile as transposed a, has '!flash_tile.frag<64x32xbf16>'}}
  %f = flash_tile.mma %a trans, %t : !flash_tile.frag<64x32xbf16>, <64x32xbf16> -> <32x32xf32>
  return
}

// -----

func.func @contracts(%i: index) {
  %r = flash_tile.ring "k" : <1x64x32xbf16>
  %t = flash_tile.wait %r[%i] : <1x64x32xbf16> -> <64x32xbf16>
  // expected-error @+1 {{contracts 64 with 32}}
  %f = flash_tile.mma %t trans, %t trans : !flash_tile.tile<64x32xbf16>, <64x32xbf16> -> <32x64xf32>
  return
}

// -----

func.func @sum(%f: !flash_tile.frag<64x32xf32>) {
  // expected-error @+1 {{gives one value a row, or one of all, its type says '!flash_tile.frag<32x1xf32>' of '!flash_tile.frag<64x32xf32>'}}
  %s = flash_tile.sum %f : <64x32xf32> -> <32x1xf32>
  return
}

// -----

func.func @mask(%i: index, %f: !flash_tile.frag<64x32xf32>) {
  // expected-error @+1 {{packs no heads where rows are keys, has a group of 2}}
  %m = flash_tile.mask %f by <dense> at[%i, %i] lengths(%i, %i) trans {group = 2 : i64} : <64x32xf32>
  return
}

// -----

func.func @range(%i: index) {
  // expected-error @+1 {{asks for queries: it has no every_row and no group}}
  %end, %right, %inner, %left, %sink = flash_tile.block_range queries by <dense> rows[%i, 64] block 32 lengths(%i, %i) split(%i, %i) {group = 2 : i64}
  return
}

// -----

func.func @statistic(%s: !flash_tile.frag<64x32xf32>, %l: !flash_tile.frag<1x64xf32>) {
  // expected-error @+1 {{needs one value a row of '!flash_tile.frag<64x32xf32>', has '!flash_tile.frag<1x64xf32>'}}
  %p = flash_tile.map %s, %l : !flash_tile.frag<64x32xf32>, !flash_tile.frag<1x64xf32> -> <64x32xf32> {
  ^bb0(%x: f32, %y: f32):
    flash_tile.yield %x : f32
  }
  return
}

// -----

func.func @released(%i: index) {
  %r = flash_tile.ring "ds" : <1x64x32xbf16>
  %t = flash_tile.wait %r[%i] : <1x64x32xbf16> -> <64x32xbf16>
  // expected-note @+1 {{the mma}}
  %f = flash_tile.mma %t trans, %t : !flash_tile.tile<64x32xbf16>, <64x32xbf16> -> <32x32xf32>
  // expected-error @+1 {{releases a tile that an mma in flight still reads; put its mma_wait before}}
  flash_tile.release %r[%i] : <1x64x32xbf16>
  %s = flash_tile.mma_wait %f : <32x32xf32> -> <32x32xf32>
  return
}
