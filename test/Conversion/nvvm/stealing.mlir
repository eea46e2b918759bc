// Tiles from a counter: asked for and handed on when all of a tile is fetched.
// RUN: flash-opt %s --convert-flash-tile-to-nvvm --canonicalize --cse | FileCheck %s

#producer = #flash_tile.role<"producer", instances = 1, warps = 4, registers = 24, units = [copy]>
#consumer = #flash_tile.role<"consumer", instances = 2, warps = 4, registers = 240, units = [tensor, vector]>
!m = memref<?x?x?x64xbf16, strided<[?, ?, ?, 1], offset: ?>>
!w = !flash_tile.ring<2x1x1xi32>

// One counter a sector, and one more for launches that have none.
// CHECK: llvm.mlir.global external @flash_counters() {addr_space = 1 : i32, alignment = 32 : i64} : !llvm.array<1025 x array<8 x i32>>
// CHECK-LABEL: llvm.func @f(
// CHECK-SAME:    %[[COUNTER:[^:]*]]: i32
// CHECK-SAME:    flash.params = [{kind = "counter"}
// CHECK-DAG:     %[[ZERO:.*]] = arith.constant 0 : i32
// CHECK-DAG:     %[[ONE:.*]] = arith.constant 1 : i32
// CHECK-DAG:     %[[EIGHT:.*]] = arith.constant 8 : i32
// CHECK-DAG:     %[[NONE:.*]] = arith.constant 1024 : i32
// CHECK:         nvvm.mbarrier.init %{{.*}}, %[[ONE]]
// CHECK:         nvvm.mbarrier.init %{{.*}}, %[[EIGHT]]
// CHECK:         nvvm.setmaxregister decrease 24
// CHECK:         nvvm.elect.sync
// CHECK:         %[[STEP:.*]] = nvvm.read.ptx.sreg.nctaid.x
// CHECK:         scf.while
// CHECK:           arith.cmpi slt
// CHECK:         } do {
// CHECK:           %[[NUMBER:.*]] = llvm.inline_asm has_side_effects {{.*}}"mov.b32 $0, $1;", "=r,r" %[[COUNTER]]
// CHECK:           %[[AT:.*]] = llvm.getelementptr %{{.*}}[0, %[[NUMBER]], 0]
// CHECK:           %[[OLD:.*]] = llvm.atomicrmw uinc_wrap %[[AT]], %{{.*}} syncscope("device") monotonic
// CHECK:           %[[SHARED:.*]] = arith.cmpi eq, %[[COUNTER]], %[[NONE]]
// CHECK:           %[[FROM:.*]] = arith.select %[[SHARED]], %{{.*}}, %[[OLD]]
// CHECK:           %[[NEXT:.*]] = arith.addi %[[FROM]],
// CHECK:           nvvm.mbarrier.try_wait.parity
// CHECK:           llvm.store volatile %[[NEXT]], %{{.*}} : i32, !llvm.ptr<3>
// CHECK:           llvm.inline_asm has_side_effects {{.*}}"mbarrier.arrive.shared::cta.b64 _, [$0];"
// CHECK:           scf.yield
// CHECK:         nvvm.setmaxregister increase 240
// CHECK:         scf.while
// CHECK:           nvvm.mbarrier.try_wait.parity
// CHECK:           %[[GOT:.*]] = llvm.inline_asm has_side_effects {{.*}}"mov.b32 $0, 0;\0A\09@$2 ld.volatile.shared.b32 $0, [$1];"
// CHECK:           %[[ALL:.*]] = nvvm.shfl.sync idx %{{.*}}, %[[GOT]], %[[ZERO]]
// CHECK:           llvm.inline_asm has_side_effects {{.*}}"@$1 mbarrier.arrive
func.func @f(%n: index {flash.arg = "n"})
    attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.threads = 384 : i64, flash.shared_bytes = 40 : i64} {
  %r = flash_tile.ring "work" {releases = 2, offset = 0 : i64, barriers = 8 : i64} : <2x1x1xi32>
  flash_tile.roles [#producer, #consumer] {
  ^bb0(%w: index):
    flash_tile.for_work "dynamic"(%n, %n, %n, %n) via %r : !w attributes {takes} {
    ^bb0(%m: index, %h: index, %b: index, %s: index):
      flash_tile.yield
    }
    flash_tile.yield
  }, {
  ^bb0(%w: index):
    flash_tile.for_work "dynamic"(%n, %n, %n, %n) via %r : !w {
    ^bb0(%m: index, %h: index, %b: index, %s: index):
      flash_tile.yield
    }
    flash_tile.yield
  }
  return
}
