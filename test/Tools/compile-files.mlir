// A file has a flash op, code is for one target, and what has no code is not dropped without a word.
// RUN: split-file %s %t
// RUN: not flash-compile %t/targets.mlir --emit=ptx 2>&1 | FileCheck %s --check-prefix=TARGETS
// TARGETS: targets.mlir:7:{{.*}} error: {{.*}}expected one target in a file, this op is for sm_80 and one before it for sm_90a; give each a file of its own, or name one by --target
// RUN: flash-compile %t/targets.mlir --emit=ptx --target=sm_80 | FileCheck %s --check-prefix=ONE
// ONE: .target sm_80
// RUN: flash-compile %t/targets.mlir | FileCheck %s --check-prefix=TILE
// TILE: flash.target = #flash.target<"sm_90a">
// TILE: flash.target = #flash.target<"sm_80">

// The target of gradients is the file's too.
// RUN: flash-compile %t/backward.mlir --emit=ptx | FileCheck %s --check-prefix=BACKWARD
// BACKWARD: .target sm_80
// RUN: sed 's/sm_80/cpu/' %t/backward.mlir > %t/cpu.mlir
// RUN: not flash-compile %t/cpu.mlir --emit=ptx 2>&1 | FileCheck %s --check-prefix=CPU
// CPU: error: the cpu has neither ptx nor cubin

// RUN: not flash-compile %t/none.mlir --emit=ptx 2>&1 | FileCheck %s --check-prefix=NONE
// NONE: error: expected a flash op, there is none
// RUN: not flash-compile %t/helper.mlir --emit=llvm 2>&1 | FileCheck %s --check-prefix=HELPER
// HELPER: helper.mlir:6:{{.*}} error: {{.*}}expected functions with a flash op, which become code for a GPU, this has none; move it to another file
// RUN: sed 's/func.func private.*/memref.global @g : memref<3xf32>/' %t/helper.mlir > %t/global.mlir
// RUN: not flash-compile %t/global.mlir --emit=ptx 2>&1 | FileCheck %s --check-prefix=GLOBAL
// GLOBAL: global.mlir:6:{{.*}} error: 'memref.global' op expected functions with a flash op
// RUN: not flash-compile %t/gpu.mlir --emit=ptx 2>&1 | FileCheck %s --check-prefix=NESTED
// NESTED: gpu.mlir:4:{{.*}} error: {{.*}}between them is a gpu.module

//--- targets.mlir
!t = tensor<1x64x4x64xbf16>
func.func @f(%q: !t) -> !t {
  %o = flash.attention %q, %q, %q by <causal> : !t, !t, !t -> !t
  return %o : !t
}
func.func @g(%q: !t) -> !t {
  %o = flash.attention %q, %q, %q by <causal> {target = #flash.target<"sm_80">} : !t, !t, !t -> !t
  return %o : !t
}
//--- backward.mlir
!t = tensor<1x64x4x64xbf16>
!l = tensor<1x4x64xf32>
func.func @f(%q: !t, %l: !l) -> (!t, !t, !t) {
  %a:3 = flash.attention_backward %q, %q, %q, %q, %l, %q by <causal> {target = #flash.target<"sm_80">} : !t, !t, !t, !t, !l, !t -> !t, !t, !t
  return %a#0, %a#1, %a#2 : !t, !t, !t
}
//--- none.mlir
module {}
//--- helper.mlir
!t = tensor<1x64x4x64xbf16>
func.func @f(%q: !t) -> !t {
  %o = flash.attention %q, %q, %q by <causal> : !t, !t, !t -> !t
  return %o : !t
}
func.func private @declared(!t) -> !t
//--- gpu.mlir
!t = tensor<1x64x4x64xbf16>
gpu.module @m {
  func.func @f(%q: !t) -> !t {
    %o = flash.attention %q, %q, %q by <causal> : !t, !t, !t -> !t
    return %o : !t
  }
}
