// Tiles from a counter: one role takes them, the others follow through a ring of i32.
// RUN: flash-opt %s --split-input-file --verify-diagnostics --verify-roundtrip | FileCheck %s

#one = #flash_tile.role<"one", instances = 1, warps = 4, registers = 24, units = [copy]>
#two = #flash_tile.role<"two", instances = 2, warps = 4, registers = 240, units = [tensor, vector]>
// CHECK: %[[R:.*]] = flash_tile.ring "work" {releases = 2 : i64} : <2x1x1xi32>
// CHECK: flash_tile.for_work "dynamic"({{.*}}) section %{{.*}} via %[[R]] : !flash_tile.ring<2x1x1xi32> attributes {takes} {
// CHECK: flash_tile.for_work "dynamic"({{.*}}) via %[[R]] : !flash_tile.ring<2x1x1xi32> iter(%{{.*}} : index) -> index {
func.func @f(%i: index) {
  %r = flash_tile.ring "work" {releases = 2} : <2x1x1xi32>
  flash_tile.roles [#one, #two] {
  ^bb0(%w: index):
    flash_tile.for_work "dynamic"(%i, %i, %i, %i) section %i via %r : !flash_tile.ring<2x1x1xi32> attributes {takes} {
    ^bb0(%m: index, %h: index, %b: index, %s: index):
      flash_tile.yield
    }
    flash_tile.yield
  }, {
  ^bb0(%w: index):
    %n = flash_tile.for_work "dynamic"(%i, %i, %i, %i) via %r : !flash_tile.ring<2x1x1xi32> iter(%i : index) -> index {
    ^bb0(%m: index, %h: index, %b: index, %s: index, %t: index):
      flash_tile.yield %t : index
    }
    flash_tile.yield
  }
  return
}
// -----
func.func @f(%i: index) {
  // expected-error @below {{takes tiles and has no ring to hand them on by `via`}}
  flash_tile.for_work "dynamic"(%i, %i, %i, %i) attributes {takes} {
  ^bb0(%m: index, %h: index, %b: index, %s: index):
    flash_tile.yield
  }
  return
}
// -----
func.func @f(%i: index) {
  %r = flash_tile.ring "work" : <2x1x1xf32>
  // expected-error @below {{needs a ring of single i32 to hand on tiles, has '!flash_tile.ring<2x1x1xf32>'}}
  flash_tile.for_work "dynamic"(%i, %i, %i, %i) via %r : !flash_tile.ring<2x1x1xf32> {
  ^bb0(%m: index, %h: index, %b: index, %s: index):
    flash_tile.yield
  }
  return
}
// -----
func.func @f(%i: index) {
  %r = flash_tile.ring "work" : <2x1x1xi32>
  // expected-error @below {{hands on tiles by a ring and stands in no role}}
  flash_tile.for_work "dynamic"(%i, %i, %i, %i) via %r : !flash_tile.ring<2x1x1xi32> attributes {takes} {
  ^bb0(%m: index, %h: index, %b: index, %s: index):
    flash_tile.yield
  }
  return
}
// -----
#two = #flash_tile.role<"two", instances = 2, warps = 4, registers = 24, units = [copy]>
func.func @f(%i: index) {
  %r = flash_tile.ring "work" : <2x1x1xi32>
  flash_tile.roles [#two] {
  ^bb0(%w: index):
    // expected-error @below {{needs one loop that takes the tiles of its ring, there are 2}}
    flash_tile.for_work "dynamic"(%i, %i, %i, %i) via %r : !flash_tile.ring<2x1x1xi32> attributes {takes} {
    ^bb0(%m: index, %h: index, %b: index, %s: index):
      flash_tile.yield
    }
    flash_tile.yield
  }
  return
}
// -----
func.func @f(%i: index) {
  %r = flash_tile.ring "work" : <2x1x1xi32>
  // expected-error @below {{releases a ring of ordinals, which only for_work may}}
  flash_tile.release %r[%i] : !flash_tile.ring<2x1x1xi32>
  return
}
// -----
// expected-error @below {{ring needs a float element type or i32, has 'i8'}}
func.func private @f(!flash_tile.ring<2x1x1xi8>)
// -----
// expected-error @below {{tile needs a float element type, has 'i32'}}
func.func private @f(!flash_tile.tile<1x1xi32>)
