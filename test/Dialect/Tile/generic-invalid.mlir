// What finalize demands, and what only the generic form can write.
// RUN: flash-opt %s --split-input-file --verify-diagnostics

func.func @f(%s: !flash_tile.frag<4x8xf32>, %m: !flash_tile.frag<4x1xf32>, %x: f32, %k: memref<?xf16>, %i: index) {
  // expected-error @below {{needs the sink's logits as a strided memref<?xf32>, has 'memref<?xf16>'}}
  %o, %l = flash_tile.finalize %s, %m, %m scale %x sink(%k[%i, %i] : memref<?xf16>) : <4x8xf32>, <4x1xf32>
  return
}
// -----
func.func @f(%s: !flash_tile.frag<4x8xf32>, %m: !flash_tile.frag<4x1xf32>, %x: f32, %k: memref<?xf32>, %i: index) {
  // expected-error @below {{needs sink, head and row0 together or none of them}}
  %o, %l = "flash_tile.finalize"(%s, %m, %m, %x, %k, %i) <{operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 0>}>
      : (!flash_tile.frag<4x8xf32>, !flash_tile.frag<4x1xf32>, !flash_tile.frag<4x1xf32>, f32, memref<?xf32>, index)
      -> (!flash_tile.frag<4x8xf32>, !flash_tile.frag<4x1xf32>)
  return
}
// -----
func.func @f(%s: !flash_tile.frag<4x8xf32>, %m: !flash_tile.frag<4x1xf32>, %x: f32) {
  // expected-error @below {{needs a positive group, has 0}}
  %o, %l = flash_tile.finalize %s, %m, %m scale %x {group = 0} : <4x8xf32>, <4x1xf32>
  return
}
// -----
func.func @f(%m: !flash_tile.frag<4x1xf32>, %x: f32, %s: !flash_tile.frag<4x8xf16>) {
  // expected-error @below {{needs fragments of f32}}
  %o, %l = flash_tile.finalize %s, %m, %m scale %x : <4x8xf16>, <4x1xf32>
  return
}
// -----
func.func @f(%s: !flash_tile.frag<4x8xf32>, %x: f32) {
  // expected-error @below {{needs one value a row of}}
  %o, %l = flash_tile.finalize %s, %s, %s scale %x : <4x8xf32>, <4x8xf32>
  return
}
// -----
func.func @f(%i: index) {
  // expected-error @below {{empty block: expect at least a terminator}}
  "flash_tile.for_work"(%i, %i, %i, %i) <{order = "single", operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 0, 0, 0>}> ({
  ^bb0(%m: index, %h: index, %b: index, %s: index):
  }) : (index, index, index, index) -> ()
  return
}
// -----
func.func @f(%s: !flash_tile.frag<4x8xf32>) {
  // expected-error @below {{empty block: expect at least a terminator}}
  %c = "flash_tile.map"(%s) ({
  ^bb0(%x: f32):
  }) : (!flash_tile.frag<4x8xf32>) -> !flash_tile.frag<4x8xf32>
  return
}
