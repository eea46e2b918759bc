// RUN: flash-opt %s --convert-flash-tile-to-nvvm --canonicalize --cse | FileCheck %s

!m = memref<?x?x?x72xbf16, strided<[?, ?, ?, 1], offset: ?>>

// No tensor map: 128 threads, each arrives once its pieces have landed. Columns past 72 are asked for in the second panel
// only. Who waits fences what the generic proxy wrote before wgmma reads it.
// CHECK-LABEL: llvm.func @gather(
// CHECK-NOT:     tensor_map
// CHECK-SAME:    {arg = "k", kind = "pointer"}
// CHECK:         %[[ALL:.*]] = arith.constant 128 : i32
// CHECK:         nvvm.mbarrier.init %{{.*}}, %[[ALL]]
// CHECK:         nvvm.mbarrier.try_wait.parity
// CHECK:         %[[ROW:.*]] = arith.cmpi sgt, %{{.*}}, %c0 : index
// CHECK:         %[[SIZE:.*]] = arith.select %[[ROW]]
// CHECK:         llvm.inline_asm {{.*}}"cp.async.cg.shared.global [$0+0], [$1+0], 16, $2;", {{.*}} %{{.*}}, %{{.*}}, %[[SIZE]] :
// CHECK:         arith.andi %[[ROW]],
// CHECK:         llvm.inline_asm {{.*}}"cp.async.cg.shared.global [$0+8192], [$1+128], 16, $2;"
// Sixteen rows at once: three more times.
// CHECK-COUNT-6: llvm.inline_asm {{.*}}cp.async.cg.shared.global
// CHECK-NOT:     cp.async.cg.shared.global
// CHECK:         nvvm.cp.async.mbarrier.arrive %{{.*}} {noinc = true}
// CHECK:         nvvm.mbarrier.try_wait.parity
// CHECK-NEXT:    nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}
func.func @gather(%k: !m {flash.arg = "k"}, %lse: memref<?x?x?xf32> {flash.arg = "lse"}, %n: index {flash.arg = "n"})
    attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.plan = #flash.plan<transfer = "gather">,
                flash.threads = 128 : i64, flash.shared_bytes = 16400 : i64} {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %kv = flash_tile.view %k : !m -> <72xbf16>
  %lv = flash_tile.view %lse : memref<?x?x?xf32> -> <1xf32>
  %c = flash_tile.splat %zero : f32 -> <64x1xf32>
  %r = flash_tile.ring "k" {offset = 0 : i64, barriers = 16384 : i64} : <1x64x96xbf16>
  flash_tile.fill %kv[%c0, %c0, %n] -> %r[%c0] : <72xbf16> -> <1x64x96xbf16>
  %t = flash_tile.wait %r[%c0] : <1x64x96xbf16> -> <64x96xbf16>
  %sf = flash_tile.mma %t, %t trans : !flash_tile.tile<64x96xbf16>, <64x96xbf16> -> <64x64xf32>
  %s = flash_tile.mma_wait %sf : <64x64xf32> -> <64x64xf32>
  %p, %mn, %ln, %a = flash_tile.softmax_step first %s, %c, %c scale %zero : <64x64xf32>, <64x1xf32>
  flash_tile.store %mn -> %lv[%c0, %c0, %n] : <64x1xf32> -> <1xf32>
  return
}

// Pages are looked up for each row, the last one in use for rows past it: their pages need not be in the table.
// CHECK-LABEL: llvm.func @pages(
// CHECK:         %[[LENGTH:.*]] = arith.index_cast %{{.*}} : i32 to index
// CHECK:         %[[LAST:.*]] = arith.subi %{{.*}}, %c1
// CHECK:         arith.minsi %{{.*}}, %[[LAST]]
// CHECK:         %[[PAGE:.*]] = arith.divui %{{.*}}, %c16
// CHECK:         llvm.load %{{.*}} : !llvm.ptr<1> -> i32
// CHECK:         %[[SLOT:.*]] = arith.remui %{{.*}}, %c16
// CHECK:         llvm.inline_asm {{.*}}"cp.async.cg.shared.global [$0+0], [$1+0], 16, $2;"
// CHECK:         arith.divui
// CHECK:         llvm.load %{{.*}} : !llvm.ptr<1> -> i32
// CHECK:         llvm.inline_asm {{.*}}"cp.async.cg.shared.global [$0+2048], [$1+0], 16, $2;"
func.func @pages(%k: memref<?x16x?x64xbf16, strided<[?, ?, ?, 1], offset: ?>> {flash.arg = "k"}, %used: memref<?xi32> {flash.arg = "seqused_k"},
    %table: memref<?x?xi32, strided<[?, 1], offset: ?>> {flash.arg = "page_table"}, %n: index {flash.arg = "n"})
    attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.plan = #flash.plan<transfer = "gather">,
                flash.threads = 128 : i64, flash.shared_bytes = 16400 : i64} {
  %c0 = arith.constant 0 : index
  %kv = flash_tile.view %k seqused(%used : memref<?xi32>) page_table(%table : memref<?x?xi32, strided<[?, 1], offset: ?>>)
      : memref<?x16x?x64xbf16, strided<[?, ?, ?, 1], offset: ?>> -> <64xbf16>
  %r = flash_tile.ring "k" {offset = 0 : i64, barriers = 8192 : i64} : <1x32x64xbf16>
  flash_tile.fill %kv[%c0, %c0, %n] -> %r[%c0] : <64xbf16> -> <1x32x64xbf16>
  return
}
