// RUN: flash-opt --flash-to-nvvm %s | FileCheck %s --enable-var-scope
// Capped scores of gradients whose rows are looked up: consumers hold them beside dK and dV.

// CHECK-LABEL: llvm.func @packed_64(
func.func @packed_64(%q: memref<?x8x64xbf16>, %k: memref<?x2x64xbf16>, %lse: memref<8x?xf32>,
                 %rows: memref<?xi32>, %cap: f32) attributes {flash.target = #flash.target<"sm_90a">} {
  flash.attention_backward %q, %k, %k, %q, %lse, %q softcap %cap cu_seqlens_q(%rows : memref<?xi32>) cu_seqlens_k(%rows : memref<?xi32>)
      outs(%q, %k, %k : memref<?x8x64xbf16>, memref<?x2x64xbf16>, memref<?x2x64xbf16>) by <causal> : memref<?x8x64xbf16>, memref<?x2x64xbf16>, memref<?x2x64xbf16>, memref<?x8x64xbf16>, memref<8x?xf32>, memref<?x8x64xbf16>
  return
}

// CHECK-LABEL: llvm.func @used_64(
func.func @used_64(%q: memref<?x?x8x64xbf16>, %k: memref<?x?x2x64xbf16>, %lse: memref<?x8x?xf32>,
                 %rows: memref<?xi32>, %cap: f32) attributes {flash.target = #flash.target<"sm_90a">} {
  flash.attention_backward %q, %k, %k, %q, %lse, %q softcap %cap seqused_q(%rows : memref<?xi32>) seqused_k(%rows : memref<?xi32>)
      outs(%q, %k, %k : memref<?x?x8x64xbf16>, memref<?x?x2x64xbf16>, memref<?x?x2x64xbf16>) by <causal> : memref<?x?x8x64xbf16>, memref<?x?x2x64xbf16>, memref<?x?x2x64xbf16>, memref<?x?x8x64xbf16>, memref<?x8x?xf32>, memref<?x?x8x64xbf16>
  return
}

// CHECK-LABEL: llvm.func @packed_128(
// CHECK: nvvm.setmaxregister{{ +}}increase 240
func.func @packed_128(%q: memref<?x8x128xbf16>, %k: memref<?x2x128xbf16>, %lse: memref<8x?xf32>,
                 %rows: memref<?xi32>, %cap: f32) attributes {flash.target = #flash.target<"sm_90a">} {
  flash.attention_backward %q, %k, %k, %q, %lse, %q softcap %cap cu_seqlens_q(%rows : memref<?xi32>) cu_seqlens_k(%rows : memref<?xi32>)
      outs(%q, %k, %k : memref<?x8x128xbf16>, memref<?x2x128xbf16>, memref<?x2x128xbf16>) by <causal> : memref<?x8x128xbf16>, memref<?x2x128xbf16>, memref<?x2x128xbf16>, memref<?x8x128xbf16>, memref<8x?xf32>, memref<?x8x128xbf16>
  return
}

// CHECK-LABEL: llvm.func @used_128(
// CHECK: nvvm.setmaxregister{{ +}}increase 240
func.func @used_128(%q: memref<?x?x8x128xbf16>, %k: memref<?x?x2x128xbf16>, %lse: memref<?x8x?xf32>,
                 %rows: memref<?xi32>, %cap: f32) attributes {flash.target = #flash.target<"sm_90a">} {
  flash.attention_backward %q, %k, %k, %q, %lse, %q softcap %cap seqused_q(%rows : memref<?xi32>) seqused_k(%rows : memref<?xi32>)
      outs(%q, %k, %k : memref<?x?x8x128xbf16>, memref<?x?x2x128xbf16>, memref<?x?x2x128xbf16>) by <causal> : memref<?x?x8x128xbf16>, memref<?x?x2x128xbf16>, memref<?x?x2x128xbf16>, memref<?x?x8x128xbf16>, memref<?x8x?xf32>, memref<?x?x8x128xbf16>
  return
}

// CHECK-LABEL: llvm.func @packed_256(
// CHECK: nvvm.setmaxregister{{ +}}increase 240
func.func @packed_256(%q: memref<?x8x256xbf16>, %k: memref<?x2x256xbf16>, %lse: memref<8x?xf32>,
                 %rows: memref<?xi32>, %cap: f32) attributes {flash.target = #flash.target<"sm_90a">} {
  flash.attention_backward %q, %k, %k, %q, %lse, %q softcap %cap cu_seqlens_q(%rows : memref<?xi32>) cu_seqlens_k(%rows : memref<?xi32>)
      outs(%q, %k, %k : memref<?x8x256xbf16>, memref<?x2x256xbf16>, memref<?x2x256xbf16>) by <causal> : memref<?x8x256xbf16>, memref<?x2x256xbf16>, memref<?x2x256xbf16>, memref<?x8x256xbf16>, memref<8x?xf32>, memref<?x8x256xbf16>
  return
}

// CHECK-LABEL: llvm.func @used_256(
// CHECK: nvvm.setmaxregister{{ +}}increase 240
func.func @used_256(%q: memref<?x?x8x256xbf16>, %k: memref<?x?x2x256xbf16>, %lse: memref<?x8x?xf32>,
                 %rows: memref<?xi32>, %cap: f32) attributes {flash.target = #flash.target<"sm_90a">} {
  flash.attention_backward %q, %k, %k, %q, %lse, %q softcap %cap seqused_q(%rows : memref<?xi32>) seqused_k(%rows : memref<?xi32>)
      outs(%q, %k, %k : memref<?x?x8x256xbf16>, memref<?x?x2x256xbf16>, memref<?x?x2x256xbf16>) by <causal> : memref<?x?x8x256xbf16>, memref<?x?x2x256xbf16>, memref<?x?x2x256xbf16>, memref<?x?x8x256xbf16>, memref<?x8x?xf32>, memref<?x?x8x256xbf16>
  return
}
