// Every op in custom and in generic form.
// RUN: flash-opt %s --verify-roundtrip | FileCheck %s
// RUN: flash-opt %s --mlir-print-op-generic | flash-opt | FileCheck %s
// RUN: flash-opt %s --emit-bytecode | flash-opt | FileCheck %s
// RUN: flash-opt %s --mlir-print-op-generic | FileCheck %s --check-prefix=GENERIC

!mem = memref<?x?x?x64xbf16, strided<[?, ?, ?, 1], offset: ?>>
!V = !flash_tile.view<64xbf16>
!L = !flash_tile.view<1xf32>
!R = !flash_tile.ring<2x4x64xbf16>
!T = !flash_tile.tile<4x64xbf16>
!S = !flash_tile.frag<4x4xf32>
!C = !flash_tile.frag<4x1xf32>
!O = !flash_tile.frag<4x64xf32>

// CHECK-LABEL: func.func @declarations
func.func @declarations(%m: !mem, %o: memref<2x3x5x4x64xf32>, %lse: memref<3x4x5xf32>, %i: index, %f: f32) {
  // CHECK: %[[V:.*]] = flash_tile.view %{{.*}} : memref<?x?x?x64xbf16, strided<[?, ?, ?, 1], offset: ?>> -> <64xbf16>
  // GENERIC: "flash_tile.view"(%{{.*}}) <{group = 1 : i64, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0>, padded = 1 : i64}>
  %v = flash_tile.view %m : !mem -> !V
  // CHECK: flash_tile.view %{{.*}} {group = 2 : i64, partial} : memref<2x3x5x4x64xf32> -> <64xf32>
  %ov = flash_tile.view %o {group = 2, partial} : memref<2x3x5x4x64xf32> -> !flash_tile.view<64xf32>
  // CHECK: flash_tile.view %{{.*}} : memref<3x4x5xf32> -> <1xf32>
  %lv = flash_tile.view %lse : memref<3x4x5xf32> -> !L
  // CHECK: flash_tile.length %[[V]][%{{.*}}] : <64xbf16>
  // GENERIC: "flash_tile.length"
  %n = flash_tile.length %v[%i] : !V
  // CHECK: flash_tile.ring "k" : <2x4x64xbf16>
  // GENERIC: "flash_tile.ring"() <{cluster = 1 : i64, name = "k", releases = 1 : i64, writers = 1 : i64}> : () -> !flash_tile.ring<2x4x64xbf16>
  %r = flash_tile.ring "k" : !R
  // CHECK: flash_tile.ring "v" {barriers = 4096 : i64, offset = 1024 : i64, releases = 2 : i64, writers = 3 : i64} : <2x4x64xbf16>
  %s = flash_tile.ring "v" {writers = 3, releases = 2, offset = 1024, barriers = 4096} : !R
  // CHECK: flash_tile.block_range by <local, left = 9> rows[%{{.*}}, 128] block 64 lengths(%{{.*}}, %{{.*}}) split(%{{.*}}, %{{.*}}) {group = 4 : i64}
  // GENERIC: "flash_tile.block_range"
  %end, %right, %inner, %left, %sink = flash_tile.block_range by #flash.mask<local, left = 9> rows[%i, 128] block 64
      lengths(%n, %n) split(%i, %i) {group = 4}
  // CHECK: flash_tile.splat %{{.*}} : f32 -> <4x64xf32>
  // GENERIC: "flash_tile.splat"
  %x = flash_tile.splat %f : f32 -> !O
  return
}

