//===- DeferMax.cpp - no row maximum in unmasked blocks -------------------===//
//
//   run inner: softmax_step online, rescale    ->   softmax_step deferred, rescale rare
//
//   before finalize:                           ->   if overflowed l:
//                                                     for each block of 16 keys: QK, mask, online
//                                                     softmax, PV
//
// The redone rows are the instance's own: it fetches K and V into a ring of its own and nobody
// waits for it there.
//
//===----------------------------------------------------------------------===//
#include "TileQueries.h"
#include "flash/Passes.h"
#include "flash/Schedule/Tile.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace flash {
#define GEN_PASS_DEF_FLASHTILEDEFERMAX
#include "flash/Passes.h.inc"
} // namespace flash

using namespace mlir;
using namespace flash;
using namespace flash::tile;

namespace {

/// The ops of one program that a redone block repeats, found in its unmasked run.
struct Program {
  ForWorkOp work;
  Value instance; ///< number of the role's instance, or null
  int64_t instances = 1;
  scf::ForOp inner;
  MmaOp qk, pv;
  SoftmaxStepOp softmax;
  RescaleOp rescale;
  MaskOp mask; ///< of a masked run of the same rows
  FinalizeOp finalize;
  FillOp fillK, fillV; ///< anywhere in the kernel
};

/// The only op of its kind in `block`, or null.
template <typename OpT> OpT onlyIn(Block &block) {
  auto ops = block.getOps<OpT>();
  return llvm::hasSingleElement(ops) ? *ops.begin() : OpT();
}

Reason find(Program &program, func::FuncOp kernel) {
  Block &body = *program.inner.getBody();
  SmallVector<MmaOp> products(body.getOps<MmaOp>());
  program.softmax = onlyIn<SoftmaxStepOp>(body);
  program.rescale = onlyIn<RescaleOp>(body);
  if (products.size() != 2 || !program.softmax || !program.rescale)
    return "the unmasked run is more than QK, softmax and PV block after block";
  program.qk = products[0], program.pv = products[1];
  program.work = program.inner->getParentOfType<ForWorkOp>();
  program.finalize = onlyIn<FinalizeOp>(program.work.getBody().front());
  program.work.walk([&](MaskOp mask) { program.mask = mask; });
  WaitOp q = waitOf(program.qk.getA()), k = waitOf(program.qk.getB()),
         v = waitOf(program.pv.getB());
  if (!program.finalize || !program.mask || !q || !k || !v)
    return "a block's scores and outputs are not found";
  kernel.walk([&](FillOp fill) {
    if (fill.getRing() == k.getRing())
      program.fillK = fill;
    if (fill.getRing() == v.getRing())
      program.fillV = fill;
  });
  if (!program.fillK || !program.fillV)
    return "K and V are not copied through rings";
  return std::nullopt;
}

class Redo {
public:
  Redo(Program &program, RingOp ring)
      : p(program), ring(ring), b(program.finalize.getLoc(), program.finalize) {}

  /// Puts the exact result in place of what overflowed.
  void build() {
    Value fills = carryFills();
    FinalizeOp final = p.finalize;
    Value bad = OverflowedOp::create(b, b.getI1Type(), final.getL());
    SmallVector<Value> fast{final.getO(), final.getM(), final.getL(), fills};
    auto branch = scf::IfOp::create(b, TypeRange(ValueRange(fast)), bad, /*withElseRegion=*/true);
    b.setInsertionPointToStart(branch.elseBlock());
    scf::YieldOp::create(b, fast);
    b.setInsertionPointToStart(branch.thenBlock());
    scf::YieldOp::create(b, redone(fast));
    final.getOMutable().assign(branch.getResult(0));
    final.getMMutable().assign(branch.getResult(1));
    final.getLMutable().assign(branch.getResult(2));
    auto yield = cast<YieldOp>(p.work.getBody().front().getTerminator());
    yield.getValuesMutable().append(branch.getResult(3));
    keepQ(branch);
  }

private:
  /// The work loop carries how many fills of the ring this instance has made.
  Value carryFills() {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(p.work);
    Value zero = arith::ConstantIndexOp::create(b, 0);
    SmallVector<Value> inits(p.work.getInits());
    inits.push_back(zero);
    auto work = ForWorkOp::create(
        b, TypeRange(ValueRange(inits)), p.work.getOrderAttr(), p.work.getMTiles(),
        p.work.getHeads(), p.work.getBatch(), p.work.getSplits(), p.work.getSection(),
        p.work.getPacked(), p.work.getSchedule(), p.work.getRing(), inits, p.work.getTakesAttr(),
        p.work.getTileAttr(), p.work.getGroupAttr(), p.work.getClusterAttr());
    work.getBody().takeBody(p.work.getBody());
    for (auto [before, after] : llvm::zip(p.work.getResults(), work.getResults()))
      before.replaceAllUsesWith(after);
    p.work.erase();
    p.work = work;
    return work.getBody().addArgument(b.getIndexType(), b.getLoc());
  }

