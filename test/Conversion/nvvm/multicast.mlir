// Two blocks that fill a ring together: halves go to both, releases too; the first takes tiles for both.
// RUN: flash-opt %s --convert-flash-tile-to-nvvm --canonicalize --cse | FileCheck %s
// RUN: flash-opt %s --convert-flash-tile-to-nvvm --canonicalize --cse | FileCheck %s --check-prefix=TAKES

#producer = #flash_tile.role<"producer", instances = 1, warps = 4, registers = 24, units = [copy]>
#consumer = #flash_tile.role<"consumer", instances = 2, warps = 4, registers = 240, units = [tensor, vector]>
!m = memref<?x?x?x64xbf16, strided<[?, ?, ?, 1], offset: ?>>
!w = !flash_tile.ring<2x1x1xi32>

// Empty of K: 2 blocks x 2 consumers x 4 warps. Empty of tiles: these and the other block's copier. Empty of Q: one consumer's
// warps.
// CHECK-LABEL: llvm.func @f(
// CHECK-SAME:    flash.cluster = 2 : i64
// CHECK-SAME:    {arg = "k", kind = "tensor_map", rows = 40 : i64}
// CHECK-SAME:    {arg = "k", kind = "tensor_map", rows = 64 : i64}
// CHECK-SAME:    nvvm.cluster_dim = array<i32: 2, 1, 1>
// CHECK-DAG:     %[[C1:.*]] = arith.constant 1 : i32
// CHECK-DAG:     %[[C2:.*]] = arith.constant 2 : i32
// CHECK-DAG:     %[[C4:.*]] = arith.constant 4 : i32
// CHECK-DAG:     %[[C16:.*]] = arith.constant 16 : i32
// CHECK-DAG:     %[[C17:.*]] = arith.constant 17 : i32
// CHECK-DAG:     %[[SHARE:.*]] = arith.constant 40 : i32
// CHECK-DAG:     %[[BYTES:.*]] = arith.constant 10240 : i32
// CHECK-DAG:     %[[BOTH:.*]] = arith.constant 3 : i16
// CHECK:         nvvm.mbarrier.init %{{.*}}, %[[C1]]
// CHECK:         nvvm.mbarrier.init %{{.*}}, %[[C16]]
// CHECK:         nvvm.mbarrier.init %{{.*}}, %[[C1]]
// CHECK:         nvvm.mbarrier.init %{{.*}}, %[[C4]]
// CHECK:         nvvm.mbarrier.init %{{.*}}, %[[C1]]
// CHECK:         nvvm.mbarrier.init %{{.*}}, %[[C17]]
// CHECK:         nvvm.fence.mbarrier.init
// CHECK-NOT:     nvvm.barrier0
// CHECK:         nvvm.cluster.arrive {aligned}
// CHECK-NEXT:    nvvm.cluster.wait {aligned}
//
// The whole tile's bytes are expected, half of its rows fetched.
// CHECK:         nvvm.mbarrier.arrive.expect_tx %[[FULL:.*]], %[[BYTES]] : !llvm.ptr<3>, i32
// CHECK:         %[[RANK:.*]] = nvvm.read.ptx.sreg.cluster.ctarank
// CHECK:         %[[FIRST:.*]] = arith.muli %[[RANK]], %[[SHARE]]
// CHECK:         %[[ROW:.*]] = arith.addi %{{.*}}, %[[FIRST]]
// CHECK:         llvm.inline_asm {{.*}}.multicast::cluster [$0], [$1, {$2, $3, $4, $5}], [$6], $7;{{.*}} %[[ROW]], %{{.*}}, %{{.*}}, %[[FULL]], %[[BOTH]]
//
// Matrix descriptors take the address without the bits that name the block.
// CHECK:         nvvm.setmaxregister increase 240
// CHECK:         %[[A:.*]] = arith.andi %{{.*}}, %[[ADDRESS:.*]] : i32
// CHECK:         %[[B:.*]] = arith.andi %{{.*}}, %[[ADDRESS]] : i32
// CHECK:         llvm.inline_asm {{.*}}wgmma.mma_async{{.*}} %[[A]], %[[B]]
//
// Lanes 0 and 1 of a warp release a tile of K, lane 0 one of Q and, at the first block alone, an ordinal of work.
// CHECK:         arith.cmpi ult, %[[LANE:.*]], %[[C2]]
// CHECK:         arith.remui %[[LANE]], %[[C2]]
// CHECK:         llvm.inline_asm {{.*}}mapa.shared::cluster.u32 remote, $0, $2;{{.*}}mbarrier.arrive.shared::cluster.b64 _, [remote];
// CHECK:         "@$1 mbarrier.arrive.shared::cta.b64 _, [$0];"
// CHECK:         nvvm.shfl.sync
// CHECK:         llvm.inline_asm {{.*}}mapa.shared::cluster.u32 remote
//
// No block ends while the other may still reach its memory.
// CHECK:         nvvm.cluster.arrive{{$}}
// CHECK-NEXT:    nvvm.cluster.wait{{$}}
// CHECK-NEXT:    llvm.return