// CHECK-LABEL: func.func @work
// CHECK: flash_tile.roles [#flash_tile.role<"producer", instances = 1, warps = 1, registers = 24, units = [copy]>, #flash_tile.role<"consumer", instances = 2, warps = 4, registers = 240, units = [tensor, vector]>] {
// CHECK: ^bb0(%{{.*}}: index):
// CHECK: flash_tile.for_work "static"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {
// CHECK: flash_tile.yield
// CHECK: }, {
// CHECK: flash_tile.for_work "dynamic"(%{{.*}}) section %{{.*}} iter(%{{.*}} : index) -> index {
// CHECK: flash_tile.yield %{{.*}} : index
// GENERIC: "flash_tile.roles"() <{roles = [#flash_tile.role<"producer"
// GENERIC: "flash_tile.for_work"({{.*}}) <{cluster = 1 : i64, group = 1 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0, 0, 1>, order = "dynamic"}>
func.func @work(%i: index) {
  flash_tile.roles [#flash_tile.role<"producer", instances = 1, warps = 1, registers = 24, units = [copy]>,
                    #flash_tile.role<"consumer", instances = 2, warps = 4, registers = 240, units = [tensor, vector]>] {
  ^bb0(%w: index):
    flash_tile.for_work "static"(%i, %i, %i, %i) {
    ^bb0(%m: index, %h: index, %b: index, %s: index):
      flash_tile.yield
    }
    flash_tile.yield
  }, {
  ^bb0(%w: index):
    %n = flash_tile.for_work "dynamic"(%i, %i, %i, %i) section %i iter(%i : index) -> index {
    ^bb0(%m: index, %h: index, %b: index, %s: index, %t: index):
      flash_tile.yield %t : index
    }
    flash_tile.yield
  }
  return
}

