// RUN: flash-opt %s --flash-to-tile --convert-flash-tile-to-nvvm --canonicalize --cse | FileCheck %s --enable-var-scope
// RUN: not flash-opt %s --flash-to-tile=split-roles=false --convert-flash-tile-to-nvvm 2>&1 | FileCheck %s --check-prefix=WHOLE

!t = memref<?x?x?x64xbf16, strided<[?, ?, ?, 1], offset: ?>>
!l = memref<?x?x?xf32, strided<[?, ?, ?], offset: ?>>

// A row of statistics is one bulk copy, which completes with Q's or dO's, behind a fence: lanes have read the row before it. dS is written by the warps of both consumers, one arrival each, before a proxy
// fence, and read as transposed left operand: trans-a and trans-b. P and dS come from registers.
// CHECK-LABEL: llvm.func @gradients(
// CHECK: nvvm.mbarrier.init %{{.*}}, %c8_i32
// CHECK: nvvm.griddepcontrol wait
// CHECK: nvvm.setmaxregister decrease 24
// CHECK: nvvm.mbarrier.arrive.expect_tx %[[FULL:.*]], %c16896_i32
// CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global
// CHECK: nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}
// CHECK: "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3];", "r,l,r,r,~{memory}" %{{.*}}, %{{.*}}, %c512_i32, %[[FULL]]
// CHECK: nvvm.setmaxregister increase 240
// CHECK: nvvm.mbarrier.try_wait.parity
// CHECK: da, db, 1, 1, 1, 0, 0;
// CHECK: nvvm.mbarrier.try_wait.parity
// CHECK: da, db, 1, 1, 1, 0, 0;
// CHECK-NOT: nvvm.mbarrier.try_wait.parity
// CHECK: "wgmma.wait_group.sync.aligned 1;"
// CHECK: llvm.intr.exp2
// CHECK: nvvm.bar.warp.sync
// CHECK: "wgmma.wait_group.sync.aligned 0;"
// CHECK: }, db, 1, 1, 1, 1;
// CHECK: nvvm.mbarrier.try_wait.parity
// CHECK-COUNT-8: stmatrix.sync.aligned.m8n8.x4.shared.b16
// CHECK-NOT: stmatrix
// CHECK: nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}
// CHECK-NEXT: nvvm.bar.warp.sync
// CHECK: mbarrier.arrive.shared::cta.b64
// CHECK: nvvm.mbarrier.try_wait.parity
// CHECK: da, db, 1, 1, 1, 1, 1;
// CHECK: }, db, 1, 1, 1, 1;
// CHECK: "wgmma.wait_group.sync.aligned 2;"
// CHECK: "wgmma.wait_group.sync.aligned 1;"
// CHECK: "red.relaxed.gpu.global.add.v4.f32 [$0+0], {$1, $2, $3, $4};"
// CHECK: "red.relaxed.gpu.global.add.v4.f32 [$0+512], {$1, $2, $3, $4};"
// CHECK: "wgmma.wait_group.sync.aligned 0;"

// The same with the sum of dQ by the copy engine: a warp's cells in a row, behind what it read of the sum before.
// CHECK-LABEL: llvm.func @staged(
// CHECK: da, db, 1, 1, 1, 1, 1;
// CHECK: "@$0 cp.async.bulk.wait_group.read 0;"
// CHECK-NEXT: nvvm.bar.warp.sync
// CHECK: "st.shared.v4.f32 [$0+0], {$1, $2, $3, $4};"
// CHECK: "st.shared.v4.f32 [$0+3584], {$1, $2, $3, $4};"
// CHECK: nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}
// CHECK-NEXT: nvvm.bar.warp.sync
// CHECK: "@$2 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [$0], [$1+0], 4096;"
// CHECK: "@$0 cp.async.bulk.commit_group;"

// CHECK-LABEL: llvm.func @staged_finish(
// CHECK: nvvm.griddepcontrol wait
// CHECK-COUNT-2: llvm.load %{{.*}} {alignment = 8 : i64} : !llvm.ptr<1> -> vector<2xf32>

