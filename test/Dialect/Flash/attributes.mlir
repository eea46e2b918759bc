// RUN: flash-opt %s --verify-roundtrip | FileCheck %s

// CHECK-LABEL: func.func private @masks
// CHECK-SAME: a = #flash.mask<dense>
// CHECK-SAME: b = #flash.mask<causal>
// CHECK-SAME: c = #flash.mask<local, left = 256, right = 0, sink_tokens = 4>
// CHECK-SAME: d = #flash.mask<local, left = 0, right = 0, chunk = 64>
// CHECK-SAME: e = #flash.mask<local>
func.func private @masks() attributes {
  a = #flash.mask<dense>,
  b = #flash.mask<causal>,
  c = #flash.mask<local, sink_tokens = 4, right = 0, left = 256>,
  d = #flash.mask<local, left = 0, right = 0, chunk = 64, sink_tokens = 0>,
  e = #flash.mask<local, left = -1>
}

// CHECK-LABEL: func.func private @targets
// CHECK-SAME: a = #flash.target<"cpu">, b = #flash.target<"sm_80">, c = #flash.target<"sm_86">, d = #flash.target<"sm_89">, e = #flash.target<"sm_90a">
func.func private @targets() attributes {
  a = #flash.target<"cpu">, b = #flash.target<"sm_80">, c = #flash.target<"sm_86">, d = #flash.target<"sm_89">,
  e = #flash.target<"sm_90a">
}

// Fields print in one order, whatever order a hand wrote them in.
// CHECK-LABEL: func.func private @plans
// CHECK-SAME: all = #flash.plan<tile = [128, 128], stages = 2, consumers = 2, registers = [24, 240], split_by = "columns",
// CHECK-SAME: overlap = true, q_in_regs = true, early_wait = false, ping_pong = true, pack_gqa = false, splits = 3, order = "dynamic", roles = true, skip_blocks = true,
// CHECK-SAME: pipeline_loads = false, staged_columns = 0, read_once = true, why = {tile = "because \22so\22"}>
// CHECK-SAME: none = #flash.plan<>
func.func private @plans() attributes {
  none = #flash.plan<>,
  all = #flash.plan<why = {tile = "because \"so\""}, staged_columns = 0, read_once = true, pipeline_loads = false, skip_blocks = true, roles = true,
    order = "dynamic", splits = 3, ping_pong = true, early_wait = false, q_in_regs = true, pack_gqa = false, overlap = true, split_by = "columns", registers = [24, 240],
    consumers = 2, stages = 2 : i64, tile = [128, 128]>
}
