// RUN: flash-opt %s --convert-flash-tile-to-nvvm --canonicalize --cse | FileCheck %s --enable-var-scope
!m = memref<?x?x?x64xbf16, strided<[?, ?, ?, 1], offset: ?>>
!s = memref<?x?x?x64xf32, strided<[?, ?, ?, 1], offset: ?>>
!l = memref<?x?x?xf32, strided<[?, ?, ?], offset: ?>>

// Statistics of queries come by 4 bytes a thread and are read as a pair of every eight columns; dS goes through shared
// memory and is read transposed; 8 warps share 64 rows of dQ, which take turns in blocks of 16 columns; it is added in turn.
// CHECK-LABEL: llvm.func @block(
// CHECK:         "cp.async.ca.shared.global [$0+0], [$1+0], 4, $2;"
// CHECK:         nvvm.cp.async.commit.group
// CHECK:         nvvm.cp.async.wait.group 0
// CHECK-NEXT:    nvvm.barrier
// CHECK-COUNT-8: llvm.load %{{.*}} : !llvm.ptr<3> -> vector<2xf32>
// CHECK:         llvm.shufflevector {{.*}} [0, 1, 0, 1, 2, 3, 2, 3,
// CHECK-COUNT-2: arith.cmpi {{.*}} : vector<32xi32>
// CHECK-COUNT-16: st.shared.b32
// CHECK-NOT:     cp.async.wait.group
// CHECK:         nvvm.barrier
// CHECK:         ldmatrix.sync.aligned.m8n8.x4.trans
// CHECK-COUNT-4: nvvm.mma.sync
// CHECK:         scf.while
// CHECK:           "ld.acquire.gpu.global.b32 $0, [$1];"
// CHECK:           barrier.cta.red.or.pred
// CHECK:         "red.relaxed.gpu.global.add.f32 [$0+0], $1;"
// CHECK:         "red.relaxed.gpu.global.add.f32 [$0+128], $1;"
// CHECK:         nvvm.barrier
// CHECK:         "@$2 red.release.gpu.global.add.u32 [$0], $1;"
func.func @block(%q: !m {flash.arg = "q"}, %lse: !l {flash.arg = "lse"}, %sum: !s {flash.arg = "dq_sum"},
                 %turns: memref<?xi32, strided<[1], offset: ?>> {flash.arg = "turns"}, %i: index {flash.arg = "i"})
    attributes {flash.kernel, flash.target = #flash.target<"sm_80">, flash.threads = 256 : i64, flash.shared_bytes = 40960 : i64} {
  %one = arith.constant 1.0 : f32
  %lv = flash_tile.view %lse {padded = 64 : i64} : !l -> <1xf32>
  %kv = flash_tile.view %q : !m -> <64xbf16>
  %sv = flash_tile.view %sum {cells, padded = 64 : i64} : !s -> <64xf32>
  %kr = flash_tile.ring "k" {offset = 0 : i64} : <1x128x64xbf16>
  %dr = flash_tile.ring "ds" {offset = 16384 : i64} : <1x128x64xbf16>
  %lr = flash_tile.ring "lse" {offset = 32768 : i64} : <1x1x64xf32>
  flash_tile.fill %kv[%i, %i, %i] -> %kr[%i] : <64xbf16> -> <1x128x64xbf16>
  flash_tile.fill %lv[%i, %i, %i] -> %lr[%i] : <1xf32> -> <1x1x64xf32>
  %kt = flash_tile.wait %kr[%i] : <1x128x64xbf16> -> <128x64xbf16>
  %lt = flash_tile.wait %lr[%i] : <1x1x64xf32> -> <1x64xf32>
  %l = flash_tile.read %lt : <1x64xf32> -> <1x64xf32>
  %p = flash_tile.splat %one : f32 -> <128x64xf32>
  %x = flash_tile.map %p, %l : !flash_tile.frag<128x64xf32>, !flash_tile.frag<1x64xf32> -> <128x64xf32> {
  ^bb0(%a: f32, %b: f32):
    %d = arith.subf %a, %b : f32
    flash_tile.yield %d : f32
  }
  %seen = flash_tile.mask %x by <causal> at[%i, %i] lengths(%i, %i) trans : <128x64xf32>
  %ds = flash_tile.cast %seen : <128x64xf32> -> <128x64xbf16>
  flash_tile.write %ds -> %dr[%i] : <128x64xbf16> -> <1x128x64xbf16>
  %dt = flash_tile.wait %dr[%i] : <1x128x64xbf16> -> <128x64xbf16>
  %f = flash_tile.mma %dt trans, %kt : !flash_tile.tile<128x64xbf16>, <128x64xbf16> -> <64x64xf32>
  %dq = flash_tile.mma_wait %f : <64x64xf32> -> <64x64xf32>
  flash_tile.store sum %dq -> %sv[%i, %i, %i] turn(%turns[%i] is %i : memref<?xi32, strided<[1], offset: ?>>) : <64x64xf32> -> <64xf32>
  return
}

