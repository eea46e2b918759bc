// RUN: flash-opt %s --convert-flash-tile-to-nvvm --canonicalize --cse | FileCheck %s
!m = memref<?x?x?x64xbf16, strided<[?, ?, ?, 1], offset: ?>>

// Two stages in step: at a wait for K(i), V(i) and K(i + 1) have been asked for since, whatever way led there; at one for
// V(i), K(i + 1) and V(i + 1). Fills stand behind waits, so that the warps meet nowhere else, and there are no branches: where
// nothing is left to copy, the group copies zeros. 32 rows a warp: each block of B serves two products, then two more.
// CHECK-LABEL: llvm.func @in_step(
// CHECK-NOT:     mbarrier
// CHECK-NOT:     scf.if
// CHECK:         %[[LEFT:.*]] = arith.select %{{.*}}, %{{.*}}, %c0 : index
// CHECK:         arith.cmpi sgt, %[[LEFT]], %c0
// CHECK-NOT:     nvvm.barrier
// CHECK:         nvvm.cp.async.wait.group 3
// CHECK-NEXT:    nvvm.barrier
// CHECK:         scf.for
// CHECK-NEXT:      nvvm.cp.async.wait.group 2
// CHECK-NEXT:      nvvm.barrier
// CHECK-NOT:       nvvm.barrier
// CHECK:           cp.async.cg.shared.global
// CHECK:           nvvm.cp.async.commit.group
// CHECK-COUNT-2:   llvm.inline_asm {{.*}}ldmatrix.sync.aligned.m8n8.x4.shared
// CHECK:           llvm.inline_asm {{.*}}ldmatrix.sync.aligned.m8n8.x4.shared.b16
// CHECK-COUNT-4:   nvvm.mma.sync
// CHECK:           llvm.inline_asm {{.*}}ldmatrix.sync.aligned.m8n8.x4.shared.b16
// CHECK:           nvvm.cp.async.wait.group 2
// CHECK-NEXT:      nvvm.barrier
// CHECK-NOT:       nvvm.barrier
// CHECK:           llvm.inline_asm {{.*}}ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16
// CHECK-COUNT-4:   nvvm.mma.sync
func.func @in_step(%q: !m {flash.arg = "q"}, %k: !m {flash.arg = "k"}, %v: !m {flash.arg = "v"}, %o: !m {flash.arg = "o"},
                   %nb: index {flash.arg = "n"})
    attributes {flash.kernel, flash.target = #flash.target<"sm_80">, flash.threads = 64 : i64, flash.shared_bytes = 40960 : i64} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %zero = arith.constant 0.0 : f32
  %qv = flash_tile.view %q : !m -> <64xbf16>
  %kv = flash_tile.view %k : !m -> <64xbf16>
  %vv = flash_tile.view %v : !m -> <64xbf16>
  %ov = flash_tile.view %o : !m -> <64xbf16>
  %qr = flash_tile.ring "q" {offset = 0 : i64} : <1x64x64xbf16>
  %kr = flash_tile.ring "k" {offset = 8192 : i64} : <2x64x64xbf16>
  %vr = flash_tile.ring "v" {offset = 24576 : i64} : <2x64x64xbf16>
  flash_tile.fill %qv[%c0, %c0, %c0] -> %qr[%c0] : <64xbf16> -> <1x64x64xbf16>
  %any = arith.cmpi slt, %c0, %nb : index
  scf.if %any {
    flash_tile.fill %kv[%c0, %c0, %c0] -> %kr[%c0] : <64xbf16> -> <2x64x64xbf16>
  }
  scf.if %any {
    flash_tile.fill %vv[%c0, %c0, %c0] -> %vr[%c0] : <64xbf16> -> <2x64x64xbf16>
  }
  %two = arith.cmpi slt, %c1, %nb : index
  scf.if %two {
    flash_tile.fill %kv[%c0, %c0, %c1] -> %kr[%c1] : <64xbf16> -> <2x64x64xbf16>
  }
  %qt = flash_tile.wait %qr[%c0] : <1x64x64xbf16> -> <64x64xbf16>
  %o0 = flash_tile.splat %zero : f32 -> <64x64xf32>
  %x = scf.for %i = %c0 to %nb step %c1 iter_args(%oi = %o0) -> (!flash_tile.frag<64x64xf32>) {
    %kt = flash_tile.wait %kr[%i] : <2x64x64xbf16> -> <64x64xbf16>
    %i1 = arith.addi %i, %c1 : index
    %more1 = arith.cmpi slt, %i1, %nb : index
    scf.if %more1 {
      flash_tile.fill %vv[%c0, %c0, %i1] -> %vr[%i1] : <64xbf16> -> <2x64x64xbf16>
    }
    %sf = flash_tile.mma %qt, %kt trans : !flash_tile.tile<64x64xbf16>, <64x64xbf16> -> <64x64xf32>
    %s = flash_tile.mma_wait %sf : <64x64xf32> -> <64x64xf32>
    flash_tile.release %kr[%i] : <2x64x64xbf16>
    %vt = flash_tile.wait %vr[%i] : <2x64x64xbf16> -> <64x64xbf16>
    %i2 = arith.addi %i, %c2 : index
    %more2 = arith.cmpi slt, %i2, %nb : index
    scf.if %more2 {
      flash_tile.fill %kv[%c0, %c0, %i2] -> %kr[%i2] : <64xbf16> -> <2x64x64xbf16>
    }
    %p = flash_tile.cast %s : <64x64xf32> -> <64x64xbf16>
    %of = flash_tile.mma %p, %vt acc %oi : !flash_tile.frag<64x64xf32> : !flash_tile.frag<64x64xbf16>, <64x64xbf16> -> <64x64xf32>
    %on = flash_tile.mma_wait %of : <64x64xf32> -> <64x64xf32>
    flash_tile.release %vr[%i] : <2x64x64xbf16>
    scf.yield %on : !flash_tile.frag<64x64xf32>
  }
  %o16 = flash_tile.cast %x : <64x64xf32> -> <64x64xbf16>
  flash_tile.store %o16 -> %ov[%c0, %c0, %c0] : <64x64xbf16> -> <64xbf16>
  return
}

