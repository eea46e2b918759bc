// RUN: flash-opt %s --convert-flash-tile-to-nvvm --split-input-file --verify-diagnostics

func.func @forms(%m: memref<?x?x?x64xf32>, %one: memref<?x?x?xf32>, %turns: memref<?xi32>, %i: index, %x: f32)
    attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.threads = 128 : i64, flash.shared_bytes = 0 : i64} {
  %v = flash_tile.view %m {cells, padded = 64 : i64} : memref<?x?x?x64xf32> -> <64xf32>
  %lv = flash_tile.view %one : memref<?x?x?xf32> -> <1xf32>
  %r = flash_tile.ring "lse" {offset = 0 : i64, barriers = 1024 : i64} : <1x1x64xf32>
  // expected-error @+1 {{copying 64 values that may lie anywhere is not built for sm_90a}}
  flash_tile.fill %lv[%i, %i, %i] -> %r[%i] : <1xf32> -> <1x1x64xf32>
  %f = flash_tile.splat %x : f32 -> <64x64xf32>
  // expected-error @+1 {{summing rows beside products is not built for sm_90a}}
  %s = flash_tile.sum %f : <64x64xf32> -> <64x1xf32>
  // expected-error @+1 {{adding in turn is not built for sm_90a}}
  flash_tile.store sum %f -> %v[%i, %i, %i] turn(%turns[%i] is %i : memref<?xi32>) : <64x64xf32> -> <64xf32>
  // expected-error @+1 {{adding in a turn that nobody keeps is not built for sm_90a}}
  flash_tile.store sum kept %f -> %v[%i, %i, %i] : <64x64xf32> -> <64xf32>
  // expected-error @+1 {{keeping turns without roles is not built for sm_90a}}
  flash_tile.keep_turn %turns[%i] is %i : memref<?xi32>
  return
}

// -----

// Keepers share the group of the producer, which leaves them its last warps.
#producer = #flash_tile.role<"producer", instances = 1, warps = 4, registers = 24, units = [copy]>
#keeper = #flash_tile.role<"keeper", instances = 2, warps = 2, registers = 24, units = [turn]>
#consumer = #flash_tile.role<"consumer", instances = 2, warps = 4, registers = 240, units = [tensor, vector]>
func.func @keepers()
    attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.threads = 512 : i64, flash.shared_bytes = 0 : i64} {
  // expected-error @+1 {{a role of 2 warps is not built for sm_90a}}
  flash_tile.roles [#producer, #keeper, #consumer] {
  ^bb0(%w: index):
    flash_tile.yield
  }, {
  ^bb0(%w: index):
    flash_tile.yield
  }, {
  ^bb0(%w: index):
    flash_tile.yield
  }
  return
}

// -----

func.func @together(%m: memref<?x?x?xf32>, %i: index)
    attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.threads = 128 : i64, flash.shared_bytes = 0 : i64} {
  %v = flash_tile.view %m {padded = 64 : i64} : memref<?x?x?xf32> -> <1xf32>
  %q = flash_tile.ring "q" {offset = 0 : i64, barriers = 9216 : i64} : <1x64x64xbf16>
  %r = flash_tile.ring "lse" with %q : !flash_tile.ring<1x64x64xbf16> {offset = 8192 : i64} : <1x1x64xf32>
  // expected-error @+1 {{filling a ring that is with another before that is not built for sm_90a}}
  flash_tile.fill %v[%i, %i, %i] -> %r[%i] : <1xf32> -> <1x1x64xf32>
  // expected-error @+1 {{waiting for a ring that is with another before that is not built for sm_90a}}
  %t = flash_tile.wait %r[%i] : <1x1x64xf32> -> <1x64xf32>
  return
}

// -----

// 96 rows are no power of two times 16 for 2 warps; one row of f32 is a ring's, more are not.
func.func @limits(%i: index, %d: f32)
    attributes {flash.kernel, flash.target = #flash.target<"sm_80">, flash.threads = 64 : i64, flash.shared_bytes = 0 : i64} {
  // expected-error @+1 {{a ring of other than 16-bit elements is not built for sm_80}}
  %w = flash_tile.ring "w" {offset = 0 : i64} : <1x64x64xf32>
  %r = flash_tile.ring "ds" {offset = 0 : i64} : <1x64x96xbf16>
  %kr = flash_tile.ring "k" {offset = 0 : i64} : <1x64x64xbf16>
  %f = flash_tile.splat %d : f32 -> <32x96xf32>
  %h = flash_tile.cast %f : <32x96xf32> -> <32x96xbf16>
  // expected-error @+1 {{writing other than a whole tile of 16-bit elements is not built for sm_80}}
  flash_tile.write %h -> %r[%i] row %i : <32x96xbf16> -> <1x64x96xbf16>
  %t = flash_tile.wait %r[%i] : <1x64x96xbf16> -> <64x96xbf16>
  %k = flash_tile.wait %kr[%i] : <1x64x64xbf16> -> <64x64xbf16>
  // expected-error @+1 {{a product of 96 columns of a tile by 2 warps is not built for sm_80}}
  %p = flash_tile.mma %t trans, %k : !flash_tile.tile<64x96xbf16>, <64x64xbf16> -> <96x64xf32>
  return
}
