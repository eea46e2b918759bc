// RUN: flash-opt %s --convert-flash-tile-to-nvvm --canonicalize --cse | FileCheck %s

#producer = #flash_tile.role<"producer", instances = 1, warps = 4, registers = 24, units = [copy]>
#consumer = #flash_tile.role<"consumer", instances = 2, warps = 4, registers = 240, units = [tensor, vector]>
!m = memref<?x?x?x64xbf16, strided<[?, ?, ?, 1], offset: ?>>

// Both products in flight, then one, then none. The ring's barriers: full counts the fill, empty a warp of each consumer.
// CHECK-LABEL: llvm.func @overlap(
// CHECK-SAME:    !llvm.ptr {llvm.align = 64 : i64, llvm.byval = !llvm.array<16 x i64>, nvvm.grid_constant}
// CHECK-SAME:    {arg = "k", kind = "tensor_map", rows = 80 : i64}
// CHECK-SAME:    nvvm.maxntid = array<i32: 384, 1, 1>, nvvm.minctasm = 1 : i32
// CHECK-DAG:     %[[ONE:.*]] = arith.constant 1 : i32
// CHECK-DAG:     %[[EIGHT:.*]] = arith.constant 8 : i32
// CHECK:         nvvm.mbarrier.init %{{.*}}, %[[ONE]]
// CHECK:         nvvm.mbarrier.init %{{.*}}, %[[EIGHT]]
// CHECK:         nvvm.fence.mbarrier.init
// CHECK:         nvvm.barrier0
// CHECK:         nvvm.shfl.sync  idx
// CHECK:         scf.if
// CHECK-NEXT:      nvvm.setmaxregister decrease 24
// CHECK:           nvvm.elect.sync
// CHECK:           scf.for
// CHECK:             nvvm.mbarrier.try_wait.parity
// CHECK:             nvvm.mbarrier.arrive.expect_tx %[[FULL:.*]], %{{.*}} : !llvm.ptr<3>, i32
// CHECK:             nvvm.cp.async.bulk.tensor.shared.cluster.global %{{.*}}, %{{.*}}, %[[FULL]], box[%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}] {isCTAOnly = true}
// CHECK:         } else {
// CHECK-NEXT:      nvvm.setmaxregister increase 240
// CHECK:           scf.for %{{.*}} iter_args(%[[ACC:.*]] = %{{.*}}) -> (vector<32xf32>)
// CHECK:             nvvm.mbarrier.try_wait.parity
// CHECK:             llvm.inline_asm has_side_effects {{.*}}wgmma.fence{{.*}}m64n80k16.f32.bf16.bf16{{.*}}da, db, 0, 1, 1, 0, 0;{{.*}}da, db, 1, 1, 1, 0, 0;{{.*}}wgmma.commit_group
// CHECK:             llvm.inline_asm has_side_effects {{.*}}m64n64k16{{.*}}}, db, 1, 1, 1, 1;
// CHECK:             llvm.inline_asm {{.*}}wgmma.wait_group.sync.aligned 1;
// CHECK:             llvm.inline_asm {{.*}}wgmma.wait_group.sync.aligned 0;
// CHECK:             llvm.inline_asm has_side_effects asm_dialect = att "@$1 mbarrier.arrive.shared::cta.b64 _, [$0];"
// Lanes part where rows end, and meet again behind the last row.
// CHECK-COUNT-4:     llvm.store %{{.*}}, %{{.*}} {alignment = 16 : i64} : vector<4xi32>, !llvm.ptr<1>
// CHECK-NOT:         llvm.store
// CHECK:             nvvm.bar.warp.sync
// CHECK-NOT:         builtin.unrealized_conversion_cast
func.func @overlap(%k: !m {flash.arg = "k"}, %o: !m {flash.arg = "o"}, %n: index {flash.arg = "n"})
    attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.threads = 384 : i64, flash.shared_bytes = 28720 : i64} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %kv = flash_tile.view %k : !m -> <64xbf16>
  %ov = flash_tile.view %o : !m -> <64xbf16>
  %r = flash_tile.ring "k" {releases = 2, offset = 0 : i64, barriers = 28672 : i64} : <2x80x64xbf16>
  %qr = flash_tile.ring "q" {releases = 2, offset = 20480 : i64, barriers = 28704 : i64} : <1x64x64xbf16>
  flash_tile.roles [#producer, #consumer] {
  ^bb0(%w: index):
    flash_tile.fill %kv[%c0, %c0, %c0] -> %qr[%c0] : <64xbf16> -> <1x64x64xbf16>
    scf.for %i = %c0 to %n step %c1 {
      flash_tile.fill %kv[%c0, %c0, %i] -> %r[%i] : <64xbf16> -> <2x80x64xbf16>
    }
    flash_tile.yield
  }, {
  ^bb0(%w: index):
    %p = flash_tile.splat %zero : f32 -> <64x80xf32>
    %p16 = flash_tile.cast %p : <64x80xf32> -> <64x80xbf16>
    %a0 = flash_tile.splat %zero : f32 -> <64x64xf32>
    %q = flash_tile.wait %qr[%c0] : <1x64x64xbf16> -> <64x64xbf16>
    %x = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %a0) -> (!flash_tile.frag<64x64xf32>) {
      %t = flash_tile.wait %r[%i] : <2x80x64xbf16> -> <80x64xbf16>
      %sf = flash_tile.mma %q, %t trans : !flash_tile.tile<64x64xbf16>, <80x64xbf16> -> <64x80xf32>
      %of = flash_tile.mma %p16, %t acc %acc : !flash_tile.frag<64x64xf32> : !flash_tile.frag<64x80xbf16>, <80x64xbf16> -> <64x64xf32>
      %s = flash_tile.mma_wait %sf : <64x80xf32> -> <64x80xf32>
      %o1 = flash_tile.mma_wait %of : <64x64xf32> -> <64x64xf32>
      flash_tile.release %r[%i] : <2x80x64xbf16>
      scf.yield %o1 : !flash_tile.frag<64x64xf32>
    }
    %o16 = flash_tile.cast %x : <64x64xf32> -> <64x64xbf16>
    flash_tile.store %o16 -> %ov[%c0, %c0, %w] : <64x64xbf16> -> <64xbf16>
    flash_tile.yield
  }
  return
}

