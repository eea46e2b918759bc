// Every op over tensors and memrefs, with static and dynamic sizes, in custom and in generic form.
// RUN: flash-opt %s --verify-roundtrip | FileCheck %s
// RUN: flash-opt %s --mlir-print-op-generic | flash-opt | FileCheck %s
// RUN: flash-opt %s --mlir-print-op-generic | FileCheck %s --check-prefix=GENERIC
// RUN: flash-opt %s --emit-bytecode | flash-opt | FileCheck %s

!q = tensor<2x9x8x64xf16>
!kv = tensor<2x7x2x64xf16>
!lse = tensor<2x8x9xf32>
!dq = tensor<?x?x?x64xbf16>
!m = memref<?x?x8x64xf32, strided<[?, ?, ?, 1], offset: ?>>

// CHECK-LABEL: func.func @tensors
// CHECK: %[[A:.*]] = flash.attention %{{.*}}, %{{.*}}, %{{.*}} by <dense> : tensor<2x9x8x64xf16>, tensor<2x7x2x64xf16>, tensor<2x7x2x64xf16> -> tensor<2x9x8x64xf16>
// CHECK: flash.attention %{{.*}} sink(%{{.*}} : tensor<8xf32>) scale %{{.*}} softcap %{{.*}} by <local, left = 3, right = 1> {{.*}} -> tensor<2x9x8x64xf16>, tensor<2x8x9xf32>
// GENERIC: "flash.attention"(%{{.*}}, %{{.*}}, %{{.*}}) <{mask = #flash.mask<dense>, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, {{(0, )+}}0>}>
// GENERIC: "flash.attention"({{.*}}) <{mask = #flash.mask<local, left = 3, right = 1>, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, {{(0, )+}}0>}>
func.func @tensors(%q: !q, %k: !kv, %sink: tensor<8xf32>, %x: f32) -> (!q, !q, !lse) {
  %a = flash.attention %q, %k, %k by <dense> : !q, !kv, !kv -> !q
  %b, %lse = flash.attention %q, %k, %k sink(%sink : tensor<8xf32>) scale %x softcap %x by <local, left = 3, right = 1>
      : !q, !kv, !kv -> !q, !lse
  return %a, %b, %lse : !q, !q, !lse
}

// CHECK-LABEL: func.func @dynamic
// CHECK: flash.attention {{.*}} by <causal> {plan = #flash.plan<tile = [4, 4]>, target = #flash.target<"cpu">}
// CHECK-SAME: -> tensor<?x?x?x512xbf16>
func.func @dynamic(%q: !dq, %v: tensor<?x?x?x512xbf16>) -> tensor<?x?x?x512xbf16> {
  %o = flash.attention %q, %q, %v by #flash.mask<causal> {plan = #flash.plan<tile = [4, 4]>, target = #flash.target<"cpu">}
      : !dq, !dq, tensor<?x?x?x512xbf16> -> tensor<?x?x?x512xbf16>
  return %o : tensor<?x?x?x512xbf16>
}

// CHECK-LABEL: func.func @memrefs
// CHECK: flash.attention {{.*}} sink(%{{.*}} : memref<8xf32>) outs(%{{.*}}, %{{.*}} : memref<?x?x8x64xf32, strided<[?, ?, ?, 1], offset: ?>>, memref<?x8x?xf32>) by <causal>
// CHECK: flash.attention {{.*}} outs(%{{.*}} : memref<?x?x8x64xf32, strided<[?, ?, ?, 1], offset: ?>>) by <causal>
// GENERIC: "flash.attention"({{.*}}operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, {{(0, )+}}1>{{.*}} -> ()
func.func @memrefs(%q: !m, %sink: memref<8xf32>, %o: !m, %lse: memref<?x8x?xf32>) {
  flash.attention %q, %q, %q sink(%sink : memref<8xf32>) outs(%o, %lse : !m, memref<?x8x?xf32>) by <causal> : !m, !m, !m
  flash.attention %q, %q, %q outs(%o : !m) by <causal> : !m, !m, !m
  return
}

// CHECK-LABEL: func.func @parts
// CHECK: %[[P:.*]]:2 = flash.attention {{.*}} -> tensor<3x?x?x?x64xf32>, tensor<3x?x?x?xf32>
// CHECK: flash.combine %[[P]]#0, %[[P]]#1 sink(%{{.*}} : tensor<?xf32>) : {{.*}} -> tensor<?x?x?x64xbf16>, tensor<?x?x?xf32>
// CHECK: flash.combine %[[P]]#0, %[[P]]#1 {plan = #flash.plan<tile = [8, 1]>, target = #flash.target<"cpu">} : {{.*}} -> tensor<?x?x?x64xf32>
// GENERIC: "flash.combine"({{.*}}) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0>}>
func.func @parts(%q: !dq, %sink: tensor<?xf32>) -> (!dq, tensor<?x?x?xf32>, tensor<?x?x?x64xf32>) {
  %op, %lp = flash.attention %q, %q, %q by <dense> {plan = #flash.plan<splits = 3>}
      : !dq, !dq, !dq -> tensor<3x?x?x?x64xf32>, tensor<3x?x?x?xf32>
  %o, %lse = flash.combine %op, %lp sink(%sink : tensor<?xf32>) : tensor<3x?x?x?x64xf32>, tensor<3x?x?x?xf32>
      -> !dq, tensor<?x?x?xf32>
  %o32 = flash.combine %op, %lp {plan = #flash.plan<tile = [8, 1]>, target = #flash.target<"cpu">}
      : tensor<3x?x?x?x64xf32>, tensor<3x?x?x?xf32> -> tensor<?x?x?x64xf32>
  return %o, %lse, %o32 : !dq, tensor<?x?x?xf32>, tensor<?x?x?x64xf32>
}

// CHECK-LABEL: func.func @parts_in_memory
// CHECK: flash.combine %{{.*}}, %{{.*}} sink(%{{.*}} : memref<8xf32>) outs(%{{.*}}, %{{.*}} : {{.*}}) : memref<?x?x?x8x64xf32>, memref<?x?x8x?xf32>
// GENERIC: "flash.combine"({{.*}}) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 2>}>
func.func @parts_in_memory(%op: memref<?x?x?x8x64xf32>, %lp: memref<?x?x8x?xf32>, %sink: memref<8xf32>, %o: !m,
    %lse: memref<?x8x?xf32>) {
  flash.combine %op, %lp sink(%sink : memref<8xf32>) outs(%o, %lse : !m, memref<?x8x?xf32>)
      : memref<?x?x?x8x64xf32>, memref<?x?x8x?xf32>
  return
}
