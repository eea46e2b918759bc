// RUN: flash-opt %s --split-input-file --verify-diagnostics

func.func @f(%p: tensor<3x2x9x8x64xf32>, %l: memref<3x2x8x9xf32>) {
  // expected-error @below {{expected lse_partial to be a tensor as o_partial is, got}}
  %r = flash.combine %p, %l : tensor<3x2x9x8x64xf32>, memref<3x2x8x9xf32> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%p: tensor<2x9x8x64xf32>, %l: tensor<3x2x8x9xf32>) {
  // expected-error @below {{expected o_partial of rank 5 (splits x batch x length x heads x head size), got rank 4}}
  %r = flash.combine %p, %l : tensor<2x9x8x64xf32>, tensor<3x2x8x9xf32> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%p: tensor<3x2x9x8x64xf32>, %l: tensor<2x8x9xf32>) {
  // expected-error @below {{expected lse_partial of rank 4 (splits x batch x heads x length), got rank 3}}
  %r = flash.combine %p, %l : tensor<3x2x9x8x64xf32>, tensor<2x8x9xf32> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%p: tensor<3x2x9x8x64xf16>, %l: tensor<3x2x8x9xf32>) {
  // expected-error @below {{expected o_partial's element type to be 'f32', got 'f16'}}
  %r = flash.combine %p, %l : tensor<3x2x9x8x64xf16>, tensor<3x2x8x9xf32> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%p: tensor<3x2x9x8x64xf32>, %l: tensor<3x2x8x9xf64>) {
  // expected-error @below {{expected lse_partial's element type to be 'f32', got 'f64'}}
  %r = flash.combine %p, %l : tensor<3x2x9x8x64xf32>, tensor<3x2x8x9xf64> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%p: tensor<3x2x9x8x?xf32>, %l: tensor<3x2x8x9xf32>) {
  // expected-error @below {{expected o_partial's head size to be known when compiling}}
  %r = flash.combine %p, %l : tensor<3x2x9x8x?xf32>, tensor<3x2x8x9xf32> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%p: tensor<3x2x9x8x64xf32>, %l: tensor<4x2x8x9xf32>) {
  // expected-error @below {{expected lse_partial's splits (4) to equal o_partial's (3)}}
  %r = flash.combine %p, %l : tensor<3x2x9x8x64xf32>, tensor<4x2x8x9xf32> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%p: tensor<3x2x9x8x64xf32>, %l: tensor<3x1x8x9xf32>) {
  // expected-error @below {{expected lse_partial's batch (1) to equal o_partial's (2)}}
  %r = flash.combine %p, %l : tensor<3x2x9x8x64xf32>, tensor<3x1x8x9xf32> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%p: tensor<3x2x9x8x64xf32>, %l: tensor<3x2x9x9xf32>) {
  // expected-error @below {{expected lse_partial's heads (9) to equal o_partial's (8)}}
  %r = flash.combine %p, %l : tensor<3x2x9x8x64xf32>, tensor<3x2x9x9xf32> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%p: tensor<3x2x9x8x64xf32>, %l: tensor<3x2x8x8xf32>) {
  // expected-error @below {{expected lse_partial's length (8) to equal o_partial's (9)}}
  %r = flash.combine %p, %l : tensor<3x2x9x8x64xf32>, tensor<3x2x8x8xf32> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%p: tensor<3x2x9x8x64xf32>, %l: tensor<3x2x8x9xf32>) {
  // expected-error @below {{expected o of rank 4 (batch x length x heads x head size), got rank 5}}
  %r = flash.combine %p, %l : tensor<3x2x9x8x64xf32>, tensor<3x2x8x9xf32> -> tensor<3x2x9x8x64xf32>
  return
}
// -----
func.func @f(%p: tensor<3x2x9x8x64xf32>, %l: tensor<3x2x8x9xf32>) {
  // expected-error @below {{expected o's element type to be f16, bf16 or f32, got 'f64'}}
  %r = flash.combine %p, %l : tensor<3x2x9x8x64xf32>, tensor<3x2x8x9xf32> -> tensor<2x9x8x64xf64>
  return
}
// -----
func.func @f(%p: tensor<3x2x9x8x64xf32>, %l: tensor<3x2x8x9xf32>) {
  // expected-error @below {{expected o's batch (1) to equal o_partial's (2)}}
  %r = flash.combine %p, %l : tensor<3x2x9x8x64xf32>, tensor<3x2x8x9xf32> -> tensor<1x9x8x64xf16>
  return
}
// -----
func.func @f(%p: tensor<3x2x9x8x64xf32>, %l: tensor<3x2x8x9xf32>) {
  // expected-error @below {{expected o's head size (32) to equal o_partial's (64)}}
  %r = flash.combine %p, %l : tensor<3x2x9x8x64xf32>, tensor<3x2x8x9xf32> -> tensor<2x9x8x32xf16>
  return
}
// -----
func.func @f(%p: tensor<3x2x9x8x64xf32>, %l: tensor<3x2x8x9xf32>) {
  // expected-error @below {{expected lse of rank 3 (batch x heads x length), got rank 4}}
  %r:2 = flash.combine %p, %l : tensor<3x2x9x8x64xf32>, tensor<3x2x8x9xf32> -> tensor<2x9x8x64xf16>, tensor<3x2x8x9xf32>
  return
}
// -----
func.func @f(%p: tensor<3x2x9x8x64xf32>, %l: tensor<3x2x8x9xf32>) {
  // expected-error @below {{expected lse's element type to be 'f32', got 'f16'}}
  %r:2 = flash.combine %p, %l : tensor<3x2x9x8x64xf32>, tensor<3x2x8x9xf32> -> tensor<2x9x8x64xf16>, tensor<2x8x9xf16>
  return
}
// -----
func.func @f(%p: tensor<3x2x9x8x64xf32>, %l: tensor<3x2x8x9xf32>) {
  // expected-error @below {{expected lse's length (8) to equal lse_partial's (9)}}
  %r:2 = flash.combine %p, %l : tensor<3x2x9x8x64xf32>, tensor<3x2x8x9xf32> -> tensor<2x9x8x64xf16>, tensor<2x8x8xf32>
  return
}
// -----
func.func @f(%p: tensor<3x2x9x8x64xf32>, %l: tensor<3x2x8x9xf32>, %s: tensor<4xf32>) {
  // expected-error @below {{expected sink's heads (4) to equal o_partial's (8)}}
  %r = flash.combine %p, %l sink(%s : tensor<4xf32>) : tensor<3x2x9x8x64xf32>, tensor<3x2x8x9xf32> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%p: memref<3x2x9x8x64xf32>, %l: memref<3x2x8x9xf32>, %s: tensor<8xf32>, %o0: memref<2x9x8x64xf16>) {
  // expected-error @below {{expected sink to be a memref as o_partial is, got 'tensor<8xf32>'}}
  flash.combine %p, %l sink(%s : tensor<8xf32>) outs(%o0 : memref<2x9x8x64xf16>) : memref<3x2x9x8x64xf32>, memref<3x2x8x9xf32>
  return
}
// -----
func.func @f(%p: tensor<3x2x9x8x64xf32>, %l: tensor<3x2x8x9xf32>) {
  // expected-error @below {{expected o and optionally lse as results, got 0}}
  flash.combine %p, %l : tensor<3x2x9x8x64xf32>, tensor<3x2x8x9xf32>
  return
}
// -----
func.func @f(%p: memref<3x9x8x64xf32>, %l: memref<3x8x9xf32>, %s: memref<4x3xi32>, %o: memref<9x8x64xf16>) {
  // expected-error @below {{expected cu_seqlens_q and max_seqlen_q of packed parts, and of no other}}
  flash.combine %p, %l schedule(%s : memref<4x3xi32>) outs(%o : memref<9x8x64xf16>) : memref<3x9x8x64xf32>, memref<3x8x9xf32>
  return
}
// -----
func.func @f(%p: memref<3x2x9x8x64xf32>, %l: memref<3x2x8x9xf32>, %s: memref<3xi32>, %o: memref<2x9x8x64xf16>) {
  // expected-error @below {{expected schedule of rank 2 (4 x batch + 1), got rank 1}}
  flash.combine %p, %l schedule(%s : memref<3xi32>) outs(%o : memref<2x9x8x64xf16>) : memref<3x2x9x8x64xf32>, memref<3x2x8x9xf32>
  return
}
// -----
func.func @f(%p: tensor<3x9x8x64xf32>, %l: tensor<3x8x9xf32>) {
  // expected-error @below {{expected cu_seqlens_q and max_seqlen_q of packed parts, and of no other}}
  %r = flash.combine %p, %l : tensor<3x9x8x64xf32>, tensor<3x8x9xf32> -> tensor<9x8x64xf16>
  return
}
// -----
func.func @f(%p: tensor<3x2x9x8x64xf32>, %l: tensor<3x2x8x9xf32>, %u: tensor<2x2xi32>) {
  // expected-error @below {{expected seqused_q of rank 1 (batch), got rank 2}}
  %r = flash.combine %p, %l seqused_q(%u : tensor<2x2xi32>) : tensor<3x2x9x8x64xf32>, tensor<3x2x8x9xf32> -> tensor<2x9x8x64xf16>
  return
}
