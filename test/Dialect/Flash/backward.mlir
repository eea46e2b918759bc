// RUN: flash-opt %s | flash-opt | FileCheck %s --enable-var-scope
// RUN: flash-opt %s --mlir-print-op-generic | flash-opt | FileCheck %s --enable-var-scope

// CHECK-LABEL: func @tensors
func.func @tensors(%q: tensor<2x?x16x128xbf16>, %k: tensor<2x?x4x128xbf16>, %v: tensor<2x?x4x64xbf16>,
                   %o: tensor<2x?x16x64xbf16>, %lse: tensor<2x16x?xf32>, %s: tensor<16xf32>)
    -> (tensor<2x?x16x128xbf16>, tensor<2x?x4x128xbf16>, tensor<2x?x4x64xbf16>, tensor<16xf32>) {
  // CHECK: %{{.*}}:4 = flash.attention_backward %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} sink(%{{.*}} : tensor<16xf32>) by <causal> {deterministic} : tensor<2x?x16x128xbf16>, tensor<2x?x4x128xbf16>, tensor<2x?x4x64xbf16>, tensor<2x?x16x64xbf16>, tensor<2x16x?xf32>, tensor<2x?x16x64xbf16> -> tensor<2x?x16x128xbf16>, tensor<2x?x4x128xbf16>, tensor<2x?x4x64xbf16>, tensor<16xf32>
  %dq, %dk, %dv, %ds = flash.attention_backward %q, %k, %v, %o, %lse, %o sink(%s : tensor<16xf32>) by <causal> {deterministic}
      : tensor<2x?x16x128xbf16>, tensor<2x?x4x128xbf16>, tensor<2x?x4x64xbf16>, tensor<2x?x16x64xbf16>, tensor<2x16x?xf32>, tensor<2x?x16x64xbf16>
      -> tensor<2x?x16x128xbf16>, tensor<2x?x4x128xbf16>, tensor<2x?x4x64xbf16>, tensor<16xf32>
  return %dq, %dk, %dv, %ds : tensor<2x?x16x128xbf16>, tensor<2x?x4x128xbf16>, tensor<2x?x4x64xbf16>, tensor<16xf32>
}

// CHECK-LABEL: func @packed
func.func @packed(%q: memref<?x4x64xf16>, %k: memref<?x2x64xf16>, %lse: memref<4x?xf32>, %scale: f32, %cap: f32,
                  %cq: memref<?xi32>, %ck: memref<?xi32>, %used: memref<?xi32>) {
  // CHECK: flash.attention_backward {{.*}} scale %{{.*}} softcap %{{.*}} cu_seqlens_q(%{{.*}} : memref<?xi32>) cu_seqlens_k(%{{.*}} : memref<?xi32>) seqused_q(%{{.*}} : memref<?xi32>) seqused_k(%{{.*}} : memref<?xi32>) outs(%{{.*}}, %{{.*}}, %{{.*}} : memref<?x4x64xf16>, memref<?x2x64xf16>, memref<?x2x64xf16>) by <local, left = 8, right = 2> :
  flash.attention_backward %q, %k, %k, %q, %lse, %q scale %scale softcap %cap cu_seqlens_q(%cq : memref<?xi32>)
      cu_seqlens_k(%ck : memref<?xi32>) seqused_q(%used : memref<?xi32>) seqused_k(%used : memref<?xi32>)
      outs(%q, %k, %k : memref<?x4x64xf16>, memref<?x2x64xf16>, memref<?x2x64xf16>) by <local, left = 8, right = 2>
      : memref<?x4x64xf16>, memref<?x2x64xf16>, memref<?x2x64xf16>, memref<?x4x64xf16>, memref<4x?xf32>, memref<?x4x64xf16>
  return
}
