// RUN: flash-opt %s --convert-flash-tile-to-nvvm --split-input-file --verify-diagnostics

// expected-error @+1 {{kernel needs flash.threads and flash.shared_bytes; run flash-tile-assign first}}
func.func @assign() attributes {flash.kernel, flash.target = #flash.target<"sm_90a">} {
  return
}

// -----

// expected-error @+1 {{no code for cpu: convert-flash-tile-to-nvvm knows GPUs, sm_80 to sm_90a}}
func.func @target() attributes {flash.kernel, flash.target = #flash.target<"cpu">, flash.threads = 128 : i64, flash.shared_bytes = 0 : i64} {
  return
}

// -----

func.func @ring() attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.threads = 128 : i64, flash.shared_bytes = 0 : i64} {
  // expected-error @+1 {{ring needs offset and barriers; run flash-tile-assign first}}
  %r = flash_tile.ring "k" : <2x64x64xbf16>
  return
}

// -----

func.func @wide() attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.threads = 128 : i64, flash.shared_bytes = 0 : i64} {
  // expected-error @+1 {{a ring of other than 16-bit elements is not built for sm_90a}}
  %r = flash_tile.ring "k" {offset = 0 : i64, barriers = 0 : i64} : <2x64x64xf32>
  return
}

// -----

func.func @packed(%q: memref<?x?x?x64xbf16>, %pages: memref<?x24x?x64xbf16>, %used: memref<?xi32>, %table: memref<?x?xi32>, %i: index)
    attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.threads = 128 : i64, flash.shared_bytes = 0 : i64} {
  %a = flash_tile.view %q {group = 3} : memref<?x?x?x64xbf16> -> <64xbf16>
  %b = flash_tile.view %pages seqused(%used : memref<?xi32>) page_table(%table : memref<?x?xi32>) : memref<?x24x?x64xbf16> -> <64xbf16>
  %r = flash_tile.ring "q" {offset = 0 : i64, barriers = 0 : i64} : <2x64x64xbf16>
  // expected-error @+1 {{copying tiles of 64 rows that hold 3 heads of a query by tma is not built for sm_90a}}
  flash_tile.fill %a[%i, %i, %i] -> %r[%i] : <64xbf16> -> <2x64x64xbf16>
  // expected-error @+1 {{copying 64 rows of pages by tma is not built for sm_90a}}
  flash_tile.fill %b[%i, %i, %i] -> %r[%i] : <64xbf16> -> <2x64x64xbf16>
  return
}

// -----

func.func @product(%it: index) attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.threads = 256 : i64, flash.shared_bytes = 0 : i64} {
  %r = flash_tile.ring "k" {offset = 0 : i64, barriers = 0 : i64} : <2x64x64xbf16>
  %t = flash_tile.wait %r[%it] : <2x64x64xbf16> -> <64x64xbf16>
  // expected-error @+1 {{a product of 64 rows in 8 warps is not built for sm_90a}}
  %f = flash_tile.mma %t, %t trans : !flash_tile.tile<64x64xbf16>, <64x64xbf16> -> <64x64xf32>
  %s = flash_tile.mma_wait %f : <64x64xf32> -> <64x64xf32>
  return
}

// -----

func.func @load(%m: memref<?x?x?xf32>, %row: index)
    attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.threads = 128 : i64, flash.shared_bytes = 0 : i64} {
  %v = flash_tile.view %m : memref<?x?x?xf32> -> <1xf32>
  // expected-error @+1 {{loading rows into registers beside products is not built for sm_90a}}
  %f = flash_tile.load %v[%row, %row, %row] : <1xf32> -> <64x1xf32>
  return
}

// -----

// expected-error @+1 {{kernel needs a body of one block}}
func.func private @external() attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.threads = 128 : i64, flash.shared_bytes = 0 : i64}

// -----

// expected-error @+1 {{kernel takes memrefs, f32 and index, not an argument of another type}}
func.func @argument(%x: f64) attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.threads = 128 : i64, flash.shared_bytes = 0 : i64} {
  return
}

// -----

func.func @memory(%m: memref<4x4xf32>, %i: index) attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.threads = 128 : i64, flash.shared_bytes = 0 : i64} {
  // expected-error @+1 {{memrefs are the kernel's arguments, for views, sinks, schedules and constant dims only}}
  %x = memref.load %m[%i, %i] : memref<4x4xf32>
  return
}

// -----

func.func @rows(%f: f32) attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.threads = 128 : i64, flash.shared_bytes = 0 : i64} {
  // expected-error @+1 {{expected rows in 16 a warp (4 warps), columns in 8 and f32 or packed f16 or bf16, got '!flash_tile.frag<32x64xf32>'}}
  %x = flash_tile.splat %f : f32 -> <32x64xf32>
  return
}

// -----

func.func @roles(%n: index) attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.threads = 128 : i64, flash.shared_bytes = 0 : i64} {
  // expected-error @+1 {{roles need 256 threads, the kernel has 128}}
  flash_tile.roles [#flash_tile.role<"all", instances = 2, warps = 4, registers = 128, units = [tensor, vector]>] {
  ^bb0(%w: index):
    flash_tile.yield
  }
  return
}

// -----

func.func @staged(%o: memref<?x?x?x64xbf16>, %i: index, %x: f32)
    attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.threads = 128 : i64, flash.shared_bytes = 0 : i64} {
  %v = flash_tile.view %o {group = 2 : i64} : memref<?x?x?x64xbf16> -> <64xbf16>
  %r = flash_tile.ring "o" {offset = 0 : i64} : <1x64x64xbf16>
  %f = flash_tile.splat %x : f32 -> <64x64xf32>
  %c = flash_tile.cast %f : <64x64xf32> -> <64x64xbf16>
  // expected-error @+1 {{storing via shared memory where no tensor map knows the rows is not built for sm_90a}}
  flash_tile.store %c -> %v[%i, %i, %i] via %r[%i] : !flash_tile.ring<1x64x64xbf16> : <64x64xbf16> -> <64xbf16>
  return
}

// -----

func.func @staged(%o: memref<?x?x?x64xbf16>, %i: index, %x: f32)
    attributes {flash.kernel, flash.target = #flash.target<"sm_80">, flash.threads = 128 : i64, flash.shared_bytes = 0 : i64} {
  %v = flash_tile.view %o : memref<?x?x?x64xbf16> -> <64xbf16>
  %r = flash_tile.ring "o" {offset = 0 : i64} : <1x64x64xbf16>
  %f = flash_tile.splat %x : f32 -> <64x64xf32>
  %c = flash_tile.cast %f : <64x64xf32> -> <64x64xbf16>
  // expected-error @+1 {{storing via shared memory is not built for sm_80}}
  flash_tile.store %c -> %v[%i, %i, %i] via %r[%i] : !flash_tile.ring<1x64x64xbf16> : <64x64xbf16> -> <64xbf16>
  return
}
