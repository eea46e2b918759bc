// RUN: flash-opt %s --flash-lower-to-tile --split-input-file --verify-diagnostics

func.func @untiled(%q: memref<?x?x4x16xbf16>, %k: memref<?x?x2x16xbf16>, %lse: memref<?x4x?xf32>, %s: memref<4xf32>) {
  // expected-error @+1 {{expected a plan with a tile; run flash-select-tiles before}}
  flash.attention_backward %q, %k, %k, %q, %lse, %q sink(%s : memref<4xf32>)
      outs(%q, %k, %k, %s : memref<?x?x4x16xbf16>, memref<?x?x2x16xbf16>, memref<?x?x2x16xbf16>, memref<4xf32>) by <dense> {plan = #flash.plan<stages = 1>, target = #flash.target<"cpu">}
      : memref<?x?x4x16xbf16>, memref<?x?x2x16xbf16>, memref<?x?x2x16xbf16>, memref<?x?x4x16xbf16>, memref<?x4x?xf32>, memref<?x?x4x16xbf16>
  return
}

// -----

// expected-error @+1 {{expected one attention_backward alone in a function that becomes kernels; give each a function of its own}}
func.func @both(%q: memref<?x?x4x16xbf16>, %k: memref<?x?x2x16xbf16>, %lse: memref<?x4x?xf32>) {
  flash.attention %q, %k, %k outs(%q, %lse : memref<?x?x4x16xbf16>, memref<?x4x?xf32>) by <dense>
      : memref<?x?x4x16xbf16>, memref<?x?x2x16xbf16>, memref<?x?x2x16xbf16>
  flash.attention_backward %q, %k, %k, %q, %lse, %q outs(%q, %k, %k : memref<?x?x4x16xbf16>, memref<?x?x2x16xbf16>, memref<?x?x2x16xbf16>) by <dense>
      : memref<?x?x4x16xbf16>, memref<?x?x2x16xbf16>, memref<?x?x2x16xbf16>, memref<?x?x4x16xbf16>, memref<?x4x?xf32>, memref<?x?x4x16xbf16>
  return
}
