// RUN: flash-opt %s --flash-lower-to-tile --split-input-file --verify-diagnostics | FileCheck %s

// The function becomes a kernel: arguments by name, one loop over all key blocks, every one masked.
// CHECK-LABEL: func.func @tensors(
// CHECK-SAME:    %[[Q:.*]]: memref<?x?x?x40xbf16, strided<[?, ?, ?, 1], offset: ?>> {flash.arg = "q"}
// CHECK-SAME:    {flash.arg = "k"}, {{.*}} {flash.arg = "v"}, {{.*}} {flash.arg = "o"}, %{{.*}}: memref<?x?x?xf32, strided<[?, ?, ?], offset: ?>> {flash.arg = "lse"})
// CHECK-SAME:    attributes {flash.kernel, flash.op = "attention", flash.plan = #flash.plan<tile = [64, 32]>, flash.target = #flash.target<"sm_90a">}
// CHECK:         %[[QV:.*]] = flash_tile.view %[[Q]] : {{.*}} -> <40xbf16>
// CHECK:         %[[QR:.*]] = flash_tile.ring "q" : <1x64x64xbf16>
// CHECK:         %[[KR:.*]] = flash_tile.ring "k" : <1x32x64xbf16>
// CHECK:         flash_tile.for_work "single"
// CHECK:         ^bb0(%[[M:.*]]: index, %[[H:.*]]: index, %[[B:.*]]: index, %{{.*}}: index, %[[T:.*]]: index, %[[N:.*]]: index):
// CHECK:           flash_tile.fill %[[QV]][%[[B]], %[[H]], %[[ROW:.*]]] -> %[[QR]][%[[T]]]
// CHECK:           %[[END:.*]] = arith.ceildivui
// CHECK:           scf.for %[[I:.*]] = %{{.*}} to %[[END]]
// CHECK:             %[[IT:.*]] = arith.addi %[[N]], %[[I]]
// CHECK:             flash_tile.fill %{{.*}} -> %[[KR]][%[[IT]]]
// CHECK:             %[[KT:.*]] = flash_tile.wait %[[KR]][%[[IT]]]
// CHECK:             flash_tile.mma %{{.*}}, %[[KT]] trans
// CHECK:             flash_tile.release %[[KR]][%[[IT]]]
// CHECK:             flash_tile.mask %{{.*}} by <causal> at[%[[ROW]], %{{.*}}]
// CHECK:             flash_tile.softmax_step online
// CHECK:           } {flash_tile.run = "all"}
// CHECK:           flash_tile.finalize
func.func @tensors(%q: tensor<2x9x4x40xbf16>, %k: tensor<2x9x4x40xbf16>, %v: tensor<2x9x4x40xbf16>) -> (tensor<2x9x4x40xbf16>, tensor<2x4x9xf32>) {
  %o, %lse = flash.attention %q, %k, %v by #flash.mask<causal> {target = #flash.target<"sm_90a">, plan = #flash.plan<tile = [64, 32]>}
      : tensor<2x9x4x40xbf16>, tensor<2x9x4x40xbf16>, tensor<2x9x4x40xbf16> -> tensor<2x9x4x40xbf16>, tensor<2x4x9xf32>
  return %o, %lse : tensor<2x9x4x40xbf16>, tensor<2x4x9xf32>
}

// -----

