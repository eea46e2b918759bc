// RUN: flash-opt %s --convert-flash-tile-to-nvvm --canonicalize --cse | FileCheck %s

// Keys of pages of 16 rows: two boxes of a tile of 32, each of its own page. Values are zero past the rows in use, which
// products need and scores do not: boxes of 8 rows then, single rows of the one that straddles the end, and rows that do
// not exist. The keys are read once: the L2 cache may give them up.
!pages = memref<?x16x?x64xbf16, strided<[?, ?, ?, 1], offset: ?>>
!table = memref<?x?xi32, strided<[?, 1], offset: ?>>

// CHECK-LABEL: llvm.func @pages(
// CHECK-SAME:    {arg = "k", kind = "tensor_map", rows = 16 : i64}, {arg = "v", kind = "tensor_map", rows = 16 : i64}
// CHECK-SAME:    {arg = "v", kind = "tensor_map", rows = 8 : i64}
// CHECK-SAME:    {arg = "v", kind = "tensor_map", rows = 1 : i64}
// CHECK:         %[[BYTES:.*]] = arith.constant 4096 : i32
// CHECK:         nvvm.mbarrier.arrive.expect_tx %{{.*}}, %[[BYTES]]
// CHECK:         %[[POLICY:.*]] = llvm.inline_asm {{.*}}createpolicy.fractional.L2::evict_first.b64
// CHECK-COUNT-2: nvvm.cp.async.bulk.tensor.shared.cluster.global{{.*}} l2_cache_hint = %[[POLICY]]
// CHECK-NOT:     nvvm.cp.async.bulk
// CHECK:         nvvm.mbarrier.arrive.expect_tx %{{.*}}, %[[BYTES]]
// CHECK:         scf.if
// CHECK:           scf.for
// CHECK:             %[[ROW:.*]] = arith.select %{{.*}}, %{{.*}}, %c-8
// CHECK:             nvvm.cp.async.bulk.tensor.shared.cluster.global
// CHECK:             scf.for
// CHECK:               nvvm.cp.async.bulk.tensor.shared.cluster.global
// CHECK:         else
// CHECK-NOT:       l2_cache_hint
// CHECK-COUNT-2:   nvvm.cp.async.bulk.tensor.shared.cluster.global
// CHECK-NOT:     nvvm.cp.async.bulk
func.func @pages(%k: !pages {flash.arg = "k"}, %v: !pages {flash.arg = "v"}, %used: memref<?xi32> {flash.arg = "seqused_k"},
    %t: !table {flash.arg = "page_table"}, %n: index {flash.arg = "n"})
    attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.threads = 128 : i64, flash.shared_bytes = 16448 : i64} {
  %c0 = arith.constant 0 : index
  %kv = flash_tile.view %k seqused(%used : memref<?xi32>) page_table(%t : !table) {once} : !pages -> <64xbf16>
  %vv = flash_tile.view %v seqused(%used : memref<?xi32>) page_table(%t : !table) : !pages -> <64xbf16>
  %kr = flash_tile.ring "k" {offset = 0 : i64, barriers = 16384 : i64} : <1x32x64xbf16>
  %vr = flash_tile.ring "v" {offset = 4096 : i64, barriers = 16400 : i64} : <1x32x64xbf16>
  %qr = flash_tile.ring "q" {offset = 8192 : i64, barriers = 16416 : i64} : <1x64x64xbf16>
  flash_tile.fill %kv[%c0, %c0, %n] -> %kr[%c0] : <64xbf16> -> <1x32x64xbf16>
  flash_tile.fill %vv[%c0, %c0, %n] -> %vr[%c0] : <64xbf16> -> <1x32x64xbf16>
  %q = flash_tile.wait %qr[%c0] : <1x64x64xbf16> -> <64x64xbf16>
  %kt = flash_tile.wait %kr[%c0] : <1x32x64xbf16> -> <32x64xbf16>
  %sf = flash_tile.mma %q, %kt trans : !flash_tile.tile<64x64xbf16>, <32x64xbf16> -> <64x32xf32>
  %s = flash_tile.mma_wait %sf : <64x32xf32> -> <64x32xf32>
  %p = flash_tile.cast %s : <64x32xf32> -> <64x32xbf16>
  %vt = flash_tile.wait %vr[%c0] : <1x32x64xbf16> -> <32x64xbf16>
  %of = flash_tile.mma %p, %vt : !flash_tile.frag<64x32xbf16>, <32x64xbf16> -> <64x64xf32>
  %o = flash_tile.mma_wait %of : <64x64xf32> -> <64x64xf32>
  return
}
