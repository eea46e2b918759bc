// What split-roles cannot divide it leaves alone, with the reason in the plan.
// RUN: flash-opt %s --flash-tile-split-roles | FileCheck %s --implicit-check-not=flash_tile.roles

!V = !flash_tile.view<8xf32>
!R = !flash_tile.ring<1x4x8xf32>
!T = !flash_tile.tile<4x8xf32>
!mem = memref<?x?x?x8xf32>
// CHECK: @heights{{.*}} why = {roles = "fragments are not all of one height"}
func.func @heights(%m: !mem, %x: f32, %n: index) attributes {flash.kernel, flash.plan = #flash.plan<consumers = 2>} {
  %v = flash_tile.view %m : !mem -> !V
  %r = flash_tile.ring "k" : !R
  flash_tile.for_work "single"(%n, %n, %n, %n) {
  ^bb0(%t: index, %h: index, %b: index, %s: index):
    flash_tile.fill %v[%b, %h, %t] -> %r[%t] : !V -> !R
    %0 = flash_tile.splat %x : f32 -> !flash_tile.frag<4x8xf32>
    %1 = flash_tile.splat %x : f32 -> !flash_tile.frag<2x8xf32>
    flash_tile.yield
  }
  return
}
// CHECK: @both_sides{{.*}} why = {roles = "a ring multiplies from both sides and cannot be divided by rows"}
func.func @both_sides(%m: !mem, %n: index) attributes {flash.kernel, flash.plan = #flash.plan<consumers = 2>} {
  %v = flash_tile.view %m : !mem -> !V
  %r = flash_tile.ring "k" : !R
  flash_tile.for_work "single"(%n, %n, %n, %n) {
  ^bb0(%t: index, %h: index, %b: index, %s: index):
    flash_tile.fill %v[%b, %h, %t] -> %r[%t] : !V -> !R
    %k = flash_tile.wait %r[%t] : !R -> !T
    %f = flash_tile.mma %k, %k trans : !T, !T -> !flash_tile.flight<4x4xf32>
    %0 = flash_tile.mma_wait %f : !flash_tile.flight<4x4xf32> -> !flash_tile.frag<4x4xf32>
    flash_tile.release %r[%t] : !R
    flash_tile.yield
  }
  return
}
// CHECK: @two_loops{{.*}} why = {roles = "the kernel is not one loop over its work"}
func.func @two_loops(%m: !mem, %n: index) attributes {flash.kernel, flash.plan = #flash.plan<consumers = 2>} {
  flash_tile.for_work "single"(%n, %n, %n, %n) {
  ^bb0(%t: index, %h: index, %b: index, %s: index):
    flash_tile.yield
  }
  flash_tile.for_work "single"(%n, %n, %n, %n) {
  ^bb0(%t: index, %h: index, %b: index, %s: index):
    flash_tile.yield
  }
  return
}
// CHECK: @results{{.*}} why = {roles = "the kernel's work gives results"}
func.func @results(%n: index) -> index attributes {flash.kernel, flash.plan = #flash.plan<consumers = 2>} {
  %r = flash_tile.for_work "single"(%n, %n, %n, %n) iter(%n : index) -> index {
  ^bb0(%t: index, %h: index, %b: index, %s: index, %i: index):
    flash_tile.yield %i : index
  }
  return %r : index
}
// CHECK: @no_output{{.*}} why = {roles = "without an output there are no columns to divide"}
func.func @no_output(%m: !mem, %n: index) attributes {flash.kernel, flash.plan = #flash.plan<consumers = 2, split_by = "columns">} {
  %v = flash_tile.view %m : !mem -> !V
  %r = flash_tile.ring "k" : !R
  flash_tile.for_work "single"(%n, %n, %n, %n) {
  ^bb0(%t: index, %h: index, %b: index, %s: index):
    flash_tile.fill %v[%b, %h, %t] -> %r[%t] : !V -> !R
    flash_tile.yield
  }
  return
}
// An output that is loaded, or that becomes scores, has no part of V behind it.
// CHECK: @loaded{{.*}} why = {roles = "flash_tile.load cannot give a part of the output's columns"}
func.func @loaded(%m: !mem, %x: f32, %n: index) attributes {flash.kernel, flash.plan = #flash.plan<consumers = 2, split_by = "columns">} {
  %v = flash_tile.view %m : !mem -> !V
  %r = flash_tile.ring "k" : !R
  flash_tile.for_work "single"(%n, %n, %n, %n) {
  ^bb0(%t: index, %h: index, %b: index, %s: index):
    flash_tile.fill %v[%b, %h, %t] -> %r[%t] : !V -> !R
    %o = flash_tile.load %v[%b, %h, %t] : !V -> !flash_tile.frag<4x8xf32>
    %l = flash_tile.splat %x : f32 -> !flash_tile.frag<4x1xf32>
    %0, %lse = flash_tile.finalize %o, %l, %l scale %x : !flash_tile.frag<4x8xf32>, !flash_tile.frag<4x1xf32>
    flash_tile.yield
  }
  return
}
// CHECK: @scores{{.*}} why = {roles = "flash_tile.softmax_step cannot take a part of the output's columns"}
func.func @scores(%m: !mem, %x: f32, %n: index) attributes {flash.kernel, flash.plan = #flash.plan<consumers = 2, split_by = "columns">} {
  %v = flash_tile.view %m : !mem -> !V
  %r = flash_tile.ring "k" : !R
  flash_tile.for_work "single"(%n, %n, %n, %n) {
  ^bb0(%t: index, %h: index, %b: index, %s: index):
    flash_tile.fill %v[%b, %h, %t] -> %r[%t] : !V -> !R
    %o = flash_tile.splat %x : f32 -> !flash_tile.frag<4x8xf32>
    %l = flash_tile.splat %x : f32 -> !flash_tile.frag<4x1xf32>
    %0, %lse = flash_tile.finalize %o, %l, %l scale %x : !flash_tile.frag<4x8xf32>, !flash_tile.frag<4x1xf32>
    %p, %m1, %l1, %alpha = flash_tile.softmax_step first %0, %l, %l scale %x : !flash_tile.frag<4x8xf32>, !flash_tile.frag<4x1xf32>
    flash_tile.yield
  }
  return
}
