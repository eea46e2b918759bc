// The sequence of a tile of packed sequences: a search among their starts, whose rows stand in the table.
// RUN: flash-opt %s --convert-flash-tile-to-nvvm | FileCheck %s

// CHECK-LABEL: llvm.func @work(
// CHECK-SAME:    %[[BASE:[a-z0-9]+]]: !llvm.ptr<1>
// CHECK:         scf.for %[[T:.*]] = %{{.*}} to %{{.*}} step
// CHECK:         %[[TILE:.*]] = arith.divui %[[T]],
// CHECK:         %[[FOUND:.*]]:2 = scf.while (%{{.*}} = %{{.*}}, %{{.*}} = %[[BATCH:.*]])
// CHECK:         ^bb0(%[[FIRST:.*]]: index, %[[END:.*]]: index):
// CHECK:           %[[MIDDLE:.*]] = arith.divui
// CHECK:           llvm.getelementptr %[[BASE]]
// CHECK:           llvm.load {{.*}} -> i32
// CHECK:           %[[WHOLE:.*]] = arith.divui %{{.*}}, %{{.*}}
// CHECK:           %[[START:.*]] = arith.addi %[[WHOLE]], %[[MIDDLE]]
// CHECK:           arith.cmpi slt, %[[TILE]], %[[START]]
// CHECK:         arith.addi %[[FOUND]]#0
func.func @work(%cu: memref<?xi32, strided<[1], offset: ?>> {flash.arg = "cu_seqlens_q"}, %lse: memref<?x?xf32, strided<[?, ?], offset: ?>> {flash.arg = "lse"})
    attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.plan = #flash.plan<tile = [64, 64]>, flash.threads = 128 : i64, flash.shared_bytes = 0 : i64} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %heads = memref.dim %lse, %c0 : memref<?x?xf32, strided<[?, ?], offset: ?>>
  %ends = memref.dim %cu, %c0 : memref<?xi32, strided<[1], offset: ?>>
  %batch = arith.subi %ends, %c1 : index
  %w = flash_tile.view %lse cu_seqlens(%cu : memref<?xi32, strided<[1], offset: ?>>) : memref<?x?xf32, strided<[?, ?], offset: ?>> -> <1xf32>
  flash_tile.for_work "varlen_dynamic"(%ends, %heads, %batch, %c1) section %c1 packed(%cu : memref<?xi32, strided<[1], offset: ?>>) attributes {tile = 64, group = 2} {
  ^bb0(%m: index, %h: index, %b: index, %s: index):
    %x = flash_tile.splat %zero : f32 -> <64x1xf32>
    flash_tile.store %x -> %w[%b, %h, %m] : <64x1xf32> -> <1xf32>
    flash_tile.yield
  }
  return
}
