// RUN: flash-opt %s --convert-flash-tile-to-loops --split-input-file --verify-diagnostics

// expected-error @+1 {{needs a body of one block and no results to become loops}}
func.func private @declared(memref<?x?x?x8xf32>) attributes {flash.kernel}

// -----

func.func @wide(%x: f64) attributes {flash.kernel} {
  // expected-error @+1 {{needs f16, bf16 or f32 elements to become loops}}
  %f = flash_tile.splat %x : f64 -> !flash_tile.frag<4x4xf64>
  return
}

// -----

func.func @strange(%x: f32, %n: index) attributes {flash.kernel} {
  // expected-error @+1 {{has no meaning as loops around tile ops or their values; use scf.for and scf.if}}
  scf.execute_region {
    %f = flash_tile.splat %x : f32 -> !flash_tile.frag<4x4xf32>
    scf.yield
  }
  return
}

// -----

func.func @vectorless(%x: f32) attributes {flash.kernel} {
  %f = flash_tile.splat %x : f32 -> !flash_tile.frag<4x4xf32>
  %g = flash_tile.map %f : !flash_tile.frag<4x4xf32> -> !flash_tile.frag<4x4xf32> {
  ^bb0(%e: f32):
    // expected-error @+1 {{has no vector form, which flash_tile.map needs as loops}}
    %c = complex.create %e, %e : complex<f32>
    flash_tile.yield %e : f32
  }
  return
}

// -----

func.func @nested(%k: memref<?x?x?x8xf32>, %go: i1) attributes {flash.kernel} {
  scf.if %go {
    // expected-error @+1 {{needs to stand in the kernel's own block to become loops}}
    %v = flash_tile.view %k : memref<?x?x?x8xf32> -> !flash_tile.view<8xf32>
  }
  return
}

// -----

func.func @crowd() attributes {flash.kernel} {
  // expected-error @+1 {{has 1000 instances of copier, loops run at most 64}}
  flash_tile.roles [#flash_tile.role<"copier", instances = 1000, warps = 1, registers = 24, units = [copy]>] {
  ^bb0(%w: index):
    flash_tile.yield
  }
  return
}
