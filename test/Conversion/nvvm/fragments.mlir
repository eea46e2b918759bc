// One code for all GPUs: the cells of a warp are those of wgmma and of mma.sync alike.
// RUN: flash-opt %s --convert-flash-tile-to-nvvm --canonicalize --cse | FileCheck %s
// RUN: sed s/sm_90a/sm_80/ %s | flash-opt --convert-flash-tile-to-nvvm --canonicalize --cse | FileCheck %s
// RUN: sed s/sm_90a/sm_89/ %s | flash-opt --convert-flash-tile-to-nvvm --canonicalize --cse | FileCheck %s

!o = memref<?x?x?x64xbf16, strided<[?, ?, ?, 1], offset: ?>>
!lse = memref<?x?x?xf32, strided<[?, ?, ?], offset: ?>>

// A thread holds 2 rows of 16 pairs; a row of 8 words is transposed by 4 + 4 shuffles; two lots of 16 bytes a row.
// CHECK-LABEL: llvm.func @cast_store(
// CHECK-SAME:    flash.params = [{arg = "f", kind = "scalar"}, {arg = "m0", kind = "index"}, {arg = "o", dim = 1 : i64, kind = "size"}
// CHECK-SAME:    {arg = "o", dim = 0 : i64, kind = "stride"}
// CHECK-SAME:    {arg = "o", kind = "pointer"}
// CHECK-SAME:    nvvm.kernel, nvvm.maxntid = array<i32: 128, 1, 1>
// CHECK:         arith.truncf %{{.*}} : vector<32xf32> to vector<32xbf16>
// CHECK:         llvm.bitcast %{{.*}} : vector<32xbf16> to vector<16xi32>
// CHECK-COUNT-8: nvvm.shfl.sync  bfly
// CHECK:         scf.if
// CHECK-COUNT-2:   llvm.store %{{.*}} {alignment = 16 : i64} : vector<4xi32>, !llvm.ptr<1>
// CHECK-COUNT-8: nvvm.shfl.sync  bfly
// CHECK:         scf.if
// CHECK-COUNT-2:   llvm.store
// CHECK-NOT:     llvm.store
func.func @cast_store(%m: !o {flash.arg = "o"}, %f: f32 {flash.arg = "f"}, %row: index {flash.arg = "m0"})
    attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.threads = 128 : i64, flash.shared_bytes = 0 : i64} {
  %c0 = arith.constant 0 : index
  %v = flash_tile.view %m : !o -> <64xbf16>
  %x = flash_tile.splat %f : f32 -> <64x64xf32>
  %y = flash_tile.cast %x : <64x64xf32> -> <64x64xbf16>
  flash_tile.store %y -> %v[%c0, %c0, %row] : <64x64xbf16> -> <64xbf16>
  return
}

// A fragment wider than its view: the chunk that straddles its end asks each lane, those behind it are left out.
// CHECK-LABEL: llvm.func @narrow(
// CHECK:         scf.if
// CHECK:           llvm.store
// CHECK:           scf.if
// CHECK:             llvm.store
// CHECK:         scf.if
// CHECK-COUNT-2:   llvm.store
// CHECK-NOT:     llvm.store
func.func @narrow(%m: memref<?x?x?x40xf16, strided<[?, ?, ?, 1], offset: ?>> {flash.arg = "o"})
    attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.threads = 128 : i64, flash.shared_bytes = 0 : i64} {
  %c0 = arith.constant 0 : index
  %z = arith.constant 0.0 : f32
  %v = flash_tile.view %m : memref<?x?x?x40xf16, strided<[?, ?, ?, 1], offset: ?>> -> <40xf16>
  %x = flash_tile.splat %z : f32 -> <64x96xf32>
  %y = flash_tile.cast %x : <64x96xf32> -> <64x96xf16>
  flash_tile.store %y -> %v[%c0, %c0, %c0] : <64x96xf16> -> <40xf16>
  return
}