// One slot filled again in straight code: the warps meet before the fill, and each wait is for the last group.
// CHECK-LABEL: llvm.func @in_place(
// CHECK-NOT:     nvvm.barrier
// CHECK:         cp.async.cg.shared.global
// CHECK:         nvvm.cp.async.wait.group 0
// CHECK-NEXT:    nvvm.barrier
// CHECK:         ldmatrix
// CHECK:         nvvm.barrier
// CHECK:         cp.async.cg.shared.global
// CHECK:         nvvm.cp.async.commit.group
// CHECK-NEXT:    nvvm.cp.async.wait.group 0
// CHECK-NEXT:    nvvm.barrier
// CHECK:         nvvm.mma.sync
func.func @in_place(%k: !m {flash.arg = "k"}, %o: !m {flash.arg = "o"})
    attributes {flash.kernel, flash.target = #flash.target<"sm_86">, flash.threads = 64 : i64, flash.shared_bytes = 8192 : i64} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %kv = flash_tile.view %k : !m -> <64xbf16>
  %ov = flash_tile.view %o : !m -> <64xbf16>
  %kr = flash_tile.ring "k" {offset = 0 : i64} : <1x64x64xbf16>
  flash_tile.fill %kv[%c0, %c0, %c0] -> %kr[%c0] : <64xbf16> -> <1x64x64xbf16>
  %t = flash_tile.wait %kr[%c0] : <1x64x64xbf16> -> <64x64xbf16>
  %a = flash_tile.read %t : <64x64xbf16> -> <64x64xbf16>
  flash_tile.release %kr[%c0] : <1x64x64xbf16>
  flash_tile.fill %kv[%c0, %c0, %c1] -> %kr[%c1] : <64xbf16> -> <1x64x64xbf16>
  %u = flash_tile.wait %kr[%c1] : <1x64x64xbf16> -> <64x64xbf16>
  %sf = flash_tile.mma %a, %u trans : !flash_tile.frag<64x64xbf16>, <64x64xbf16> -> <64x64xf32>
  %s = flash_tile.mma_wait %sf : <64x64xf32> -> <64x64xf32>
  %p = flash_tile.cast %s : <64x64xf32> -> <64x64xbf16>
  flash_tile.store %p -> %ov[%c0, %c0, %c0] : <64x64xbf16> -> <64xbf16>
  return
}
