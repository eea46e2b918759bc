// RUN: flash-opt %s --convert-flash-tile-to-loops --canonicalize | FileCheck %s --check-prefix=EAGER
// RUN: flash-opt %s --convert-flash-tile-to-loops=clock=late --canonicalize | FileCheck %s --check-prefix=LATE

!mem = memref<?x?x?x8xf32>
!R = !flash_tile.ring<2x4x8xf32>
!T = !flash_tile.tile<4x8xf32>

// Eager: the producer copies between acquire and commit, the consumer multiplies at the mma.
// EAGER:       func.func private @roles({{.*}}) attributes {flash.kernel, flash.programs = ["roles_producer_0", "roles_consumer_0", "roles_consumer_1"],
// EAGER-SAME:    flash.rings = [{cluster = 1 : i64, name = "k", releases = 2 : i64, stages = 2 : i64, writers = 1 : i64}]}
// EAGER-LABEL: func.func @roles_reset()
// EAGER:         memref.get_global @roles_k : memref<2x4x8xf32>
// EAGER:       memref.global "private" @roles_k : memref<2x4x8xf32> = uninitialized
// EAGER-LABEL: func.func @roles_producer_0(
// EAGER:         call @flash_baton_acquire(%c0, %[[IT:.*]]) :
// EAGER:         vector.load
// EAGER:         call @flash_baton_commit(%c0, %[[IT]]) :
// EAGER-NOT:     call
// EAGER-LABEL: func.func @roles_consumer_0(
// EAGER:         call @flash_baton_wait(%c0, %[[IT:.*]]) :
// EAGER:         math.fma
// EAGER:         call @flash_baton_release(%c0, %[[IT]]) :
// EAGER-NOT:     math.fma
// EAGER-LABEL: func.func @roles_consumer_1(

// Late: the fill leaves a note, the first wait copies, the mma is computed where it is waited for, and the last
// release poisons the slot.
// LATE-LABEL:  func.func @roles_producer_0(
// LATE:          call @flash_baton_acquire
// LATE-NOT:      vector.load
// LATE:          memref.store {{.*}} : memref<2x4xindex>
// LATE:          call @flash_baton_commit
// LATE-LABEL:  func.func @roles_consumer_0(
// LATE:          call @flash_baton_wait
// LATE:          %[[NOTE:.*]] = memref.load {{.*}} : memref<2x4xindex>
// LATE:          %[[HERE:.*]] = arith.cmpi eq, %[[NOTE]], %c1
// LATE:          scf.if %[[HERE]]
// LATE:            vector.load
// LATE:          %[[LAST:.*]] = {{.*}}call @flash_baton_release
// LATE:          scf.if %[[LAST]]
// LATE:            vector.store %{{.*}} : memref<4x8xf32
// LATE:          math.fma
func.func @roles(%k: !mem, %n: index, %late: i1) attributes {flash.kernel} {
  %one = arith.constant 1 : index
  %v = flash_tile.view %k : !mem -> !flash_tile.view<8xf32>
  %ring = flash_tile.ring "k" {releases = 2} : !R
  flash_tile.roles [#flash_tile.role<"producer", instances = 1, warps = 4, registers = 24, units = [copy]>,
                    #flash_tile.role<"consumer", instances = 2, warps = 4, registers = 240, units = [tensor, vector]>] {
  ^bb0(%w: index):
    flash_tile.for_work "single"(%n, %one, %one, %one) {
    ^bb0(%m: index, %h: index, %b: index, %s: index):
      flash_tile.fill %v[%b, %h, %m] -> %ring[%m] : !flash_tile.view<8xf32> -> !R
      flash_tile.yield
    }
    flash_tile.yield
  }, {
  ^bb0(%w: index):
    flash_tile.for_work "single"(%n, %one, %one, %one) {
    ^bb0(%m: index, %h: index, %b: index, %s: index):
      %t = flash_tile.wait %ring[%m] : !R -> !T
      %f = flash_tile.mma %t, %t trans : !T, !T -> !flash_tile.flight<4x4xf32>
      scf.if %late {
        flash_tile.release %ring[%m] : !R
      }
      %s0 = flash_tile.mma_wait %f : !flash_tile.flight<4x4xf32> -> !flash_tile.frag<4x4xf32>
      flash_tile.yield
    }
    flash_tile.yield
  }
  return
}
