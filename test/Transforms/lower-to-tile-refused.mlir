// What would become no kernel, or another than the function says, is refused at its place.
// RUN: flash-opt %s --flash-lower-to-tile --split-input-file --verify-diagnostics
!t = tensor<1x64x4x64xbf16>
// expected-error @below {{expected a kernel's name to be letters, digits, _ and $, with no digit first and no _ or $ alone; rename the function}}
func.func @"a b"(%q: !t) -> !t {
  %o = flash.attention %q, %q, %q by <causal> {plan = #flash.plan<tile = [64, 64]>} : !t, !t, !t -> !t
  return %o : !t
}

// -----

!t = tensor<1x64x4x64xbf16>
// expected-error @below {{expected a kernel's name}}
func.func @x.y(%q: !t) -> !t {
  %o = flash.attention %q, %q, %q by <causal> {plan = #flash.plan<tile = [64, 64]>} : !t, !t, !t -> !t
  return %o : !t
}

// -----

!t = tensor<1x64x4x64xbf16>
// expected-error @below {{expected a kernel's name}}
func.func @"1abc"(%q: !t) -> !t {
  %o = flash.attention %q, %q, %q by <causal> {plan = #flash.plan<tile = [64, 64]>} : !t, !t, !t -> !t
  return %o : !t
}

// -----

!t = tensor<1x64x4x64xbf16>
// expected-error @below {{expected a kernel's name}}
func.func @_(%q: !t) -> !t {
  %o = flash.attention %q, %q, %q by <causal> {plan = #flash.plan<tile = [64, 64]>} : !t, !t, !t -> !t
  return %o : !t
}

// -----

!t = tensor<1x64x4x64xbf16>
module {
  module @inner {
    func.func @f(%q: !t) -> !t {
      // expected-error @below {{expected a flash op directly in a function of the outermost module, between them is a builtin.module; move it to a function of its own there}}
      %o = flash.attention %q, %q, %q by <causal> {plan = #flash.plan<tile = [64, 64]>} : !t, !t, !t -> !t
      return %o : !t
    }
  }
}

// -----

!t = tensor<1x64x4x64xbf16>
func.func @loop(%q: !t, %n: index) -> !t {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%x = %q) -> !t {
    // expected-error @below {{between them is a scf.for; move it}}
    %o = flash.attention %x, %q, %q by <causal> {plan = #flash.plan<tile = [64, 64]>} : !t, !t, !t -> !t
    scf.yield %o : !t
  }
  return %r : !t
}

// -----

!t = tensor<1x64x4x64xbf16>
func.func @argument(%q: !t) -> (!t, !t) {
  %o = flash.attention %q, %q, %q by <causal> {plan = #flash.plan<tile = [64, 64]>} : !t, !t, !t -> !t
  // expected-error @below {{expected a function that becomes a kernel to return only what its flash op computes, operand 1 is something else; leave it to the caller}}
  return %o, %q : !t, !t
}

// -----

!m = memref<1x64x4x64xbf16>
func.func @constant(%q: !m, %o: !m) -> (!m, i32) {
  %c = arith.constant 3 : i32
  flash.attention %q, %q, %q outs(%o : !m) by <causal> {plan = #flash.plan<tile = [64, 64]>} : !m, !m, !m
  // expected-error @below {{operand 1 is something else}}
  return %o, %c : !m, i32
}

// -----

!t = tensor<1x64x4x64xbf16>
func.func @twice(%q: !t) -> (!t, !t) {
  %o = flash.attention %q, %q, %q by <causal> {plan = #flash.plan<tile = [64, 64]>} : !t, !t, !t -> !t
  // expected-error @below {{expected a function that becomes a kernel to return a value once, operand 1 is operand 0 again; leave it to the caller}}
  return %o, %o : !t, !t
}

// -----

!t = tensor<1x64x4x64xbf16>
func.func @f(%q: !t) -> !t {
  %o = flash.attention %q, %q, %q by <causal> {plan = #flash.plan<tile = [64, 64]>} : !t, !t, !t -> !t
  return %o : !t
}
func.func @caller(%q: !t) -> !t {
  // expected-error @below {{uses f, which becomes a kernel with other arguments; move it to another module}}
  %r = call @f(%q) : (!t) -> !t
  return %r : !t
}
