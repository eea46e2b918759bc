// Tiles that are more than Q are left in their rings, with the reason in the plan.
// RUN: flash-opt %s --flash-tile-hold-q | FileCheck %s
!Q = !flash_tile.tile<4x8xf32>
!R = !flash_tile.ring<1x4x8xf32>
!F = !flash_tile.flight<4x4xf32>

// CHECK: @no_product{{.*}}q_in_regs = false, why = {q_in_regs = "no product reads its left side from a tile"}
func.func @no_product() attributes {flash.kernel, flash.plan = #flash.plan<q_in_regs = true>} { return }

// CHECK: @both_sides{{.*}}q_in_regs = false, why = {q_in_regs = "Q's tile is read by more than products"}
// CHECK-NOT: flash_tile.read
func.func @both_sides(%i: index) attributes {flash.kernel, flash.plan = #flash.plan<q_in_regs = true>} {
  %r = flash_tile.ring "q" : !R
  %q = flash_tile.wait %r[%i] : !R -> !Q
  %f = flash_tile.mma %q, %q trans : !Q, !Q -> !F
  %s = flash_tile.mma_wait %f : !F -> !flash_tile.frag<4x4xf32>
  flash_tile.release %r[%i] : !R
  return
}

// CHECK: @in_a_run{{.*}}q_in_regs = false, why = {q_in_regs = "a run waits for a Q of its own"}
// CHECK-NOT: flash_tile.read
func.func @in_a_run(%k: !Q, %n: index) attributes {flash.kernel, flash.plan = #flash.plan<q_in_regs = true>} {
  %r = flash_tile.ring "q" : !R
  scf.for %i = %n to %n step %n {
    %q = flash_tile.wait %r[%i] : !R -> !Q
    %f = flash_tile.mma %q, %k trans : !Q, !Q -> !F
    %s = flash_tile.mma_wait %f : !F -> !flash_tile.frag<4x4xf32>
    flash_tile.release %r[%i] : !R
  } {flash_tile.run = "all"}
  return
}

// CHECK: @kept{{.*}}q_in_regs = false, why = {q_in_regs = "Q's tile is never released"}
// CHECK-NOT: flash_tile.read
func.func @kept(%k: !Q, %i: index) attributes {flash.kernel, flash.plan = #flash.plan<q_in_regs = true>} {
  %r = flash_tile.ring "q" : !R
  %q = flash_tile.wait %r[%i] : !R -> !Q
  %f = flash_tile.mma %q, %k trans : !Q, !Q -> !F
  %s = flash_tile.mma_wait %f : !F -> !flash_tile.frag<4x4xf32>
  return
}
