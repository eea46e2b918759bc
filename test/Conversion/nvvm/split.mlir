// A kernel of parts of the keys, one a block: the copier meets the others when it knows its tile, a thread of the consumer sets the
// barriers up meanwhile, and the combine is let in before a part is stored. It reads the parts from the L2 cache.
// RUN: flash-compile %s --emit=ptx | FileCheck %s
// RUN: flash-opt %s --flash-select-tiles --flash-split-kv --flash-order-work | FileCheck %s --check-prefix=PLAN

!q = tensor<1x1x32x128xbf16>
!k = tensor<1x16384x8x128xbf16>
!lse = tensor<1x32x1xf32>

// PLAN-LABEL: func.func @decode(
// PLAN:         persistent = false

// CHECK-LABEL: .entry decode(
// CHECK:         %tid.x;
// CHECK-NEXT:    setp.{{.*}}, 255;
// CHECK:         prefetch.tensormap
// CHECK-NOT:     bar.sync
// CHECK:         mbarrier.init
// CHECK:         fence.mbarrier_init
// CHECK:         bar.sync {{.*}}0;
// CHECK-NOT:     barrier.sync
// CHECK:         mbarrier.try_wait
// CHECK:         elect.sync
// CHECK-NOT:     mbarrier.try_wait
// CHECK:         barrier.sync {{.*}}%r
// CHECK:         mbarrier.try_wait
// CHECK:         cp.async.bulk.tensor
// CHECK:         griddepcontrol.launch_dependents;
// CHECK-NOT:     griddepcontrol
// CHECK:         st.global

// CHECK-LABEL: .entry decode_combine(
// CHECK-NOT:     ld.global
// CHECK:         griddepcontrol.wait;
// Four warps, each with four parts at once: those that are there, no branch between them. One joins what they have.
// CHECK-COUNT-3: @%p{{[0-9]+}} ld.global.cg.v4.f32
// CHECK-NOT:     bra
// CHECK:         @%p{{[0-9]+}} ld.global.cg.f32
// CHECK:         @%p{{[0-9]+}} ld.global.cg.v4.f32
// CHECK-NOT:     ld.global
// CHECK:         bar.sync
// CHECK:         st.shared.v4
// CHECK:         bar.sync
// CHECK:         ld.shared
func.func @decode(%q: !q, %k: !k, %v: !k) -> (!q, !lse) {
  %o:2 = flash.attention %q, %k, %v by <dense> {target = #flash.target<"sm_90a">} : !q, !k, !k -> !q, !lse
  return %o#0, %o#1 : !q, !lse
}
