// An instance that hands blocks back takes an empty turn for each, so that all take as many.
// RUN: flash-opt %s --flash-tile-ping-pong --verify-roundtrip | FileCheck %s
#producer = #flash_tile.role<"producer", instances = 1, warps = 1, registers = 0, units = [copy]>
#consumer = #flash_tile.role<"consumer", instances = 2, warps = 1, registers = 0, units = [tensor, vector]>
!T = !flash_tile.tile<4x8xf32>
!R = !flash_tile.ring<2x4x8xf32>
!S = !flash_tile.frag<4x4xf32>
!SF = !flash_tile.flight<4x4xf32>
!O = !flash_tile.frag<4x8xf32>
!OF = !flash_tile.flight<4x8xf32>

// In front: behind the release, but for the tile's last block. Behind: before the wait, for each.
// CHECK-LABEL: func.func @counts
// CHECK-SAME: %[[SKIP:[a-z0-9]+]]: index, %[[OWN:[a-z0-9]+]]: index, %[[TOTAL:[a-z0-9]+]]: index
// CHECK: scf.for %[[I:.*]] = %c0 to %[[SKIP]]
// CHECK-NEXT: flash_tile.wait
// CHECK-NEXT: flash_tile.release
// CHECK-NEXT: %[[NEXT:.*]] = arith.addi %[[I]], %c1
// CHECK-NEXT: %[[MORE:.*]] = arith.cmpi slt, %[[NEXT]], %[[TOTAL]]
// CHECK-NEXT: scf.if %[[MORE]] {
// CHECK-NEXT: flash_tile.in_turn {
// CHECK-NEXT: flash_tile.yield
// CHECK-NEXT: }
// CHECK-NEXT: }
// CHECK-NEXT: }
// CHECK: %[[K:.*]] = flash_tile.wait
// CHECK: flash_tile.in_turn -> !flash_tile.flight<4x4xf32>, !flash_tile.flight<4x8xf32>
// CHECK: } {flash_tile.run = "inner"}
// CHECK: scf.for %{{.*}} = %[[OWN]] to %[[TOTAL]]
// CHECK-NEXT: flash_tile.in_turn {
// CHECK-NEXT: flash_tile.yield
// CHECK-NEXT: }
// CHECK-NEXT: flash_tile.wait
func.func @counts(%skip: index, %own: index, %total: index, %q: f32) attributes {flash.kernel, flash.plan = #flash.plan<ping_pong = true>} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %kr = flash_tile.ring "k" : !R
  flash_tile.roles [#producer, #consumer] {
  ^bb0(%w: index):
    flash_tile.yield
  }, {
  ^bb0(%w: index):
    %o = flash_tile.splat %q : f32 -> !O
    %p = flash_tile.splat %q : f32 -> !S
    scf.for %i = %c0 to %skip step %c1 {
      %k = flash_tile.wait %kr[%i] : !R -> !T
      flash_tile.release %kr[%i] : !R
    }
    scf.for %i = %skip to %own step %c1 {
      %k = flash_tile.wait %kr[%i] : !R -> !T
      %sf = flash_tile.mma %o, %k trans : !O, !T -> !SF
      %of = flash_tile.mma %p, %k acc %o : !O : !S, !T -> !OF
      %s = flash_tile.mma_wait %sf : !SF -> !S
      %x = flash_tile.mma_wait %of : !OF -> !O
      flash_tile.release %kr[%i] : !R
    } {flash_tile.run = "inner"}
    scf.for %i = %own to %total step %c1 {
      %k = flash_tile.wait %kr[%i] : !R -> !T
      flash_tile.release %kr[%i] : !R
    }
    flash_tile.yield
  }
  return
}
