// What a tool cannot read it refuses with a place and exit code 1.
// RUN: sh -c 'flash-opt %s; test $? = 1' 2>&1 | FileCheck %s
// RUN: sh -c 'flash-compile %s; test $? = 1' 2>&1 | FileCheck %s
// CHECK: malformed.mlir:[[# @LINE + 2]]:{{[0-9]+}}: error:
func.func @f() {
  flash.attention %q
