// Where a row lies when tables say so, and how many there are; rows turned by a table of angles.
// RUN: flash-opt %s --convert-flash-tile-to-loops --canonicalize --cse --split-input-file | FileCheck %s

!rows = memref<?xi32>

// CHECK-LABEL: func.func @paged(
// CHECK-SAME:    %[[POOL:[a-z0-9]+]]: memref<?x16x4x8xf32>, %[[TABLE:[a-z0-9]+]]: memref<?x?xi32>, %[[USED:[a-z0-9]+]]: memref<?xi32>, %[[IDX:[a-z0-9]+]]: memref<?xi32>, %[[PAD:[a-z0-9]+]]: memref<?xi32>, %[[TO:[a-z0-9]+]]: memref<?x4x8xf32>, %[[ENDS:[a-z0-9]+]]: memref<?xi32>, %[[N:[a-z0-9]+]]: index
// CHECK:         %[[U:.*]] = memref.load %[[USED]][%[[B:.*]]]
// CHECK:         %[[IN:.*]] = arith.index_cast %[[U]] : i32 to index
// CHECK:         %[[ALL:.*]] = arith.addi %[[IN]], %[[N]]
// CHECK:         %[[P:.*]] = memref.load %[[PAD]][%[[B]]]
// CHECK:         %[[SKIP:.*]] = arith.index_cast %[[P]]
// CHECK:         %[[REST:.*]] = arith.subi %[[ALL]], %[[SKIP]]
// CHECK:         %[[LENGTH:.*]] = arith.maxsi %[[REST]], %c0
// CHECK:           %[[INSIDE:.*]] = arith.cmpi slt, %[[R:.*]], %[[LENGTH]]
// CHECK:           scf.if %[[INSIDE]]
// CHECK:             %[[ROW:.*]] = arith.addi %[[R]], %{{.*}}
// CHECK:             %[[I:.*]] = memref.load %[[IDX]][%[[B]]]
// CHECK:             %[[SEQUENCE:.*]] = arith.index_cast %[[I]]
// CHECK:             %[[NUMBER:.*]] = arith.divui %[[ROW]], %c16
// CHECK:             %[[ID:.*]] = memref.load %[[TABLE]][%[[SEQUENCE]], %[[NUMBER]]]
// CHECK:             %[[PAGE:.*]] = arith.index_cast %[[ID]]
// CHECK:             %[[SLOT:.*]] = arith.remui %[[ROW]], %c16
// CHECK:             vector.load %[[POOL]][%[[PAGE]], %[[SLOT]], %{{.*}}]
// Packed rows start where the sequence's element says, and end where the next one's does.
// CHECK:         %[[NEXT:.*]] = arith.addi %[[B]], %c1
// CHECK:         memref.load %[[ENDS]][%[[NEXT]]]
// CHECK:         memref.load %[[ENDS]][%[[B]]]
// CHECK:         arith.subi
// CHECK:             %[[F:.*]] = memref.load %[[ENDS]][%[[B]]]
// CHECK:             %[[FROM:.*]] = arith.index_cast %[[F]]
// CHECK:             %[[AT:.*]] = arith.addi %{{.*}}, %[[FROM]]
// CHECK:             vector.store %{{.*}}, %[[TO]][%[[AT]], %{{.*}}]
func.func @paged(%m: memref<?x16x4x8xf32>, %table: memref<?x?xi32>, %used: !rows, %idx: !rows, %pad: !rows,
    %o: memref<?x4x8xf32>, %cu: !rows, %n: index) attributes {flash.kernel} {
  %v = flash_tile.view %m seqused(%used : !rows) appended %n page_table(%table : memref<?x?xi32>) batch_idx(%idx : !rows)
      leftpad(%pad : !rows) : memref<?x16x4x8xf32> -> <8xf32>
  %w = flash_tile.view %o cu_seqlens(%cu : !rows) : memref<?x4x8xf32> -> <8xf32>
  flash_tile.for_work "single"(%n, %n, %n, %n) {
  ^bb0(%t: index, %h: index, %b: index, %s: index):
    %x = flash_tile.load %v[%b, %h, %t] : <8xf32> -> <2x8xf32>
    flash_tile.store %x -> %w[%b, %h, %t] : <2x8xf32> -> <8xf32>
    flash_tile.yield
  }
  return
}

// -----

// Only rows whose position cos has are turned; the result is rounded once.
// CHECK-LABEL: func.func @rotate(
// CHECK-SAME:    %[[COS:[a-z0-9]+]]: memref<?x4xbf16>, %[[P:[a-z0-9]+]]: index
// CHECK:         scf.for %[[R:.*]] = %c0 to %c2
// CHECK:           %[[AT:.*]] = arith.addi %[[P]], %[[R]]
// CHECK:           %[[ALL:.*]] = memref.dim %[[COS]], %c0
// CHECK:           arith.cmpi slt, %[[AT]], %[[ALL]]
// CHECK:           scf.for %[[I:.*]] = %c0 to %c4
// CHECK:             %[[OTHER:.*]] = arith.addi %[[I]], %c4
// CHECK:             memref.load %[[COS]][%[[AT]], %[[I]]]
// CHECK:             arith.truncf
// CHECK:             memref.store %{{.*}}, %{{.*}}[%[[R]], %[[I]]]
// CHECK:             memref.store %{{.*}}, %{{.*}}[%[[R]], %[[OTHER]]]
// Neighbours, all by one position.
// CHECK:         scf.for %[[R:.*]] = %c0 to %c2
// CHECK:           scf.for %[[I:.*]] = %c0 to %c4
// CHECK:             %[[FIRST:.*]] = arith.muli %[[I]], %c2
// CHECK:             %[[SECOND:.*]] = arith.addi %[[FIRST]], %c1
// CHECK:             memref.load %[[COS]][%[[P]], %[[I]]]
func.func @rotate(%cos: memref<?x4xbf16>, %p: index, %o: memref<?x?x?x16xbf16>) attributes {flash.kernel} {
  %w = flash_tile.view %o : memref<?x?x?x16xbf16> -> <16xbf16>
  flash_tile.for_work "single"(%p, %p, %p, %p) {
  ^bb0(%t: index, %h: index, %b: index, %s: index):
    %x = flash_tile.load %w[%b, %h, %t] : <16xbf16> -> <2x16xbf16>
    %y = flash_tile.rotate %x by(%cos, %cos : memref<?x4xbf16>) at %p : <2x16xbf16>
    %z = flash_tile.rotate %y by(%cos, %cos : memref<?x4xbf16>) at %p {fixed, interleaved} : <2x16xbf16>
    flash_tile.store %z -> %w[%b, %h, %t] : <2x16xbf16> -> <16xbf16>
    flash_tile.yield
  }
  return
}