// Dense pays one comparison a cell, a window two, sink tokens one more.
// CHECK-LABEL: llvm.func @masks(
// CHECK:         arith.cmpi sgt, %{{.*}} : vector<8xi32>
// CHECK-NEXT:    %[[DENSE:.*]] = arith.select %{{.*}}, %{{.*}}, %{{.*}} : vector<8xi1>, vector<8xf32>
// CHECK:         arith.cmpi sgt, %{{.*}} : vector<8xi32>
// CHECK:         arith.cmpi sle, %{{.*}} : vector<8xi32>
// CHECK-NEXT:    arith.andi
// CHECK:         arith.cmpi sgt, %{{.*}} : vector<8xi32>
// CHECK-NEXT:    arith.ori
// CHECK-NEXT:    arith.select %{{.*}}, %[[DENSE]], %{{.*}} : vector<8xi1>, vector<8xf32>
func.func @masks(%m: !lse {flash.arg = "lse"}, %f: f32 {flash.arg = "f"}, %row: index {flash.arg = "m0"}, %lq: index {flash.arg = "lq"}, %lk: index {flash.arg = "lk"})
    attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.threads = 128 : i64, flash.shared_bytes = 0 : i64} {
  %c0 = arith.constant 0 : index
  %z = arith.constant 0.0 : f32
  %v = flash_tile.view %m : !lse -> <1xf32>
  %x = flash_tile.splat %f : f32 -> <64x16xf32>
  %c = flash_tile.splat %z : f32 -> <64x1xf32>
  %d = flash_tile.mask %x by #flash.mask<dense> at [%row, %c0] lengths (%lq, %lk) : <64x16xf32>
  %e = flash_tile.mask %d by #flash.mask<local, left = 8, right = 0, sink_tokens = 2> at [%row, %c0] lengths (%lq, %lk) : <64x16xf32>
  %p, %mn, %ln, %a = flash_tile.softmax_step first %e, %c, %c scale %f : <64x16xf32>, <64x1xf32>
  flash_tile.store %mn -> %v[%c0, %c0, %row] : <64x1xf32> -> <1xf32>
  return
}

// The maximum is joined in the quad at once, the sum by finalize; a first step has no factor.
// CHECK-LABEL: llvm.func @softmax(
// CHECK:         llvm.intr.maxnum(%{{.*}}) : (vector<4xf32>, vector<4xf32>) -> vector<4xf32>
// CHECK-COUNT-4: nvvm.shfl.sync  bfly
// CHECK:         arith.cmpf ogt, %{{.*}} : vector<2xf32>
// CHECK:         llvm.intr.exp2(%{{.*}}) : (vector<8xf32>) -> vector<8xf32>
// CHECK:         arith.addf %{{.*}} : vector<4xf32>
// CHECK:         llvm.intr.exp2(%{{.*}}) : (vector<2xf32>) -> vector<2xf32>
// CHECK:         llvm.intr.fma(%{{.*}}) : (vector<2xf32>, vector<2xf32>, vector<2xf32>) -> vector<2xf32>
// CHECK-COUNT-4: nvvm.shfl.sync  bfly
// CHECK:         arith.cmpf oeq
// CHECK:         llvm.call_intrinsic "llvm.nvvm.lg2.approx.ftz.f"
// CHECK:         scf.if
// CHECK-COUNT-2:   llvm.store %{{.*}} : f32, !llvm.ptr<1>
func.func @softmax(%m: !lse {flash.arg = "lse"}, %f: f32 {flash.arg = "f"}, %row: index {flash.arg = "m0"})
    attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.threads = 128 : i64, flash.shared_bytes = 0 : i64} {
  %c0 = arith.constant 0 : index
  %v = flash_tile.view %m : !lse -> <1xf32>
  %x = flash_tile.splat %f : f32 -> <64x16xf32>
  %c = flash_tile.splat %f : f32 -> <64x1xf32>
  %p, %mn, %ln, %a = flash_tile.softmax_step online %x, %c, %c scale %f : <64x16xf32>, <64x1xf32>
  %o, %lse = flash_tile.finalize %p, %mn, %ln scale %f : <64x16xf32>, <64x1xf32>
  flash_tile.store %lse -> %v[%c0, %c0, %row] : <64x1xf32> -> <1xf32>
  return
}

// The region's ops take whole vectors; what they capture is spread.
// CHECK-LABEL: llvm.func @map(
// CHECK:         %[[SPREAD:.*]] = llvm.shufflevector %{{.*}} [0, 0, 0, 0, 0, 0, 0, 0] : vector<8xf32>
// CHECK:         llvm.intr.exp2(%{{.*}}) : (vector<8xf32>) -> vector<8xf32>
// CHECK:         arith.divf %{{.*}} fastmath<arcp,afn> : vector<8xf32>
func.func @map(%m: !lse {flash.arg = "lse"}, %f: f32 {flash.arg = "f"}, %row: index {flash.arg = "m0"})
    attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.threads = 128 : i64, flash.shared_bytes = 0 : i64} {
  %c0 = arith.constant 0 : index
  %v = flash_tile.view %m : !lse -> <1xf32>
  %x = flash_tile.splat %f : f32 -> <64x16xf32>
  %c = flash_tile.splat %f : f32 -> <64x1xf32>
  %y = flash_tile.map %x : !flash_tile.frag<64x16xf32> -> <64x16xf32> {
  ^bb0(%s: f32):
    %one = arith.constant 1.0 : f32
    %e = math.exp2 %s : f32
    %t = arith.addf %e, %one : f32
    %d = arith.divf %f, %t : f32
    flash_tile.yield %d : f32
  }
  %p, %mn, %ln, %a = flash_tile.softmax_step first %y, %c, %c scale %f : <64x16xf32>, <64x1xf32>
  flash_tile.store %ln -> %v[%c0, %c0, %row] : <64x1xf32> -> <1xf32>
  return
}