// Without products each thread has four columns of a row: eights are joined by shuffles, and so are those of a row within a
// warp. A turn is cleared by one thread. bf16 are halves of words. Columns past the view's are zeros.
// CHECK-LABEL: llvm.func @rows(
// CHECK:         llvm.store %{{.*}} : i32, !llvm.ptr<1>
// CHECK:         llvm.load %{{.*}} -> vector<2xi32>
// CHECK:         %[[LOW:.*]] = arith.shli %[[PAIRS:.*]], %{{.*}} : vector<2xi32>
// CHECK:         %[[HIGH:.*]] = arith.andi %[[PAIRS]], %{{.*}} : vector<2xi32>
// CHECK:         llvm.shufflevector %[[LOW]], %[[HIGH]] [0, 2, 1, 3]
// CHECK-COUNT-3: nvvm.shfl.sync bfly
// CHECK-NOT:     nvvm.barrier
// CHECK:         %[[FIRST:.*]] = arith.andi %{{.*}}, %c16_i32
// CHECK:         %[[ONE:.*]] = nvvm.shfl.sync idx %{{.*}}, %{{.*}}, %[[FIRST]],
// CHECK:         %[[LANE:.*]] = arith.addi %[[FIRST]], %c8_i32
// CHECK:         %[[TWO:.*]] = nvvm.shfl.sync idx %{{.*}}, %{{.*}}, %[[LANE]],
// CHECK:         arith.addf %[[ONE]], %[[TWO]]
// CHECK-NOT:     nvvm.barrier
// CHECK:         llvm.store %{{.*}} : vector<1xf32>, !llvm.ptr<1>
func.func @rows(%o: !m {flash.arg = "o"}, %delta: !l {flash.arg = "delta"}, %turns: memref<?xi32, strided<[1], offset: ?>> {flash.arg = "turns"},
                %i: index {flash.arg = "i"})
    attributes {flash.kernel, flash.target = #flash.target<"sm_80">, flash.threads = 256 : i64, flash.columns = 64 : i64, flash.shared_bytes = 1024 : i64} {
  %none = arith.constant 0 : i32
  %ov = flash_tile.view %o : !m -> <64xbf16>
  %dv = flash_tile.view %delta {padded = 64 : i64} : !l -> <1xf32>
  memref.store %none, %turns[%i] : memref<?xi32, strided<[1], offset: ?>>
  %x = flash_tile.load %ov[%i, %i, %i] : <64xbf16> -> <16x64xbf16>
  %w = flash_tile.map %x : !flash_tile.frag<16x64xbf16> -> <16x64xf32> {
  ^bb0(%a: bf16):
    %b = arith.extf %a : bf16 to f32
    flash_tile.yield %b : f32
  }
  %s = flash_tile.sum %w : <16x64xf32> -> <16x1xf32>
  flash_tile.store %s -> %dv[%i, %i, %i] : <16x1xf32> -> <1xf32>
  return
}

// A row of 24 threads goes through shared memory.
// CHECK-LABEL: llvm.func @across(
// CHECK-COUNT-3: nvvm.shfl.sync bfly
// CHECK-NOT:     nvvm.shfl
// CHECK:         nvvm.barrier
// CHECK:         llvm.store %{{.*}} : f32, !llvm.ptr<3>
// CHECK:         nvvm.barrier
// CHECK-COUNT-3: llvm.load %{{.*}} : !llvm.ptr<3> -> f32
// CHECK:         llvm.store %{{.*}} : vector<1xf32>, !llvm.ptr<1>
func.func @across(%o: memref<?x?x?x96xf32, strided<[?, ?, ?, 1], offset: ?>> {flash.arg = "o"}, %delta: !l {flash.arg = "delta"}, %i: index {flash.arg = "i"})
    attributes {flash.kernel, flash.target = #flash.target<"sm_80">, flash.threads = 192 : i64, flash.columns = 96 : i64, flash.shared_bytes = 1024 : i64} {
  %ov = flash_tile.view %o : memref<?x?x?x96xf32, strided<[?, ?, ?, 1], offset: ?>> -> <96xf32>
  %dv = flash_tile.view %delta {padded = 64 : i64} : !l -> <1xf32>
  %x = flash_tile.load %ov[%i, %i, %i] : <96xf32> -> <8x96xf32>
  %s = flash_tile.sum %x : <8x96xf32> -> <8x1xf32>
  flash_tile.store %s -> %dv[%i, %i, %i] : <8x1xf32> -> <1xf32>
  return
}