// Sums in an order. Warps 2 and 3 keep the turns of consumers 0 and 1: they let them in at named barriers 3 and 4 (3 +
// warp - 2) and wait at 5 and 6 until they have added, to pass the turn on. No look at a turn stands among products.
// CHECK-LABEL: llvm.func @ordered(
// CHECK: nvvm.setmaxregister decrease 24
// CHECK: nvvm.elect.sync
// CHECK: %[[LOOK:.*]] = llvm.inline_asm {{.*}} "ld.acquire.gpu.global.b32 $0, [$1];", "=r,l,~{memory}" %[[TURN:.*]] :
// CHECK: arith.cmpi ne, %[[LOOK]], %{{.*}} : i32
// CHECK: nvvm.shfl.sync idx
// CHECK: nvvm.barrier.arrive id = %{{.*}} number_of_threads = %c160_i32
// CHECK: nvvm.barrier id = %{{.*}} number_of_threads = %c160_i32
// CHECK: "@$2 red.release.gpu.global.add.u32 [$0], $1;", "l,r,b,~{memory}" %[[TURN]],
// CHECK: nvvm.setmaxregister increase 240
// CHECK-NOT: ld.acquire
// CHECK: "wgmma.wait_group.sync.aligned 1;"
// CHECK: nvvm.barrier id = %[[IN:.*]] number_of_threads = %c160_i32
// CHECK: "red.relaxed.gpu.global.add.v4.f32 [$0+0], {$1, $2, $3, $4};"
// CHECK: nvvm.barrier.arrive id = %{{.*}} number_of_threads = %c160_i32
// CHECK: "wgmma.wait_group.sync.aligned 0;"

// Warps in step multiply as those of older machines do.
// CHECK-LABEL: llvm.func @warps(
// CHECK: nvvm.mma.sync
// CHECK-NOT: wgmma
// CHECK: "red.relaxed.gpu.global.add.v4.f32 [$0+0], {$1, $2, $3, $4};"

// Keys and values past those in use are zeros: P is 0 there, but 0 * NaN is not. Boxes of 8 rows, single rows at the end.
// CHECK-LABEL: llvm.func @used(
// CHECK: scf.for %{{.*}} = %c0{{.*}} to %c128{{.*}} step %c8
// CHECK: scf.for %{{.*}} = %c0{{.*}} to %c8{{.*}} step %c1
// CHECK: scf.for %{{.*}} = %c0{{.*}} to %c128{{.*}} step %c8
// CHECK: scf.for %{{.*}} = %c0{{.*}} to %c8{{.*}} step %c1
// CHECK: nvvm.setmaxregister increase 240

// dV alone: scores, and P from registers. Two slots of Q and of dO, whole panels.
// CHECK-LABEL: llvm.func @wide_dv(
// CHECK: nvvm.setmaxregister increase 240
// CHECK: wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {{.*}}, da, db, 1, 1, 1, 0, 0;
// CHECK: "wgmma.wait_group.sync.aligned 0;"
// CHECK: llvm.intr.exp2
// CHECK: wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {{.*}}}, db, 1, 1, 1, 1;

// Q and dO in turn in two slots, of the other's barriers too. A consumer's part of a piece of dQ is a panel.
// CHECK-LABEL: llvm.func @wide(
// CHECK: nvvm.setmaxregister increase 240
// CHECK: wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {{.*}}, da, db, 1, 1, 1, 0, 0;
// CHECK: wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {{.*}}, da, db, 1, 1, 1, 0, 0;
// CHECK: "wgmma.wait_group.sync.aligned 1;"
// CHECK: llvm.intr.exp2
// CHECK: "wgmma.wait_group.sync.aligned 0;"
// CHECK: wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {{.*}}}, db, 1, 1, 1, 1;
// CHECK: wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {{.*}}, da, db, 1, 1, 1, 1, 1;
// CHECK: wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {{.*}}, da, db, 1, 1, 1, 1, 1;
// CHECK: "red.relaxed.gpu.global.add.v4.f32 [$0+0], {$1, $2, $3, $4};"

