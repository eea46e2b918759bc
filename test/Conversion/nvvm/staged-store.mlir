// RUN: flash-opt %s --convert-flash-tile-to-nvvm --canonicalize --cse | FileCheck %s
!m = memref<?x?x?x128xbf16, strided<[?, ?, ?, 1], offset: ?>>

// Each warp waits until its last stores have read, writes its 16 rows of both panels, and stores a box of each. Behind all
// work shared memory stays until it has been read. The ring has no barriers.
// CHECK-LABEL: llvm.func @whole(
// CHECK-SAME:    {arg = "o", kind = "tensor_map", rows = 16 : i64}
// CHECK-NOT:     nvvm.mbarrier.init
// CHECK:         scf.for
// CHECK:           %[[ONE:.*]] = nvvm.elect.sync
// CHECK-NEXT:      scf.if %[[ONE]] {
// CHECK-NEXT:        nvvm.cp.async.bulk.wait_group 0 {read}
// CHECK:           nvvm.bar.warp.sync
// CHECK-COUNT-8:   stmatrix.sync.aligned.m8n8.x4.shared.b16
// CHECK-NOT:       stmatrix
// CHECK:           nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}
// CHECK-NEXT:      nvvm.bar.warp.sync
// CHECK-NEXT:      %[[SAME:.*]] = nvvm.elect.sync
// CHECK-NEXT:      scf.if %[[SAME]] {
// CHECK-COUNT-2:     nvvm.cp.async.bulk.tensor.global.shared.cta %{{.*}}, %{{.*}}, box[%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}]
// CHECK-NEXT:        nvvm.cp.async.bulk.commit.group
// CHECK:         }
// CHECK:         nvvm.cp.async.bulk.wait_group 0 {read}
// CHECK-NOT:     llvm.store
func.func @whole(%o: !m {flash.arg = "o"}, %n: index {flash.arg = "n"})
    attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.threads = 128 : i64, flash.shared_bytes = 16384 : i64} {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %ov = flash_tile.view %o : !m -> <128xbf16>
  %r = flash_tile.ring "o" {offset = 0 : i64} : <1x64x128xbf16>
  %x = flash_tile.splat %zero : f32 -> <64x128xf32>
  %x16 = flash_tile.cast %x : <64x128xf32> -> <64x128xbf16>
  flash_tile.for_work "single"(%n, %n, %n, %n) {
  ^bb0(%m: index, %h: index, %b: index, %s: index):
    flash_tile.store %x16 -> %ov[%b, %h, %m] via %r[%c0] : !flash_tile.ring<1x64x128xbf16> : <64x128xbf16> -> <128xbf16>
    flash_tile.yield
  }
  return
}

// Four panels take turns in two: the third waits until the first has been read. Columns past the view are in no box.
// CHECK-LABEL: llvm.func @turns(
// CHECK:         nvvm.cp.async.bulk.wait_group 1 {read}
// CHECK-COUNT-4: stmatrix
// CHECK:         nvvm.cp.async.bulk.tensor.global.shared.cta
// CHECK:         nvvm.cp.async.bulk.commit.group
// CHECK:         nvvm.cp.async.bulk.wait_group 1 {read}
// CHECK-COUNT-4: stmatrix
// CHECK:         nvvm.cp.async.bulk.tensor.global.shared.cta
// CHECK:         nvvm.cp.async.bulk.wait_group 1 {read}
// CHECK-NOT:     nvvm.cp.async.bulk.tensor.global.shared.cta
// CHECK:         nvvm.cp.async.bulk.wait_group 0 {read}
func.func @turns(%o: !m {flash.arg = "o"}, %i: index {flash.arg = "n"})
    attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.threads = 128 : i64, flash.shared_bytes = 16384 : i64} {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %ov = flash_tile.view %o : !m -> <128xbf16>
  %r = flash_tile.ring "o" {offset = 0 : i64} : <1x64x128xbf16>
  %x = flash_tile.splat %zero : f32 -> <64x256xf32>
  %x16 = flash_tile.cast %x : <64x256xf32> -> <64x256xbf16>
  flash_tile.store %x16 -> %ov[%i, %i, %i] via %r[%c0] : !flash_tile.ring<1x64x128xbf16> : <64x256xbf16> -> <128xbf16>
  return
}

