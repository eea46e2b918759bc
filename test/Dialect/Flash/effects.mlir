// Over tensors the ops are pure: unused ones go, equal ones become one. Over memrefs they read and write.
// RUN: flash-opt %s --cse --canonicalize | FileCheck %s

!q = tensor<2x9x8x64xf16>
!m = memref<2x9x8x64xf16>

// CHECK-LABEL: func.func @tensors
// CHECK-COUNT-1: flash.attention
// CHECK-NOT: flash.attention
func.func @tensors(%q: !q) -> (!q, !q) {
  %a = flash.attention %q, %q, %q by <dense> : !q, !q, !q -> !q
  %b = flash.attention %q, %q, %q by <dense> : !q, !q, !q -> !q
  %unused = flash.attention %q, %q, %q by <causal> : !q, !q, !q -> !q
  return %a, %b : !q, !q
}

// CHECK-LABEL: func.func @memrefs
// CHECK-COUNT-2: flash.attention
func.func @memrefs(%q: !m, %o: !m) {
  flash.attention %q, %q, %q outs(%o : !m) by <dense> : !m, !m, !m
  flash.attention %q, %q, %q outs(%o : !m) by <dense> : !m, !m, !m
  return
}
