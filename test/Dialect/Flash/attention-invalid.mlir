// What attention demands of its operands one by one.
// RUN: flash-opt %s --split-input-file --verify-diagnostics

func.func @f(%q: tensor<2x9x8x64xf16>, %k: memref<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>) {
  // expected-error @below {{expected k to be a tensor as q is, got 'memref<2x7x4x64xf16>'}}
  %r = flash.attention %q, %k, %v by <dense> : tensor<2x9x8x64xf16>, memref<2x7x4x64xf16>, tensor<2x7x4x64xf16> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%q: memref<2x9x8x64xf16>, %k: memref<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>, %o0: memref<2x9x8x64xf16>) {
  // expected-error @below {{expected v to be a memref as q is, got 'tensor<2x7x4x64xf16>'}}
  flash.attention %q, %k, %v outs(%o0 : memref<2x9x8x64xf16>) by <dense> : memref<2x9x8x64xf16>, memref<2x7x4x64xf16>, tensor<2x7x4x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>, %s: memref<8xf32>) {
  // expected-error @below {{expected sink to be a tensor as q is, got 'memref<8xf32>'}}
  %r = flash.attention %q, %k, %v sink(%s : memref<8xf32>) by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x7x4x64xf16> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>, %o0: memref<2x9x8x64xf16>) {
  // expected-error @below {{expected results instead of outs over tensors}}
  flash.attention %q, %k, %v outs(%o0 : memref<2x9x8x64xf16>) by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x7x4x64xf16>
  return
}
// -----
func.func @f(%q: memref<2x9x8x64xf16>, %k: memref<2x7x4x64xf16>, %v: memref<2x7x4x64xf16>) {
  // expected-error @below {{expected outs instead of results over memrefs}}
  %r = flash.attention %q, %k, %v by <dense> : memref<2x9x8x64xf16>, memref<2x7x4x64xf16>, memref<2x7x4x64xf16> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>) {
  // expected-error @below {{expected o and optionally lse as results, got 0}}
  flash.attention %q, %k, %v by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x7x4x64xf16>
  return
}
// -----
func.func @f(%q: memref<2x9x8x64xf16>, %k: memref<2x7x4x64xf16>, %v: memref<2x7x4x64xf16>, %o0: memref<2x9x8x64xf16>, %o1: memref<2x8x9xf32>, %o2: memref<2x8x9xf32>) {
  // expected-error @below {{expected o and optionally lse as outs, got 3}}
  flash.attention %q, %k, %v outs(%o0, %o1, %o2 : memref<2x9x8x64xf16>, memref<2x8x9xf32>, memref<2x8x9xf32>) by <dense> : memref<2x9x8x64xf16>, memref<2x7x4x64xf16>, memref<2x7x4x64xf16>
  return
}
// -----
func.func @f(%q: tensor<9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>) {
  // expected-error @below {{expected q of rank 4 (batch x length x heads x head size), got rank 3}}
  %r = flash.attention %q, %k, %v by <dense> : tensor<9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x7x4x64xf16> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<1x2x7x4x64xf16>, %v: tensor<1x2x7x4x64xf16>) {
  // expected-error @below {{expected k of rank 4 (batch x length x kv heads x head size), got rank 5}}
  %r = flash.attention %q, %k, %v by <dense> : tensor<2x9x8x64xf16>, tensor<1x2x7x4x64xf16>, tensor<1x2x7x4x64xf16> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<f16>) {
  // expected-error @below {{expected v of rank 4 (batch x length x kv heads x head size), got rank 0}}
  %r = flash.attention %q, %k, %v by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<f16> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%q: memref<*xf16>, %k: memref<2x7x4x64xf16>, %v: memref<2x7x4x64xf16>, %o0: memref<2x9x8x64xf16>) {
  // expected-error @below {{operand #0 must be tensor or memref, but got 'memref<*xf16>'}}
  flash.attention %q, %k, %v outs(%o0 : memref<2x9x8x64xf16>) by <dense> : memref<*xf16>, memref<2x7x4x64xf16>, memref<2x7x4x64xf16>
  return
}
// -----
func.func @f(%q: memref<2x9x8x64xf16, strided<[9216, 1024, 128, 2]>>, %k: memref<2x7x4x64xf16>, %v: memref<2x7x4x64xf16>, %o0: memref<2x9x8x64xf16>) {
  // expected-error @below {{expected q's last dimension to be contiguous, its stride is 2}}
  flash.attention %q, %k, %v outs(%o0 : memref<2x9x8x64xf16>) by <dense> : memref<2x9x8x64xf16, strided<[9216, 1024, 128, 2]>>, memref<2x7x4x64xf16>, memref<2x7x4x64xf16>
  return
}
// -----
func.func @f(%q: memref<2x9x8x64xf16>, %k: memref<2x7x4x64xf16>, %v: memref<2x7x4x64xf16, strided<[?, ?, ?, ?], offset: ?>>, %o0: memref<2x9x8x64xf16>) {
  // expected-error @below {{expected v's last dimension to be contiguous, its stride is unknown}}
  flash.attention %q, %k, %v outs(%o0 : memref<2x9x8x64xf16>) by <dense> : memref<2x9x8x64xf16>, memref<2x7x4x64xf16>, memref<2x7x4x64xf16, strided<[?, ?, ?, ?], offset: ?>>
  return
}
// -----
func.func @f(%q: memref<2x9x8x64xf16>, %k: memref<2x7x4x64xf16>, %v: memref<2x7x4x64xf16>, %o0: memref<2x9x8x64xf16, strided<[9216, 1024, 128, 2]>>) {
  // expected-error @below {{expected o's last dimension to be contiguous, its stride is 2}}
  flash.attention %q, %k, %v outs(%o0 : memref<2x9x8x64xf16, strided<[9216, 1024, 128, 2]>>) by <dense> : memref<2x9x8x64xf16>, memref<2x7x4x64xf16>, memref<2x7x4x64xf16>
  return
}
// -----
func.func @f(%q: memref<2x9x8x64xf16>, %k: memref<2x7x4x64xf16, affine_map<(a, b, c, d) -> (a floordiv 2, b, c, d)>>, %v: memref<2x7x4x64xf16>, %o0: memref<2x9x8x64xf16>) {
  // expected-error @below {{expected k to be a strided memref, got 'memref<2x7x4x64xf16, affine_map<(d0, d1, d2, d3) -> (d0 floordiv 2, d1, d2, d3)>>'}}
  flash.attention %q, %k, %v outs(%o0 : memref<2x9x8x64xf16>) by <dense> : memref<2x9x8x64xf16>, memref<2x7x4x64xf16, affine_map<(a, b, c, d) -> (a floordiv 2, b, c, d)>>, memref<2x7x4x64xf16>
  return
}
// -----
func.func @f(%q: memref<2x9x8x64xf16>, %k: memref<2x7x4x64xf16, 3>, %v: memref<2x7x4x64xf16, 3>, %o0: memref<2x9x8x64xf16>) {
  // expected-error @below {{expected k in the default memory space, got 'memref<2x7x4x64xf16, 3>'}}
  flash.attention %q, %k, %v outs(%o0 : memref<2x9x8x64xf16>) by <dense> : memref<2x9x8x64xf16>, memref<2x7x4x64xf16, 3>, memref<2x7x4x64xf16, 3>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16, "packed">, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>) {
  // expected-error @below {{expected q without an encoding, got}}
  %r = flash.attention %q, %k, %v by <dense> : tensor<2x9x8x64xf16, "packed">, tensor<2x7x4x64xf16>, tensor<2x7x4x64xf16> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x?xf16>, %v: tensor<2x7x4x?xf16>) {
  // expected-error @below {{expected k's head size to be known when compiling}}
  %r = flash.attention %q, %k, %v by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x?xf16>, tensor<2x7x4x?xf16> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>) {
  // expected-error @below {{expected o's head size to be known when compiling}}
  %r = flash.attention %q, %k, %v by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x7x4x64xf16> -> tensor<2x9x8x?xf16>
  return
}
