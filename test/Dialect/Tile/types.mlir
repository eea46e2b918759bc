// RUN: flash-opt %s --verify-roundtrip --split-input-file | FileCheck %s

// CHECK-LABEL: func.func private @types
// CHECK-SAME: (!flash_tile.view<64xbf16>, !flash_tile.view<1xf32>, !flash_tile.ring<2x128x64xf16>, !flash_tile.tile<128x64xf16>,
// CHECK-SAME: !flash_tile.frag<64x128xf32>, !flash_tile.frag<64x1xf32>, !flash_tile.flight<64x128xf32>)
func.func private @types(!flash_tile.view<64xbf16>, !flash_tile.view<1xf32>, !flash_tile.ring<2x128x64xf16>,
    !flash_tile.tile<128x64xf16>, !flash_tile.frag<64x128xf32>, !flash_tile.frag<64x1xf32>, !flash_tile.flight<64x128xf32>)

// CHECK-LABEL: func.func private @role
// CHECK-SAME: r = #flash_tile.role<"producer", instances = 1, warps = 4, registers = 24, units = [any, copy]>
func.func private @role() attributes {
  r = #flash_tile.role<"producer", registers = 24, warps = 4, instances = 1, units = [any, copy]>
}