// CHECK-LABEL: func.func @moving
func.func @moving(%m: !mem, %lse: memref<3x4x5xf32>, %parts: memref<2x3x4x5xf32>, %b: index, %h: index, %row: index, %it: index) {
  %v = flash_tile.view %m : !mem -> !V
  %lv = flash_tile.view %lse : memref<3x4x5xf32> -> !L
  %r = flash_tile.ring "k" : !R
  // CHECK: flash_tile.fill %[[V:.*]][%[[B:.*]], %[[H:.*]], %[[ROW:.*]]] -> %[[R:.*]][%[[IT:.*]]] : <64xbf16> -> <2x4x64xbf16>
  // GENERIC: "flash_tile.fill"
  flash_tile.fill %v[%b, %h, %row] -> %r[%it] : !V -> !R
  // CHECK: %[[T:.*]] = flash_tile.wait %[[R]][%[[IT]]] : <2x4x64xbf16> -> <4x64xbf16>
  // GENERIC: "flash_tile.wait"
  %t = flash_tile.wait %r[%it] : !R -> !T
  // CHECK: flash_tile.slice %[[T]][%{{.*}}] : <4x64xbf16> -> <4x32xbf16>
  // GENERIC: "flash_tile.slice"
  %half = flash_tile.slice %t[%row] : !T -> !flash_tile.tile<4x32xbf16>
  // CHECK: flash_tile.slice %[[T]][%{{.*}}] row %{{.*}} : <4x64xbf16> -> <2x64xbf16>
  // GENERIC: "flash_tile.slice"
  %own = flash_tile.slice %t[%row] row %row : !T -> !flash_tile.tile<2x64xbf16>
  // CHECK: flash_tile.wait again %[[R]][%[[IT]]] : <2x4x64xbf16> -> <4x64xbf16>
  // GENERIC: "flash_tile.wait"({{.*}}) <{again}>
  %again = flash_tile.wait again %r[%it] : !R -> !T
  // CHECK: flash_tile.read %[[T]] : <4x64xbf16> -> <4x64xbf16>
  // GENERIC: "flash_tile.read"
  %f = flash_tile.read %t : !T -> !flash_tile.frag<4x64xbf16>
  // CHECK: flash_tile.release %[[R]][%[[IT]]] : <2x4x64xbf16>
  // GENERIC: "flash_tile.release"
  flash_tile.release %r[%it] : !R
  // CHECK: %[[X:.*]] = flash_tile.load %{{.*}}[%[[B]], %[[H]], %[[ROW]]] : <1xf32> -> <4x1xf32>
  // GENERIC: "flash_tile.load"
  %x = flash_tile.load %lv[%b, %h, %row] : !L -> !C
  // CHECK: %[[PV:.*]] = flash_tile.view %{{.*}} {partial}
  %pv = flash_tile.view %parts {partial} : memref<2x3x4x5xf32> -> !L
  // CHECK: %[[P:.*]] = flash_tile.load %[[PV]][%[[B]], %[[H]], %[[ROW]]] parts(%{{.*}}) aside 2 : <1xf32> -> <4x1xf32>
  // GENERIC: "flash_tile.load"{{.*}} <{aside = 2 : i64}>
  %p = flash_tile.load %pv[%b, %h, %row] parts(%it) aside 2 : !L -> !C
  // CHECK: flash_tile.split_rows %[[P]], %[[X]] : !flash_tile.frag<4x1xf32>, !flash_tile.frag<4x1xf32> -> !flash_tile.frag<2x1xf32>
  // GENERIC: "flash_tile.split_rows"
  %apart:4 = flash_tile.split_rows %p, %x : !C, !C
      -> !flash_tile.frag<2x1xf32>, !flash_tile.frag<2x1xf32>, !flash_tile.frag<2x1xf32>, !flash_tile.frag<2x1xf32>
  // CHECK: flash_tile.store %[[X]] -> %{{.*}}[%[[B]], %[[H]], %[[ROW]]] : <4x1xf32> -> <1xf32>
  // GENERIC: "flash_tile.store"
  flash_tile.store %x -> %lv[%b, %h, %row] : !C -> !L
  // CHECK: flash_tile.store %{{.*}} -> %[[V]][%[[B]], %[[H]], %[[ROW]]] col %{{.*}} : <4x32xbf16> -> <64xbf16>
  %y = flash_tile.load %v[%b, %h, %row] : !V -> !flash_tile.frag<4x32xbf16>
  flash_tile.store %y -> %v[%b, %h, %row] col %it : !flash_tile.frag<4x32xbf16> -> !V
  // CHECK: %[[OR:.*]] = flash_tile.ring "o" : <2x4x16xbf16>
  // CHECK: flash_tile.store %{{.*}} -> %[[V]][%[[B]], %[[H]], %[[ROW]]] via %[[OR]][%{{.*}}] : !flash_tile.ring<2x4x16xbf16> : <4x32xbf16> -> <64xbf16>
  %or = flash_tile.ring "o" : !flash_tile.ring<2x4x16xbf16>
  flash_tile.store %y -> %v[%b, %h, %row] via %or[%it] : !flash_tile.ring<2x4x16xbf16> : !flash_tile.frag<4x32xbf16> -> !V
  return
}

