// What a machine cannot do is refused with the planner's sentence.
// RUN: flash-opt %s --flash-select-tiles=target=sm_90a --split-input-file --verify-diagnostics
// RUN: not flash-opt %s --flash-select-tiles=target=sm_90 --split-input-file 2>&1 | FileCheck %s
// CHECK: error: expected a target (cpu, sm_80, sm_86, sm_89, sm_90a), got 'sm_90'

!q = tensor<2x100x8x128xbf16>
func.func @tile(%q: !q) -> !q {
  // expected-error @below {{expected a tile of 64 queries, 64 for each of 1 consumers on sm_90a, it has 4; set tile m or consumers}}
  %o = flash.attention %q, %q, %q by <causal> {plan = #flash.plan<tile = [4, 4]>} : !q, !q, !q -> !q
  return %o : !q
}

// -----

!q = tensor<2x100x8x128xbf16>
func.func @shared_memory(%q: !q) -> !q {
  // expected-error @below {{bytes of shared memory, sm_90a has 232448; use fewer stages}}
  %o = flash.attention %q, %q, %q by <causal> {plan = #flash.plan<stages = 9>} : !q, !q, !q -> !q
  return %o : !q
}

// -----

!q = tensor<2x100x8x128xbf16>
func.func @target(%q: !q) -> !q {
  // expected-error @below {{plan needs 131072 bytes of shared memory, sm_86 has 101376; use fewer stages}}
  %o = flash.attention %q, %q, %q by <causal> {target = #flash.target<"sm_86">, plan = #flash.plan<tile = [128, 64], stages = 3>} : !q, !q, !q -> !q
  return %o : !q
}

// -----

!q = tensor<2x100x8x128xf32>
func.func @f32(%q: !q) -> !q {
  // expected-error @below {{expected f16 or bf16 on sm_90a, the element type is f32, which only cpu computes}}
  %o = flash.attention %q, %q, %q by <causal> : !q, !q, !q -> !q
  return %o : !q
}

// -----

!q = tensor<2x100x?x128xf32>
func.func @pack(%q: !q) -> !q {
  // expected-error @below {{pack_gqa needs the number of query heads of a KV head when the kernel is compiled; give static head counts}}
  %o = flash.attention %q, %q, %q by <causal> {target = #flash.target<"cpu">, plan = #flash.plan<pack_gqa = true>} : !q, !q, !q -> !q
  return %o : !q
}

// -----

!q = tensor<2x100x8x128xbf16>
func.func @consumers(%q: !q) -> !q {
  // expected-error @below {{expected 3 consumers (or four times as many warps) to divide tile m (4) evenly}}
  %o = flash.attention %q, %q, %q by <causal> {target = #flash.target<"cpu">,
      plan = #flash.plan<tile = [4, 4], consumers = 3>} : !q, !q, !q -> !q
  return %o : !q
}

// -----

!q = tensor<2x100x8x128xbf16>
func.func @too_large(%q: !q) -> !q {
  // expected-error @below {{a tile of 1000000 queries and 1000000 keys in 1 stages takes more than 1024 MiB of a worker on cpu; use a smaller tile or fewer stages}}
  %o = flash.attention %q, %q, %q by <causal> {target = #flash.target<"cpu">,
      plan = #flash.plan<tile = [1000000, 1000000]>} : !q, !q, !q -> !q
  return %o : !q
}

// -----

!q = tensor<2x100x8x128xbf16>
func.func @too_many(%q: !q) -> !q {
  // expected-error @below {{expected at most 16 consumers (or four times as many warps) on cpu, there are 64}}
  %o = flash.attention %q, %q, %q by <causal> {target = #flash.target<"cpu">,
      plan = #flash.plan<tile = [64, 64], consumers = 64>} : !q, !q, !q -> !q
  return %o : !q
}

// -----

!q = tensor<2x100x8x128xbf16>
func.func @no_roles(%q: !q) -> !q {
  // expected-error @below {{sm_80 has no roles (consumers), all its warps copy and compute; set warps instead}}
  %o = flash.attention %q, %q, %q by <causal> {target = #flash.target<"sm_80">,
      plan = #flash.plan<consumers = 1>} : !q, !q, !q -> !q
  return %o : !q
}

// -----

func.func @uneven_aside(%p: tensor<3x1x64x4x64xf32>, %l: tensor<3x1x4x64xf32>) -> tensor<1x64x4x64xbf16> {
  // expected-error @below {{parts that a combine reads aside divide those at once, the plan has 3 of 8; read 1 aside, or a divisor}}
  %o = flash.combine %p, %l {plan = #flash.plan<tile = [16, 8], aside = 3>} : tensor<3x1x64x4x64xf32>, tensor<3x1x4x64xf32> -> tensor<1x64x4x64xbf16>
  return %o : tensor<1x64x4x64xbf16>
}

// -----

func.func @too_many_at_once(%p: tensor<3x1x64x4x64xf32>, %l: tensor<3x1x4x64xf32>) -> tensor<1x64x4x64xbf16> {
  // expected-error @below {{a combine joins at most 128 parts at once, the plan says 129; join fewer}}
  %o = flash.combine %p, %l {plan = #flash.plan<tile = [16, 129]>} : tensor<3x1x64x4x64xf32>, tensor<3x1x4x64xf32> -> tensor<1x64x4x64xbf16>
  return %o : tensor<1x64x4x64xbf16>
}
