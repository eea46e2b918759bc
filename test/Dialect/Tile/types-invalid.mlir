// RUN: flash-opt %s --split-input-file --verify-diagnostics

// expected-error @below {{view needs 1 sizes, has 2}}
func.func private @f(!flash_tile.view<4x4xf32>)
// -----
// expected-error @below {{ring needs 3 sizes, has 2}}
func.func private @f(!flash_tile.ring<4x4xf32>)
// -----
// expected-error @below {{tile needs 2 sizes, has 0}}
func.func private @f(!flash_tile.tile<f32>)
// -----
// expected-error @below {{frag needs 2 sizes, has 3}}
func.func private @f(!flash_tile.frag<4x4x4xf32>)
// -----
// expected-error @below {{flight needs 2 sizes, has 1}}
func.func private @f(!flash_tile.flight<4xf32>)
// -----
// expected-error @below {{frag needs positive sizes, has 0}}
func.func private @f(!flash_tile.frag<4x0xf32>)
// -----
// expected-error @below {{tile needs a float element type, has 'i8'}}
func.func private @f(!flash_tile.tile<4x4xi8>)
// -----
// expected-error @below {{tile needs at most 2147483647 elements}}
func.func private @f(!flash_tile.tile<4294967296x4294967296xf16>)
// -----
// expected-error @below {{expected static shape}}
func.func private @f(!flash_tile.tile<?x4xf16>)
// -----
// expected-error @below {{expected non-function type}}
func.func private @f(!flash_tile.tile<4x>)
// -----
// expected-error @+2 {{expected one of [any, copy, tensor, vector, turn] for who may execute an op, got: scalar}}
// expected-error @+1 {{failed to parse RoleAttr parameter 'units'}}
func.func private @f() attributes {r = #flash_tile.role<"a", instances = 1, warps = 4, registers = 24, units = [scalar]>}
