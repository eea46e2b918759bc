// What attention demands of lse, sink, parts and scalars.
// RUN: flash-opt %s --split-input-file --verify-diagnostics

func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>) {
  // expected-error @below {{expected o of rank 4 (batch x length x heads x head size, or splits before them), got rank 3}}
  %r = flash.attention %q, %k, %v by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x7x4x64xf16> -> tensor<9x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>) {
  // expected-error @below {{expected lse of rank 3 (batch x heads x length), got rank 2}}
  %r:2 = flash.attention %q, %k, %v by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x7x4x64xf16> -> tensor<2x9x8x64xf16>, tensor<8x9xf32>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>) {
  // expected-error @below {{expected lse's element type to be 'f32', got 'f16'}}
  %r:2 = flash.attention %q, %k, %v by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x7x4x64xf16> -> tensor<2x9x8x64xf16>, tensor<2x8x9xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>) {
  // expected-error @below {{expected lse's batch (1) to equal q's (2)}}
  %r:2 = flash.attention %q, %k, %v by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x7x4x64xf16> -> tensor<2x9x8x64xf16>, tensor<1x8x9xf32>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>) {
  // expected-error @below {{expected lse's heads (9) to equal q's (8)}}
  %r:2 = flash.attention %q, %k, %v by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x7x4x64xf16> -> tensor<2x9x8x64xf16>, tensor<2x9x8xf32>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>) {
  // expected-error @below {{expected lse's length (7) to equal q's (9)}}
  %r:2 = flash.attention %q, %k, %v by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x7x4x64xf16> -> tensor<2x9x8x64xf16>, tensor<2x8x7xf32>
  return
}
// -----
func.func @f(%q: memref<2x9x8x64xf16>, %k: memref<2x7x4x64xf16>, %v: memref<2x7x4x64xf16>, %o0: memref<2x9x8x64xf16>, %o1: memref<2x8x9xf32, affine_map<(a, b, c) -> (a floordiv 2, b, c)>>) {
  // expected-error @below {{expected lse to be a strided memref, got}}
  flash.attention %q, %k, %v outs(%o0, %o1 : memref<2x9x8x64xf16>, memref<2x8x9xf32, affine_map<(a, b, c) -> (a floordiv 2, b, c)>>) by <dense> : memref<2x9x8x64xf16>, memref<2x7x4x64xf16>, memref<2x7x4x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>, %s: tensor<1x8xf32>) {
  // expected-error @below {{expected sink of rank 1 (heads), got rank 2}}
  %r = flash.attention %q, %k, %v sink(%s : tensor<1x8xf32>) by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x7x4x64xf16> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>, %s: tensor<8xf16>) {
  // expected-error @below {{expected sink's element type to be 'f32', got 'f16'}}
  %r = flash.attention %q, %k, %v sink(%s : tensor<8xf16>) by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x7x4x64xf16> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>, %s: tensor<4xf32>) {
  // expected-error @below {{expected sink's heads (4) to equal q's (8)}}
  %r = flash.attention %q, %k, %v sink(%s : tensor<4xf32>) by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x7x4x64xf16> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>) {
  // expected-error @below {{expected o's element type to be 'f32' for partial results, got 'f16'}}
  %r:2 = flash.attention %q, %k, %v by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x7x4x64xf16> -> tensor<3x2x9x8x64xf16>, tensor<3x2x8x9xf32>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>) {
  // expected-error @below {{expected lse besides a partial o: without it the parts cannot be joined}}
  %r = flash.attention %q, %k, %v by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x7x4x64xf16> -> tensor<3x2x9x8x64xf32>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>) {
  // expected-error @below {{expected lse of rank 4 (splits x batch x heads x length), got rank 3}}
  %r:2 = flash.attention %q, %k, %v by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x7x4x64xf16> -> tensor<3x2x9x8x64xf32>, tensor<2x8x9xf32>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>) {
  // expected-error @below {{expected lse's splits (2) to equal o's (3)}}
  %r:2 = flash.attention %q, %k, %v by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x7x4x64xf16> -> tensor<3x2x9x8x64xf32>, tensor<2x2x8x9xf32>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>) {
  // expected-error @below {{expected o's splits (3) to equal the plan's (4)}}
  %r:2 = flash.attention %q, %k, %v by <dense> {plan = #flash.plan<splits = 4>} : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x7x4x64xf16> -> tensor<3x2x9x8x64xf32>, tensor<3x2x8x9xf32>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>, %s: tensor<8xf32>) {
  // expected-error @below {{expected no sink with a partial o: each part would count it; give it to flash.combine}}
  %r:2 = flash.attention %q, %k, %v sink(%s : tensor<8xf32>) by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x7x4x64xf16> -> tensor<3x2x9x8x64xf32>, tensor<3x2x8x9xf32>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %x: f16  // expected-note {{prior use here}}
    ) {
  // expected-error @below {{use of value '%x' expects different type than prior uses: 'f32' vs 'f16'}}
  %r = flash.attention %q, %q, %q scale %x by <dense> : tensor<2x9x8x64xf16>, tensor<2x9x8x64xf16>, tensor<2x9x8x64xf16> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>) {
  // expected-error @below {{expected '<'}}
  %r = flash.attention %q, %q, %q by : tensor<2x9x8x64xf16>, tensor<2x9x8x64xf16>, tensor<2x9x8x64xf16> -> tensor<2x9x8x64xf16>
  return
}
