// Attention, combine and append over packed, paged and appended sequences.
// RUN: flash-opt %s --verify-roundtrip | FileCheck %s
// RUN: flash-opt %s --mlir-print-op-generic | flash-opt | FileCheck %s
// RUN: flash-opt %s --emit-bytecode | flash-opt | FileCheck %s

!t = tensor<?x8x64xf16>
!u = tensor<?xi32>
!m = memref<?x8x64xbf16>
!cache = memref<?x?x2x64xbf16>
!rows = memref<?xi32>

// CHECK-LABEL: func.func @packed
func.func @packed(%q: !t, %k: tensor<?x2x64xf16>, %cu: !u, %most: index) -> (!t, tensor<8x?xf32>) {
  // CHECK: flash.attention %{{.*}} cu_seqlens_q(%{{.*}} : tensor<?xi32>) max_seqlen_q %{{.*}} cu_seqlens_k(%{{.*}} : tensor<?xi32>) seqused_q(%{{.*}} : tensor<?xi32>) seqused_k(%{{.*}} : tensor<?xi32>) by <causal> : tensor<?x8x64xf16>, tensor<?x2x64xf16>, tensor<?x2x64xf16> -> tensor<?x8x64xf16>, tensor<8x?xf32>
  %o, %lse = flash.attention %q, %k, %k cu_seqlens_q(%cu : !u) max_seqlen_q %most cu_seqlens_k(%cu : !u) seqused_q(%cu : !u)
      seqused_k(%cu : !u) by <causal> : !t, tensor<?x2x64xf16>, tensor<?x2x64xf16> -> !t, tensor<8x?xf32>
  return %o, %lse : !t, tensor<8x?xf32>
}

// CHECK-LABEL: func.func @parts
func.func @parts(%q: !t, %k: tensor<?x2x64xf16>, %cu: !u, %most: index) -> (!t, tensor<8x?xf32>) {
  // CHECK: %[[P:.*]]:2 = flash.attention {{.*}} -> tensor<3x?x8x64xf32>, tensor<3x8x?xf32>
  %op, %lp = flash.attention %q, %k, %k cu_seqlens_q(%cu : !u) max_seqlen_q %most cu_seqlens_k(%cu : !u) seqused_q(%cu : !u) by <causal>
      : !t, tensor<?x2x64xf16>, tensor<?x2x64xf16> -> tensor<3x?x8x64xf32>, tensor<3x8x?xf32>
  // CHECK: flash.combine %[[P]]#0, %[[P]]#1 cu_seqlens_q(%{{.*}} : tensor<?xi32>) max_seqlen_q %{{.*}} seqused_q(%{{.*}} : tensor<?xi32>) : tensor<3x?x8x64xf32>, tensor<3x8x?xf32> -> tensor<?x8x64xf16>, tensor<8x?xf32>
  %o, %lse = flash.combine %op, %lp cu_seqlens_q(%cu : !u) max_seqlen_q %most seqused_q(%cu : !u) : tensor<3x?x8x64xf32>, tensor<3x8x?xf32> -> !t, tensor<8x?xf32>
  return %o, %lse : !t, tensor<8x?xf32>
}

// CHECK-LABEL: func.func @scheduled
func.func @scheduled(%q: !m, %k: !cache, %cu: !rows, %s: memref<?x?xi32>, %op: memref<?x?x8x64xf32>, %lp: memref<?x8x?xf32>, %o: !m, %i: index) {
  // CHECK: flash.attention %{{.*}} cu_seqlens_q(%{{.*}} : memref<?xi32>) max_seqlen_q %{{.*}} seqused_k(%{{.*}} : memref<?xi32>) schedule(%{{.*}} : memref<?x?xi32>) outs(
  flash.attention %q, %k, %k cu_seqlens_q(%cu : !rows) max_seqlen_q %i seqused_k(%cu : !rows) schedule(%s : memref<?x?xi32>)
      outs(%op, %lp : memref<?x?x8x64xf32>, memref<?x8x?xf32>) by <dense> : !m, !cache, !cache
  // CHECK: flash.combine %{{.*}}, %{{.*}} cu_seqlens_q(%{{.*}} : memref<?xi32>) max_seqlen_q %{{.*}} schedule(%{{.*}} : memref<?x?xi32>) outs(
  flash.combine %op, %lp cu_seqlens_q(%cu : !rows) max_seqlen_q %i schedule(%s : memref<?x?xi32>) outs(%o : !m)
      : memref<?x?x8x64xf32>, memref<?x8x?xf32>
  return
}

// CHECK-LABEL: func.func @cached
func.func @cached(%q: !m, %turned: !m, %k: !cache, %new: !cache, %cu: !rows, %table: memref<?x?xi32>, %cos: memref<?x16xbf16>,
    %o: !m, %i: index) {
  // CHECK: flash.append %{{.*}}, %{{.*}} seqused_k(%{{.*}} : memref<?xi32>) page_table(%{{.*}} : memref<?x?xi32>) kv_batch_idx(%{{.*}} : memref<?xi32>) rotary(%{{.*}}, %{{.*}} : memref<?x16xbf16>, memref<?x16xbf16>) q(%{{.*}} : memref<?x8x64xbf16>) cu_seqlens_q(%{{.*}} : memref<?xi32>) max_seqlen_q %{{.*}} outs(%{{.*}}, %{{.*}}, %{{.*}} : memref<?x?x2x64xbf16>, memref<?x?x2x64xbf16>, memref<?x8x64xbf16>) {fixed, interleaved} : memref<?x?x2x64xbf16>, memref<?x?x2x64xbf16>
  flash.append %new, %new seqused_k(%cu : !rows) page_table(%table : memref<?x?xi32>) kv_batch_idx(%cu : !rows)
      rotary(%cos, %cos : memref<?x16xbf16>, memref<?x16xbf16>) q(%q : !m) cu_seqlens_q(%cu : !rows) max_seqlen_q %i
      outs(%k, %k, %turned : !cache, !cache, !m) {fixed, interleaved} : !cache, !cache
  // CHECK: flash.attention %{{.*}} cu_seqlens_q(%{{.*}} : memref<?xi32>) max_seqlen_q %{{.*}} seqused_k(%{{.*}} : memref<?xi32>) appended %{{.*}} page_table(%{{.*}} : memref<?x?xi32>) kv_batch_idx(%{{.*}} : memref<?xi32>) leftpad_k(%{{.*}} : memref<?xi32>) outs(%{{.*}} : memref<?x8x64xbf16>) by <dense>
  flash.attention %turned, %k, %k cu_seqlens_q(%cu : !rows) max_seqlen_q %i seqused_k(%cu : !rows) appended %i
      page_table(%table : memref<?x?xi32>) kv_batch_idx(%cu : !rows) leftpad_k(%cu : !rows) outs(%o : !m) by <dense>
      : !m, !cache, !cache
  // CHECK: flash.append %{{.*}}, %{{.*}} seqused_k(%{{.*}} : memref<?xi32>) outs(%{{.*}}, %{{.*}} : memref<?x?x2x64xbf16>, memref<?x?x2x64xbf16>) : memref<?x?x2x64xbf16>, memref<?x?x2x64xbf16>
  flash.append %new, %new seqused_k(%cu : !rows) outs(%k, %k : !cache, !cache) : !cache, !cache
  return
}