// Eight warps share 64 rows of scores: each has every second block of 16 columns, of a row too, and stores its part.
// CHECK-LABEL: llvm.func @parts(
// CHECK-COUNT-4: llvm.load %{{.*}} : !llvm.ptr<3> -> vector<2xf32>
// CHECK-COUNT-2: arith.cmpi {{.*}} : vector<16xi32>
// CHECK-COUNT-8: st.shared.b32
// CHECK-NOT:     st.shared
// CHECK:         nvvm.barrier
// CHECK-COUNT-16: nvvm.mma.sync
// CHECK-NOT:     nvvm.mma.sync
// CHECK:         llvm.store %{{.*}} {alignment = 16 : i64} : vector<4xi32>, !llvm.ptr<1>
func.func @parts(%q: !m {flash.arg = "q"}, %lse: !l {flash.arg = "lse"}, %i: index {flash.arg = "i"})
    attributes {flash.kernel, flash.target = #flash.target<"sm_80">, flash.threads = 256 : i64, flash.shared_bytes = 40960 : i64} {
  %one = arith.constant 1.0 : f32
  %lv = flash_tile.view %lse {padded = 64 : i64} : !l -> <1xf32>
  %kv = flash_tile.view %q : !m -> <64xbf16>
  %kr = flash_tile.ring "k" {offset = 0 : i64} : <1x64x64xbf16>
  %pr = flash_tile.ring "p" {offset = 8192 : i64} : <1x64x64xbf16>
  %lr = flash_tile.ring "lse" {offset = 32768 : i64} : <1x1x64xf32>
  flash_tile.fill %kv[%i, %i, %i] -> %kr[%i] : <64xbf16> -> <1x64x64xbf16>
  flash_tile.fill %lv[%i, %i, %i] -> %lr[%i] : <1xf32> -> <1x1x64xf32>
  %kt = flash_tile.wait %kr[%i] : <1x64x64xbf16> -> <64x64xbf16>
  %lt = flash_tile.wait %lr[%i] : <1x1x64xf32> -> <1x64xf32>
  %l = flash_tile.read %lt : <1x64xf32> -> <1x64xf32>
  %p = flash_tile.splat %one : f32 -> <64x64xf32>
  %x = flash_tile.map %p, %l : !flash_tile.frag<64x64xf32>, !flash_tile.frag<1x64xf32> -> <64x64xf32> {
  ^bb0(%a: f32, %b: f32):
    %d = arith.subf %a, %b : f32
    flash_tile.yield %d : f32
  }
  %seen = flash_tile.mask %x by <causal> at[%i, %i] lengths(%i, %i) trans : <64x64xf32>
  %c = flash_tile.cast %seen : <64x64xf32> -> <64x64xbf16>
  flash_tile.write %c -> %pr[%i] : <64x64xbf16> -> <1x64x64xbf16>
  %pt = flash_tile.wait %pr[%i] : <1x64x64xbf16> -> <64x64xbf16>
  %f = flash_tile.mma %pt, %kt : !flash_tile.tile<64x64xbf16>, <64x64xbf16> -> <64x64xf32>
  %dv = flash_tile.mma_wait %f : <64x64xf32> -> <64x64xf32>
  %packed = flash_tile.cast %dv : <64x64xf32> -> <64x64xbf16>
  flash_tile.store %packed -> %kv[%i, %i, %i] : <64x64xbf16> -> <64xbf16>
  return
}

