// What cannot be done is refused with a sentence and exit code 1, and no file is left behind.
// RUN: sh -c 'flash-compile %s --emit=ptx -o %t.ptx; test $? = 1 -a ! -e %t.ptx' 2>&1 | FileCheck %s
// CHECK: compile-refused.mlir:[[# @LINE + 12]]:{{[0-9]+}}: error: {{.*}}sm_90a
// RUN: not flash-compile %s --target=cpu --emit=ptx 2>&1 | FileCheck %s --check-prefix=CPU
// CPU: error: the cpu has neither ptx nor cubin
// RUN: not flash-compile %s --target=sm_70 2>&1 | FileCheck %s --check-prefix=TARGET
// TARGET: error: target must be sm_80, sm_86, sm_89, sm_90a or cpu, not 'sm_70'
// RUN: not flash-compile %t.none 2>&1 | FileCheck %s --check-prefix=FILE
// FILE: error: cannot open input file
// RUN: not flash-compile --json %s 2>&1 | FileCheck %s --check-prefix=JSON
// JSON: error: --json says how --explain writes
// RUN: not flash-compile --explain --emit=ptx %s 2>&1 | FileCheck %s --check-prefix=BOTH
// BOTH: error: --explain writes the plan instead of a kernel; leave it or --emit out
func.func @f(%q: tensor<1x8x1x64xf32>) -> tensor<1x8x1x64xf32> {
  %o = flash.attention %q, %q, %q by <dense>
      : tensor<1x8x1x64xf32>, tensor<1x8x1x64xf32>, tensor<1x8x1x64xf32> -> tensor<1x8x1x64xf32>
  return %o : tensor<1x8x1x64xf32>
}
