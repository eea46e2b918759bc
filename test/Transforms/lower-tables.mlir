// Tables become arguments by name and operands of the views; nothing else of the body knows them.
// RUN: flash-opt %s --flash-select-tiles --flash-split-kv --flash-lower-to-tile --split-input-file | FileCheck %s

!rows = memref<?xi32>
!q = memref<?x8x64xf16>

// Tiles reach as far as the longest sequence; one past the end of its own sequence needs no keys.
// CHECK-LABEL: func.func @packed(
// CHECK-SAME:    {flash.arg = "q"}, {{.*}} {flash.arg = "lse"}, %[[CUQ:[a-z0-9]+]]: memref<?xi32, strided<[1], offset: ?>> {flash.arg = "cu_seqlens_q"}, %[[USEDQ:[a-z0-9]+]]: {{.*}} {flash.arg = "seqused_q"}, %[[CUK:[a-z0-9]+]]: {{.*}} {flash.arg = "cu_seqlens_k"}, %[[MOST:[a-z0-9]+]]: index {flash.arg = "max_seqlen_q"})
// CHECK-DAG:     %[[C0:.*]] = arith.constant 0 : index
// CHECK:         %[[ENDS:.*]] = memref.dim %[[CUQ]]
// CHECK:         %[[BATCH:.*]] = arith.subi %[[ENDS]], %{{.*}}
// CHECK:         %[[ROWS:.*]] = arith.muli %[[MOST]],
// CHECK:         %[[TILES:.*]] = arith.ceildivui %[[ROWS]]
// CHECK:         %[[QV:.*]] = flash_tile.view %{{.*}} cu_seqlens(%[[CUQ]] : {{.*}}) seqused(%[[USEDQ]] : {{.*}}) {group = 4 : i64} : memref<?x?x64xf16, strided<[?, ?, 1], offset: ?>> -> <64xf16>
// CHECK:         %[[KV:.*]] = flash_tile.view %{{.*}} cu_seqlens(%[[CUK]] : {{.*}}) : {{.*}} -> <64xf16>
// CHECK:         flash_tile.view %{{.*}} cu_seqlens(%[[CUQ]] : {{.*}}) seqused(%[[USEDQ]] : {{.*}}) {group = 4 : i64} : memref<?x?xf32, strided<[?, ?], offset: ?>> -> <1xf32>
// CHECK:         flash_tile.for_work "single"(%[[TILES]], %{{.*}}, %[[BATCH]],
// CHECK:           %[[LEN:.*]] = flash_tile.length %[[QV]]
// CHECK:           %[[LENK:.*]] = flash_tile.length %[[KV]]
// CHECK:           %[[INSIDE:.*]] = arith.cmpi ult, %{{.*}}, %[[LEN]]
// CHECK:           arith.select %[[INSIDE]], %[[LENK]], %[[C0]]
func.func @packed(%q: !q, %k: memref<?x2x64xf16>, %o: !q, %lse: memref<8x?xf32>, %cu: !rows, %used: !rows, %most: index) {
  flash.attention %q, %k, %k cu_seqlens_q(%cu : !rows) max_seqlen_q %most cu_seqlens_k(%cu : !rows) seqused_q(%used : !rows)
      outs(%o, %lse : !q, memref<8x?xf32>) by <causal> {plan = #flash.plan<pack_gqa = true>} : !q, memref<?x2x64xf16>, memref<?x2x64xf16>
  return
}

// -----

// The append goes first, and the attention reads q where it turned it; the size of pages stays known.
!rows = memref<?xi32>
!q = memref<?x?x8x64xf16>
!pages = memref<?x16x2x64xf16>
!new = memref<?x?x2x64xf16>

// CHECK-LABEL: func.func @cached_append(
// CHECK-SAME:    %[[NEW:[a-z0-9]+]]: {{.*}} {flash.arg = "k_new"}, %{{.*}} {flash.arg = "v_new"}, %[[K:[a-z0-9]+]]: memref<?x16x?x64xf16, {{.*}}> {flash.arg = "k"}, {{.*}} {flash.arg = "v"}, %[[USED:[a-z0-9]+]]: {{.*}} {flash.arg = "seqused_k"}, %[[TABLE:[a-z0-9]+]]: memref<?x?xi32, strided<[?, 1], offset: ?>> {flash.arg = "page_table"}, %[[COS:[a-z0-9]+]]: {{.*}} {flash.arg = "rotary_cos"}, {{.*}} {flash.arg = "rotary_sin"}, {{.*}} {flash.arg = "q"}, {{.*}} {flash.arg = "q_turned"})
// CHECK:         %[[COUNT:.*]] = memref.dim %[[NEW]]
// CHECK:         %[[OLD:.*]] = flash_tile.view %[[K]] seqused(%[[USED]] : {{.*}}) page_table
// CHECK:         flash_tile.view %[[NEW]] :
// CHECK:         %[[TO:.*]] = flash_tile.view %[[K]] seqused(%[[USED]] : {{.*}}) appended %[[COUNT]] page_table(%[[TABLE]] : {{.*}}) leftpad(%[[USED]] : {{.*}})
// CHECK:         flash_tile.for_work
// CHECK:           %[[FIRST:.*]] = flash_tile.length %[[OLD]]
// CHECK:           %[[AT:.*]] = arith.addi %[[FIRST]],
// CHECK:           scf.if
// CHECK:             %[[X:.*]] = flash_tile.load
// CHECK:             %[[Y:.*]] = flash_tile.rotate %[[X]] by(%[[COS]], %{{.*}}) at %[[AT]] {interleaved}
// CHECK:             flash_tile.store %[[Y]] -> %[[TO]]
// CHECK:             %[[V:.*]] = flash_tile.load
// CHECK:             flash_tile.store %[[V]]
// CHECK:           flash_tile.rotate %{{.*}} at %[[FIRST]] {fixed, interleaved}
// CHECK-LABEL: func.func @cached(
// CHECK-SAME:    {flash.arg = "q_turned"}, {{.*}}memref<?x16x?x64xf16, {{.*}} {flash.arg = "seqused_k"}, %[[N:[a-z0-9]+]]: index {flash.arg = "appended"}, {{.*}} {flash.arg = "page_table"}
// CHECK:         flash_tile.view %{{.*}} seqused(%{{.*}}) appended %[[N]] page_table(
func.func @cached(%q: !q, %k: !pages, %o: !q, %used: !rows, %table: memref<?x?xi32>, %new: !new, %cos: memref<?x16xf16>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = memref.dim %new, %c1 : !new
  %b = memref.dim %q, %c0 : !q
  %s = memref.dim %q, %c1 : !q
  %turned = memref.alloc(%b, %s) : !q
  flash.append %new, %new seqused_k(%used : !rows) page_table(%table : memref<?x?xi32>)
      rotary(%cos, %cos : memref<?x16xf16>, memref<?x16xf16>) q(%q : !q) outs(%k, %k, %turned : !pages, !pages, !q)
      {fixed, interleaved} : !new, !new
  flash.attention %turned, %k, %k seqused_k(%used : !rows) appended %n page_table(%table : memref<?x?xi32>) outs(%o : !q)
      by <dense> : !q, !pages, !pages
  memref.dealloc %turned : !q
  return
}

// -----

// Parts are joined in the rows that count: what lies past a sequence's end has no parts.
// CHECK-LABEL: func.func @parts(
// CHECK:         flash_tile.view %{{.*}} cu_seqlens(%{{.*}}) {{.*}}partial{{.*}} -> <64xf32>
// CHECK-LABEL: func.func @parts_combine(
// CHECK-SAME:    %[[CU:[a-z0-9]+]]: {{[^%]*}} {flash.arg = "cu_seqlens_q"}, %[[USED:[a-z0-9]+]]: {{[^%]*}} {flash.arg = "seqused_q"}, %[[MOST:[a-z0-9]+]]: index
// CHECK:         flash_tile.view %{{.*}} cu_seqlens(%[[CU]] : {{.*}}) seqused(%[[USED]] : {{.*}}) {partial} : memref<?x?x?x64xf32, {{.*}} -> <64xf32>
// CHECK:         flash_tile.view %{{.*}} cu_seqlens(%[[CU]] : {{.*}}) seqused(%[[USED]] : {{.*}}) : memref<?x?x64xf16, {{.*}} -> <64xf16>
// CHECK:         %[[TILES:.*]] = arith.ceildivui %[[MOST]],
// CHECK:         flash_tile.for_work "single"(%[[TILES]],
// No row, no part: of a sequence without rows there is none to read.
// CHECK:         %[[ROWS:.*]] = flash_tile.length
// CHECK:         %[[SOME:.*]] = arith.cmpi ult, %{{.*}}, %[[ROWS]] : index
// CHECK:         %[[SPLITS:.*]] = arith.select %[[SOME]],
// CHECK:         scf.for %{{.*}} to %[[SPLITS]]
func.func @parts(%q: tensor<?x8x64xf16>, %cu: tensor<?xi32>, %used: tensor<?xi32>, %most: index) -> tensor<?x8x64xf16> {
  %o = flash.attention %q, %q, %q cu_seqlens_q(%cu : tensor<?xi32>) max_seqlen_q %most cu_seqlens_k(%cu : tensor<?xi32>)
      seqused_q(%used : tensor<?xi32>)
      by <dense> {plan = #flash.plan<splits = 3>} : tensor<?x8x64xf16>, tensor<?x8x64xf16>, tensor<?x8x64xf16> -> tensor<?x8x64xf16>
  return %o : tensor<?x8x64xf16>
}

// -----

// In their own order packed sequences have their tiles counted together, without a bound of their lengths. Of keys and values
// that are read once the views say so.
// CHECK-LABEL: func.func @counted(
// CHECK-SAME:    %[[Q:[a-z0-9]+]]: {{.*}} {flash.arg = "q"}, {{.*}} %[[CUQ:[a-z0-9]+]]: memref<?xi32, strided<[1], offset: ?>> {flash.arg = "cu_seqlens_q"}
// CHECK:         %[[TOTAL:.*]] = memref.dim %[[Q]], %c0
// CHECK:         %[[ROWS:.*]] = arith.muli %[[TOTAL]], %{{.*}}
// CHECK:         %[[WHOLE:.*]] = arith.divui %[[ROWS]],
// CHECK:         %[[ALL:.*]] = arith.addi %[[WHOLE]], %{{.*}}
// CHECK:         %[[TILES:.*]] = arith.muli %[[ALL]],
// CHECK:         flash_tile.view {{.*}} {group = 4 : i64} : {{.*}} -> <64xf16>
// CHECK-COUNT-2: flash_tile.view {{.*}} {once} : {{.*}} -> <64xf16>
// CHECK:         flash_tile.view {{.*}} {group = 4 : i64} : {{.*}} -> <64xf16>
// CHECK:         flash_tile.for_work "varlen_dynamic"(%[[TILES]], {{.*}} section %{{.*}} packed(%[[CUQ]] : {{.*}}) iter({{.*}}) attributes {group = 4 : i64, tile = 64 : i64}
func.func @counted(%q: tensor<?x8x64xf16>, %k: tensor<?x2x64xf16>, %cu: tensor<?xi32>, %most: index) -> tensor<?x8x64xf16> {
  %o = flash.attention %q, %k, %k cu_seqlens_q(%cu : tensor<?xi32>) max_seqlen_q %most cu_seqlens_k(%cu : tensor<?xi32>)
      by <dense> {plan = #flash.plan<tile = [64, 64], pack_gqa = true, read_once = true, order = "varlen_dynamic">}
      : tensor<?x8x64xf16>, tensor<?x2x64xf16>, tensor<?x2x64xf16> -> tensor<?x8x64xf16>
  return %o : tensor<?x8x64xf16>
}
