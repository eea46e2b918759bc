// RUN: flash-opt %s --convert-flash-tile-to-loops --canonicalize --cse --split-input-file | FileCheck %s

!mem = memref<?x?x?x40xbf16, strided<[?, ?, ?, 1], offset: ?>>

// A kernel gains worker and workers and does every workers-th tile. A fill copies, widened to f32, rows past
// the length and columns past the view as zeros; wait and release cost nothing in straight code.
// CHECK-LABEL: func.func @copy(
// CHECK-SAME:    %[[IN:[^:]*]]: memref<?x?x?x40xbf16, {{.*}} {flash.arg = "q"}
// CHECK-SAME:    %[[WORKER:[^:]*]]: index {flash.arg = "worker"}, %[[WORKERS:[^:]*]]: index {flash.arg = "workers"}) attributes {flash.kernel, llvm.emit_c_interface}
// CHECK:         %[[RING:.*]] = memref.alloc() {alignment = 64 : i64} : memref<2x8x64xf32>
// CHECK:         scf.for %{{.*}} = %[[WORKER]] to %{{.*}} step %[[WORKERS]] {
// CHECK:           %[[SLOT:.*]] = arith.remui %{{.*}}, %c2
// CHECK:           %[[OFFSET:.*]] = arith.muli %[[SLOT]], %c512
// CHECK:           %[[TO:.*]] = memref.reinterpret_cast %[[RING]] to offset: [%[[OFFSET]]], sizes: [8, 64], strides: [64, 1]
// CHECK:           %[[LENGTH:.*]] = memref.dim %[[IN]], %c1
// CHECK:           scf.for %[[R:.*]] = %c0 to %c8 step %c1
// CHECK:             %[[ROW:.*]] = arith.addi %{{.*}}, %[[R]]
// CHECK:             %[[INSIDE:.*]] = arith.cmpi slt, %[[ROW]], %[[LENGTH]]
// CHECK:             scf.if %[[INSIDE]]
// CHECK:               scf.for %[[C:.*]] = %c0 to %c40 step %c8
// CHECK:                 %[[X:.*]] = vector.load %[[IN]][%{{.*}}, %[[ROW]], %{{.*}}, %[[C]]] : {{.*}}, vector<8xbf16>
// CHECK:                 %[[WIDE:.*]] = arith.extf %[[X]] : vector<8xbf16> to vector<8xf32>
// CHECK:                 vector.store %[[WIDE]], %[[TO]][%[[R]], %[[C]]]
// CHECK:               scf.for %{{.*}} = %c40 to %c64 step %c8
// CHECK:             } else {
// CHECK:               scf.for %{{.*}} = %c0 to %c64 step %c16
// CHECK-NOT:       flash_tile
// CHECK:         memref.dealloc
func.func @copy(%q: !mem {flash.arg = "q"}, %n: index) attributes {flash.kernel} {
  %one = arith.constant 1 : index
  %v = flash_tile.view %q : !mem -> !flash_tile.view<40xbf16>
  %ring = flash_tile.ring "q" : !flash_tile.ring<2x8x64xbf16>
  flash_tile.for_work "single"(%n, %one, %one, %one) {
  ^bb0(%m: index, %h: index, %b: index, %s: index):
    flash_tile.fill %v[%b, %h, %m] -> %ring[%m] : !flash_tile.view<40xbf16> -> !flash_tile.ring<2x8x64xbf16>
    %t = flash_tile.wait %ring[%m] : !flash_tile.ring<2x8x64xbf16> -> !flash_tile.tile<8x64xbf16>
    flash_tile.release %ring[%m] : !flash_tile.ring<2x8x64xbf16>
    flash_tile.yield
  }
  return
}

// -----

!parts = memref<?x?x?x?x8xf32, strided<[?, ?, ?, ?, 1], offset: ?>>
!lse = memref<?x?x?xf32, strided<[?, ?, ?], offset: ?>>

