// The later planning passes need a tile, and an order of the forward.
// RUN: flash-opt %s --flash-split-kv --split-input-file --verify-diagnostics
// RUN: flash-opt %s --flash-order-work --split-input-file --verify-diagnostics

!q = tensor<?x?x8x64xf16>
func.func @no_plan(%q: !q) -> !q {
  // expected-error @below {{expected a target and a plan with a tile; run flash-select-tiles before}}
  %o = flash.attention %q, %q, %q by <dense> : !q, !q, !q -> !q
  return %o : !q
}

// -----

!q = tensor<?x?x8x64xf16>
func.func @order(%q: !q) -> !q {
  // expected-error @below {{order backward_lpt is the backward's, the problem is a forward; use dynamic}}
  %o = flash.attention %q, %q, %q by <dense>
      {plan = #flash.plan<tile = [4, 4], order = "backward_lpt">, target = #flash.target<"cpu">} : !q, !q, !q -> !q
  return %o : !q
}