// CHECK-LABEL: func.func @computing
func.func @computing(%q: !T, %k: !T, %i: index, %scale: f32, %m: !C, %l: !C, %o: !O, %logits: memref<?xf32>) {
  // CHECK: %[[F:.*]] = flash_tile.mma %{{.*}}, %{{.*}} trans : !flash_tile.tile<4x64xbf16>, <4x64xbf16> -> <4x4xf32>
  // GENERIC: "flash_tile.mma"({{.*}}) <{trans_b}>
  %f = flash_tile.mma %q, %k trans : !T, !T -> !flash_tile.flight<4x4xf32>
  // CHECK: %[[S:.*]] = flash_tile.mma_wait %[[F]] : <4x4xf32> -> <4x4xf32>
  // GENERIC: "flash_tile.mma_wait"
  %s = flash_tile.mma_wait %f : !flash_tile.flight<4x4xf32> -> !S
  // CHECK: %[[TURN:.*]] = flash_tile.in_turn attributes {barriers = 3 : i64} -> !flash_tile.flight<4x4xf32> {
  // GENERIC: "flash_tile.in_turn"() <{barriers = 3 : i64}>
  %turn = flash_tile.in_turn attributes {barriers = 3} -> !flash_tile.flight<4x4xf32> {
    %inside = flash_tile.mma %q, %k trans : !T, !T -> !flash_tile.flight<4x4xf32>
    flash_tile.yield %inside : !flash_tile.flight<4x4xf32>
  }
  // CHECK: flash_tile.mma_wait %[[TURN]] : <4x4xf32> -> <4x4xf32>
  %st = flash_tile.mma_wait %turn : !flash_tile.flight<4x4xf32> -> !S
  // CHECK: flash_tile.in_turn {
  flash_tile.in_turn {
    flash_tile.yield
  }
  // CHECK: flash_tile.mask %[[S]] by <causal> at[%{{.*}}, %{{.*}}] lengths(%{{.*}}, %{{.*}}) {group = 8 : i64} : <4x4xf32>
  // GENERIC: "flash_tile.mask"
  %sm = flash_tile.mask %s by #flash.mask<causal> at[%i, %i] lengths(%i, %i) {group = 8} : !S
  // CHECK: flash_tile.map %{{.*}}, %{{.*}} : !flash_tile.frag<4x4xf32>, !flash_tile.frag<4x1xf32> -> <4x4xf32> {
  // CHECK-NEXT: ^bb0(%{{.*}}: f32, %{{.*}}: f32):
  // GENERIC: "flash_tile.map"
  %sc = flash_tile.map %sm, %m : !S, !C -> !S {
  ^bb0(%x: f32, %y: f32):
    %z = arith.subf %x, %y : f32
    flash_tile.yield %z : f32
  }
  // CHECK: flash_tile.softmax_step first %{{.*}}, %{{.*}}, %{{.*}} scale %{{.*}} : <4x4xf32>, <4x1xf32>
  // GENERIC: "flash_tile.softmax_step"({{.*}}) <{mode = #flash_tile<softmax first>}>
  %p0, %m0, %l0, %a0 = flash_tile.softmax_step first %sc, %m, %l scale %scale : !S, !C
  // CHECK: %[[P:.*]], %[[M:.*]], %[[L:.*]], %[[A:.*]] = flash_tile.softmax_step online
  %p, %m1, %l1, %a = flash_tile.softmax_step online %sc, %m, %l scale %scale : !S, !C
  // CHECK: flash_tile.rescale %{{.*}}, %[[A]] : <4x64xf32>, <4x1xf32>
  // GENERIC: "flash_tile.rescale"
  %o1 = flash_tile.rescale %o, %a : !O, !C
  // CHECK: %[[P16:.*]] = flash_tile.cast %[[P]] : <4x4xf32> -> <4x4xbf16>
  // GENERIC: "flash_tile.cast"
  %p16 = flash_tile.cast %p : !S -> !flash_tile.frag<4x4xbf16>
  // CHECK: flash_tile.mma %[[P16]], %{{.*}} acc %{{.*}} : !flash_tile.frag<4x64xf32> : !flash_tile.frag<4x4xbf16>, <4x64xbf16> -> <4x64xf32>
  %g = flash_tile.mma %p16, %k acc %o1 : !O : !flash_tile.frag<4x4xbf16>, !T -> !flash_tile.flight<4x64xf32>
  %o2 = flash_tile.mma_wait %g : !flash_tile.flight<4x64xf32> -> !O
  // CHECK: flash_tile.finalize %{{.*}}, %[[M]], %[[L]] scale %{{.*}} : <4x64xf32>, <4x1xf32>
  // GENERIC: "flash_tile.finalize"
  %o3, %lse = flash_tile.finalize %o2, %m1, %l1 scale %scale : !O, !C
  // CHECK: flash_tile.finalize {{.*}} sink(%{{.*}}[%{{.*}}, %{{.*}}] : memref<?xf32>) {group = 2 : i64} : <4x64xf32>, <4x1xf32>
  %o4, %lse4 = flash_tile.finalize %o2, %m1, %l1 scale %scale sink(%logits[%i, %i] : memref<?xf32>) {group = 2} : !O, !C
  return
}
