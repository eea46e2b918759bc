// A schedule tells blocks their tiles, which one order alone reads.
// RUN: flash-opt %s --flash-order-work --verify-diagnostics

!q = memref<?x?x8x64xf16>
!op = memref<?x?x?x8x64xf32>
!lp = memref<?x?x8x?xf32>
func.func @scheduled(%q: !q, %s: memref<4x?xi32>, %op: !op, %lp: !lp) {
  // expected-error @below {{expected order varlen_dynamic besides schedule, the plan's is single; set the plan's order, or leave schedule out}}
  flash.attention %q, %q, %q schedule(%s : memref<4x?xi32>) outs(%op, %lp : !op, !lp) by <dense>
      {plan = #flash.plan<tile = [64, 64], order = "single">, target = #flash.target<"sm_80">} : !q, !q, !q
  return
}
