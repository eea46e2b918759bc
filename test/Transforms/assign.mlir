// RUN: flash-opt %s --split-input-file --verify-diagnostics --flash-lower-to-tile --flash-tile-skip-blocks \
// RUN:   --flash-tile-pipeline-loads --flash-tile-split-roles --flash-tile-overlap-softmax --flash-tile-stage-store --flash-tile-assign \
// RUN:   | FileCheck %s
!t = memref<?x?x2x128xbf16>

// Two consumers' slots of Q (64 x 256 bytes each), two of K and of V (128 x 256), then three rings' barriers.
// CHECK-LABEL: func.func @roles
// CHECK-SAME: flash.shared_bytes = 163936 : i64
// CHECK-SAME: flash.threads = 384 : i64
// CHECK: flash_tile.ring "q" {barriers = 163840 : i64, offset = 0 : i64} : <2x64x128xbf16>
// CHECK: flash_tile.ring "k" {barriers = 163872 : i64, offset = 32768 : i64, releases = 2 : i64} : <2x128x128xbf16>
// CHECK: flash_tile.ring "v" {barriers = 163904 : i64, offset = 98304 : i64, releases = 2 : i64} : <2x128x128xbf16>
func.func @roles(%q: !t, %k: !t, %v: !t, %o: !t) {
  flash.attention %q, %k, %v outs(%o : !t) by #flash.mask<causal> {target = #flash.target<"sm_90a">,
    plan = #flash.plan<tile = [128, 128], stages = 2, consumers = 2, registers = [24, 240], overlap = true>} : !t, !t, !t
  return
}

// -----
// One program: 16 rows a warp. A head of 96 takes two panels of 64 columns.
!t = memref<?x?x2x96xf16>
// CHECK-LABEL: func.func @one_program
// CHECK-SAME: flash.shared_bytes = 81968 : i64
// CHECK-SAME: flash.threads = 256 : i64
// CHECK: flash_tile.ring "q" {barriers = 81920 : i64, offset = 0 : i64}
// CHECK: flash_tile.ring "k" {barriers = 81936 : i64, offset = 32768 : i64}
// CHECK: flash_tile.ring "v" {barriers = 81952 : i64, offset = 57344 : i64}
func.func @one_program(%q: !t, %k: !t, %v: !t, %o: !t) {
  flash.attention %q, %k, %v outs(%o : !t) by #flash.mask<dense> {target = #flash.target<"sm_90a">,
    plan = #flash.plan<tile = [128, 96]>} : !t, !t, !t
  return
}

// -----
!t = memref<?x?x2x8xf32>
// CHECK-LABEL: func.func @cpu
// CHECK-NOT: flash.threads
// CHECK: flash_tile.ring "q" : <1x4x8xf32>
func.func @cpu(%q: !t, %k: !t, %v: !t, %o: !t) {
  flash.attention %q, %k, %v outs(%o : !t) by #flash.mask<dense> {target = #flash.target<"cpu">,
    plan = #flash.plan<tile = [4, 6]>} : !t, !t, !t
  return
}

// -----
// S, O, the P that the product in flight reads, m, l and alpha: 64 + 64 + 32 + 3 * 2.
!t = memref<?x?x2x128xbf16>
func.func @registers(%q: !t, %k: !t, %v: !t, %o: !t) {
  // expected-error @below {{consumer holds fragments of 166 registers a thread, it has 160; use a smaller tile or more registers}}
  flash.attention %q, %k, %v outs(%o : !t) by #flash.mask<causal> {target = #flash.target<"sm_90a">,
    plan = #flash.plan<tile = [192, 128], consumers = 3, registers = [32, 160], overlap = true>} : !t, !t, !t
  return
}

// -----
!t = memref<?x?x2x64xbf16>
func.func @all_registers(%q: !t, %k: !t, %v: !t, %o: !t) {
  // expected-error @below {{roles need 95232 registers, sm_90a has 65536 for 512 threads; use fewer consumers or registers}}
  flash.attention %q, %k, %v outs(%o : !t) by #flash.mask<causal> {target = #flash.target<"sm_90a">,
    plan = #flash.plan<tile = [192, 64], consumers = 3, registers = [24, 240]>} : !t, !t, !t
  return
}

