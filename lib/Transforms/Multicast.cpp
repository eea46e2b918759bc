//===- Multicast.cpp - two blocks share keys and values -------------------===//
//
//   block r fills K(i) for its m   ->   block r of a cluster fills half r of K(i) for both
//
// The blocks of a cluster take m tiles side by side, of one head. A slot is free when both have
// released it, so both must fill equally often: which blocks of keys they visit no longer follows
// from a block's own m but from the rows of all.
//
//===----------------------------------------------------------------------===//
#include "TileQueries.h"
#include "flash/Passes.h"
#include "flash/Schedule/WorkOrder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/Matchers.h"

namespace flash {
#define GEN_PASS_DEF_FLASHTILEMULTICAST
#include "flash/Passes.h.inc"
} // namespace flash

using namespace mlir;
using namespace flash;
using namespace flash::tile;

namespace {

constexpr int64_t blocks = schedule::multicastBlocks;

/// What the blocks of a cluster share.
struct Shared {
  SmallVector<ForWorkOp> works; ///< the loop of each role
  SetVector<Value> rings;       ///< of K and V
  SmallVector<BlockRangeOp> ranges;
};

/// True if `value` is the first row of tile m, each of `rows` rows.
bool isRowOf(Value value, Value m, int64_t rows) {
  auto product = value.getDefiningOp<arith::MulIOp>();
  APInt factor;
  return product && product.getLhs() == m &&
         matchPattern(product.getRhs(), m_ConstantInt(&factor)) && factor == rows;
}

/// The rings that multiply from the right; what multiplies from the left is a block's own.
Reason findRings(RolesOp roles, Shared &shared) {
  SetVector<Value> own;
  Reason why;
  roles.walk([&](MmaOp mma) {
    if (WaitOp wait = waitOf(mma.getA()))
      own.insert(wait.getRing());
    if (WaitOp wait = waitOf(mma.getB()))
      shared.rings.insert(wait.getRing());
    else
      why = "a product reads keys or values that no wait gave";
  });
  if (why)
    return why;
  if (shared.rings.empty())
    return "no product reads keys or values";
  for (Value ring : shared.rings) {
    if (own.contains(ring))
      return "a ring multiplies from both sides";
    const int64_t rows = cast<RingType>(ring.getType()).getShape()[1];
    if (rows % blocks)
      return (Twine(blocks) + " blocks do not divide " + Twine(rows) + " keys").str();
    for (Operation *user : ring.getUsers())
      if (auto fill = dyn_cast<FillOp>(user)) {
        Region *program = fill->getParentRegion();
        while (program->getParentOp() != roles)
          program = program->getParentRegion();
        auto role = cast<RoleAttr>(roles.getRoles()[program->getRegionNumber()]);
        if (!llvm::equal(role.getUnits(), ArrayRef{Unit::copy}))
          return "keys are copied by a role that computes besides";
      }
  }
  return std::nullopt;
}

/// Demands that m decides which rows of keys are fetched, and how often, by nothing but ranges.
Reason findRanges(ForWorkOp work, Shared &shared) {
  Value m = work.getBody().getArgument(0);
  for (auto range : work.getOps<BlockRangeOp>()) {
    if (!isRowOf(range.getRow0(), m, range.getRows()))
      return "the rows of a range are not those of a tile";
    if (!matchPattern(range.getSplits(), m_One()))
      return "a split's share is one of a tile's own blocks";
    shared.ranges.push_back(range);
  }
  SmallVector<Value> open{m};
  while (!open.empty())
    for (OpOperand &use : open.pop_back_val().getUses()) {
      Operation *user = use.getOwner();
      auto fill = dyn_cast<FillOp>(user);
      auto range = dyn_cast<BlockRangeOp>(user);
      if (range && use.get() == range.getRow0() && llvm::is_contained(shared.ranges, range))
        continue;
      if (range) // a length that follows from m
        return "which keys are fetched follows from a tile's number";
      if (user->getNumRegions() || user->hasTrait<OpTrait::IsTerminator>() ||
          (fill && shared.rings.contains(fill.getRing())) ||
          (isa<WaitOp, ReleaseOp>(user) && shared.rings.contains(user->getOperand(0))))
        return "which keys are fetched follows from a tile's number";
      for (Value result : user->getResults())
        if (result.getType().isIntOrIndex()) // numbers in registers decide nothing
          open.push_back(result);
    }
  return std::nullopt;
}

Reason find(func::FuncOp kernel, Shared &shared) {
  auto roles = kernel.getBody().getOps<RolesOp>();
  if (roles.empty())
    return "without roles nobody copies for another block";
  for (Region &region : (*roles.begin()).getBodies()) {
    auto works = region.getOps<ForWorkOp>();
    if (!llvm::hasSingleElement(works))
      return "a role is not one loop over its work";
    shared.works.push_back(*works.begin());
    if (shared.works.back().getPacked() || shared.works.back().getSchedule())
      return "tiles are counted through all sequences";
  }
  if (Reason why = findRings(*roles.begin(), shared))
    return why;
  for (ForWorkOp work : shared.works)
    if (Reason why = findRanges(work, shared))
      return why;
  return std::nullopt;
}

void share(Shared &shared) {
  for (BlockRangeOp range : shared.ranges) {
    ImplicitLocOpBuilder b(range.getLoc(), range);
    auto row = range.getRow0().getDefiningOp<arith::MulIOp>();
    Value m = row.getLhs(), count = arith::ConstantIndexOp::create(b, blocks);
    Value first = arith::SubIOp::create(b, m, arith::RemUIOp::create(b, m, count));
    range.getRow0Mutable().assign(arith::MulIOp::create(b, first, row.getRhs()));
    range.setRows(blocks * range.getRows());
  }
  for (Value ring : shared.rings)
    ring.getDefiningOp<RingOp>().setCluster(blocks);
  for (ForWorkOp work : shared.works) {
    work.setCluster(blocks);
    if (work.getRing())
      work.getRing().getDefiningOp<RingOp>().setCluster(blocks);
  }
}

struct Multicast : flash::impl::FlashTileMulticastBase<Multicast> {
  void runOnOperation() override {
    forEachKernel(getOperation(), [](func::FuncOp kernel, PlanAttr plan) {
      if (plan.getFlag("multicast") != true)
        return;
      Shared shared;
      if (Reason why = find(kernel, shared))
        leaveAlone(kernel, "multicast", *why);
      else
        share(shared);
    });
  }
};

} // namespace