// The counter counts pairs, and is asked behind all fills of a tile; the first block sends the second its tile, the next one of the same pair.
// TAKES-LABEL: llvm.func @f(
// TAKES-DAG:     %[[C0:.*]] = arith.constant 0 : i32
// TAKES-DAG:     %[[C1:.*]] = arith.constant 1 : i32
// TAKES-DAG:     %[[C4:.*]] = arith.constant 4 : i32
// TAKES:         scf.while
// TAKES:         nvvm.cp.async.bulk.tensor
// TAKES:         %[[TAKES:.*]] = arith.cmpi eq, %{{.*}}, %[[C0]]
// TAKES:         %[[HELD:.*]] = scf.if %[[TAKES]]
// TAKES:           %[[OLD:.*]] = llvm.atomicrmw uinc_wrap
// TAKES:           %[[TWICE:.*]] = arith.muli %[[OLD]]
// TAKES:           scf.yield %[[TWICE]]
// TAKES:         arith.select %{{.*}}, %{{.*}}, %[[HELD]]
// TAKES:         scf.if %[[TAKES]]
// TAKES:           nvvm.mbarrier.try_wait.parity
// TAKES:           %[[OTHERS:.*]] = arith.addi %{{.*}}, %[[C1]]
// TAKES:           llvm.inline_asm {{.*}}st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [place], $1, [full];{{.*}} %[[OTHERS]]
// TAKES:           llvm.store volatile
// TAKES:           "mbarrier.arrive.shared::cta.b64 _, [$0];"
// TAKES:         } else {
// TAKES:           nvvm.mbarrier.arrive.expect_tx %{{.*}}, %[[C4]]
// TAKES:           nvvm.mbarrier.try_wait.parity
// TAKES:           llvm.load volatile
// TAKES:           llvm.inline_asm {{.*}}mapa.shared::cluster.u32 remote
func.func @f(%k: !m {flash.arg = "k"}, %n: index {flash.arg = "n"})
    attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.threads = 384 : i64, flash.shared_bytes = 36952 : i64} {
  %kv = flash_tile.view %k : !m -> <64xbf16>
  %r = flash_tile.ring "k" {cluster = 2, releases = 2, offset = 0 : i64, barriers = 36872 : i64} : <2x80x64xbf16>
  %qr = flash_tile.ring "q" {offset = 20480 : i64, barriers = 36904 : i64} : <2x64x64xbf16>
  %wr = flash_tile.ring "work" {cluster = 2, releases = 2, offset = 36864 : i64, barriers = 36936 : i64} : !w
  flash_tile.roles [#producer, #consumer] {
  ^bb0(%w: index):
    flash_tile.for_work "dynamic"(%n, %n, %n, %n) via %wr : !w attributes {cluster = 2, takes} {
    ^bb0(%m: index, %h: index, %b: index, %s: index):
      flash_tile.fill %kv[%b, %h, %b] -> %r[%b] : <64xbf16> -> <2x80x64xbf16>
      flash_tile.fill %kv[%b, %h, %m] -> %qr[%b] : <64xbf16> -> <2x64x64xbf16>
      flash_tile.yield
    }
    flash_tile.yield
  }, {
  ^bb0(%w: index):
    flash_tile.for_work "dynamic"(%n, %n, %n, %n) via %wr : !w attributes {cluster = 2} {
    ^bb0(%m: index, %h: index, %b: index, %s: index):
      %kt = flash_tile.wait %r[%b] : <2x80x64xbf16> -> <80x64xbf16>
      %qt = flash_tile.wait %qr[%b] : <2x64x64xbf16> -> <64x64xbf16>
      %f = flash_tile.mma %qt, %kt trans : !flash_tile.tile<64x64xbf16>, <80x64xbf16> -> <64x80xf32>
      %s0 = flash_tile.mma_wait %f : <64x80xf32> -> <64x80xf32>
      flash_tile.release %r[%b] : <2x80x64xbf16>
      flash_tile.release %qr[%b] : <2x64x64xbf16>
      flash_tile.yield
    }
    flash_tile.yield
  }
  return
}