// -----
// 65536 are no more than there are, but a block begins with 168 a thread: who waited for the rest would hang.
!t = memref<?x?x2x64xbf16>
!l = memref<?x2x?xf32>
func.func @launched(%q: !t, %k: !t, %v: !t, %o: !t, %lse: !l, %do: !t, %dq: !t, %dk: !t, %dv: !t, %s: f32) {
  // expected-error @below {{roles need 65536 registers, sm_90a has 64512 for 384 threads; use fewer consumers or registers}}
  flash.attention_backward %q, %k, %v, %o, %lse, %do scale %s outs(%dq, %dk, %dv : !t, !t, !t) by #flash.mask<dense> {target = #flash.target<"sm_90a">,
    plan = #flash.plan<tile = [128, 128], consumers = 2, registers = [32, 240]>} : !t, !t, !t, !t, !l, !t
  return
}

// -----
!t = memref<?x?x2x256xbf16>
func.func @shared(%q: !t, %k: !t, %v: !t, %o: !t) {
  // expected-error @below {{plan needs 327776 bytes of shared memory, sm_90a has 232448; use fewer stages}}
  flash.attention %q, %k, %v outs(%o : !t) by #flash.mask<causal> {target = #flash.target<"sm_90a">,
    plan = #flash.plan<tile = [128, 128], stages = 2, consumers = 2, registers = [24, 240]>} : !t, !t, !t
  return
}

// -----
!t = memref<?x?x2x64xbf16>
func.func @slots(%q: !t, %k: !t, %v: !t, %o: !t) {
  // expected-error @below {{needs slots of a multiple of 1024 bytes on sm_90a, has 2560; use tiles of a multiple of 8 rows}}
  flash.attention %q, %k, %v outs(%o : !t) by #flash.mask<causal> {target = #flash.target<"sm_90a">,
    plan = #flash.plan<tile = [64, 20]>} : !t, !t, !t
  return
}

// -----
// Ordinals of work take four bytes each behind the tiles.
!t = memref<?x?x2x128xbf16>
// CHECK-LABEL: func.func @stealing
// CHECK-SAME: flash.shared_bytes = 163976 : i64
// CHECK: flash_tile.ring "work" {barriers = 163944 : i64, offset = 163840 : i64, releases = 2 : i64} : <2x1x1xi32>
func.func @stealing(%q: !t, %k: !t, %v: !t, %o: !t) {
  flash.attention %q, %k, %v outs(%o : !t) by #flash.mask<causal> {target = #flash.target<"sm_90a">,
    plan = #flash.plan<tile = [128, 128], stages = 2, consumers = 2, registers = [24, 240], order = "dynamic", stealing = true>} : !t, !t, !t
  return
}

// -----

// What stores go through has no barriers.
!t = memref<?x?x2x128xbf16>
// CHECK-LABEL: func.func @staged
// CHECK-SAME: flash.shared_bytes = 196704 : i64
// CHECK: flash_tile.ring "k" {barriers = 196640 : i64, offset = 32768 : i64, releases = 2 : i64}
// CHECK: flash_tile.ring "o" {offset = 163840 : i64} : <2x64x128xbf16>
func.func @staged(%q: !t, %k: !t, %v: !t, %o: !t) {
  flash.attention %q, %k, %v outs(%o : !t) by #flash.mask<causal> {target = #flash.target<"sm_90a">,
    plan = #flash.plan<tile = [128, 128], stages = 2, consumers = 2, registers = [24, 240], staged_columns = 128>} : !t, !t, !t
  return
}

// -----

// A kernel that multiplies nothing deals out its columns.
// CHECK-LABEL: func.func @dealt
// CHECK-SAME: flash.columns = 64 : i64
// CHECK-SAME: flash.shared_bytes = 0 : i64
// CHECK-SAME: flash.threads = 32 : i64
func.func @dealt(%m: memref<?x?x?x64xf32>, %i: index) attributes {flash.kernel, flash.plan = #flash.plan<tile = [2, 1]>, flash.target = #flash.target<"sm_90a">} {
  %v = flash_tile.view %m : memref<?x?x?x64xf32> -> <64xf32>
  %x = flash_tile.load %v[%i, %i, %i] : <64xf32> -> <2x64xf32>
  return
}
