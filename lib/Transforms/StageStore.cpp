//===- StageStore.cpp - O leaves through shared memory --------------------===//
//
//   store o -> view    ->    store o -> view via ring "o"[instance]
//
// A slot for each instance: the copy engine stores from there beside the next tile. So do the sums
// of dQ, beside the next block.
//
//===----------------------------------------------------------------------===//
#include "TileQueries.h"
#include "flash/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace flash {
#define GEN_PASS_DEF_FLASHTILESTAGESTORE
#include "flash/Passes.h.inc"
} // namespace flash

using namespace mlir;
using namespace flash;
using namespace flash::tile;

namespace {

Reason stage(func::FuncOp kernel, int64_t columns) {
  SmallVector<StoreOp> stores, sums; // sums of one tile stand in every run
  kernel.walk([&](StoreOp store) {
    if (store.getValue().getType().getShape()[1] > 1)
      (store.getSum() ? sums : stores).push_back(store);
  });
  if (!sums.empty())
    stores = sums;
  if (stores.empty() || (sums.empty() && stores.size() != 1))
    return "the output is not stored in one place";
  StoreOp store = stores[0];
  auto view = store.getView().getDefiningOp<ViewOp>();
  if (!view)
    return "the kernel has no view of where the output is stored";
  if (view.getPartial())
    return "keys are split: parts are stored as they are computed, in f32";
  if (store.getTurns() || store.getKept())
    return "sums are added in turns, each before the next";
  if (view.getGroup() > 1)
    return "the rows of a tile belong to several heads";
  if (!kernel.walk([](MmaOp) { return WalkResult::interrupt(); }).wasInterrupted())
    return "a kernel that multiplies nothing stores as it computes";

  ImplicitLocOpBuilder b(kernel.getLoc(), store);
  int64_t instances = 1;
  Value instance;
  if (auto roles = store->getParentOfType<RolesOp>()) {
    Region *region = store->getParentRegion();
    while (region->getParentOp() != roles)
      region = region->getParentOp()->getParentRegion();
    instances = cast<RoleAttr>(roles.getRoles()[region->getRegionNumber()]).getInstances();
    instance = region->getArgument(0);
    b.setInsertionPoint(roles);
  } else if (auto work = store->getParentOfType<ForWorkOp>()) {
    b.setInsertionPoint(work);
  }
  FragType value = store.getValue().getType();
  auto type = RingType::get(
      b.getContext(), {instances, value.getShape()[0], std::min(columns, value.getShape()[1])},
      value.getElementType());
  Value ring = RingOp::create(b, type, sums.empty() ? "o" : "dq");
  if (!instance)
    instance = arith::ConstantIndexOp::create(b, 0);
  for (StoreOp each : stores) {
    each.getRingMutable().assign(ring);
    each.getItMutable().assign(instance);
  }
  return std::nullopt;
}

struct StageStore : flash::impl::FlashTileStageStoreBase<StageStore> {
  void runOnOperation() override {
    forEachKernel(getOperation(), [](func::FuncOp kernel, PlanAttr plan) {
      const int64_t columns = plan.getInt("staged_columns").value_or(0);
      if (columns == 0)
        return;
      if (Reason why = stage(kernel, columns))
        leaveAlone(kernel, "staged_columns", *why,
                   Builder(kernel.getContext()).getI64IntegerAttr(0));
    });
  }
};

} // namespace