// Without roles thread 0 copies and each warpgroup takes its own 64 rows: 512 units of 16 bytes further on.
// CHECK-LABEL: llvm.func @alone(
// CHECK-DAG:     %[[STEP:.*]] = arith.constant 512 : i32
// CHECK:         scf.for
// CHECK:           scf.if
// CHECK:             nvvm.cp.async.bulk.tensor
// CHECK:           arith.muli %{{.*}}, %[[STEP]] : i32
// CHECK:           m64n128k16.f32.f16.f16
func.func @alone(%k: memref<?x?x?x64xf16> {flash.arg = "k"}, %lse: memref<?x?x?xf32> {flash.arg = "lse"}, %n: index {flash.arg = "n"})
    attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.threads = 256 : i64, flash.shared_bytes = 16400 : i64} {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %kv = flash_tile.view %k : memref<?x?x?x64xf16> -> <64xf16>
  %lv = flash_tile.view %lse : memref<?x?x?xf32> -> <1xf32>
  %c = flash_tile.splat %zero : f32 -> <128x1xf32>
  %r = flash_tile.ring "k" {offset = 0 : i64, barriers = 16384 : i64} : <1x128x64xf16>
  flash_tile.for_work "single"(%n, %n, %n, %n) {
  ^bb0(%m: index, %h: index, %b: index, %s: index):
    flash_tile.fill %kv[%b, %h, %m] -> %r[%c0] : <64xf16> -> <1x128x64xf16>
    %t = flash_tile.wait %r[%c0] : <1x128x64xf16> -> <128x64xf16>
    %sf = flash_tile.mma %t, %t trans : !flash_tile.tile<128x64xf16>, <128x64xf16> -> <128x128xf32>
    %sc = flash_tile.mma_wait %sf : <128x128xf32> -> <128x128xf32>
    %p, %mn, %ln, %a = flash_tile.softmax_step first %sc, %c, %c scale %zero : <128x128xf32>, <128x1xf32>
    flash_tile.store %mn -> %lv[%b, %h, %m] : <128x1xf32> -> <1xf32>
    flash_tile.yield
  }
  return
}
