// What the sizes of an append demand of each other.
// RUN: flash-opt %s --split-input-file --verify-diagnostics

func.func @f(%n: memref<2x3x4x64xf16>, %u: memref<2xi32>, %t: memref<2x5xi32>, %k: memref<6x8x4x64xf16>, %v: memref<5x8x4x64xf16>) {
  // expected-error @below {{expected v's pages (5) to equal k's (6)}}
  flash.append %n, %n seqused_k(%u : memref<2xi32>) page_table(%t : memref<2x5xi32>) outs(%k, %v : memref<6x8x4x64xf16>, memref<5x8x4x64xf16>) : memref<2x3x4x64xf16>, memref<2x3x4x64xf16>
  return
}
// -----
func.func @f(%n: memref<2x3x4x64xf16>, %u: memref<2xi32>, %t: memref<2x5xi32>, %k: memref<6x8x4x64xf16>, %v: memref<6x4x4x64xf16>) {
  // expected-error @below {{expected v's page size (4) to equal k's (8)}}
  flash.append %n, %n seqused_k(%u : memref<2xi32>) page_table(%t : memref<2x5xi32>) outs(%k, %v : memref<6x8x4x64xf16>, memref<6x4x4x64xf16>) : memref<2x3x4x64xf16>, memref<2x3x4x64xf16>
  return
}
// -----
func.func @f(%n: memref<2x3x4x64xf16>, %u: memref<2xi32>, %t: memref<2x5xi32>, %k: memref<6x0x4x64xf16>) {
  // expected-error @below {{expected pages of at least 1 row, got 0}}
  flash.append %n, %n seqused_k(%u : memref<2xi32>) page_table(%t : memref<2x5xi32>) outs(%k, %k : memref<6x0x4x64xf16>, memref<6x0x4x64xf16>) : memref<2x3x4x64xf16>, memref<2x3x4x64xf16>
  return
}
// -----
func.func @f(%n: memref<2x3x4x64xf16>, %u: memref<2xi32>, %k: memref<2x8x4x64xf16>, %v: memref<2x9x4x64xf16>) {
  // expected-error @below {{expected v's length (9) to equal k's (8)}}
  flash.append %n, %n seqused_k(%u : memref<2xi32>) outs(%k, %v : memref<2x8x4x64xf16>, memref<2x9x4x64xf16>) : memref<2x3x4x64xf16>, memref<2x3x4x64xf16>
  return
}
// -----
func.func @f(%n: memref<2x3x4x64xf16>, %u: memref<2xi32>, %k: memref<3x8x4x64xf16>) {
  // expected-error @below {{expected k's batch (3) to equal k_new's (2)}}
  flash.append %n, %n seqused_k(%u : memref<2xi32>) outs(%k, %k : memref<3x8x4x64xf16>, memref<3x8x4x64xf16>) : memref<2x3x4x64xf16>, memref<2x3x4x64xf16>
  return
}
// -----
func.func @f(%n: memref<2x3x4x12xf16>, %u: memref<2xi32>, %k: memref<2x8x4x12xf16>) {
  // expected-error @below {{expected k_new's head size (12) to be a multiple of 8 from 8 to 256, or 512}}
  flash.append %n, %n seqused_k(%u : memref<2xi32>) outs(%k, %k : memref<2x8x4x12xf16>, memref<2x8x4x12xf16>) : memref<2x3x4x12xf16>, memref<2x3x4x12xf16>
  return
}
// -----
func.func @f(%n: memref<2x3x4x64xf16>, %u: memref<2xi32>, %k: memref<2x8x4x64xf16>, %c: memref<8x32xf16>, %s: memref<7x32xf16>) {
  // expected-error @below {{expected sin's positions (7) to equal cos's (8)}}
  flash.append %n, %n seqused_k(%u : memref<2xi32>) rotary(%c, %s : memref<8x32xf16>, memref<7x32xf16>) outs(%k, %k : memref<2x8x4x64xf16>, memref<2x8x4x64xf16>) : memref<2x3x4x64xf16>, memref<2x3x4x64xf16>
  return
}
// -----
func.func @f(%n: memref<2x3x4x64xf16>, %u: memref<2xi32>, %k: memref<2x8x4x64xf16>, %c: memref<8x32xf16>, %q: memref<5x1x8x64xf16>) {
  // expected-error @below {{expected q's batch (5) to equal k_new's (2)}}
  flash.append %n, %n seqused_k(%u : memref<2xi32>) rotary(%c, %c : memref<8x32xf16>, memref<8x32xf16>) q(%q : memref<5x1x8x64xf16>) outs(%k, %k, %q : memref<2x8x4x64xf16>, memref<2x8x4x64xf16>, memref<5x1x8x64xf16>) : memref<2x3x4x64xf16>, memref<2x3x4x64xf16>
  return
}
// -----
func.func @f(%n: memref<2x3x4x64xf16>, %u: memref<2xi32>, %k: memref<2x8x4x64xf16>, %c: memref<8x32xf16>, %q: memref<5x8x64xf16>, %e: memref<5xi32>, %i: index) {
  // expected-error @below {{expected cu_seqlens_q's batch (4) to equal k_new's (2)}}
  flash.append %n, %n seqused_k(%u : memref<2xi32>) rotary(%c, %c : memref<8x32xf16>, memref<8x32xf16>) q(%q : memref<5x8x64xf16>) cu_seqlens_q(%e : memref<5xi32>) max_seqlen_q %i outs(%k, %k, %q : memref<2x8x4x64xf16>, memref<2x8x4x64xf16>, memref<5x8x64xf16>) : memref<2x3x4x64xf16>, memref<2x3x4x64xf16>
  return
}
// -----
func.func @f(%n: memref<?x3x4x64xf16>, %u: memref<?xi32>, %k: memref<?x8x4x64xf16>, %c: memref<8x32xf16>, %q: memref<5x8x64xf16>, %e: memref<0xi32>, %i: index) {
  // expected-error @below {{expected cu_seqlens_q of batch + 1 elements, got 0}}
  flash.append %n, %n seqused_k(%u : memref<?xi32>) rotary(%c, %c : memref<8x32xf16>, memref<8x32xf16>) q(%q : memref<5x8x64xf16>) cu_seqlens_q(%e : memref<0xi32>) max_seqlen_q %i outs(%k, %k, %q : memref<?x8x4x64xf16>, memref<?x8x4x64xf16>, memref<5x8x64xf16>) : memref<?x3x4x64xf16>, memref<?x3x4x64xf16>
  return
}
