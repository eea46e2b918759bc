//===- Wgmma.h - the warpgroup product as inline PTX ------------*- C++ -*-===//
//
// NVVM has no form of wgmma with A in registers, and its wait is not tied to the accumulators. So
// both are asm here: one text holds fence, all k steps and commit, with the accumulators tied in
// place.
//
//===----------------------------------------------------------------------===//
#ifndef FLASH_CONVERSION_NVVM_WGMMA_H
#define FLASH_CONVERSION_NVVM_WGMMA_H

#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace flash::nvvm {

/// 64 x cols += 64 x k times k x cols, of 16-bit elements.
struct Wgmma {
  mlir::Type element;
  int64_t cols, k;
  bool aInRegisters;
  int64_t aRows;    ///< rows of A's panels, unless in registers
  bool aTransposed; ///< A is stored k x 64, unless in registers
  bool bTransposed; ///< B is stored cols x k
  int64_t bRows;    ///< rows of B's panels
};

/// The accumulators in flight: `a` is packed pairs or an address, `b` an address (both in units of
/// 16 bytes, as i32), `acc` null for zero.
mlir::Value issueWgmma(mlir::ImplicitLocOpBuilder &b, const Wgmma &product, mlir::Value a,
                       mlir::Value bTile, mlir::Value acc);
/// `flight` once all but the last `pending` groups are done.
mlir::Value waitWgmma(mlir::ImplicitLocOpBuilder &b, mlir::Value flight, unsigned pending);

} // namespace flash::nvvm

#endif // FLASH_CONVERSION_NVVM_WGMMA_H
