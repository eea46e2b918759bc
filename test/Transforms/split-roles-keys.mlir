// RUN: flash-opt %s --flash-lower-to-tile --flash-tile-split-roles --canonicalize --cse | FileCheck %s --enable-var-scope

!t = memref<2x256x4x64xbf16>
!l = memref<2x4x256xf32>
!n = memref<2x256x4x128xbf16>
!w = memref<2x256x4x192xbf16>

// Consumers divide the keys. All write dS, and each takes its rows of queries for dQ, which is two products high.
// CHECK-LABEL: func @rows(
// CHECK: flash_tile.ring "k" {releases = 2 : i64} : <1x128x64xbf16>
// CHECK: flash_tile.ring "q" {releases = 2 : i64} : <1x128x64xbf16>
// CHECK: flash_tile.ring "ds" {releases = 2 : i64, writers = 2 : i64} : <1x128x128xbf16>
// CHECK: ^bb0(%{{[a-z0-9]+}}: index):
// CHECK-NOT: flash_tile.mma
// CHECK: ^bb0(%[[W:[a-z0-9]+]]: index):
// CHECK: %[[ROW:.*]] = arith.muli %[[W]], %c64
// CHECK: %[[K:.*]] = flash_tile.wait
// CHECK: flash_tile.slice %[[K]][%c0] row %[[ROW]] : <128x64xbf16> -> <64x64xbf16>
// CHECK: flash_tile.mask %{{.*}} trans : <64x128xf32>
// CHECK: flash_tile.write %{{.*}} -> %{{.*}} row %[[ROW]] : <64x128xbf16>
// CHECK: %[[DS:.*]] = flash_tile.slice %{{.*}}[%[[ROW]]] : <128x128xbf16> -> <128x64xbf16>
// CHECK: flash_tile.mma %[[DS]] trans, %[[K]] : {{.*}} -> <64x64xf32>
// CHECK: %[[PLACE:.*]] = arith.addi %{{.*}}, %[[W]]
// CHECK: flash_tile.store sum %{{.*}} turn(%{{.*}}[%[[PLACE]]] is
func.func @rows(%q: !t, %k: !t, %v: !t, %o: !t, %lse: !l, %do: !t, %dq: !t, %dk: !t, %dv: !t, %s: f32) {
  flash.attention_backward %q, %k, %v, %o, %lse, %do scale %s outs(%dq, %dk, %dv : !t, !t, !t) by #flash.mask<causal>
      {target = #flash.target<"cpu">, plan = #flash.plan<tile = [128, 128], consumers = 2, ordered = true>} : !t, !t, !t, !t, !l, !t
  return
}

// On a GPU warps that the producer does not need keep the turns, one for each consumer.
// CHECK-LABEL: func @keepers(
// CHECK: #flash_tile.role<"producer", instances = 1, warps = 2, registers = 24, units = [copy]>
// CHECK-SAME: #flash_tile.role<"keeper", instances = 2, warps = 1, registers = 24, units = [turn]>
// CHECK: ^bb0(%{{[a-z0-9]+}}: index):
// CHECK: ^bb0(%[[W:[a-z0-9]+]]: index):
// CHECK-NOT: flash_tile.wait
// CHECK: %[[PLACE:.*]] = arith.addi %{{.*}}, %[[W]]
// CHECK-NEXT: flash_tile.keep_turn %{{.*}}[%[[PLACE]]] is %{{.*}} : memref<?xi32,
// CHECK-NOT: flash_tile.keep_turn
// CHECK: ^bb0(%{{[a-z0-9]+}}: index):
// CHECK-NOT: flash_tile.block_range
// CHECK: flash_tile.store sum kept %{{.*}} -> %{{.*}}[%{{.*}}, %{{.*}}, %{{.*}}] : <64x64xf32> -> <64xf32>
func.func @keepers(%q: !t, %k: !t, %v: !t, %o: !t, %lse: !l, %do: !t, %dq: !t, %dk: !t, %dv: !t, %s: f32) {
  flash.attention_backward %q, %k, %v, %o, %lse, %do scale %s outs(%dq, %dk, %dv : !t, !t, !t) by #flash.mask<causal>
      {target = #flash.target<"sm_90a">, plan = #flash.plan<tile = [128, 128], consumers = 2, registers = [24, 240], ordered = true>} : !t, !t, !t, !t, !l, !t
  return
}

// One product high: its columns then.
// CHECK-LABEL: func @columns(
// CHECK: ^bb0(%[[W:[a-z0-9]+]]: index):
// CHECK: ^bb0(%[[W:[a-z0-9]+]]: index):
// CHECK: %[[COL:.*]] = arith.muli %[[W]], %c64
// CHECK: %[[K:.*]] = flash_tile.wait
// CHECK: %[[PART:.*]] = flash_tile.slice %[[K]][%[[COL]]] : <128x128xbf16> -> <128x64xbf16>
// CHECK: %[[F:.*]] = flash_tile.mma %{{.*}} trans, %[[PART]] : {{.*}} -> <64x64xf32>
// CHECK: %[[DQ:.*]] = flash_tile.mma_wait %[[F]]
// CHECK: flash_tile.store sum %[[DQ]] -> %{{.*}} col %[[COL]]
func.func @columns(%q: !n, %k: !n, %v: !n, %o: !n, %lse: !l, %do: !n, %dq: !n, %dk: !n, %dv: !n, %s: f32) {
  flash.attention_backward %q, %k, %v, %o, %lse, %do scale %s outs(%dq, %dk, %dv : !n, !n, !n) by #flash.mask<dense>
      {target = #flash.target<"cpu">, plan = #flash.plan<tile = [64, 128], consumers = 2>} : !n, !n, !n, !n, !l, !n
  return
}

// dV has a kernel of its own, before the other: no V there, and no dV here. Of dQ a consumer has half of each piece of 192 columns. With one
// slot dK goes before dQ, whose second piece comes when dK is done.
// CHECK-LABEL: func @own_dv_dv(
// CHECK-SAME: "q"}{{.*}}"k"}{{.*}}"do"}{{.*}}"lse_log2"}{{.*}}"dv"}
// CHECK-SAME: flash.op = "attention_backward_dv"
// CHECK-SAME: stages = 2
// CHECK-NOT: flash_tile.ring "v"
// CHECK: flash_tile.roles
// CHECK: ^bb0(%{{[a-z0-9]+}}: index):
// CHECK: ^bb0(%[[W:[a-z0-9]+]]: index):
// CHECK: %[[ROW:.*]] = arith.muli %[[W]], %c64
// CHECK: %[[S:.*]] = flash_tile.mma %{{.*}}, %{{.*}} trans : !flash_tile.tile<64x192xbf16>, <64x192xbf16> -> <64x64xf32>
// CHECK: flash_tile.mma_wait %[[S]]
// CHECK: %[[P:.*]] = flash_tile.cast
// CHECK: flash_tile.mma %[[P]], %{{.*}} acc {{.*}} -> <64x192xf32>
// CHECK-NOT: flash_tile.mma %
// CHECK: flash_tile.store %{{.*}}[%{{.*}}, %{{.*}}, %{{.*}}] : <64x192xbf16>
// CHECK-LABEL: func @own_dv(
// CHECK-SAME: "q"}{{.*}}"k"}{{.*}}"v"}{{.*}}"do"}{{.*}}"lse_log2"}{{.*}}"delta"}{{.*}}"dq_sum"}{{.*}}"dk"}
// CHECK: ^bb0(%{{[a-z0-9]+}}: index):
// CHECK: ^bb0(%[[W:[a-z0-9]+]]: index):
// CHECK: %[[KT:.*]] = flash_tile.wait
// CHECK: flash_tile.mma %{{.*}} trans : !flash_tile.tile<64x192xbf16>, <64x192xbf16> -> <64x64xf32>
// CHECK: flash_tile.mma %{{.*}} trans : !flash_tile.tile<64x192xbf16>, <64x192xbf16> -> <64x64xf32>
// CHECK: %[[DK:.*]] = flash_tile.mma %{{.*}}, %{{.*}} acc {{.*}} -> <64x192xf32>
// CHECK: flash_tile.mma %{{.*}} trans, %{{.*}} : {{.*}} -> <64x64xf32>
// CHECK: flash_tile.mma_wait %[[DK]]
// CHECK: flash_tile.mma %{{.*}} trans, %{{.*}} : {{.*}} -> <64x32xf32>
// CHECK: flash_tile.store sum %{{.*}} col %{{.*}} : <64x64xf32>
// CHECK: flash_tile.store sum %{{.*}} col %{{.*}} : <64x32xf32>
// CHECK: flash_tile.store %{{.*}}[%{{.*}}, %{{.*}}, %{{.*}}] : <64x192xbf16>
// CHECK-NOT: flash_tile.store
// CHECK-LABEL: func @own_dv_finish(
func.func @own_dv(%q: !w, %k: !w, %v: !w, %o: !w, %lse: !l, %do: !w, %dq: !w, %dk: !w, %dv: !w, %s: f32) {
  flash.attention_backward %q, %k, %v, %o, %lse, %do scale %s outs(%dq, %dk, %dv : !w, !w, !w) by #flash.mask<dense>
      {target = #flash.target<"cpu">, plan = #flash.plan<tile = [64, 128], stages = 1, consumers = 2, own_dv = true, ordered = false>} : !w, !w, !w, !w, !l, !w
  return
}

// Q and dO in turn in two slots: Q(i) is tile 2i + i mod 2, dO(i) the other of the two. V follows the first block's queries, and dO is awaited
// once more in front of what needs dP.
// CHECK-LABEL: func @alternate(
// CHECK: %[[V:.*]] = flash_tile.ring "v"
// CHECK: %[[Q:.*]] = flash_tile.ring "q" {releases = 2 : i64} : <2x64x128xbf16>
// CHECK-NOT: flash_tile.ring "do"
// CHECK: flash_tile.ring "lse" with %[[Q]] {{.*}} : <2x1x64xf32>
// CHECK-NOT: flash_tile.ring "delta"
// CHECK: flash_tile.roles
// CHECK: %[[ODD:.*]] = arith.remui %[[I:.*]], %c2
// CHECK: %[[TWICE:.*]] = arith.muli %[[I]], %c2
// CHECK: %[[ITQ:.*]] = arith.addi %[[TWICE]], %[[ODD]]
// CHECK: %[[NEXT:.*]] = arith.addi %[[TWICE]], %c1
// CHECK: %[[ITDO:.*]] = arith.subi %[[NEXT]], %[[ODD]]
// CHECK: flash_tile.fill {{.*}} -> %[[Q]][%[[ITQ]]]
// CHECK: scf.if
// CHECK: flash_tile.fill {{.*}} -> %[[V]]
// CHECK: flash_tile.fill {{.*}} -> %[[Q]][%[[ITDO]]]
// CHECK: ^bb0(%{{[a-z0-9]+}}: index):
// CHECK: %[[OWNQ:.*]] = arith.addi %{{.*}}, %{{.*}} : index
// CHECK: %[[S:.*]] = flash_tile.mma
// CHECK: flash_tile.wait %[[V]][
// CHECK: %[[DP:.*]] = flash_tile.mma
// CHECK: flash_tile.mma_wait %[[S]]
// CHECK: flash_tile.wait %[[Q]][%[[OWNDO:.*]]]
// CHECK: flash_tile.mma_wait %[[DP]]
// CHECK: flash_tile.release %[[Q]][%[[OWNDO]]]
// CHECK: %[[DK:.*]] = flash_tile.mma
// CHECK: flash_tile.mma_wait %[[DK]]
// CHECK: flash_tile.release %[[Q]]
func.func @alternate(%q: !n, %k: !n, %v: !n, %o: !n, %lse: !l, %do: !n, %dq: !n, %dk: !n, %dv: !n, %s: f32) {
  flash.attention_backward %q, %k, %v, %o, %lse, %do scale %s outs(%dq, %dk, %dv : !n, !n, !n) by #flash.mask<dense>
      {target = #flash.target<"cpu">, plan = #flash.plan<tile = [64, 128], stages = 1, consumers = 2, own_dv = true, alternate = true, late_v = true, late_dp = true, ordered = false>} : !n, !n, !n, !n, !l, !n
  return
}

// CHECK-LABEL: func @refused(
// CHECK-SAME: 3 consumers do not divide 128 rows
func.func @refused(%q: !n, %k: !n, %v: !n, %o: !n, %lse: !l, %do: !n, %dq: !n, %dk: !n, %dv: !n, %s: f32) {
  flash.attention_backward %q, %k, %v, %o, %lse, %do scale %s outs(%dq, %dk, %dv : !n, !n, !n) by #flash.mask<dense>
      {target = #flash.target<"cpu">, plan = #flash.plan<tile = [192, 128], consumers = 3>} : !n, !n, !n, !n, !l, !n
  return
}
