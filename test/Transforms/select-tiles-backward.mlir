// RUN: flash-opt %s --flash-select-tiles --flash-order-work --split-input-file --verify-diagnostics | FileCheck %s --enable-var-scope

// CHECK-LABEL: func @causal
func.func @causal(%q: tensor<1x8x4x64xf32>, %k: tensor<1x9x2x64xf32>, %lse: tensor<1x4x8xf32>) {
  // CHECK: flash.attention_backward {{.*}} by <causal> {plan = #flash.plan<tile = [64, 64], stages = 1, order = "backward_spt", ordered = true
  %dq, %dk, %dv = flash.attention_backward %q, %k, %k, %q, %lse, %q by <local, left = 100, right = 0>
      : tensor<1x8x4x64xf32>, tensor<1x9x2x64xf32>, tensor<1x9x2x64xf32>, tensor<1x8x4x64xf32>, tensor<1x4x8xf32>, tensor<1x8x4x64xf32>
      -> tensor<1x8x4x64xf32>, tensor<1x9x2x64xf32>, tensor<1x9x2x64xf32>
  return
}

// -----

// CHECK-LABEL: func @gpu
func.func @gpu(%q: tensor<1x8x4x64xf16>, %k: tensor<1x9x2x64xf16>, %lse: tensor<1x4x8xf32>) {
  // CHECK: {plan = #flash.plan<tile = [128, 128], stages = 2, consumers = 2, registers = [24, 240], persistent = false
  %dq, %dk, %dv = flash.attention_backward %q, %k, %k, %q, %lse, %q by <dense> {target = #flash.target<"sm_90a">}
      : tensor<1x8x4x64xf16>, tensor<1x9x2x64xf16>, tensor<1x9x2x64xf16>, tensor<1x8x4x64xf16>, tensor<1x4x8xf32>, tensor<1x8x4x64xf16>
      -> tensor<1x8x4x64xf16>, tensor<1x9x2x64xf16>, tensor<1x9x2x64xf16>
  return
}

// -----

// CHECK-LABEL: func @deterministic
func.func @deterministic(%q: tensor<1x8x4x64xf16>, %k: tensor<1x9x2x64xf16>, %lse: tensor<1x4x8xf32>) {
  // CHECK: plan = #flash.plan<tile = [128, 128], stages = 2, consumers = 2, registers = [24, 240], persistent = false{{.*}}, order = "backward_lpt"{{.*}}, ordered = true
  %dq, %dk, %dv = flash.attention_backward %q, %k, %k, %q, %lse, %q by <dense> {deterministic, target = #flash.target<"sm_90a">}
      : tensor<1x8x4x64xf16>, tensor<1x9x2x64xf16>, tensor<1x9x2x64xf16>, tensor<1x8x4x64xf16>, tensor<1x4x8xf32>, tensor<1x8x4x64xf16>
      -> tensor<1x8x4x64xf16>, tensor<1x9x2x64xf16>, tensor<1x9x2x64xf16>
  return
}

// -----

// CHECK-LABEL: func @sm80
func.func @sm80(%q: tensor<1x8x4x128xf16>, %k: tensor<1x9x2x128xf16>, %lse: tensor<1x4x8xf32>) {
  // CHECK: flash.attention_backward {{.*}} {plan = #flash.plan<tile = [64, 128], stages = 2, warps = 8, persistent = false, split_by = "columns", order = "single"
  %dq, %dk, %dv = flash.attention_backward %q, %k, %k, %q, %lse, %q by <dense> {target = #flash.target<"sm_80">}
      : tensor<1x8x4x128xf16>, tensor<1x9x2x128xf16>, tensor<1x9x2x128xf16>, tensor<1x8x4x128xf16>, tensor<1x4x8xf32>, tensor<1x8x4x128xf16>
      -> tensor<1x8x4x128xf16>, tensor<1x9x2x128xf16>, tensor<1x9x2x128xf16>
  // CHECK: flash.attention_backward {{.*}} {plan = #flash.plan<tile = [64, 64], stages = 1
  %eq, %ek, %ev = flash.attention_backward %q, %k, %k, %q, %lse, %q by <dense> {target = #flash.target<"sm_86">}
      : tensor<1x8x4x128xf16>, tensor<1x9x2x128xf16>, tensor<1x9x2x128xf16>, tensor<1x8x4x128xf16>, tensor<1x4x8xf32>, tensor<1x8x4x128xf16>
      -> tensor<1x8x4x128xf16>, tensor<1x9x2x128xf16>, tensor<1x9x2x128xf16>
  return
}

// -----

func.func @shared(%q: tensor<1x8x4x128xf16>, %k: tensor<1x9x2x128xf16>, %lse: tensor<1x4x8xf32>) {
  // expected-error @+1 {{bytes of shared memory, sm_86 has 101376; use a smaller tile}}
  %dq, %dk, %dv = flash.attention_backward %q, %k, %k, %q, %lse, %q by <dense> {target = #flash.target<"sm_86">, plan = #flash.plan<tile = [64, 128]>}
      : tensor<1x8x4x128xf16>, tensor<1x9x2x128xf16>, tensor<1x9x2x128xf16>, tensor<1x8x4x128xf16>, tensor<1x4x8xf32>, tensor<1x8x4x128xf16>
      -> tensor<1x8x4x128xf16>, tensor<1x9x2x128xf16>, tensor<1x9x2x128xf16>
  return
}

// -----

func.func @tile(%q: tensor<1x8x4x128xf16>, %k: tensor<1x9x2x128xf16>, %lse: tensor<1x4x8xf32>) {
  // expected-error @+1 {{expected a tile of 32, 64 or 128 queries and of 32, 64 or 128 keys, it has 48 and 96}}
  %dq, %dk, %dv = flash.attention_backward %q, %k, %k, %q, %lse, %q by <dense> {target = #flash.target<"sm_80">, plan = #flash.plan<tile = [48, 96]>}
      : tensor<1x8x4x128xf16>, tensor<1x9x2x128xf16>, tensor<1x9x2x128xf16>, tensor<1x8x4x128xf16>, tensor<1x4x8xf32>, tensor<1x8x4x128xf16>
      -> tensor<1x8x4x128xf16>, tensor<1x9x2x128xf16>, tensor<1x9x2x128xf16>
  return
}

// -----

// CHECK-LABEL: func @wide
func.func @wide(%q: tensor<1x8x4x256xf16>, %k: tensor<1x9x2x256xf16>, %lse: tensor<1x4x8xf32>) {
  // CHECK: flash.attention_backward {{.*}} {plan = #flash.plan<tile = [64, 64], stages = 1, warps = 8, persistent = false, split_by = "columns"
  %dq, %dk, %dv = flash.attention_backward %q, %k, %k, %q, %lse, %q by <dense> {target = #flash.target<"sm_80">}
      : tensor<1x8x4x256xf16>, tensor<1x9x2x256xf16>, tensor<1x9x2x256xf16>, tensor<1x8x4x256xf16>, tensor<1x4x8xf32>, tensor<1x8x4x256xf16>
      -> tensor<1x8x4x256xf16>, tensor<1x9x2x256xf16>, tensor<1x9x2x256xf16>
  // CHECK: flash.attention_backward {{.*}} {plan = #flash.plan<tile = [64, 128], stages = 1, consumers = 2, registers = [24, 240], persistent = false, overlap = true, own_dv = true, alternate = true, order = "single"
  // CHECK-SAME: own_dv = "consumers hold both dK and dV up to 128 columns"
  %eq, %ek, %ev = flash.attention_backward %q, %k, %k, %q, %lse, %q by <dense> {target = #flash.target<"sm_90a">}
      : tensor<1x8x4x256xf16>, tensor<1x9x2x256xf16>, tensor<1x9x2x256xf16>, tensor<1x8x4x256xf16>, tensor<1x4x8xf32>, tensor<1x8x4x256xf16>
      -> tensor<1x8x4x256xf16>, tensor<1x9x2x256xf16>, tensor<1x9x2x256xf16>
  return
}

// -----

func.func @wider(%q: tensor<1x8x4x64xf16>, %k: tensor<1x9x2x64xf16>, %v: tensor<1x9x2x512xf16>, %o: tensor<1x8x4x512xf16>, %lse: tensor<1x4x8xf32>) {
  // expected-error @+1 {{gradients of head sizes above 256 are not built for sm_80; use cpu}}
  %dq, %dk, %dv = flash.attention_backward %q, %k, %v, %o, %lse, %o by <dense> {target = #flash.target<"sm_80">}
      : tensor<1x8x4x64xf16>, tensor<1x9x2x64xf16>, tensor<1x9x2x512xf16>, tensor<1x8x4x512xf16>, tensor<1x4x8xf32>, tensor<1x8x4x512xf16>
      -> tensor<1x8x4x64xf16>, tensor<1x9x2x64xf16>, tensor<1x9x2x512xf16>
  return
}

// -----

func.func @warps(%q: tensor<1x8x4x128xf16>, %k: tensor<1x9x2x128xf16>, %lse: tensor<1x4x8xf32>) {
  // expected-error @+1 {{expected 4 or 8 warps that divide tiles by 16 rows and columns, there are 8 for 32 queries and 32 keys; set warps or the tile}}
  %dq, %dk, %dv = flash.attention_backward %q, %k, %k, %q, %lse, %q by <dense> {target = #flash.target<"sm_80">, plan = #flash.plan<tile = [32, 32], warps = 8>}
      : tensor<1x8x4x128xf16>, tensor<1x9x2x128xf16>, tensor<1x9x2x128xf16>, tensor<1x8x4x128xf16>, tensor<1x4x8xf32>, tensor<1x8x4x128xf16>
      -> tensor<1x8x4x128xf16>, tensor<1x9x2x128xf16>, tensor<1x9x2x128xf16>
  return
}

// -----

func.func @in_step(%q: tensor<1x8x4x64xf16>, %k: tensor<1x9x2x64xf16>, %lse: tensor<1x4x8xf32>) {
  // expected-error @+1 {{a plan of gradients has no in_step; leave it out}}
  %dq, %dk, %dv = flash.attention_backward %q, %k, %k, %q, %lse, %q by <dense> {target = #flash.target<"sm_90a">, plan = #flash.plan<in_step = true>}
      : tensor<1x8x4x64xf16>, tensor<1x9x2x64xf16>, tensor<1x9x2x64xf16>, tensor<1x8x4x64xf16>, tensor<1x4x8xf32>, tensor<1x8x4x64xf16>
      -> tensor<1x8x4x64xf16>, tensor<1x9x2x64xf16>, tensor<1x9x2x64xf16>
  return
}