// Parts are f32: a lane stores its pair of each cell. The head of a partial view counts splits too.
// CHECK-LABEL: llvm.func @store_part(
// CHECK-SAME:    {arg = "o_partial", dim = 0 : i64, kind = "size"}
// CHECK:         scf.if
// CHECK:           arith.remui
// CHECK:           arith.divui
// CHECK-COUNT-8:   llvm.store %{{.*}} {alignment = 8 : i64} : vector<2xf32>, !llvm.ptr<1>
// CHECK:         scf.if
// CHECK-COUNT-8:   llvm.store
// CHECK-NOT:     llvm.store
func.func @store_part(%m: memref<?x?x?x?x64xf32, strided<[?, ?, ?, ?, 1], offset: ?>> {flash.arg = "o_partial"}, %h: index {flash.arg = "m0"})
    attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.threads = 128 : i64, flash.shared_bytes = 0 : i64} {
  %c0 = arith.constant 0 : index
  %z = arith.constant 0.0 : f32
  %v = flash_tile.view %m {partial} : memref<?x?x?x?x64xf32, strided<[?, ?, ?, ?, 1], offset: ?>> -> <64xf32>
  %x = flash_tile.splat %z : f32 -> <64x64xf32>
  flash_tile.store %x -> %v[%c0, %h, %c0] : <64x64xf32> -> <64xf32>
  return
}

// Spelled as heads times splits and a split, it needs no division.
// CHECK-LABEL: llvm.func @store_spelled_part(
// CHECK-NOT:     arith.remui
// CHECK-NOT:     arith.divui
// CHECK:         llvm.store %{{.*}} {alignment = 8 : i64} : vector<2xf32>, !llvm.ptr<1>
func.func @store_spelled_part(%m: memref<?x?x?x?x64xf32, strided<[?, ?, ?, ?, 1], offset: ?>> {flash.arg = "o_partial"}, %h: index {flash.arg = "m0"}, %s: index {flash.arg = "m1"})
    attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.threads = 128 : i64, flash.shared_bytes = 0 : i64} {
  %c0 = arith.constant 0 : index
  %z = arith.constant 0.0 : f32
  %n = memref.dim %m, %c0 : memref<?x?x?x?x64xf32, strided<[?, ?, ?, ?, 1], offset: ?>>
  %hn = arith.muli %h, %n : index
  %hs = arith.addi %hn, %s : index
  %v = flash_tile.view %m {partial} : memref<?x?x?x?x64xf32, strided<[?, ?, ?, ?, 1], offset: ?>> -> <64xf32>
  %x = flash_tile.splat %z : f32 -> <64x64xf32>
  flash_tile.store %x -> %v[%c0, %hs, %c0] : <64x64xf32> -> <64xf32>
  return
}

// What joins the parts waits for the kernel that makes them, but only where it first loads.
// CHECK-LABEL: llvm.func @follows(
// CHECK:         scf.for
// CHECK:           nvvm.griddepcontrol wait
// CHECK-NEXT:      scf.for
// CHECK:             llvm.load
// CHECK-NOT:     nvvm.griddepcontrol
func.func @follows(%m: memref<?x?x?x64xf32, strided<[?, ?, ?, 1], offset: ?>> {flash.arg = "o_partial"}, %o: !o {flash.arg = "o"}, %n: index {flash.arg = "m0"})
    attributes {flash.kernel, flash.follows, flash.target = #flash.target<"sm_90a">, flash.threads = 32 : i64, flash.shared_bytes = 0 : i64, flash.columns = 64 : i64} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %f = arith.constant 0.0 : f32
  %mv = flash_tile.view %m : memref<?x?x?x64xf32, strided<[?, ?, ?, 1], offset: ?>> -> <64xf32>
  %ov = flash_tile.view %o : !o -> <64xbf16>
  flash_tile.for_work "single" (%n, %c1, %c1, %c1) {
  ^bb0(%t: index, %h: index, %b: index, %s: index):
    %i = flash_tile.splat %f : f32 -> <2x64xf32>
    %x = scf.for %at = %c0 to %n step %c1 iter_args(%a = %i) -> (!flash_tile.frag<2x64xf32>) {
      %p = flash_tile.load %mv[%at, %h, %t] : <64xf32> -> <2x64xf32>
      scf.yield %p : !flash_tile.frag<2x64xf32>
    }
    %y = flash_tile.cast %x : <2x64xf32> -> <2x64xbf16>
    flash_tile.store %y -> %ov[%b, %h, %t] : <2x64xbf16> -> <64xbf16>
    flash_tile.yield
  }
  return
}

