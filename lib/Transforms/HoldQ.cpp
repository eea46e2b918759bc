//===- HoldQ.cpp - Q in registers -----------------------------------------===//
//
//   q = wait; for ..: mma q, k; release Q    ->    q = wait; f = read q; release Q; for ..: mma f,
//   k
//
// The products read less shared memory, and the next tile's Q is loaded beside all of this one.
//
//===----------------------------------------------------------------------===//
#include "TileQueries.h"
#include "flash/Passes.h"

namespace flash {
#define GEN_PASS_DEF_FLASHTILEHOLDQ
#include "flash/Passes.h.inc"
} // namespace flash

using namespace mlir;
using namespace flash;
using namespace flash::tile;

namespace {

/// The waits for tiles that are read as the left side of products, outside of all runs.
SmallVector<WaitOp> waitsForQ(func::FuncOp kernel) {
  llvm::SetVector<Operation *> found;
  kernel.walk([&](MmaOp mma) {
    if (WaitOp wait = waitOf(mma.getA()))
      found.insert(wait);
  });
  return llvm::map_to_vector(found, [](Operation *op) { return cast<WaitOp>(op); });
}

Reason whyNot(ArrayRef<WaitOp> waits) {
  if (waits.empty())
    return "no product reads its left side from a tile";
  for (WaitOp wait : waits) {
    for (OpOperand &use : wait.getTile().getUses()) {
      auto mma = dyn_cast<MmaOp>(use.getOwner());
      if (!mma || mma.getB() == wait.getTile())
        return "Q's tile is read by more than products";
    }
    for (Operation *parent = wait->getParentOp(); parent; parent = parent->getParentOp())
      if (parent->hasAttr(runName))
        return "a run waits for a Q of its own";
    if (releasesOf(wait).empty())
      return "Q's tile is never released";
  }
  return std::nullopt;
}

void hold(WaitOp wait) {
  SmallVector<ReleaseOp> releases = releasesOf(wait);
  OpBuilder b(wait->getContext());
  b.setInsertionPointAfter(wait);
  TileType type = wait.getTile().getType();
  auto read = ReadOp::create(b, wait.getLoc(),
                             FragType::get(b.getContext(), type.getShape(), type.getElementType()),
                             wait.getTile());
  wait.getTile().replaceAllUsesExcept(read.getResult(), read);
  ReleaseOp::create(b, wait.getLoc(), wait.getRing(), wait.getIt());
  for (ReleaseOp release : releases)
    release.erase();
}

struct HoldQ : flash::impl::FlashTileHoldQBase<HoldQ> {
  void runOnOperation() override {
    forEachKernel(getOperation(), [](func::FuncOp kernel, PlanAttr plan) {
      if (plan.getFlag("q_in_regs") != true)
        return;
      SmallVector<WaitOp> waits = waitsForQ(kernel);
      if (Reason why = whyNot(waits))
        return leaveAlone(kernel, "q_in_regs", *why);
      llvm::for_each(waits, hold);
    });
  }
};

} // namespace