// Packed rows and partial results: row r of head h is query r / 3 of head (h / splits) * 3 + r % 3, split h % splits.
// A column that is not known until the kernel runs bounds the columns that are stored.
// CHECK-LABEL: func.func @addresses(
// CHECK-SAME:    %[[PARTS:.*]]: memref<?x?x?x?x8xf32, {{[^,]*, [^,]*, [^,]*, [^,]*, [^,]*}}, offset: ?>>, %[[LSE:.*]]: memref<?x?x?xf32, {{[^,]*, [^,]*, [^,]*}}, offset: ?>>, %[[COL:[^:]*]]: index
// CHECK:         %[[SPLITS:.*]] = memref.dim %[[PARTS]], %c0
// CHECK:         %[[SPLIT:.*]] = arith.remui %{{.*}}, %[[SPLITS]]
// CHECK:         %[[HEAD:.*]] = arith.divui %{{.*}}, %[[SPLITS]]
// CHECK:         %[[PACKED:.*]] = arith.muli %[[HEAD]], %c3
// CHECK:         %[[LANE:.*]] = arith.remui %{{.*}}, %c3
// CHECK:         %[[H:.*]] = arith.addi %[[PACKED]], %[[LANE]]
// CHECK:         %[[ROW:.*]] = arith.divui %{{.*}}, %c3
// CHECK:         %[[ROOM:.*]] = arith.subi %c8, %[[COL]]
// CHECK:         %[[COUNT:.*]] = arith.minsi %[[ROOM]], %c4
// CHECK:         scf.for %[[C:.*]] = %c0 to %[[COUNT]] step %c1
// CHECK:           %[[AT:.*]] = arith.addi %[[COL]], %[[C]]
// CHECK:           vector.store %{{.*}}, %[[PARTS]][%[[SPLIT]], %{{.*}}, %[[ROW]], %[[H]], %[[AT]]]
// CHECK:         memref.load %[[LSE]][
func.func @addresses(%parts: !parts, %lse: !lse, %col: index, %n: index) attributes {flash.kernel} {
  %one = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %pv = flash_tile.view %parts {group = 3, partial} : !parts -> !flash_tile.view<8xf32>
  %lv = flash_tile.view %lse : !lse -> !flash_tile.view<1xf32>
  flash_tile.for_work "single"(%n, %one, %one, %one) {
  ^bb0(%m: index, %h: index, %b: index, %s: index):
    %f = flash_tile.splat %zero : f32 -> !flash_tile.frag<4x4xf32>
    flash_tile.store %f -> %pv[%b, %h, %m] col %col : !flash_tile.frag<4x4xf32> -> !flash_tile.view<8xf32>
    %l = flash_tile.load %lv[%b, %h, %m] : !flash_tile.view<1xf32> -> !flash_tile.frag<4x1xf32>
    flash_tile.store %l -> %lv[%b, %h, %m] : !flash_tile.frag<4x1xf32> -> !flash_tile.view<1xf32>
    flash_tile.yield
  }
  return
}

// -----

// Through a slot, as many columns at once as it has.
// CHECK-LABEL: func.func @staged(
// CHECK:         %[[RING:.*]] = memref.alloc() {alignment = 64 : i64} : memref<2x4x8xf32>
// CHECK:         %[[SLOT:.*]] = memref.reinterpret_cast %[[RING]]
// CHECK:         vector.load %[[X:[^\[]*]][%{{.*}}, %{{.*}}] : memref<4x12xf32>, vector<8xf32>
// CHECK-NEXT:    vector.store %{{.*}}, %[[SLOT]]
// CHECK:         vector.load %[[SLOT]]{{.*}} vector<4xf32>
// CHECK:         vector.store %{{.*}} : memref<?x?x?x12xf32>, vector<4xf32>
// CHECK:         vector.load %[[X]][{{.*}}vector<4xf32>
// CHECK-NEXT:    vector.store %{{.*}}, %[[SLOT]]
// CHECK:         vector.store %{{.*}} : memref<?x?x?x12xf32>, vector<4xf32>
func.func @staged(%o: memref<?x?x?x12xf32>, %i: index, %x: f32) attributes {flash.kernel} {
  %v = flash_tile.view %o : memref<?x?x?x12xf32> -> <12xf32>
  %r = flash_tile.ring "o" : <2x4x8xf32>
  %f = flash_tile.splat %x : f32 -> <4x12xf32>
  flash_tile.store %f -> %v[%i, %i, %i] via %r[%i] : !flash_tile.ring<2x4x8xf32> : <4x12xf32> -> <12xf32>
  return
}