  /// Computes here what a fill anywhere in the kernel takes for the tile of work at hand.
  Value here(Value value) {
    auto argument = dyn_cast<BlockArgument>(value);
    if (argument && isa<ForWorkOp>(argument.getOwner()->getParentOp()))
      return p.work.getBody().getArgument(argument.getArgNumber());
    Operation *op = value.getDefiningOp();
    if (!op || op->getParentOp() == p.work->getParentOfType<func::FuncOp>())
      return value;
    IRMapping map;
    for (Value operand : op->getOperands())
      map.map(operand, here(operand));
    return b.clone(*op, map)->getResult(0);
  }

  SmallVector<Value> redone(ArrayRef<Value> fast) {
    Value zero = arith::ConstantIndexOp::create(b, 0), one = arith::ConstantIndexOp::create(b, 1);
    Value keys = arith::ConstantIndexOp::create(b, ring.getType().getShape()[1]);
    Value batch = here(p.fillK.getBatch()), head = here(p.fillK.getHead());
    Value blocks = arith::CeilDivUIOp::create(b, p.mask.getLenK(), keys);
    SmallVector<Value> inits{splat(fast[0].getType(), 0), splat(fast[1].getType(), -INFINITY),
                             splat(fast[2].getType(), 0), fast[3]};
    auto loop = scf::ForOp::create(b, zero, blocks, one, inits);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToEnd(loop.getBody());
    ValueRange in = loop.getRegionIterArgs();
    Value col = arith::MulIOp::create(b, loop.getInductionVar(), keys), fills = in[3];

    auto fetch = [&](FillOp fill, Type tile) -> std::pair<Value, Value> {
      Value it = fills;
      if (p.instance) // the slots are dealt to the instances
        it = arith::AddIOp::create(
            b, arith::MulIOp::create(b, fills, arith::ConstantIndexOp::create(b, p.instances)),
            p.instance);
      FillOp::create(b, fill.getView(), batch, head, col, ring, it);
      RingType type = ring.getType();
      Value slot = WaitOp::create(
          b, TileType::get(b.getContext(), type.getShape().drop_front(), type.getElementType()),
          ring, it);
      fills = arith::AddIOp::create(b, fills, one);
      return {narrow(slot, fill, cast<TileType>(tile)), it};
    };
    auto [k, kIt] = fetch(p.fillK, p.qk.getB().getType());
    Value s = multiply(p.qk, p.qk.getA(), k, {}, type(p.softmax.getS()), kIt);
    s = scores(s, col);
    Type row = in[1].getType();
    auto step = SoftmaxStepOp::create(b, s.getType(), row, row, row, SoftmaxMode::online, s, in[1],
                                      in[2], p.softmax.getScale());
    Value o = RescaleOp::create(b, in[0].getType(), in[0], step.getAlpha(), /*rare=*/false);
    Value prob = step.getP();
    Type element = cast<FragType>(p.pv.getA().getType()).getElementType();
    auto shape = cast<FragType>(prob.getType()).getShape();
    if (!element.isF32())
      prob = CastOp::create(b, FragType::get(b.getContext(), shape, element), prob);
    auto [v, vIt] = fetch(p.fillV, p.pv.getB().getType());
    o = multiply(p.pv, prob, v, o, cast<FragType>(o.getType()), vIt);
    scf::YieldOp::create(b, ValueRange{o, step.getMNext(), step.getLNext(), fills});
    return llvm::to_vector(ValueRange(loop.getResults()));
  }

