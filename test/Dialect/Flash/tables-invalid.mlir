// What tables, packed parts and append demand.
// RUN: flash-opt %s --split-input-file --verify-diagnostics

func.func @f(%q: tensor<9x8x64xf16>, %k: tensor<7x4x64xf16>, %v: tensor<7x4x64xf16>, %c: tensor<3xi32>, %d: tensor<4xi32>, %i: index) {
  // expected-error @below {{expected cu_seqlens_k's batch (3) to equal cu_seqlens_q's (2)}}
  %r = flash.attention %q, %k, %v cu_seqlens_q(%c : tensor<3xi32>) max_seqlen_q %i cu_seqlens_k(%d : tensor<4xi32>) by <dense> : tensor<9x8x64xf16>, tensor<7x4x64xf16>, tensor<7x4x64xf16> -> tensor<9x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>, %c: tensor<3xi32>, %i: index) {
  // expected-error @below {{expected q of rank 3 (total x heads x head size), got rank 4}}
  %r = flash.attention %q, %k, %v cu_seqlens_q(%c : tensor<3xi32>) max_seqlen_q %i by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x7x4x64xf16> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<9x8x64xf16>, %k: tensor<7x4x64xf16>, %v: tensor<7x4x64xf16>, %c: tensor<3xi32>) {
  // expected-error @below {{expected max_seqlen_q besides cu_seqlens_q: it bounds the tiles}}
  %r = flash.attention %q, %k, %v cu_seqlens_q(%c : tensor<3xi32>) cu_seqlens_k(%c : tensor<3xi32>) by <dense> : tensor<9x8x64xf16>, tensor<7x4x64xf16>, tensor<7x4x64xf16> -> tensor<9x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>, %i: index) {
  // expected-error @below {{expected no max_seqlen_q without cu_seqlens_q: q's length bounds the tiles}}
  %r = flash.attention %q, %k, %v max_seqlen_q %i by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x7x4x64xf16> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<9x8x64xf16>, %k: tensor<7x4x64xf16>, %v: tensor<7x4x64xf16>, %c: tensor<3xi64>, %i: index) {
  // expected-error @below {{expected cu_seqlens_q's element type to be 'i32', got 'i64'}}
  %r = flash.attention %q, %k, %v cu_seqlens_q(%c : tensor<3xi64>) max_seqlen_q %i cu_seqlens_k(%c : tensor<3xi64>) by <dense> : tensor<9x8x64xf16>, tensor<7x4x64xf16>, tensor<7x4x64xf16> -> tensor<9x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<9x8x64xf16>, %k: tensor<7x4x64xf16>, %v: tensor<7x4x64xf16>, %c: tensor<0xi32>, %i: index) {
  // expected-error @below {{expected cu_seqlens_q of batch + 1 elements, got 0}}
  %r = flash.attention %q, %k, %v cu_seqlens_q(%c : tensor<0xi32>) max_seqlen_q %i cu_seqlens_k(%c : tensor<0xi32>) by <dense> : tensor<9x8x64xf16>, tensor<7x4x64xf16>, tensor<7x4x64xf16> -> tensor<9x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>, %c: tensor<3xi32>) {
  // expected-error @below {{expected seqused_k's batch (3) to equal q's (2)}}
  %r = flash.attention %q, %k, %v seqused_k(%c : tensor<3xi32>) by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x7x4x64xf16> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>, %c: memref<2xi32>) {
  // expected-error @below {{expected seqused_q to be a tensor as q is, got 'memref<2xi32>'}}
  %r = flash.attention %q, %k, %v seqused_q(%c : memref<2xi32>) by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x7x4x64xf16> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>, %c: tensor<2x5xi32>) {
  // expected-error @below {{expected seqused_k besides page_table: it says how many rows of the pages count}}
  %r = flash.attention %q, %k, %v page_table(%c : tensor<2x5xi32>) by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x7x4x64xf16> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>, %u: tensor<2xi32>, %c: tensor<3x5xi32>) {
  // expected-error @below {{expected page_table's batch (3) to equal q's (2)}}
  %r = flash.attention %q, %k, %v seqused_k(%u : tensor<2xi32>) page_table(%c : tensor<3x5xi32>) by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x7x4x64xf16> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<3x7x4x64xf16>, %u: tensor<2xi32>, %c: tensor<2x5xi32>) {
  // expected-error @below {{expected v's pages (3) to equal k's (2)}}
  %r = flash.attention %q, %k, %v seqused_k(%u : tensor<2xi32>) page_table(%c : tensor<2x5xi32>) by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<3x7x4x64xf16> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<9x8x64xf16>, %k: tensor<7x4x64xf16>, %v: tensor<7x4x64xf16>, %u: tensor<3xi32>, %c: tensor<2x5xi32>, %i: index) {
  // expected-error @below {{expected cu_seqlens_k or page_table, got both: the lengths of pages are seqused_k}}
  %r = flash.attention %q, %k, %v cu_seqlens_q(%u : tensor<3xi32>) max_seqlen_q %i cu_seqlens_k(%u : tensor<3xi32>) page_table(%c : tensor<2x5xi32>) by <dense> : tensor<9x8x64xf16>, tensor<7x4x64xf16>, tensor<7x4x64xf16> -> tensor<9x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>, %i: index) {
  // expected-error @below {{expected seqused_k besides appended: it says where the cache ends}}
  %r = flash.attention %q, %k, %v appended %i by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x7x4x64xf16> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<5x7x4x64xf16>, %v: tensor<5x7x4x64xf16>) {
  // expected-error @below {{expected k's batch (5) to equal q's (2)}}
  %r = flash.attention %q, %k, %v  by <dense> : tensor<2x9x8x64xf16>, tensor<5x7x4x64xf16>, tensor<5x7x4x64xf16> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%o: memref<3x9x8x64xf32>, %l: memref<3x8x9xf32>, %r: memref<9x8x32xf16>, %c: memref<3xi32>, %n: index) {
  // expected-error @below {{expected o's head size (32) to equal o_partial's (64)}}
  flash.combine %o, %l cu_seqlens_q(%c : memref<3xi32>) max_seqlen_q %n outs(%r : memref<9x8x32xf16>) : memref<3x9x8x64xf32>, memref<3x8x9xf32>
  return
}
// -----
func.func @f(%n: memref<2x3x4x64xf16>, %m: memref<2x3x4x64xf16>, %k: memref<?x?x4x64xf16>, %v: memref<?x?x4x64xf16>, %u: memref<2xi32>) {
  // expected-error @below {{expected outs k and v, got 1}}
  flash.append %n, %m seqused_k(%u : memref<2xi32>)  outs(%k : memref<?x?x4x64xf16>) : memref<2x3x4x64xf16>, memref<2x3x4x64xf16>
  return
}
// -----
func.func @f(%n: memref<2x3x4x64xf16>, %m: memref<2x5x4x64xf16>, %k: memref<?x?x4x64xf16>, %v: memref<?x?x4x64xf16>, %u: memref<2xi32>) {
  // expected-error @below {{expected v_new's length (5) to equal k_new's (3)}}
  flash.append %n, %m seqused_k(%u : memref<2xi32>)  outs(%k, %v : memref<?x?x4x64xf16>, memref<?x?x4x64xf16>) : memref<2x3x4x64xf16>, memref<2x5x4x64xf16>
  return
}
// -----
func.func @f(%n: memref<2x3x4x64xf16>, %m: memref<2x3x4x64xf16>, %k: memref<?x?x2x64xf16>, %v: memref<?x?x2x64xf16>, %u: memref<2xi32>) {
  // expected-error @below {{expected k's heads (2) to equal k_new's (4)}}
  flash.append %n, %m seqused_k(%u : memref<2xi32>)  outs(%k, %v : memref<?x?x2x64xf16>, memref<?x?x2x64xf16>) : memref<2x3x4x64xf16>, memref<2x3x4x64xf16>
  return
}
// -----
func.func @f(%n: memref<2x3x4x64xf16>, %m: memref<2x3x4x64xf16>, %k: memref<?x?x4x64xbf16>, %v: memref<?x?x4x64xbf16>, %u: memref<2xi32>) {
  // expected-error @below {{expected k's element type to be 'f16' as k_new's, got 'bf16'}}
  flash.append %n, %m seqused_k(%u : memref<2xi32>)  outs(%k, %v : memref<?x?x4x64xbf16>, memref<?x?x4x64xbf16>) : memref<2x3x4x64xf16>, memref<2x3x4x64xf16>
  return
}
// -----
func.func @f(%n: memref<2x3x4x64xf16>, %m: memref<2x3x4x64xf16>, %k: memref<?x?x4x64xf16>, %v: memref<?x?x4x64xf16>, %u: memref<3xi32>) {
  // expected-error @below {{expected seqused_k's batch (3) to equal k_new's (2)}}
  flash.append %n, %m seqused_k(%u : memref<3xi32>)  outs(%k, %v : memref<?x?x4x64xf16>, memref<?x?x4x64xf16>) : memref<2x3x4x64xf16>, memref<2x3x4x64xf16>
  return
}
// -----
func.func @f(%n: memref<2x3x4x64xf16>, %m: memref<2x3x4x64xf16>, %k: memref<?x?x4x64xf16>, %v: memref<?x?x4x64xf16>, %u: memref<2xi32>, %q: memref<2x5x8x64xf16>) {
  // expected-error @below {{expected cos and sin besides q: they are what turns it}}
  flash.append %n, %m seqused_k(%u : memref<2xi32>) q(%q : memref<2x5x8x64xf16>) outs(%k, %v, %q : memref<?x?x4x64xf16>, memref<?x?x4x64xf16>, memref<2x5x8x64xf16>) : memref<2x3x4x64xf16>, memref<2x3x4x64xf16>
  return
}
// -----
func.func @f(%n: memref<2x3x4x64xf16>, %m: memref<2x3x4x64xf16>, %k: memref<?x?x4x64xf16>, %v: memref<?x?x4x64xf16>, %u: memref<2xi32>, %c: memref<?x48xf16>) {
  // expected-error @below {{expected cos to turn at most k_new's head size (64), got 96}}
  flash.append %n, %m seqused_k(%u : memref<2xi32>) rotary(%c, %c : memref<?x48xf16>, memref<?x48xf16>) outs(%k, %v : memref<?x?x4x64xf16>, memref<?x?x4x64xf16>) : memref<2x3x4x64xf16>, memref<2x3x4x64xf16>
  return
}
// -----
func.func @f(%n: memref<2x3x4x64xf16>, %m: memref<2x3x4x64xf16>, %k: memref<?x?x4x64xf16>, %v: memref<?x?x4x64xf16>, %u: memref<2xi32>, %c: memref<?x32xf16>, %s: memref<?x16xf16>) {
  // expected-error @below {{expected sin's pairs (16) to equal cos's (32)}}
  flash.append %n, %m seqused_k(%u : memref<2xi32>) rotary(%c, %s : memref<?x32xf16>, memref<?x16xf16>) outs(%k, %v : memref<?x?x4x64xf16>, memref<?x?x4x64xf16>) : memref<2x3x4x64xf16>, memref<2x3x4x64xf16>
  return
}
// -----
func.func @f(%n: memref<2x3x4x64xf16>, %m: memref<2x3x4x64xf16>, %k: memref<?x?x4x64xf16>, %v: memref<?x?x4x64xf16>, %u: memref<2xi32>, %c: memref<?x32xf16>, %q: memref<2x5x8x32xf16>) {
  // expected-error @below {{expected q's head size (32) to equal k_new's (64)}}
  flash.append %n, %m seqused_k(%u : memref<2xi32>) rotary(%c, %c : memref<?x32xf16>, memref<?x32xf16>) q(%q : memref<2x5x8x32xf16>) outs(%k, %v, %q : memref<?x?x4x64xf16>, memref<?x?x4x64xf16>, memref<2x5x8x32xf16>) : memref<2x3x4x64xf16>, memref<2x3x4x64xf16>
  return
}
// -----
func.func @f(%q: memref<2x1x8x64xf16>, %k: memref<2x9x2x64xf16>, %used: memref<2xi32>, %s: memref<4x3xi32>) {
  // expected-error @below {{expected a schedule with a partial o: it says how many parts there are}}
  flash.attention %q, %k, %k seqused_k(%used : memref<2xi32>) schedule(%s : memref<4x3xi32>) outs(%q : memref<2x1x8x64xf16>) by <dense>
      : memref<2x1x8x64xf16>, memref<2x9x2x64xf16>, memref<2x9x2x64xf16>
  return
}
