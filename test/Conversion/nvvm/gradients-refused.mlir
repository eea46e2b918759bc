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

// -----

func.func @moving(%one: memref<?xf32>, %lse: memref<?x?x?xf32>, %i: index, %d: f32)
    attributes {flash.kernel, flash.target = #flash.target<"sm_80">, flash.threads = 128 : i64, flash.shared_bytes = 0 : i64} {
  // expected-error @+1 {{gradients are not built for GPUs; use cpu}}
  %b = flash_tile.view %one : memref<?xf32> -> <1xf32>
  %l = flash_tile.view %lse : memref<?x?x?xf32> -> <1xf32>
  %lr = flash_tile.ring "lse" {offset = 0 : i64} : <1x1x64xf32>
  // expected-error @+1 {{gradients are not built for GPUs; use cpu}}
  flash_tile.fill %l[%i, %i, %i] -> %lr[%i] : <1xf32> -> <1x1x64xf32>
  %dr = flash_tile.ring "ds" {offset = 0 : i64} : <1x64x64xf32>
  %f = flash_tile.splat %d : f32 -> <64x64xf32>
  // expected-error @+1 {{gradients are not built for GPUs; use cpu}}
  flash_tile.write %f -> %dr[%i] : <64x64xf32> -> <1x64x64xf32>
  %t = flash_tile.wait %dr[%i] : <1x64x64xf32> -> <64x64xf32>
  // expected-error @+1 {{gradients are not built for GPUs; use cpu}}
  %p = flash_tile.mma %t trans, %t : !flash_tile.tile<64x64xf32>, <64x64xf32> -> <64x64xf32>
  %s = flash_tile.mma_wait %p : <64x64xf32> -> <64x64xf32>
  // expected-error @+1 {{gradients are not built for GPUs; use cpu}}
  %end, %right, %inner, %left, %sink = flash_tile.block_range queries by <causal> rows[%i, 64] block 64 lengths(%i, %i) split(%i, %i)
  return
}
