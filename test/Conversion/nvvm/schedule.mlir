// A kernel that fills a schedule is one warp, whose lanes share a sum; tiles are counted and found through the schedule; and who
// reads it begins to when the kernel before has ended.
// RUN: flash-opt %s --convert-flash-tile-to-nvvm --split-input-file | FileCheck %s

!table = memref<?x?xi32, strided<[?, 1], offset: ?>>
!rows = memref<?xi32, strided<[1], offset: ?>>
!k = memref<?x?x2x64xbf16, strided<[?, ?, ?, 1], offset: ?>>

// CHECK-LABEL: llvm.func @prepare(
// CHECK:         %[[LANE:.*]] = arith.andi
// CHECK:         %[[FIRST:.*]] = arith.index_cast %[[LANE]]
// CHECK:         %[[SUM:.*]] = scf.for %{{.*}} = %[[FIRST]] to %{{.*}} step %c32{{.*}} iter_args(%[[SO_FAR:.*]] = %c0{{.*}})
// CHECK:           %[[NEXT:.*]] = arith.addi %[[SO_FAR]],
// CHECK:           scf.yield %[[NEXT]]
// CHECK:         %[[MINE:.*]] = arith.index_cast %[[SUM]] : index to i32
// CHECK:         nvvm.shfl.sync bfly %{{.*}}, %[[MINE]],
// CHECK-COUNT-4: nvvm.shfl.sync bfly
// CHECK-NOT:     nvvm.shfl.sync
// CHECK:         %[[AT:.*]] = llvm.getelementptr
// CHECK:         llvm.store %{{.*}}, %[[AT]] : i32
func.func @prepare(%k: !k {flash.arg = "k"}, %used: !rows {flash.arg = "seqused_k"}, %s: !table {flash.arg = "schedule"})
    attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.plan = #flash.plan<tile = [1, 1]>, flash.threads = 32 : i64, flash.shared_bytes = 0 : i64} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %batch = memref.dim %used, %c0 : !rows
  %v = flash_tile.view %k seqused(%used : !rows) : !k -> <64xbf16>
  flash_tile.for_work "single"(%c1, %c1, %batch, %c1) {
  ^bb0(%m: index, %h: index, %b: index, %p: index):
    %all = flash_tile.total %batch -> index {
    ^bb0(%i: index):
      %n = flash_tile.length %v[%i] : <64xbf16>
      flash_tile.yield %n : index
    }
    %narrow = arith.index_cast %all : index to i32
    memref.store %narrow, %s[%c0, %b] : !table
    flash_tile.yield
  }
  return
}

// -----

!table = memref<?x?xi32, strided<[?, 1], offset: ?>>
!lse = memref<?x?x?xf32, strided<[?, ?, ?], offset: ?>>

// The number of tiles is the table's; a search finds the place of each.
// CHECK-LABEL: llvm.func @work(
// CHECK:         nvvm.griddepcontrol wait
// CHECK:         %[[ALL:.*]] = llvm.load
// CHECK:         %[[TILES:.*]] = arith.index_cast %[[ALL]]
// CHECK:         scf.for %[[T:.*]] = %{{.*}} to %[[TILES]] step
// CHECK:           scf.while
// CHECK:             %[[START:.*]] = llvm.load
// CHECK:             %[[FROM:.*]] = arith.index_cast %[[START]]
// CHECK:             arith.cmpi slt, %[[T]], %[[FROM]]
// The part read first is the schedule's.
// CHECK:           llvm.load
func.func @work(%s: !table {flash.arg = "schedule"}, %lse: !lse {flash.arg = "lse"})
    attributes {flash.kernel, flash.follows, flash.target = #flash.target<"sm_90a">, flash.plan = #flash.plan<tile = [64, 64]>, flash.threads = 128 : i64, flash.shared_bytes = 0 : i64} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %batch = memref.dim %lse, %c0 : !lse
  %heads = memref.dim %lse, %c1 : !lse
  %w = flash_tile.view %lse : !lse -> <1xf32>
  flash_tile.for_work "varlen_dynamic"(%c1, %heads, %batch, %c1) schedule(%s : !table) {
  ^bb0(%m: index, %h: index, %b: index, %p: index):
    %x = flash_tile.splat %zero : f32 -> <64x1xf32>
    flash_tile.store %x -> %w[%b, %h, %m] : <64x1xf32> -> <1xf32>
    flash_tile.yield
  }
  return
}
