// RUN: flash-opt %s --convert-flash-tile-to-nvvm --canonicalize --cse | FileCheck %s
#producer = #flash_tile.role<"producer", instances = 1, warps = 4, registers = 24, units = [copy]>
#consumer = #flash_tile.role<"consumer", instances = 2, warps = 4, registers = 240, units = [tensor, vector]>
!m = memref<?x?x?x64xbf16, strided<[?, ?, ?, 1], offset: ?>>

// Instance w waits at barrier 3 + w, with the one that lets it in. The last lets instance 0 in at the start, instance 0
// takes the turn that nobody needs at the end. An awaited tile's barrier is not polled again.
// CHECK-LABEL: llvm.func @turns(
// CHECK-DAG:     %[[THREADS:.*]] = arith.constant 256 : i32
// CHECK-DAG:     %[[ONE:.*]] = arith.constant 1 : i32
// CHECK-DAG:     %[[TWO:.*]] = arith.constant 2 : i32
// CHECK-DAG:     %[[FIRST:.*]] = arith.constant 3 : i32
// CHECK:         %[[GROUP:.*]] = nvvm.shfl.sync  idx
// CHECK:         %[[W:.*]] = arith.subi %[[GROUP]], %[[ONE]]
// CHECK:         %[[OWN:.*]] = arith.addi %[[GROUP]], %[[TWO]]
// CHECK-NEXT:    %[[LAST:.*]] = arith.cmpi eq, %[[W]], %[[ONE]]
// CHECK-NEXT:    %[[AFTER:.*]] = arith.addi %[[GROUP]], %[[FIRST]]
// CHECK-NEXT:    %[[NEXT:.*]] = arith.select %[[LAST]], %[[FIRST]], %[[AFTER]]
// CHECK:         scf.if %[[LAST]]
// CHECK-NEXT:      nvvm.barrier.arrive id = %[[FIRST]] number_of_threads = %[[THREADS]]
// CHECK:         nvvm.mbarrier.try_wait.parity
// CHECK:         scf.for
// CHECK-NOT:       nvvm.mbarrier.try_wait.parity
// CHECK:           nvvm.barrier id = %[[OWN]] number_of_threads = %[[THREADS]]
// CHECK:           wgmma.mma_async
// CHECK:           wgmma.mma_async
// CHECK:           nvvm.barrier.arrive id = %[[NEXT]] number_of_threads = %[[THREADS]]
// CHECK:           wgmma.wait_group.sync.aligned 1;
// CHECK:           wgmma.wait_group.sync.aligned 0;
// CHECK:         nvvm.barrier id = %[[FIRST]] number_of_threads = %[[THREADS]]
func.func @turns(%k: !m {flash.arg = "k"}, %o: !m {flash.arg = "o"}, %n: index {flash.arg = "n"})
    attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.threads = 384 : i64, flash.shared_bytes = 8208 : i64} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %kv = flash_tile.view %k : !m -> <64xbf16>
  %ov = flash_tile.view %o : !m -> <64xbf16>
  %r = flash_tile.ring "k" {releases = 2, offset = 0 : i64, barriers = 8192 : i64} : <1x64x64xbf16>
  flash_tile.roles [#producer, #consumer] {
  ^bb0(%w: index):
    flash_tile.fill %kv[%c0, %c0, %c0] -> %r[%c0] : <64xbf16> -> <1x64x64xbf16>
    flash_tile.yield
  }, {
  ^bb0(%w: index):
    %a = flash_tile.splat %zero : f32 -> <64x64xf32>
    %p = flash_tile.cast %a : <64x64xf32> -> <64x64xbf16>
    %q = flash_tile.wait %r[%c0] : <1x64x64xbf16> -> <64x64xbf16>
    %x = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %a) -> (!flash_tile.frag<64x64xf32>) {
      %t = flash_tile.wait again %r[%c0] : <1x64x64xbf16> -> <64x64xbf16>
      %f:2 = flash_tile.in_turn attributes {barriers = 3} -> !flash_tile.flight<64x64xf32>, !flash_tile.flight<64x64xf32> {
        %sf = flash_tile.mma %q, %t trans : !flash_tile.tile<64x64xbf16>, <64x64xbf16> -> <64x64xf32>
        %of = flash_tile.mma %p, %t acc %acc : !flash_tile.frag<64x64xf32> : !flash_tile.frag<64x64xbf16>, <64x64xbf16> -> <64x64xf32>
        flash_tile.yield %sf, %of : !flash_tile.flight<64x64xf32>, !flash_tile.flight<64x64xf32>
      }
      %s = flash_tile.mma_wait %f#0 : <64x64xf32> -> <64x64xf32>
      %y = flash_tile.mma_wait %f#1 : <64x64xf32> -> <64x64xf32>
      scf.yield %y : !flash_tile.frag<64x64xf32>
    }
    flash_tile.release %r[%c0] : <1x64x64xbf16>
    %x16 = flash_tile.cast %x : <64x64xf32> -> <64x64xbf16>
    flash_tile.store %x16 -> %ov[%c0, %c0, %w] : <64x64xbf16> -> <64xbf16>
    flash_tile.yield
  }
  return
}
