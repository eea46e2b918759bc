// Measured plans: found for an op that has none of its own, left out with a warning where they do not fit, refused where the
// file is broken.
// RUN: sed 's/PLAN/#flash.plan<tile = [128, 64]>/' %S/Inputs/records.json > %t.json
// RUN: flash-compile --explain --records=%t.json %s | FileCheck %s
// CHECK: 128 queries x 64 keys
// CHECK-NEXT: because: record for NVIDIA H200: 700 TFLOP/s, the default 650
// CHECK: 128 queries x 32 keys
// CHECK-NEXT: because: set by hand

// RUN: sed 's/PLAN/tile = [128, 64]/' %S/Inputs/records.json > %t.bare.json
// RUN: flash-compile --explain --records=%t.bare.json %s | FileCheck %s

// RUN: flash-compile --records=%t.json --emit=ptx -o /dev/null %s

// RUN: sed 's/PLAN/#flash.plan<tile = [128, 128], stages = 9>/' %S/Inputs/records.json > %t.wide.json
// RUN: flash-compile --explain --records=%t.wide.json %s 2>&1 | FileCheck %s --check-prefix=WIDE
// WIDE: records.mlir:[[# @LINE + 15]]:{{.*}} warning: {{.*}}the record for NVIDIA H200 is left out: {{.*}}232448
// WIDE: because: row sm90-128

// RUN: sed 's/PLAN/#flash.plan<nothing = 1>/' %S/Inputs/records.json > %t.unknown.json
// RUN: flash-compile --explain --records=%t.unknown.json %s 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// UNKNOWN-NOT: error
// UNKNOWN: records.mlir:{{.*}} warning: {{.*}} is left out: expected {{.*}}.unknown.json to give a plan, it has '#flash.plan<nothing = 1>'; {{.*}}a plan has no field 'nothing'
// UNKNOWN: because: row sm90-128

// RUN: not flash-compile --explain --records=%s %s 2>&1 | FileCheck %s --check-prefix=BROKEN
// BROKEN: flash-compile: error: {{.*}}records.mlir: expected records as a JSON object
// RUN: not flash-compile --explain --records=%t.none.json %s 2>&1 | FileCheck %s --check-prefix=MISSING
// MISSING: flash-compile: error: the records at {{.*}}.none.json cannot be read
!t = tensor<2x4096x4x128xbf16>
func.func @f(%q: !t, %k: !t, %v: !t) -> !t {
  %o = flash.attention %q, %k, %v by <dense> : !t, !t, !t -> !t
  return %o : !t
}
func.func @g(%q: !t, %k: !t, %v: !t) -> !t {
  %o = flash.attention %q, %k, %v by <dense> {plan = #flash.plan<tile = [128, 32]>} : !t, !t, !t -> !t
  return %o : !t
}