// -----

// Two parts of two rows each: one that is not there has 0, or as statistics -inf. Then the rows of each apart.
// CHECK-LABEL: func.func @parts_aside(
// CHECK-DAG:     %[[NONE:.*]] = arith.constant dense<0xFF800000> : vector<1xf32>
// CHECK-DAG:     %[[ZERO:.*]] = arith.constant dense<0.000000e+00> : vector<8xf32>
// CHECK:         scf.for %[[PART:.*]] = %c0 to %c2 step %c1
// CHECK:           %[[MINE:.*]] = memref.reinterpret_cast %[[X:.*]] to {{.*}} memref<4x8xf32> to memref<2x8xf32
// CHECK:           %[[IS:.*]] = arith.cmpi slt, %[[PART]], %{{.*}} : index
// CHECK:           scf.if %[[IS]]
// CHECK:             arith.addi %{{.*}}, %[[PART]]
// CHECK:             vector.store %[[ZERO]], %[[MINE]]
// CHECK:           } else {
// CHECK:             vector.store %[[ZERO]], %[[MINE]]
// CHECK:         scf.for %[[PART:.*]] = %c0 to %c2 step %c1
// CHECK:           vector.store %[[NONE]]
// CHECK:         vector.load %[[X]][%{{.*}}, %c0] : memref<4x8xf32>, vector<8xf32>
// CHECK:         %[[ROW:.*]] = arith.addi %{{.*}}, %c2
// CHECK-NEXT:    vector.load %[[X]][%[[ROW]], %c0] : memref<4x8xf32>, vector<8xf32>
func.func @parts_aside(%parts: memref<?x?x?x?x8xf32>, %logs: memref<?x?x?x?xf32>, %o: memref<?x?x?x8xf32>, %left: index, %i: index) attributes {flash.kernel} {
  %pv = flash_tile.view %parts {partial} : memref<?x?x?x?x8xf32> -> <8xf32>
  %lv = flash_tile.view %logs {partial} : memref<?x?x?x?xf32> -> <1xf32>
  %ov = flash_tile.view %o : memref<?x?x?x8xf32> -> <8xf32>
  %x = flash_tile.load %pv[%i, %i, %i] parts(%left) aside 2 : <8xf32> -> <4x8xf32>
  %m = flash_tile.load %lv[%i, %i, %i] parts(%left) aside 2 : <1xf32> -> <4x1xf32>
  %a:4 = flash_tile.split_rows %x, %m : !flash_tile.frag<4x8xf32>, !flash_tile.frag<4x1xf32>
      -> !flash_tile.frag<2x8xf32>, !flash_tile.frag<2x8xf32>, !flash_tile.frag<2x1xf32>, !flash_tile.frag<2x1xf32>
  %s = flash_tile.rescale %a#0, %a#2 : <2x8xf32>, <2x1xf32>
  %t = flash_tile.rescale %a#1, %a#3 : <2x8xf32>, <2x1xf32>
  flash_tile.store %s -> %ov[%i, %i, %i] : <2x8xf32> -> <8xf32>
  flash_tile.store %t -> %ov[%i, %i, %i] : <2x8xf32> -> <8xf32>
  return
}
