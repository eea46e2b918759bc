// Roles by clone-and-erase: the producer copies, the consumers compute on their part of the tile.
// RUN: flash-opt %s --flash-tile-split-roles --verify-roundtrip | FileCheck %s

!mem = memref<?x?x?x8xf32, strided<[?, ?, ?, 1], offset: ?>>
!stats = memref<?x?x?xf32, strided<[?, ?, ?], offset: ?>>
!V = !flash_tile.view<8xf32>
!L = !flash_tile.view<1xf32>
!QR = !flash_tile.ring<1x4x8xf32>
!KR = !flash_tile.ring<2x6x8xf32>
!QT = !flash_tile.tile<4x8xf32>
!KT = !flash_tile.tile<6x8xf32>
!S = !flash_tile.frag<4x6xf32>
!O = !flash_tile.frag<4x8xf32>
!C = !flash_tile.frag<4x1xf32>

// CHECK-LABEL: func.func @rows
// CHECK-DAG: %[[QR:.*]] = flash_tile.ring "q" : <2x2x8xf32>
// CHECK-DAG: %[[KR:.*]] = flash_tile.ring "k" {releases = 2 : i64} : <2x6x8xf32>
// CHECK-DAG: %[[VR:.*]] = flash_tile.ring "v" {releases = 2 : i64} : <2x6x8xf32>
// CHECK: flash_tile.roles [#flash_tile.role<"producer", instances = 1, warps = 4, registers = 24, units = [copy]>,
// CHECK-SAME: #flash_tile.role<"consumer", instances = 2, warps = 4, registers = 240, units = [tensor, vector]>]
//
// The producer's part: each consumer's rows of Q, and loops that carry nothing.
// CHECK: flash_tile.for_work "single"
// CHECK-NEXT: ^bb0(%[[M:.*]]: index, %[[H:.*]]: index, %[[B:.*]]: index, %{{.*}}: index, %[[T:.*]]: index, %[[N:.*]]: index):
// CHECK: %[[ROW:.*]] = arith.muli %[[M]], %{{.*}}
// CHECK: scf.if
// CHECK: flash_tile.fill %{{.*}} -> %[[KR]][%[[N]]]
// CHECK: %[[Q0:.*]] = arith.muli %[[T]], %c2{{.*}}
// CHECK-NEXT: flash_tile.fill %{{.*}}[%[[B]], %[[H]], %[[ROW]]] -> %[[QR]][%[[Q0]]]
// CHECK: %[[ROW1:.*]] = arith.addi %[[ROW]], %c2{{.*}}
// CHECK: %[[Q1:.*]] = arith.addi %[[Q0]], %c1{{.*}}
// CHECK-NEXT: flash_tile.fill %{{.*}}[%[[B]], %[[H]], %[[ROW1]]] -> %[[QR]][%[[Q1]]]
// CHECK-NOT: iter_args
// CHECK-NOT: flash_tile.wait
// CHECK: scf.for %[[I:.*]] = %{{.*}} to %{{.*}} step %{{.*}} {
// CHECK: flash_tile.fill %{{.*}} -> %[[KR]]
// CHECK: flash_tile.fill %{{.*}} -> %[[VR]]
// CHECK-NEXT: } {flash_tile.run = "all"}
// CHECK-NOT: flash_tile.release
// CHECK: flash_tile.yield %{{.*}}, %{{.*}} : index, index
//
// The consumer's part: two rows of everything but of the block range.
// CHECK: ^bb0(%[[W:.*]]: index):
// CHECK: %[[FIRST:.*]] = arith.muli %[[W]], %c2{{.*}}
// CHECK: ^bb0(%[[M:.*]]: index, %[[H:.*]]: index, %[[B:.*]]: index, %{{.*}}: index, %[[T:.*]]: index, %[[N:.*]]: index):
// CHECK: %[[T2:.*]] = arith.muli %[[T]], %c2{{.*}}
// CHECK-NEXT: %[[QI:.*]] = arith.addi %[[T2]], %[[W]]
// CHECK: %[[ROW:.*]] = arith.muli %[[M]], %{{.*}}
// CHECK-NEXT: %[[OWN:.*]] = arith.addi %[[ROW]], %[[FIRST]]
// CHECK: flash_tile.block_range by <causal> rows[%[[ROW]], 4]
// CHECK-NOT: flash_tile.fill
// CHECK-NOT: scf.if
// CHECK: %[[QT:.*]] = flash_tile.wait %[[QR]][%[[QI]]] : <2x2x8xf32> -> <2x8xf32>
// CHECK: scf.for {{.*}} -> (!flash_tile.frag<2x8xf32>, !flash_tile.frag<2x1xf32>, !flash_tile.frag<2x1xf32>)
// CHECK: flash_tile.mma %[[QT]], %{{.*}} trans : !flash_tile.tile<2x8xf32>, <6x8xf32> -> <2x6xf32>
// CHECK: flash_tile.mask %{{.*}} at[%[[OWN]], %{{.*}}] {{.*}} : <2x6xf32>
// CHECK: flash_tile.release %[[VR]]
// CHECK-NOT: flash_tile.fill
// CHECK: flash_tile.release %[[QR]][%[[QI]]]
// CHECK: flash_tile.finalize {{.*}}sink(%{{.*}}[%[[H]], %[[OWN]]] : {{.*}} : <2x8xf32>, <2x1xf32>
// CHECK: flash_tile.store %{{.*}} -> %{{.*}}[%[[B]], %[[H]], %[[OWN]]] : <2x8xf32>
// CHECK: flash_tile.store %{{.*}} -> %{{.*}}[%[[B]], %[[H]], %[[OWN]]] : <2x1xf32>
func.func @rows(%q: !mem, %k: !mem, %v: !mem, %o: !mem, %lse: !stats, %logits: memref<?xf32>, %scale: f32,
                %tiles: index, %heads: index, %batch: index)
    attributes {flash.kernel, flash.plan = #flash.plan<consumers = 2, registers = [24, 240]>} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c6 = arith.constant 6 : index
  %zero = arith.constant 0.0 : f32
  %qv = flash_tile.view %q : !mem -> !V
  %kv = flash_tile.view %k : !mem -> !V
  %vv = flash_tile.view %v : !mem -> !V
  %ov = flash_tile.view %o : !mem -> !V
  %lv = flash_tile.view %lse : !stats -> !L
  %qr = flash_tile.ring "q" : !QR
  %kr = flash_tile.ring "k" : !KR
  %vr = flash_tile.ring "v" : !KR
  %r:2 = flash_tile.for_work "single"(%tiles, %heads, %batch, %c1) iter(%c0, %c0 : index, index) -> index, index {
  ^bb0(%m: index, %h: index, %b: index, %s: index, %t: index, %n: index):
    %row = arith.muli %m, %c4 : index
    %lq = flash_tile.length %qv[%b] : !V
    %lk = flash_tile.length %kv[%b] : !V
    %end, %nb, %inner, %left, %sink = flash_tile.block_range by #flash.mask<causal> rows [%row, 4] block 6 lengths (%lq, %lk) split (%s, %c1)
    %o0 = flash_tile.splat %zero : f32 -> !O
    %l0 = flash_tile.splat %zero : f32 -> !C
    %some = arith.cmpi sgt, %nb, %c0 : index
    scf.if %some {
      flash_tile.fill %kv[%b, %h, %c0] -> %kr[%n] : !V -> !KR
    }
    flash_tile.fill %qv[%b, %h, %row] -> %qr[%t] : !V -> !QR
    %qt = flash_tile.wait %qr[%t] : !QR -> !QT
    %x:3 = scf.for %i = %c0 to %nb step %c1 iter_args(%oi = %o0, %mi = %l0, %li = %l0) -> (!O, !C, !C) {
      %col = arith.muli %i, %c6 : index
      %it = arith.addi %n, %i : index
      %i1 = arith.addi %i, %c1 : index
      %more = arith.cmpi slt, %i1, %nb : index
      scf.if %more {
        %it1 = arith.addi %it, %c1 : index
        flash_tile.fill %kv[%b, %h, %col] -> %kr[%it1] : !V -> !KR
      }
      flash_tile.fill %vv[%b, %h, %col] -> %vr[%it] : !V -> !KR
      %kt = flash_tile.wait %kr[%it] : !KR -> !KT
      %sf = flash_tile.mma %qt, %kt trans : !QT, !KT -> !flash_tile.flight<4x6xf32>
      %s0 = flash_tile.mma_wait %sf : !flash_tile.flight<4x6xf32> -> !S
      flash_tile.release %kr[%it] : !KR
      %sm = flash_tile.mask %s0 by #flash.mask<causal> at [%row, %col] lengths (%lq, %lk) : !S
      %p, %m1, %l1, %alpha = flash_tile.softmax_step online %sm, %mi, %li scale %scale : !S, !C
      %o1 = flash_tile.rescale %oi, %alpha : !O, !C
      %vt = flash_tile.wait %vr[%it] : !KR -> !KT
      %of = flash_tile.mma %p, %vt acc %o1 : !O : !S, !KT -> !flash_tile.flight<4x8xf32>
      %o2 = flash_tile.mma_wait %of : !flash_tile.flight<4x8xf32> -> !O
      flash_tile.release %vr[%it] : !KR
      scf.yield %o2, %m1, %l1 : !O, !C, !C
    } {flash_tile.run = "all"}
    flash_tile.release %qr[%t] : !QR
    %on, %lser = flash_tile.finalize %x#0, %x#1, %x#2 scale %scale sink(%logits[%h, %row] : memref<?xf32>) : !O, !C
    flash_tile.store %on -> %ov[%b, %h, %row] : !O -> !V
    flash_tile.store %lser -> %lv[%b, %h, %row] : !C -> !L
    %t1 = arith.addi %t, %c1 : index
    %n1 = arith.addi %n, %nb : index
    flash_tile.yield %t1, %n1 : index, index
  }
  return
}