// -----

!rows = memref<?xi32>

// The sequence of a tile: a search among the starts, floor(rows before it * group / tile) + its number.
// CHECK-LABEL: func.func @work(
// CHECK-SAME:    %[[ENDS:[a-z0-9]+]]: memref<?xi32>, %[[TILES:[a-z0-9]+]]: index, %[[HEADS:[a-z0-9]+]]: index, %[[BATCH:[a-z0-9]+]]: index
// CHECK:         %[[ALL:.*]] = arith.muli %[[TILES]], %[[HEADS]]
// CHECK:         scf.for %[[T:.*]] = %{{.*}} to %[[ALL]]
// CHECK:           %[[TILE:.*]] = arith.divui %[[T]], %[[HEADS]]
// CHECK:           scf.while (%[[FIRST:.*]] = %c0, %[[END:.*]] = %[[BATCH]])
// CHECK:           } do {
// CHECK:             %[[MIDDLE:.*]] = arith.divui
// CHECK:             %[[ROWS:.*]] = memref.load %[[ENDS]][%[[MIDDLE]]]
// CHECK:             %[[I:.*]] = arith.index_cast %[[ROWS]]
// CHECK:             %[[PACKED:.*]] = arith.muli %[[I]], %c2
// CHECK:             %[[WHOLE:.*]] = arith.divui %[[PACKED]], %c64
// CHECK:             %[[START:.*]] = arith.addi %[[WHOLE]], %[[MIDDLE]]
// CHECK:             arith.cmpi slt, %[[TILE]], %[[START]]
func.func @work(%cu: !rows, %tiles: index, %heads: index, %batch: index, %lse: memref<?x?xf32>) attributes {flash.kernel} {
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %w = flash_tile.view %lse cu_seqlens(%cu : !rows) : memref<?x?xf32> -> <1xf32>
  flash_tile.for_work "varlen_dynamic"(%tiles, %heads, %batch, %c1) section %c1 packed(%cu : !rows) attributes {tile = 64, group = 2} {
  ^bb0(%m: index, %h: index, %b: index, %s: index):
    %x = flash_tile.splat %zero : f32 -> <64x1xf32>
    flash_tile.store %x -> %w[%b, %h, %m] : <64x1xf32> -> <1xf32>
    flash_tile.yield
  }
  return
}

// -----

!rows = memref<?xi32>
!table = memref<?x?xi32>

// Sums are loops; the number of tiles and where each lies are the schedule's.
// CHECK-LABEL: func.func @scheduled(
// CHECK-SAME:    %[[S:[a-z0-9]+]]: memref<?x?xi32>, %[[K:[a-z0-9]+]]: {{.*}}, %[[USED:[a-z0-9]+]]: memref<?xi32>, %[[B:[a-z0-9]+]]: index
// CHECK:         %[[SUM:.*]] = scf.for %[[I:.*]] = %c0 to %[[B]] step %c1 iter_args(%[[SO_FAR:.*]] = %c0) -> (index) {
// CHECK:           memref.load %[[USED]][%[[I]]]
// CHECK:           %[[MORE:.*]] = arith.addi %[[SO_FAR]],
// CHECK:           scf.yield %[[MORE]]
// CHECK:         memref.store %{{.*}}, %[[S]][%c0, %[[B]]]
// CHECK:         %[[ALL:.*]] = memref.load %[[S]][%c0, %[[B]]]
// CHECK:         %[[TILES:.*]] = arith.index_cast %[[ALL]]
// CHECK:         scf.for %[[T:.*]] = %{{.*}} to %[[TILES]] step
// CHECK:           %[[PLACE:.*]]:2 = scf.while
// CHECK:           memref.load %[[S]][%c1, %[[PLACE]]#0]
// CHECK:           memref.load %[[S]][%c0, %[[PLACE]]#0]
func.func @scheduled(%s: !table, %k: memref<?x?x4x8xf32>, %used: !rows, %batch: index, %to: memref<?xindex>) attributes {flash.kernel} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %v = flash_tile.view %k seqused(%used : !rows) : memref<?x?x4x8xf32> -> <8xf32>
  %all = flash_tile.total %batch -> index {
  ^bb0(%i: index):
    %n = flash_tile.length %v[%i] : <8xf32>
    flash_tile.yield %n : index
  }
  %narrow = arith.index_cast %all : index to i32
  memref.store %narrow, %s[%c0, %batch] : !table
  flash_tile.for_work "varlen_dynamic"(%c1, %c1, %batch, %c1) schedule(%s : !table) {
  ^bb0(%m: index, %h: index, %b: index, %p: index):
    memref.store %b, %to[%m] : memref<?xindex>
    flash_tile.yield
  }
  return
}