// Half of the columns of a panel: 64 bytes within its rows. 192 columns are two panels and one that consumers halve.
// CHECK-LABEL: llvm.func @halves(
// CHECK: wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {{.*}}}, db, 1, 1, 1, 1;
// CHECK: wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {{.*}}, da, db, 1, 1, 1, 1, 1;
// CHECK: arith.remui %{{.*}}, %c64
// CHECK: wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {{.*}}, da, db, 1, 1, 1, 1, 1;

// WHOLE: error: storing via shared memory is not built for sm_90a
func.func @gradients(%q: !t, %k: !t, %v: !t, %o: !t, %lse: !l, %do: !t, %dq: !t, %dk: !t, %dv: !t, %scale: f32) {
  flash.attention_backward %q, %k, %v, %o, %lse, %do scale %scale outs(%dq, %dk, %dv : !t, !t, !t) by #flash.mask<causal>
      {target = #flash.target<"sm_90a">, plan = #flash.plan<consumers = 2, overlap = false, staged_columns = 0>} : !t, !t, !t, !t, !l, !t
  return
}

func.func @staged(%q: !t, %k: !t, %v: !t, %o: !t, %lse: !l, %do: !t, %dq: !t, %dk: !t, %dv: !t, %scale: f32) {
  flash.attention_backward %q, %k, %v, %o, %lse, %do scale %scale outs(%dq, %dk, %dv : !t, !t, !t) by #flash.mask<causal>
      {target = #flash.target<"sm_90a">, plan = #flash.plan<consumers = 2, staged_columns = 64>} : !t, !t, !t, !t, !l, !t
  return
}

func.func @ordered(%q: !t, %k: !t, %v: !t, %o: !t, %lse: !l, %do: !t, %dq: !t, %dk: !t, %dv: !t, %scale: f32) {
  flash.attention_backward %q, %k, %v, %o, %lse, %do scale %scale outs(%dq, %dk, %dv : !t, !t, !t) by #flash.mask<causal>
      {target = #flash.target<"sm_90a">, plan = #flash.plan<consumers = 2, ordered = true>} : !t, !t, !t, !t, !l, !t
  return
}

func.func @warps(%q: !t, %k: !t, %v: !t, %o: !t, %lse: !l, %do: !t, %dq: !t, %dk: !t, %dv: !t, %scale: f32) {
  flash.attention_backward %q, %k, %v, %o, %lse, %do scale %scale outs(%dq, %dk, %dv : !t, !t, !t) by #flash.mask<dense>
      {target = #flash.target<"sm_90a">, plan = #flash.plan<warps = 8>} : !t, !t, !t, !t, !l, !t
  return
}

func.func @used(%q: !t, %k: !t, %v: !t, %o: !t, %lse: !l, %do: !t, %dq: !t, %dk: !t, %dv: !t, %scale: f32, %n: memref<?xi32>) {
  flash.attention_backward %q, %k, %v, %o, %lse, %do scale %scale seqused_k(%n : memref<?xi32>) outs(%dq, %dk, %dv : !t, !t, !t) by #flash.mask<dense>
      {target = #flash.target<"sm_90a">, plan = #flash.plan<consumers = 2>} : !t, !t, !t, !t, !l, !t
  return
}

!x = memref<?x?x?x256xbf16, strided<[?, ?, ?, 1], offset: ?>>
func.func @wide(%q: !x, %k: !x, %v: !x, %o: !x, %lse: !l, %do: !x, %dq: !x, %dk: !x, %dv: !x, %scale: f32) {
  flash.attention_backward %q, %k, %v, %o, %lse, %do scale %scale outs(%dq, %dk, %dv : !x, !x, !x) by #flash.mask<dense>
      {target = #flash.target<"sm_90a">} : !x, !x, !x, !x, !l, !x
  return
}

!w = memref<?x?x?x192xbf16, strided<[?, ?, ?, 1], offset: ?>>
func.func @halves(%q: !w, %k: !w, %v: !w, %o: !w, %lse: !l, %do: !w, %dq: !w, %dk: !w, %dv: !w, %scale: f32) {
  flash.attention_backward %q, %k, %v, %o, %lse, %do scale %scale outs(%dq, %dk, %dv : !w, !w, !w) by #flash.mask<dense>
      {target = #flash.target<"sm_90a">} : !w, !w, !w, !w, !l, !w
  return
}
