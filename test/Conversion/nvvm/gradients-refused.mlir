// RUN: flash-opt %s --convert-flash-tile-to-nvvm --split-input-file --verify-diagnostics

func.func @forms(%m: memref<?x?x?x64xf32>, %i: index, %x: f32)
    attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.threads = 128 : i64, flash.shared_bytes = 0 : i64} {
  // expected-error @+1 {{gradients are not built for GPUs; use cpu}}
  %v = flash_tile.view %m {padded = 64 : i64} : memref<?x?x?x64xf32> -> <64xf32>
  %f = flash_tile.splat %x : f32 -> <64x64xf32>
  %l = flash_tile.splat %x : f32 -> <1x64xf32>
  // expected-error @+1 {{gradients are not built for GPUs; use cpu}}
  %s = flash_tile.sum %f : <64x64xf32> -> <64x1xf32>
  // expected-error @+1 {{gradients are not built for GPUs; use cpu}}
  %k = flash_tile.mask %f by <dense> at[%i, %i] lengths(%i, %i) trans : <64x64xf32>
  // expected-error @+1 {{gradients are not built for GPUs; use cpu}}
  %p = flash_tile.map %f, %l : !flash_tile.frag<64x64xf32>, !flash_tile.frag<1x64xf32> -> <64x64xf32> {
  ^bb0(%a: f32, %b: f32):
    flash_tile.yield %a : f32
  }
  // expected-error @+1 {{gradients are not built for GPUs; use cpu}}
  flash_tile.store sum %f -> %v[%i, %i, %i] : <64x64xf32> -> <64xf32>
  return
}