// Three panels in two: the third's place is the first's of the next tile, which waits for it. The second's is older.
// CHECK-LABEL: llvm.func @uneven(
// CHECK:         scf.for
// CHECK:           nvvm.cp.async.bulk.wait_group 0 {read}
// CHECK:           nvvm.cp.async.bulk.commit.group
// CHECK:           nvvm.cp.async.bulk.wait_group 2 {read}
// CHECK:           nvvm.cp.async.bulk.commit.group
// CHECK:           nvvm.cp.async.bulk.wait_group 1 {read}
// CHECK:           nvvm.cp.async.bulk.commit.group
// CHECK:         nvvm.cp.async.bulk.wait_group 0 {read}
func.func @uneven(%o: memref<?x?x?x192xbf16, strided<[?, ?, ?, 1], offset: ?>> {flash.arg = "o"}, %n: index {flash.arg = "n"})
    attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.threads = 128 : i64, flash.shared_bytes = 16384 : i64} {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %ov = flash_tile.view %o : memref<?x?x?x192xbf16, strided<[?, ?, ?, 1], offset: ?>> -> <192xbf16>
  %r = flash_tile.ring "o" {offset = 0 : i64} : <1x64x128xbf16>
  %x = flash_tile.splat %zero : f32 -> <64x192xf32>
  %x16 = flash_tile.cast %x : <64x192xf32> -> <64x192xbf16>
  flash_tile.for_work "single"(%n, %n, %n, %n) {
  ^bb0(%m: index, %h: index, %b: index, %s: index):
    flash_tile.store %x16 -> %ov[%b, %h, %m] via %r[%c0] : !flash_tile.ring<1x64x128xbf16> : <64x192xbf16> -> <192xbf16>
    flash_tile.yield
  }
  return
}

// Of packed sequences a warp whose rows are all of the sequence stores boxes, from the sequence's first row on; else the rows there are, one by
// one. Nothing is stored from registers.
// CHECK-LABEL: llvm.func @packed(
// CHECK-SAME:    %[[WHOLE:[a-z0-9]+]]: !llvm.ptr {{[{][^}]*[}]}}, %[[ONE:[a-z0-9]+]]: !llvm.ptr {
// CHECK-SAME:    {arg = "o", kind = "tensor_map", rows = 16 : i64}, {arg = "o", kind = "tensor_map", rows = 1 : i64}
// CHECK-NOT:     llvm.store
// CHECK:         nvvm.cp.async.bulk.wait_group 0 {read}
// CHECK-COUNT-4: stmatrix
// CHECK:         %[[RAGGED:.*]] = arith.cmpi slt, %[[LEFT:.*]], %{{.*}} : index
// CHECK:         scf.if %[[RAGGED]] {
// CHECK:           %[[END:.*]] = arith.index_cast %[[LEFT]]
// CHECK:           scf.for %[[ROW:.*]] = %{{.*}} to %[[END]]
// CHECK:             nvvm.cp.async.bulk.tensor.global.shared.cta %[[ONE]],
// CHECK:         } else {
// CHECK-NOT:       scf.for
// CHECK:           nvvm.cp.async.bulk.tensor.global.shared.cta %[[WHOLE]],
// CHECK:         }
// CHECK-NEXT:    nvvm.cp.async.bulk.commit.group
// CHECK-NOT:     llvm.store
func.func @packed(%o: memref<?x?x64xbf16, strided<[?, ?, 1], offset: ?>> {flash.arg = "o"}, %ends: memref<?xi32> {flash.arg = "cu_seqlens_q"},
    %n: index {flash.arg = "n"})
    attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.threads = 128 : i64, flash.shared_bytes = 8192 : i64} {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %ov = flash_tile.view %o cu_seqlens(%ends : memref<?xi32>) : memref<?x?x64xbf16, strided<[?, ?, 1], offset: ?>> -> <64xbf16>
  %r = flash_tile.ring "o" {offset = 0 : i64} : <1x64x64xbf16>
  %x = flash_tile.splat %zero : f32 -> <64x64xf32>
  %x16 = flash_tile.cast %x : <64x64xf32> -> <64x64xbf16>
  flash_tile.for_work "single"(%n, %n, %n, %n) {
  ^bb0(%m: index, %h: index, %b: index, %s: index):
    flash_tile.store %x16 -> %ov[%b, %h, %m] via %r[%c0] : !flash_tile.ring<1x64x64xbf16> : <64x64xbf16> -> <64xbf16>
    flash_tile.yield
  }
  return
}
