// What attention demands of its operands together: element types and sizes as far as they are known.
// RUN: flash-opt %s --split-input-file --verify-diagnostics

func.func @f(%q: tensor<2x9x8x64xf64>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>) {
  // expected-error @below {{expected q's element type to be f16, bf16 or f32, got 'f64'}}
  %r = flash.attention %q, %k, %v by <dense> : tensor<2x9x8x64xf64>, tensor<2x7x4x64xf16>, tensor<2x7x4x64xf16> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xbf16>, %v: tensor<2x7x4x64xbf16>) {
  // expected-error @below {{expected k's element type to be 'f16' as q's, got 'bf16'}}
  %r = flash.attention %q, %k, %v by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xbf16>, tensor<2x7x4x64xbf16> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x4x64xi16>) {
  // expected-error @below {{expected v's element type to be 'f16' as q's, got 'i16'}}
  %r = flash.attention %q, %k, %v by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x7x4x64xi16> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>) {
  // expected-error @below {{expected o's element type to be 'f16' as q's, got 'f32'}}
  %r = flash.attention %q, %k, %v by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x7x4x64xf16> -> tensor<2x9x8x64xf32>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<1x7x4x64xf16>, %v: tensor<1x7x4x64xf16>) {
  // expected-error @below {{expected k's batch (1) to equal q's (2)}}
  %r = flash.attention %q, %k, %v by <dense> : tensor<2x9x8x64xf16>, tensor<1x7x4x64xf16>, tensor<1x7x4x64xf16> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<3x7x4x64xf16>) {
  // expected-error @below {{expected v's batch (3) to equal q's (2)}}
  %r = flash.attention %q, %k, %v by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<3x7x4x64xf16> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x8x4x64xf16>) {
  // expected-error @below {{expected v's length (8) to equal k's (7)}}
  %r = flash.attention %q, %k, %v by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x8x4x64xf16> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x2x64xf16>) {
  // expected-error @below {{expected v's heads (2) to equal k's (4)}}
  %r = flash.attention %q, %k, %v by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x7x2x64xf16> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x128xf16>, %v: tensor<2x7x4x128xf16>) {
  // expected-error @below {{expected k's head size (128) to equal q's (64)}}
  %r = flash.attention %q, %k, %v by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x128xf16>, tensor<2x7x4x128xf16> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x3x64xf16>, %v: tensor<2x7x3x64xf16>) {
  // expected-error @below {{expected q's heads (8) to be a multiple of k's (3)}}
  %r = flash.attention %q, %k, %v by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x3x64xf16>, tensor<2x7x3x64xf16> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x0x64xf16>, %v: tensor<2x7x0x64xf16>) {
  // expected-error @below {{expected a number of k's heads from 1 to 2^31 - 1, it is 0}}
  %r = flash.attention %q, %k, %v by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x0x64xf16>, tensor<2x7x0x64xf16> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x20xf16>, %k: tensor<2x7x4x20xf16>, %v: tensor<2x7x4x20xf16>) {
  // expected-error @below {{expected q's head size (20) to be a multiple of 8 from 8 to 256}}
  %r = flash.attention %q, %k, %v by <dense> : tensor<2x9x8x20xf16>, tensor<2x7x4x20xf16>, tensor<2x7x4x20xf16> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x0xf16>, %k: tensor<2x7x4x0xf16>, %v: tensor<2x7x4x0xf16>) {
  // expected-error @below {{expected q's head size (0) to be a multiple of 8 from 8 to 256}}
  %r = flash.attention %q, %k, %v by <dense> : tensor<2x9x8x0xf16>, tensor<2x7x4x0xf16>, tensor<2x7x4x0xf16> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x128xf16>, %k: tensor<2x7x4x128xf16>, %v: tensor<2x7x4x512xf16>) {
  // expected-error @below {{expected v's head size (512) to be a multiple of 8 from 8 to 256, or 512 where q's (128) is 64}}
  %r = flash.attention %q, %k, %v by <dense> : tensor<2x9x8x128xf16>, tensor<2x7x4x128xf16>, tensor<2x7x4x512xf16> -> tensor<2x9x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>) {
  // expected-error @below {{expected o's batch (1) to equal q's (2)}}
  %r = flash.attention %q, %k, %v by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x7x4x64xf16> -> tensor<1x9x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>) {
  // expected-error @below {{expected o's length (8) to equal q's (9)}}
  %r = flash.attention %q, %k, %v by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x7x4x64xf16> -> tensor<2x8x8x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>) {
  // expected-error @below {{expected o's heads (4) to equal q's (8)}}
  %r = flash.attention %q, %k, %v by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x7x4x64xf16> -> tensor<2x9x4x64xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>) {
  // expected-error @below {{expected o's head size (32) to equal v's (64)}}
  %r = flash.attention %q, %k, %v by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x7x4x64xf16> -> tensor<2x9x8x32xf16>
  return
}
// -----
func.func @f(%q: tensor<2x9x8x64xf16>, %k: tensor<2x7x4x64xf16>, %v: tensor<2x7x4x64xf16>) {
  // expected-error @below {{expected num_splits from 1 to 65535, or 0 for the planner's choice, it is 65536}}
  %r = flash.attention %q, %k, %v by <dense> {plan = #flash.plan<splits = 65536>} : tensor<2x9x8x64xf16>, tensor<2x7x4x64xf16>, tensor<2x7x4x64xf16> -> tensor<2x9x8x64xf16>
  return
}
