// The products of a block are issued in the instance's turn.
// RUN: flash-opt %s --flash-lower-to-tile --flash-tile-skip-blocks --flash-tile-pipeline-loads --canonicalize --cse \
// RUN:   --flash-tile-split-roles --flash-tile-overlap-softmax --flash-tile-ping-pong --canonicalize --cse \
// RUN:   --flash-tile-assign --verify-roundtrip | FileCheck %s
!t = memref<?x?x2x64xbf16>

// Barrier 0 is the block's, 1 to 3 the consumers' own.
// CHECK-LABEL: func.func @dense
// CHECK: flash_tile.softmax_step first
// CHECK: scf.for
// CHECK: %[[K:.*]] = flash_tile.wait
// CHECK: %[[TURN:.*]]:2 = flash_tile.in_turn attributes {barriers = 4 : i64} -> !flash_tile.flight<64x128xf32>, !flash_tile.flight<64x64xf32> {
// CHECK-NEXT: %[[S:.*]] = flash_tile.mma %{{.*}}, %[[K]] trans
// CHECK-NEXT: %[[V:.*]] = flash_tile.wait
// CHECK-NEXT: %[[O:.*]] = flash_tile.mma %{{.*}}, %[[V]] acc
// CHECK-NEXT: flash_tile.yield %[[S]], %[[O]]
// CHECK-NEXT: }
// CHECK-NEXT: flash_tile.mma_wait %[[TURN]]#0
// CHECK: flash_tile.mma_wait %[[TURN]]#1
// CHECK: flash_tile.release
// CHECK: } {flash_tile.run = "inner"}
// CHECK-NOT: flash_tile.in_turn
func.func @dense(%q: !t, %k: !t, %v: !t, %o: !t) {
  flash.attention %q, %k, %v outs(%o : !t) by #flash.mask<dense> {target = #flash.target<"sm_90a">,
    plan = #flash.plan<tile = [192, 128], stages = 2, consumers = 3, registers = [32, 160], overlap = true,
                       ping_pong = true>} : !t, !t, !t
  return
}
