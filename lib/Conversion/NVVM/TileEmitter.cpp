//===- TileEmitter.cpp - what no GPU's emitter has code for ---------------===//
#include "TileEmitter.h"
#include "flash/Schedule/Splits.h"
#include "flash/Schedule/Tile.h"

using namespace mlir;

namespace flash::nvvm {

static bool isWide(Type element) {
  return isa<FloatType>(element) && element.getIntOrFloatBitWidth() != 16;
}

std::string TileEmitter::whyNotBuilt(Operation *op) const {
  if (auto ring = dyn_cast<tile::RingOp>(op)) {
    if (isWide(ring.getType().getElementType()) && ring.getType().getShape()[1] != 1 &&
        !ring.isStaging())
      return "a ring of other than 16-bit elements";
  } else if (isa<tile::LoadOp, tile::SumOp, tile::SplitRowsOp>(op)) {
    if (!kernel.columns)
      return isa<tile::LoadOp>(op)  ? "loading rows into registers beside products"
             : isa<tile::SumOp>(op) ? "summing rows beside products"
                                    : "splitting rows beside products";
    const int64_t joined = 8 * schedule::combineColumns;
    if (auto sum = dyn_cast<tile::SumOp>(op); sum && sum.getValue().getType().getShape()[1] != 1 &&
                                              sum.getValue().getType().getShape()[1] % joined)
      return "summing other than multiples of " + std::to_string(joined) + " columns";
  } else if (auto store = dyn_cast<tile::StoreOp>(op)) {
    tile::FragType type = store.getValue().getType();
    const bool inCells = store.getSum() && viewOf(store.getView()).getCells();
    if (store.getRing() && (inCells ? store.getTurns() != nullptr : isWide(type.getElementType())))
      return "staging f32 but sums in cells that take no turns";
    if (!kernel.columns && type.getShape()[1] > 1 && !type.getElementType().isF32() &&
        type.getShape()[1] % schedule::storedColumns)
      return "storing 16-bit elements in other than multiples of " +
             std::to_string(schedule::storedColumns) + " columns";
    if (store.getKept() && (!kernel.keepers || kernel.keepers != kernel.consumers))
      return "adding in a turn that nobody keeps";
  } else if (isa<tile::KeepTurnOp>(op)) {
    if (!kernel.keepers)
      return "keeping turns without roles";
  } else if (auto mma = dyn_cast<tile::MmaOp>(op)) {
    if (isWide(mma.getB().getType().getElementType()))
      return "a product of other than 16-bit elements";
    if (mma.getB().getType().getShape()[mma.getTransB() ? 1 : 0] % 16)
      return "a product over other than a multiple of 16";
  }
  return {};
}

LogicalResult TileEmitter::check() {
  bool ok = true;
  kernel.func.walk([&](Operation *op) {
    std::string what = whyNotBuilt(op);
    if (what.empty())
      return;
    ok = false;
    op->emitError() << what << " is not built for "
                    << kernel.func->getAttrOfType<TargetAttr>("flash.target").getName();
  });
  return success(ok);
}

} // namespace flash::nvvm
