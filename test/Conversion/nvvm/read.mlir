// RUN: flash-opt %s --convert-flash-tile-to-nvvm --canonicalize --cse | FileCheck %s
!m = memref<?x?x?x96xbf16, strided<[?, ?, ?, 1], offset: ?>>

// Six blocks of 16 columns, the last two in the second panel, 64 rows of 128 bytes away. All lanes have read, and fenced that from the next
// copy, before one of them releases. The product takes A from registers and B as K-major.
// CHECK-LABEL: llvm.func @read(
// CHECK:         llvm.inline_asm has_side_effects {{.*}}ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0, $1, $2, $3}, [$4+0];
// CHECK:         llvm.inline_asm has_side_effects {{.*}}xor.b32 at, $4, 32;{{.*}}ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0, $1, $2, $3}, [at+0];
// CHECK-COUNT-2: llvm.inline_asm has_side_effects {{.*}}ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0, $1, $2, $3}, [at+0];
// CHECK:         llvm.inline_asm has_side_effects {{.*}}ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0, $1, $2, $3}, [$4+8192];
// CHECK:         llvm.inline_asm has_side_effects {{.*}}ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0, $1, $2, $3}, [at+8192];
// CHECK-NOT:     ldmatrix
// CHECK:         nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}
// CHECK:         nvvm.bar.warp.sync
// CHECK:         llvm.inline_asm {{.*}}mbarrier.arrive
// CHECK:         llvm.inline_asm has_side_effects {{.*}}m64n64k16.f32.bf16.bf16{{.*}}}, db, 0, 1, 1, 0;
func.func @read(%k: !m {flash.arg = "k"}, %o: !m {flash.arg = "o"}, %n: index {flash.arg = "n"})
    attributes {flash.kernel, flash.target = #flash.target<"sm_90a">, flash.threads = 128 : i64, flash.shared_bytes = 16400 : i64} {
  %c0 = arith.constant 0 : index
  %kv = flash_tile.view %k : !m -> <96xbf16>
  %ov = flash_tile.view %o : !m -> <96xbf16>
  %r = flash_tile.ring "k" {offset = 0 : i64, barriers = 32768 : i64} : <2x64x96xbf16>
  flash_tile.fill %kv[%c0, %c0, %n] -> %r[%c0] : <96xbf16> -> <2x64x96xbf16>
  %t = flash_tile.wait %r[%c0] : <2x64x96xbf16> -> <64x96xbf16>
  %q = flash_tile.read %t : <64x96xbf16> -> <64x96xbf16>
  flash_tile.release %r[%c0] : <2x64x96xbf16>
  %u = flash_tile.wait %r[%n] : <2x64x96xbf16> -> <64x96xbf16>
  %sf = flash_tile.mma %q, %u trans : !flash_tile.frag<64x96xbf16>, <64x96xbf16> -> <64x64xf32>
  %s = flash_tile.mma_wait %sf : <64x64xf32> -> <64x64xf32>
  %p = flash_tile.cast %s : <64x64xf32> -> <64x64xbf16>
  flash_tile.store %p -> %ov[%c0, %c0, %n] : <64x64xbf16> -> <96xbf16>
  return
}