// Without products each thread has four columns of a row, loaded and stored at once, and the row's statistics.
// CHECK-LABEL: llvm.func @dealt(
// CHECK-SAME:    flash.params
// CHECK-DAG:     llvm.load %{{.*}} {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xf32>
// CHECK-DAG:     llvm.load %{{.*}} {alignment = 4 : i64} : !llvm.ptr<1> -> vector<1xf32>
// CHECK:         arith.mulf %{{.*}}, %{{.*}} : vector<4xf32>
// CHECK:         scf.if
// CHECK:           llvm.store %{{.*}} {alignment = 8 : i64} : vector<2xi32>, !llvm.ptr<1>
// CHECK:         scf.if
// CHECK:           llvm.store %{{.*}} {alignment = 4 : i64} : vector<1xf32>, !llvm.ptr<1>
func.func @dealt(%m: memref<?x?x?x64xf32, strided<[?, ?, ?, 1], offset: ?>> {flash.arg = "o_partial"}, %l: !lse {flash.arg = "lse"}, %o: !o {flash.arg = "o"})
    attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.threads = 32 : i64, flash.shared_bytes = 0 : i64, flash.columns = 64 : i64} {
  %c0 = arith.constant 0 : index
  %mv = flash_tile.view %m : memref<?x?x?x64xf32, strided<[?, ?, ?, 1], offset: ?>> -> <64xf32>
  %lv = flash_tile.view %l : !lse -> <1xf32>
  %ov = flash_tile.view %o : !o -> <64xbf16>
  %x = flash_tile.load %mv[%c0, %c0, %c0] : <64xf32> -> <2x64xf32>
  %y = flash_tile.load %lv[%c0, %c0, %c0] : <1xf32> -> <2x1xf32>
  %z = flash_tile.rescale %x, %y : <2x64xf32>, <2x1xf32>
  %n = flash_tile.cast %z : <2x64xf32> -> <2x64xbf16>
  flash_tile.store %n -> %ov[%c0, %c0, %c0] : <2x64xbf16> -> <64xbf16>
  flash_tile.store %y -> %lv[%c0, %c0, %c0] : <2x1xf32> -> <1xf32>
  return
}

// A pair's other column comes through shared memory; columns past the pairs and rows without an angle stay.
// CHECK-LABEL: llvm.func @rotate(
// CHECK-SAME:    {arg = "rotary_cos", dim = 0 : i64, kind = "size"}
// CHECK:         nvvm.barrier0
// CHECK:         llvm.store %{{.*}} {alignment = 16 : i64} : vector<4xf32>, !llvm.ptr<3>
// CHECK:         nvvm.barrier0
// CHECK-COUNT-4: scf.if
// CHECK:         arith.truncf %{{.*}} : vector<4xf32> to vector<4xbf16>
func.func @rotate(%m: !o {flash.arg = "q"}, %c: memref<?x16xbf16, strided<[?, 1], offset: ?>> {flash.arg = "rotary_cos"},
    %s: memref<?x16xbf16, strided<[?, 1], offset: ?>> {flash.arg = "rotary_sin"}, %p: index {flash.arg = "m0"})
    attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.threads = 32 : i64, flash.shared_bytes = 1024 : i64, flash.columns = 64 : i64} {
  %c0 = arith.constant 0 : index
  %v = flash_tile.view %m : !o -> <64xbf16>
  %x = flash_tile.load %v[%c0, %c0, %c0] : <64xbf16> -> <2x64xbf16>
  %y = flash_tile.rotate %x by(%c, %s : memref<?x16xbf16, strided<[?, 1], offset: ?>>) at %p : <2x64xbf16>
  flash_tile.store %y -> %v[%c0, %c0, %c0] : <2x64xbf16> -> <64xbf16>
  return
}