  /// The fragment type of a redone block's scores.
  FragType type(Value scores) {
    return FragType::get(
        b.getContext(),
        {cast<FragType>(scores.getType()).getShape()[0], ring.getType().getShape()[1]},
        b.getF32Type());
  }
  Value splat(Type type, float value) {
    Value scalar = arith::ConstantOp::create(b, b.getF32FloatAttr(value));
    return SplatOp::create(b, type, scalar);
  }
  /// Of a slot as wide as the wider of K and V, the columns that the product reads; where the
  /// consumers divide V's columns, its own.
  Value narrow(Value slot, FillOp fill, TileType wanted) {
    auto have = cast<TileType>(slot.getType());
    int64_t cols = wanted.getShape()[1];
    Value from;
    if (auto slice = fill == p.fillV ? p.pv.getB().getDefiningOp<SliceOp>() : SliceOp())
      from = slice.getCol();
    else if (cols < have.getShape()[1])
      from = arith::ConstantIndexOp::create(b, 0);
    if (!from)
      return slot;
    return SliceOp::create(
        b, TileType::get(b.getContext(), {have.getShape()[0], cols}, have.getElementType()), slot,
        from, /*row=*/Value());
  }
  Value multiply(MmaOp like, Value a, Value tile, Value acc, FragType result, Value it) {
    auto flight = FlightType::get(b.getContext(), result.getShape(), result.getElementType());
    Value product = MmaOp::create(b, flight, a, tile, acc, like.getTransB());
    product = MmaWaitOp::create(b, result, product);
    ReleaseOp::create(b, ring, it);
    return product;
  }
  /// Softcap and mask, as in the masked run.
  Value scores(Value s, Value col) {
    SmallVector<MapOp> maps;
    for (auto map = p.mask.getValue().getDefiningOp<MapOp>(); map;
         map = map.getInputs()[0].getDefiningOp<MapOp>())
      maps.insert(maps.begin(), map);
    for (MapOp map : maps) {
      IRMapping mapping;
      mapping.map(map.getInputs()[0], s);
      auto clone = cast<MapOp>(b.clone(*map, mapping));
      clone.getResult().setType(cast<FragType>(s.getType()));
      s = clone.getResult();
    }
    return MaskOp::create(b, s.getType(), s, p.mask.getRow0(), col, p.mask.getLenQ(),
                          p.mask.getLenK(), p.mask.getMaskAttr(), p.mask.getGroup());
  }

  /// Q is released behind the branch instead of within it.
  void keepQ(scf::IfOp branch) {
    WaitOp q = waitOf(p.qk.getA());
    SmallVector<ReleaseOp> releases = releasesOf(q);
    if (releases.empty())
      return;
    b.setInsertionPointAfter(branch);
    ReleaseOp::create(b, q.getRing(), q.getIt());
    for (ReleaseOp release : releases)
      release.erase();
  }

  Program &p;
  RingOp ring;
  ImplicitLocOpBuilder b;
};

/// The roles with the unit `copy` added to what the instances of `region` may execute.
void mayCopy(RolesOp roles, unsigned region) {
  SmallVector<Attribute> attrs(roles.getRoles().getValue());
  auto role = cast<RoleAttr>(attrs[region]);
  SmallVector<Unit> units(role.getUnits());
  units.push_back(Unit::copy);
  attrs[region] = RoleAttr::get(roles.getContext(), role.getName(), role.getInstances(),
                                role.getWarps(), role.getRegisters(), units);
  roles.setRolesAttr(ArrayAttr::get(roles.getContext(), attrs));
}

Reason defer(func::FuncOp kernel, PlanAttr plan) {
  auto views = kernel.getBody().getOps<ViewOp>();
  if (llvm::any_of(views, [](ViewOp view) { return view.getPartial(); }))
    return "keys are split: a part would redo the others' too";
  if (plan.getText("transfer") == "gather" && !kernel.getBody().getOps<RolesOp>().empty())
    return "a consumer cannot gather the keys it redoes";
  Program program;
  for (scf::ForOp run : runsIn(kernel))
    if (run->getAttrOfType<StringAttr>(runName) == "inner" &&
        !run.getBody()->getOps<SoftmaxStepOp>().empty())
      program.inner = run;
  if (!program.inner)
    return "there is no unmasked run";
  if (Reason why = find(program, kernel))
    return why;
  OpBuilder b(program.work);
  if (auto roles = program.work->getParentOfType<RolesOp>()) {
    Region *region = program.work->getParentRegion();
    auto role = cast<RoleAttr>(roles.getRoles()[region->getRegionNumber()]);
    program.instance = region->getArgument(0), program.instances = role.getInstances();
    mayCopy(roles, region->getRegionNumber());
    b.setInsertionPoint(roles);
  }

  auto k = cast<TileType>(program.qk.getB().getType());
  auto colsOf = [](FillOp fill) { return fill.getRing().getType().getShape()[2]; };
  int64_t cols = std::max(colsOf(program.fillK), colsOf(program.fillV));
  auto type = RingType::get(
      b.getContext(), {program.instances, std::min(schedule::redoneKeys, k.getShape()[0]), cols},
      k.getElementType());
  auto ring = RingOp::create(b, kernel.getLoc(), type, "exact");

  program.softmax.setMode(SoftmaxMode::deferred);
  program.rescale.setRare(true);
  Redo(program, ring).build();
  kernel.walk([](BlockRangeOp range) { range.setEveryRow(true); });
  return std::nullopt;
}

struct DeferMax : flash::impl::FlashTileDeferMaxBase<DeferMax> {
  void runOnOperation() override {
    forEachKernel(getOperation(), [](func::FuncOp kernel, PlanAttr plan) {
      if (plan.getFlag("defer_max") != true)
        return;
      if (Reason why = defer(kernel, plan))
        leaveAlone(kernel, "defer_max", *why);
    });
  }
};

} // namespace
