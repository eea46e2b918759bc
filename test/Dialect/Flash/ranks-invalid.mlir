// Tables without a dimension, which others' sizes are compared with.
// RUN: flash-opt %s --split-input-file --verify-diagnostics

func.func @no_dimension(%q: tensor<9x8x64xf16>, %k: tensor<7x4x64xf16>, %v: tensor<7x4x64xf16>, %c: tensor<i32>, %i: index) {
  // expected-error @below {{expected cu_seqlens_q of rank 1 (batch + 1), got rank 0}}
  %r = flash.attention %q, %k, %v cu_seqlens_q(%c : tensor<i32>) max_seqlen_q %i cu_seqlens_k(%c : tensor<i32>) by <dense> : tensor<9x8x64xf16>, tensor<7x4x64xf16>, tensor<7x4x64xf16> -> tensor<9x8x64xf16>
  return
}

// -----

func.func @no_dimension_beside_caches(%q: tensor<9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>, %c: tensor<i32>, %i: index) {
  // expected-error @below {{expected cu_seqlens_q of rank 1 (batch + 1), got rank 0}}
  %r = flash.attention %q, %k, %v cu_seqlens_q(%c : tensor<i32>) max_seqlen_q %i by <dense> : tensor<9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x7x4x64xf16> -> tensor<9x8x64xf16>
  return
}

// -----

func.func @no_dimension_of_others(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>, %c: tensor<i32>) {
  // expected-error @below {{expected seqused_k of rank 1 (batch), got rank 0}}
  %r = flash.attention %q, %k, %v seqused_k(%c : tensor<i32>) by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x7x4x64xf16> -> tensor<2x9x8x64xf16>
  return
}

// -----

func.func @gradients(%q: tensor<9x8x64xf16>, %l: tensor<8x9xf32>, %c: tensor<i32>) {
  // expected-error @below {{expected cu_seqlens_q of rank 1 (batch + 1), got rank 0}}
  %r:3 = flash.attention_backward %q, %q, %q, %q, %l, %q cu_seqlens_q(%c : tensor<i32>) cu_seqlens_k(%c : tensor<i32>) by <dense> : tensor<9x8x64xf16>, tensor<9x8x64xf16>, tensor<9x8x64xf16>, tensor<9x8x64xf16>, tensor<8x9xf32>, tensor<9x8x64xf16> -> tensor<9x8x64xf16>, tensor<9x8x64xf16>, tensor<9x8x64xf16>
  return
}