// By columns a warp has 32 rows and every second block of 16 columns: two reads of A and two of B serve eight products. In
// gradients no block is no copy: zeros on their way to a slot could come after what the next head copies there. No branch
// parts copies and products.
// CHECK-LABEL: llvm.func @columns(
// CHECK:         %[[MORE:.*]] = arith.cmpi slt
// CHECK-NOT:     scf.if
// CHECK-COUNT-4: "@$3 cp.async.cg.shared.global {{.*}}, 16, $2;", "r,l,r,b,~{memory}" {{.*}}, %[[MORE]] :
// CHECK-NOT:     scf.if
// CHECK:         nvvm.cp.async.commit.group
// CHECK-COUNT-16: ldmatrix
// CHECK-NOT:     ldmatrix
// CHECK:         llvm.return
func.func @columns(%q: !m {flash.arg = "q"}, %i: index {flash.arg = "i"}, %n: index {flash.arg = "n"})
    attributes {flash.kernel, flash.op = "attention_backward", flash.target = #flash.target<"sm_80">, flash.plan = #flash.plan<warps = 4, split_by = "columns">,
                flash.threads = 128 : i64, flash.shared_bytes = 8192 : i64} {
  %kv = flash_tile.view %q : !m -> <64xbf16>
  %kr = flash_tile.ring "k" {offset = 0 : i64} : <1x64x64xbf16>
  %more = arith.cmpi slt, %i, %n : index
  scf.if %more {
    flash_tile.fill %kv[%i, %i, %i] -> %kr[%i] : <64xbf16> -> <1x64x64xbf16>
  }
  %kt = flash_tile.wait %kr[%i] : <1x64x64xbf16> -> <64x64xbf16>
  %f = flash_tile.mma %kt, %kt : !flash_tile.tile<64x64xbf16>, <64x64xbf16> -> <64x64xf32>
  %s = flash_tile.mma_wait %f : <64x64xf32> -> <64x64xf32>
  %packed = flash_tile.cast %s : <64x64xf32> -> <64x64xbf16>
  flash_tile.store %packed -> %kv[%i, %i, %i] : <64x64xbf16> -> <64xbf16>
  return
}

// The next block and its statistics, beside products of this one: the slots differ, so no warp waits for another, and threads past
// the row copy nothing.
// CHECK-LABEL: llvm.func @ahead(
// CHECK:         nvvm.cp.async.wait.group 0
// CHECK-NEXT:    nvvm.barrier
// CHECK:         nvvm.mma.sync
// CHECK-NOT:     nvvm.barrier
// CHECK:         "cp.async.cg.shared.global
// CHECK:         %[[INSIDE:.*]] = arith.cmpi slt, %{{.*}}, %c64 : index
// CHECK:         "@$3 cp.async.ca.shared.global [$0+0], [$1+0], 4, $2;", "r,l,r,b,~{memory}" {{.*}}, %[[INSIDE]] :
// CHECK:         nvvm.barrier
// CHECK:         "cp.async.cg.shared.global
func.func @ahead(%q: !m {flash.arg = "q"}, %lse: !l {flash.arg = "lse"}, %i: index {flash.arg = "i"})
    attributes {flash.kernel, flash.op = "attention_backward", flash.target = #flash.target<"sm_80">, flash.plan = #flash.plan<warps = 4>,
                flash.threads = 128 : i64, flash.shared_bytes = 20480 : i64} {
  %one = arith.constant 1 : index
  %kv = flash_tile.view %q : !m -> <64xbf16>
  %lv = flash_tile.view %lse {padded = 64 : i64} : !l -> <1xf32>
  %kr = flash_tile.ring "k" {offset = 0 : i64} : <2x64x64xbf16>
  %lr = flash_tile.ring "lse" {offset = 16384 : i64} : <2x1x64xf32>
  %next = arith.addi %i, %one : index
  flash_tile.fill %kv[%i, %i, %i] -> %kr[%i] : <64xbf16> -> <2x64x64xbf16>
  %kt = flash_tile.wait %kr[%i] : <2x64x64xbf16> -> <64x64xbf16>
  %f = flash_tile.mma %kt, %kt : !flash_tile.tile<64x64xbf16>, <64x64xbf16> -> <64x64xf32>
  flash_tile.fill %kv[%i, %i, %next] -> %kr[%next] : <64xbf16> -> <2x64x64xbf16>
  flash_tile.fill %lv[%i, %i, %next] -> %lr[%next] : <1xf32> -> <2x1x64xf32>
  %s = flash_tile.mma_wait %f : <64x64xf32> -> <64x64xf32>
  %packed = flash_tile.cast %s : <64x64xf32> -> <64x64xbf16>
  flash_tile.fill %kv[%i, %i, %next] -> %kr[%i] : <64xbf16> -> <2x64x64xbf16>
  flash_tile.store %packed -> %kv[%i, %i, %i] : <64x64xbf16> -> <64xbf16>
  return
}