// Memrefs, softcap, sink, a scale that is an argument: each named; no lse, so none is stored.
// CHECK-LABEL: func.func @memrefs(
// CHECK-SAME:    {flash.arg = "o"}, %[[SINK:.*]]: memref<?xf32, strided<[?], offset: ?>> {flash.arg = "sink"}, %{{.*}}: f32 {flash.arg = "scale"}, %[[CAP:.*]]: f32 {flash.arg = "softcap"})
// CHECK:         flash_tile.map
// CHECK:           arith.subf %[[CAP]],
// CHECK:         flash_tile.mask
// CHECK:         flash_tile.finalize {{.*}} sink(%[[SINK]][
// CHECK-COUNT-1: flash_tile.store
// CHECK-NOT:     flash_tile.store
func.func @memrefs(%q: memref<?x?x?x64xf32>, %k: memref<?x?x?x64xf32>, %v: memref<?x?x?x64xf32>, %o: memref<?x?x?x64xf32>,
                   %sink: memref<?xf32>, %scale: f32, %cap: f32) {
  flash.attention %q, %k, %v sink(%sink : memref<?xf32>) scale %scale softcap %cap outs(%o : memref<?x?x?x64xf32>) by #flash.mask<dense>
      {plan = #flash.plan<tile = [4, 4]>} : memref<?x?x?x64xf32>, memref<?x?x?x64xf32>, memref<?x?x?x64xf32>
  return
}

// -----

// Packed query heads: views and mask know the group, work counts KV heads.
// CHECK-LABEL: func.func @packed(
// CHECK:         flash_tile.view %{{.*}} {group = 4 : i64}
// CHECK:         flash_tile.mask {{.*}} {group = 4 : i64}
func.func @packed(%q: memref<?x?x8x64xf16>, %k: memref<?x?x2x64xf16>, %v: memref<?x?x2x64xf16>, %o: memref<?x?x8x64xf16>) {
  flash.attention %q, %k, %v outs(%o : memref<?x?x8x64xf16>) by #flash.mask<causal>
      {plan = #flash.plan<tile = [8, 4], pack_gqa = true>} : memref<?x?x8x64xf16>, memref<?x?x2x64xf16>, memref<?x?x2x64xf16>
  return
}

// -----

// Parts of the keys and their join are two kernels.
// CHECK-LABEL: func.func @split(
// CHECK-SAME:    {flash.arg = "o_partial"}
// CHECK:         flash_tile.view {{.*}} {partial}
// CHECK:         flash_tile.block_range by <dense>
// CHECK-LABEL: func.func @split_combine(
// CHECK-SAME:    {flash.arg = "o_partial"}, {{.*}} {flash.arg = "lse_partial"}, {{.*}} {flash.arg = "o"}
// CHECK:         flash_tile.for_work "single"
// CHECK:         flash_tile.load
func.func @split(%q: tensor<1x5x2x64xbf16>, %k: tensor<1x9x2x64xbf16>, %v: tensor<1x9x2x64xbf16>) -> tensor<1x5x2x64xbf16> {
  %op, %lp = flash.attention %q, %k, %v by #flash.mask<dense> {plan = #flash.plan<tile = [4, 4], splits = 3>}
      : tensor<1x5x2x64xbf16>, tensor<1x9x2x64xbf16>, tensor<1x9x2x64xbf16> -> tensor<3x1x5x2x64xf32>, tensor<3x1x2x5xf32>
  %o = flash.combine %op, %lp {plan = #flash.plan<tile = [4, 1]>} : tensor<3x1x5x2x64xf32>, tensor<3x1x2x5xf32> -> tensor<1x5x2x64xbf16>
  return %o : tensor<1x5x2x64xbf16>
}

// -----

// Two parts aside, two of each: four a step. What each has is joined at last.
// CHECK-LABEL: func.func @aside(
// CHECK:         scf.for %[[I:.*]] = %{{.*}} to %[[N:.*]] step %[[FOUR:.*]] iter_args
// CHECK:           %[[NEXT:.*]] = arith.addi %[[I]], %
// CHECK:           %[[LEFT:.*]] = arith.subi %[[N]], %[[NEXT]]
// CHECK:           flash_tile.load %{{.*}}[%{{.*}}, %{{.*}}, %{{.*}}] parts(%[[LEFT]]) aside 2 : <1xf32> -> <8x1xf32>
// CHECK:           flash_tile.load {{.*}} parts(%[[LEFT]]) aside 2 : <64xf32> -> <8x64xf32>
// CHECK:           %[[TWO:.*]] = arith.constant 2 : index
// CHECK:           arith.addi %[[I]], %[[TWO]]
// CHECK:           flash_tile.load {{.*}} aside 2 : <1xf32> -> <8x1xf32>
// CHECK:         flash_tile.split_rows %{{.*}}#0, %{{.*}}#1, %{{.*}}#2
// CHECK:         flash_tile.store
func.func @aside(%op: tensor<3x1x5x2x64xf32>, %lp: tensor<3x1x2x5xf32>) -> tensor<1x5x2x64xbf16> {
  %o = flash.combine %op, %lp {plan = #flash.plan<tile = [4, 4], aside = 2>} : tensor<3x1x5x2x64xf32>, tensor<3x1x2x5xf32> -> tensor<1x5x2x64xbf16>
  return %o : tensor<1x5x2x64xbf16>
}

// -----

func.func @no_plan(%q: memref<?x?x?x64xf32>, %o: memref<?x?x?x64xf32>) {
  // expected-error @below {{expected a plan with a tile; run flash-select-tiles before}}
  flash.attention %q, %q, %q outs(%o : memref<?x?x?x64xf32>) by <dense> : memref<?x?x?x64xf32>, memref<?x?x?x64xf32>, memref<?x?x?x64xf32>
  return
}

// -----

func.func @beside(%q: memref<?x?x?x64xf32>, %o: memref<?x?x?x64xf32>, %x: f32) -> f32 {
  flash.attention %q, %q, %q outs(%o : memref<?x?x?x64xf32>) by #flash.mask<dense> {plan = #flash.plan<tile = [4, 4]>}
      : memref<?x?x?x64xf32>, memref<?x?x?x64xf32>, memref<?x?x?x64xf32>
  // expected-error @below {{stands beside an attention in a function that becomes a kernel; move it to its caller}}
  %y = arith.addf %x, %x : f32
  return %y : f32
}
