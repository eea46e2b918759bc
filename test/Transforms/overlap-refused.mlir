// Loops that are not runs of QK, softmax and PV are left alone, with the reason in the plan.
// RUN: flash-opt %s --flash-tile-overlap-softmax | FileCheck %s
!Q = !flash_tile.tile<4x8xf32>
!R = !flash_tile.ring<2x4x8xf32>
!S = !flash_tile.frag<4x4xf32>
!SF = !flash_tile.flight<4x4xf32>
!O = !flash_tile.frag<4x8xf32>
!OF = !flash_tile.flight<4x8xf32>
!C = !flash_tile.frag<4x1xf32>

// CHECK: @no_softmax{{.*}}overlap = false, why = {overlap = "no run of key blocks holds a softmax step"}
func.func @no_softmax() attributes {flash.kernel, flash.plan = #flash.plan<overlap = true>} { return }

// CHECK: @no_products{{.*}}overlap = false, why = {overlap = "a run is more than QK, softmax and PV block after block"}
func.func @no_products(%s: !S, %x: f32, %c: !C, %i: index) attributes {flash.kernel, flash.plan = #flash.plan<overlap = true>} {
  scf.for %j = %i to %i step %i {
    %p, %m, %l, %a = flash_tile.softmax_step online %s, %c, %c scale %x : !S, !C
  } {flash_tile.run = "all"}
  return
}

// The output is not rescaled before PV.
// CHECK: @no_rescale{{.*}}overlap = false, why = {overlap = "a run's second product is not PV on rescaled output"}
func.func @no_rescale(%q: !Q, %o: !O, %c: !C, %x: f32, %n: index) attributes {flash.kernel, flash.plan = #flash.plan<overlap = true>} {
  %c1 = arith.constant 1 : index
  %kr = flash_tile.ring "k" : !R
  %vr = flash_tile.ring "v" : !R
  %r:3 = scf.for %i = %n to %n step %c1 iter_args(%oi = %o, %mi = %c, %li = %c) -> (!O, !C, !C) {
    %k = flash_tile.wait %kr[%i] : !R -> !Q
    %sf = flash_tile.mma %q, %k trans : !Q, !Q -> !SF
    %s = flash_tile.mma_wait %sf : !SF -> !S
    %p, %m, %l, %a = flash_tile.softmax_step online %s, %mi, %li scale %x : !S, !C
    %v = flash_tile.wait %vr[%i] : !R -> !Q
    %of = flash_tile.mma %p, %v acc %oi : !O : !S, !Q -> !OF
    %o1 = flash_tile.mma_wait %of : !OF -> !O
    flash_tile.release %vr[%i] : !R
    scf.yield %o1, %m, %l : !O, !C, !C
  } {flash_tile.run = "all"}
  return
}

// O is rescaled after PV: what one block hands on is not PV's result.
// CHECK: @rescaled_late{{.*}}overlap = false, why = {overlap = "a run does not carry the result of PV"}
func.func @rescaled_late(%q: !Q, %o: !O, %c: !C, %x: f32, %n: index) attributes {flash.kernel, flash.plan = #flash.plan<overlap = true>} {
  %c1 = arith.constant 1 : index
  %kr = flash_tile.ring "k" : !R
  %vr = flash_tile.ring "v" : !R
  %r:3 = scf.for %i = %n to %n step %c1 iter_args(%oi = %o, %mi = %c, %li = %c) -> (!O, !C, !C) {
    %k = flash_tile.wait %kr[%i] : !R -> !Q
    %sf = flash_tile.mma %q, %k trans : !Q, !Q -> !SF
    %s = flash_tile.mma_wait %sf : !SF -> !S
    %p, %m, %l, %a = flash_tile.softmax_step online %s, %mi, %li scale %x : !S, !C
    %os = flash_tile.rescale %oi, %a : !O, !C
    %v = flash_tile.wait %vr[%i] : !R -> !Q
    %of = flash_tile.mma %p, %v acc %os : !O : !S, !Q -> !OF
    %o1 = flash_tile.mma_wait %of : !OF -> !O
    flash_tile.release %vr[%i] : !R
    %o2 = flash_tile.rescale %o1, %a : !O, !C
    scf.yield %o2, %m, %l : !O, !C, !C
  } {flash_tile.run = "all"}
  return
}

// Something else takes this block's output.
// CHECK: @reader{{.*}}overlap = false, why = {overlap = "flash_tile.cast stands between PV and the next block"}
func.func @reader(%q: !Q, %o: !O, %c: !C, %x: f32, %n: index) attributes {flash.kernel, flash.plan = #flash.plan<overlap = true>} {
  %c1 = arith.constant 1 : index
  %kr = flash_tile.ring "k" : !R
  %vr = flash_tile.ring "v" : !R
  %r:3 = scf.for %i = %n to %n step %c1 iter_args(%oi = %o, %mi = %c, %li = %c) -> (!O, !C, !C) {
    %k = flash_tile.wait %kr[%i] : !R -> !Q
    %sf = flash_tile.mma %q, %k trans : !Q, !Q -> !SF
    %s = flash_tile.mma_wait %sf : !SF -> !S
    %p, %m, %l, %a = flash_tile.softmax_step online %s, %mi, %li scale %x : !S, !C
    %os = flash_tile.rescale %oi, %a : !O, !C
    %v = flash_tile.wait %vr[%i] : !R -> !Q
    %of = flash_tile.mma %p, %v acc %os : !O : !S, !Q -> !OF
    %o1 = flash_tile.mma_wait %of : !OF -> !O
    flash_tile.release %vr[%i] : !R
    %of16 = flash_tile.cast %o1 : !O -> !flash_tile.frag<4x8xbf16>
    scf.yield %o1, %m, %l : !O, !C, !C
  } {flash_tile.run = "all"}
  return
}

// CHECK: @between{{.*}}overlap = false, why = {overlap = "flash_tile.release stands between two runs"}
func.func @between(%q: !Q, %o: !O, %c: !C, %x: f32, %n: index) attributes {flash.kernel, flash.plan = #flash.plan<overlap = true>} {
  %c1 = arith.constant 1 : index
  %kr = flash_tile.ring "k" : !R
  %vr = flash_tile.ring "v" : !R
  %r:3 = scf.for %i = %n to %n step %c1 iter_args(%oi = %o, %mi = %c, %li = %c) -> (!O, !C, !C) {
    %k = flash_tile.wait %kr[%i] : !R -> !Q
    %sf = flash_tile.mma %q, %k trans : !Q, !Q -> !SF
    %s = flash_tile.mma_wait %sf : !SF -> !S
    %p, %m, %l, %a = flash_tile.softmax_step online %s, %mi, %li scale %x : !S, !C
    %os = flash_tile.rescale %oi, %a : !O, !C
    %v = flash_tile.wait %vr[%i] : !R -> !Q
    %of = flash_tile.mma %p, %v acc %os : !O : !S, !Q -> !OF
    %o1 = flash_tile.mma_wait %of : !OF -> !O
    flash_tile.release %vr[%i] : !R
    scf.yield %o1, %m, %l : !O, !C, !C
  } {flash_tile.run = "right"}
  flash_tile.release %kr[%n] : !R
  %y:3 = scf.for %i = %n to %n step %c1 iter_args(%oi = %r#0, %mi = %r#1, %li = %r#2) -> (!O, !C, !C) {
    %k = flash_tile.wait %kr[%i] : !R -> !Q
    %sf = flash_tile.mma %q, %k trans : !Q, !Q -> !SF
    %s = flash_tile.mma_wait %sf : !SF -> !S
    %p, %m, %l, %a = flash_tile.softmax_step online %s, %mi, %li scale %x : !S, !C
    %os = flash_tile.rescale %oi, %a : !O, !C
    %v = flash_tile.wait %vr[%i] : !R -> !Q
    %of = flash_tile.mma %p, %v acc %os : !O : !S, !Q -> !OF
    %o1 = flash_tile.mma_wait %of : !OF -> !O
    flash_tile.release %vr[%i] : !R
    scf.yield %o1, %m, %l : !O, !C, !C
  } {flash_tile.run = "inner"}
  return
}

// CHECK: @apart{{.*}}overlap = false, why = {overlap = "the runs do not continue each other"}
func.func @apart(%q: !Q, %o: !O, %c: !C, %x: f32, %n: index) attributes {flash.kernel, flash.plan = #flash.plan<overlap = true>} {
  %c1 = arith.constant 1 : index
  %kr = flash_tile.ring "k" : !R
  %vr = flash_tile.ring "v" : !R
  %r:3 = scf.for %i = %n to %n step %c1 iter_args(%oi = %o, %mi = %c, %li = %c) -> (!O, !C, !C) {
    %k = flash_tile.wait %kr[%i] : !R -> !Q
    %sf = flash_tile.mma %q, %k trans : !Q, !Q -> !SF
    %s = flash_tile.mma_wait %sf : !SF -> !S
    %p, %m, %l, %a = flash_tile.softmax_step online %s, %mi, %li scale %x : !S, !C
    %os = flash_tile.rescale %oi, %a : !O, !C
    %v = flash_tile.wait %vr[%i] : !R -> !Q
    %of = flash_tile.mma %p, %v acc %os : !O : !S, !Q -> !OF
    %o1 = flash_tile.mma_wait %of : !OF -> !O
    flash_tile.release %vr[%i] : !R
    scf.yield %o1, %m, %l : !O, !C, !C
  } {flash_tile.run = "right"}
  %y:3 = scf.for %i = %n to %n step %c1 iter_args(%oi = %o, %mi = %c, %li = %c) -> (!O, !C, !C) {
    %k = flash_tile.wait %kr[%i] : !R -> !Q
    %sf = flash_tile.mma %q, %k trans : !Q, !Q -> !SF
    %s = flash_tile.mma_wait %sf : !SF -> !S
    %p, %m, %l, %a = flash_tile.softmax_step online %s, %mi, %li scale %x : !S, !C
    %os = flash_tile.rescale %oi, %a : !O, !C
    %v = flash_tile.wait %vr[%i] : !R -> !Q
    %of = flash_tile.mma %p, %v acc %os : !O : !S, !Q -> !OF
    %o1 = flash_tile.mma_wait %of : !OF -> !O
    flash_tile.release %vr[%i] : !R
    scf.yield %o1, %m, %l : !O, !C, !C
  } {flash_tile.run = "inner"}
  return
}
