// What a schedule and the tables of a combine demand.
// RUN: flash-opt %s --split-input-file --verify-diagnostics

func.func @f(%q: memref<2x9x8x64xf16>, %k: memref<2x7x4x64xf16>, %s: memref<5x3xi32>, %p: memref<3x2x9x8x64xf32>, %l: memref<3x2x8x9xf32>) {
  // expected-error @below {{expected schedule of 4 rows, got 5}}
  flash.attention %q, %k, %k schedule(%s : memref<5x3xi32>) outs(%p, %l : memref<3x2x9x8x64xf32>, memref<3x2x8x9xf32>) by <dense> : memref<2x9x8x64xf16>, memref<2x7x4x64xf16>, memref<2x7x4x64xf16>
  return
}
// -----
func.func @f(%q: memref<2x9x8x64xf16>, %k: memref<2x7x4x64xf16>, %s: memref<4x2xi32>, %p: memref<3x2x9x8x64xf32>, %l: memref<3x2x8x9xf32>) {
  // expected-error @below {{expected schedule's batch (1) to equal q's (2)}}
  flash.attention %q, %k, %k schedule(%s : memref<4x2xi32>) outs(%p, %l : memref<3x2x9x8x64xf32>, memref<3x2x8x9xf32>) by <dense> : memref<2x9x8x64xf16>, memref<2x7x4x64xf16>, memref<2x7x4x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %s: memref<4x3xi32>) {
  // expected-error @below {{expected no schedule over tensors: a kernel writes it in place}}
  %p, %l = flash.attention %q, %k, %k schedule(%s : memref<4x3xi32>) by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x7x4x64xf16> -> tensor<3x2x9x8x64xf32>, tensor<3x2x8x9xf32>
  return
}
// -----
func.func @f(%p: tensor<3x2x9x8x64xf32>, %l: tensor<3x2x8x9xf32>, %s: memref<4x3xi32>) {
  // expected-error @below {{expected no schedule over tensors: a kernel writes it in place}}
  %o = flash.combine %p, %l schedule(%s : memref<4x3xi32>) : tensor<3x2x9x8x64xf32>, tensor<3x2x8x9xf32> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%p: memref<3x?x8x64xf32>, %l: memref<3x8x?xf32>, %o: memref<?x8x64xf16>, %c: memref<3xi32>, %i: index, %s: memref<4x2xi32>) {
  // expected-error @below {{expected schedule's batch (1) to equal cu_seqlens_q's (2)}}
  flash.combine %p, %l cu_seqlens_q(%c : memref<3xi32>) max_seqlen_q %i schedule(%s : memref<4x2xi32>) outs(%o : memref<?x8x64xf16>) : memref<3x?x8x64xf32>, memref<3x8x?xf32>
  return
}
// -----
func.func @f(%p: memref<3x?x8x64xf32>, %l: memref<3x8x?xf32>, %o: memref<?x8x64xf16>, %c: memref<0xi32>, %i: index) {
  // expected-error @below {{expected cu_seqlens_q of batch + 1 elements, got 0}}
  flash.combine %p, %l cu_seqlens_q(%c : memref<0xi32>) max_seqlen_q %i outs(%o : memref<?x8x64xf16>) : memref<3x?x8x64xf32>, memref<3x8x?xf32>
  return
}
// -----
func.func @f(%p: memref<3x?x8x64xf32>, %l: memref<3x8x?xf32>, %o: memref<?x8x64xf16>, %c: memref<3xi32>, %u: memref<3xi32>, %i: index) {
  // expected-error @below {{expected seqused_q's batch (3) to equal cu_seqlens_q's (2)}}
  flash.combine %p, %l cu_seqlens_q(%c : memref<3xi32>) max_seqlen_q %i seqused_q(%u : memref<3xi32>) outs(%o : memref<?x8x64xf16>) : memref<3x?x8x64xf32>, memref<3x8x?xf32>
  return
}
// -----
func.func @f(%p: memref<3x2x?x8x264xf32>, %l: memref<3x2x8x?xf32>, %o: memref<2x?x8x264xf16>) {
  // expected-error @below {{expected o_partial's head size (264) to be a multiple of 8 from 8 to 256, or 512}}
  flash.combine %p, %l outs(%o : memref<2x?x8x264xf16>) : memref<3x2x?x8x264xf32>, memref<3x2x8x?xf32>
  return
}
