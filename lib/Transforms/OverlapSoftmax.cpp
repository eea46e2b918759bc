//===- OverlapSoftmax.cpp - the next QK beside this block's softmax and PV ===//
//
//   for i in 0 .. n: QK(i)  softmax(i)  PV(i)
// ->
//   QK(0)  softmax(0)
//   for i in 1 .. n: QK(i) and PV(i - 1) in flight together  softmax(i)
//   PV(n - 1)
//
// With early_wait K(i + 1) is awaited between softmax(i) and the wait for PV(i - 1), where it ends
// a basic block: ptxas would otherwise wait for PV before the softmax.
//
// The first block is peeled from the first run, which has one if any run has.
//
//===----------------------------------------------------------------------===//
#include "TileQueries.h"
#include "flash/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace flash {
#define GEN_PASS_DEF_FLASHTILEOVERLAPSOFTMAX
#include "flash/Passes.h.inc"
} // namespace flash

using namespace mlir;
using namespace flash;
using namespace flash::tile;

namespace {

/// A run, and which op of its body does what.
struct Run {
  scf::ForOp loop;
  MmaOp qk, pv;
  MmaWaitOp pvWait;
  SoftmaxStepOp softmax;
  RescaleOp rescale;
  WaitOp kWait, vWait;
  ReleaseOp vRelease;
  SmallVector<SliceOp> vSlices; ///< from the tile of vWait to PV's operand, in order
  unsigned o = 0, m = 0, l = 0; ///< positions of the carried values

  bool isOfPv(Operation *op) {
    return op == pv || op == pvWait || op == rescale || op == vWait || op == vRelease ||
           llvm::is_contained(vSlices, op);
  }
};

/// What a block hands to the next: O without its own PV, and the P for that.
struct Carried {
  Value o, p, m, l;
};

//===----------------------------------------------------------------------===//
// Looking
//===----------------------------------------------------------------------===//

/// Index arithmetic of `body` that may be computed again elsewhere.
bool isArithmetic(Value value, Block *body) {
  Operation *def = value.getDefiningOp();
  return !def || def->getBlock() != body ||
         (isPure(def) && llvm::all_of(def->getOperands(),
                                      [&](Value operand) { return isArithmetic(operand, body); }));
}

/// Finds the parts of a run by following its values.
Reason find(Run &run) {
  scf::ForOp loop = run.loop;
  Block *body = loop.getBody();
  SmallVector<MmaOp> products(body->getOps<MmaOp>());
  SmallVector<SoftmaxStepOp> steps(body->getOps<SoftmaxStepOp>());
  if (products.size() != 2 || steps.size() != 1 || loop.getNumResults() != 3 ||
      !matchPattern(loop.getStep(), m_One()))
    return "a run is more than QK, softmax and PV block after block";
  run.qk = products[0], run.pv = products[1], run.softmax = steps[0];
  if (run.pv.getAcc())
    run.rescale = run.pv.getAcc().getDefiningOp<RescaleOp>();
  run.kWait = waitOf(run.qk.getB());
  run.vWait = waitOf(run.pv.getB());
  Operation *p = run.pv.getA().getDefiningOp();
  if (!run.rescale || !run.vWait || run.vWait->getBlock() != body || !p || p->getBlock() != body ||
      !run.qk->isBeforeInBlock(run.softmax) || !isArithmetic(run.vWait.getIt(), body))
    return "a run's second product is not PV on rescaled output";
  for (Value tile = run.pv.getB(); auto slice = tile.getDefiningOp<SliceOp>();
       tile = slice.getTile())
    run.vSlices.insert(run.vSlices.begin(), slice);
  for (auto release : body->getOps<ReleaseOp>())
    if (release.getRing() == run.vWait.getRing() && release.getIt() == run.vWait.getIt())
      run.vRelease = release;

  auto position = [&](Value carried) -> unsigned {
    return llvm::find(loop.getRegionIterArgs(), carried) - loop.getRegionIterArgs().begin();
  };
  run.o = position(run.rescale.getO());
  run.m = position(run.softmax.getM()), run.l = position(run.softmax.getL());
  if (run.o == 3 || run.m == 3 || run.l == 3 || !run.vRelease ||
      run.rescale.getAlpha() != run.softmax.getAlpha() ||
      loop.getYieldedValues()[run.m] != run.softmax.getMNext() ||
      loop.getYieldedValues()[run.l] != run.softmax.getLNext())
    return "a run does not carry O, m and l";
  run.pvWait = loop.getYieldedValues()[run.o].getDefiningOp<MmaWaitOp>();
  if (!run.pvWait || run.pvWait.getFlight() != run.pv.getResult())
    return "a run does not carry the result of PV";

  // PV moves to the next block with all that is its own; nothing else may need that.
  for (Operation &op : *body)
    if (run.isOfPv(&op))
      for (Operation *user : op.getUsers())
        if (!run.isOfPv(user) && user != body->getTerminator())
          return (user->getName().getStringRef() + " stands between PV and the next block").str();
  // In one program V(i) is filled while V(i - 1) is still read.
  for (auto fill : body->getOps<FillOp>())
    if (fill.getRing() == run.vWait.getRing() && fill.getRing().getType().getShape()[0] < 2)
      return "without roles the ring of V needs 2 stages to overlap";
  return std::nullopt;
}

/// Why K(i + 1) may not be awaited before V(i - 1) is released: its fill would never come.
Reason whyNotEarly(Run &run) {
  if (!run.kWait || run.kWait->getBlock() != run.loop.getBody())
    return "a run does not wait for a K of its own";
  for (auto fill : run.loop.getBody()->getOps<FillOp>())
    if (fill.getRing() == run.kWait.getRing())
      return "K(i + 1) is filled behind block i";
  if (run.vWait.getRing().getType().getShape()[0] < 2)
    return "V(i) waits for the one slot of V, and K(i + 1) is filled behind it";
  return std::nullopt;
}

/// Index arithmetic between the runs moves in front of the first.
void gather(MutableArrayRef<Run> runs) {
  scf::ForOp first = runs.front().loop;
  for (Run &run : runs.drop_back())
    for (Operation *op = run.loop->getNextNode(); !isa<scf::ForOp>(op);) {
      Operation *next = op->getNextNode();
      op->moveBefore(first);
      op = next;
    }
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

Value plus(OpBuilder &b, Location loc, Value value, int64_t step) {
  Value constant = arith::ConstantIndexOp::create(b, loc, std::abs(step));
  return step < 0 ? b.createOrFold<arith::SubIOp>(loc, value, constant)
                  : b.createOrFold<arith::AddIOp>(loc, value, constant);
}

/// Writes parts of one block of a run, whose counter and carried values are `map`ped.
struct Writer {
  OpBuilder &b;
  Run &run;
  IRMapping map = {};
  Location loc = run.loop.getLoc();

  Writer(OpBuilder &b, Run &run, Value counter) : b(b), run(run) {
    map.map(run.loop.getInductionVar(), counter);
  }
  /// The value here; index arithmetic of the body is cloned on demand.
  Value get(Value value) { return clonedFrom(run.loop.getBody(), value, b, map); }
  void clone(Operation &op) {
    if (op.getNumResults() == 0 || !map.contains(op.getResult(0)))
      b.clone(op, map);
  }
  Carried carried(Value o) {
    return {o, map.lookup(run.pv.getA()), map.lookup(run.softmax.getMNext()),
            map.lookup(run.softmax.getLNext())};
  }

  /// PV with the V of ordinal `it`: issued, and then waited for.
  Value issuePv(Value it, Value p, Value o) {
    map.map(run.vWait.getTile(), WaitOp::create(b, loc, run.vWait.getType(), vRing(), it));
    for (SliceOp slice : run.vSlices)
      get(slice.getResult());
    return MmaOp::create(b, loc, run.pv.getType(), p, map.lookup(run.pv.getB()), o,
                         run.pv.getTransB());
  }
  Value finishPv(Value it, Value flight) {
    Value o = MmaWaitOp::create(b, loc, run.pvWait.getType(), flight);
    ReleaseOp::create(b, loc, vRing(), it);
    return o;
  }
  Value vRing() { return run.vWait.getRing(); }

  /// Waits for the K of the block after `counter`, if there is one.
  void awaitNextK(Value counter, Value total) {
    Value next = plus(b, loc, counter, 1);
    Value more = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, next, total);
    Value it = plus(b, loc, get(run.kWait.getIt()), 1);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(
        scf::IfOp::create(b, loc, more, /*withElseRegion=*/false).thenBlock());
    WaitOp::create(b, loc, run.kWait.getType(), run.kWait.getRing(), it);
  }
};

/// The first block of the first run, up to its P.
Carried peel(OpBuilder &b, Run &run) {
  scf::ForOp loop = run.loop;
  Writer block(b, run, loop.getLowerBound());
  block.map.map(loop.getRegionIterArgs(), loop.getInitArgs());
  for (Operation &op : loop.getBody()->without_terminator())
    if (!run.isOfPv(&op))
      block.clone(op);
  block.map.lookup(run.softmax.getP()).getDefiningOp<SoftmaxStepOp>().setMode(SoftmaxMode::first);
  return block.carried(loop.getInitArgs()[run.o]);
}

/// The run from `from` on, each block with the PV of the one before it.
/// With `total`, the number of the tile's blocks, their K is awaited early.
Carried rotate(OpBuilder &b, Run &run, Value from, Value total, Carried in) {
  scf::ForOp loop = run.loop;
  Location loc = loop.getLoc();
  auto rotated = scf::ForOp::create(b, loc, from, loop.getUpperBound(), loop.getStep(),
                                    ValueRange{in.o, in.p, in.m, in.l});
  rotated->setDiscardableAttrs(loop->getDiscardableAttrDictionary());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(rotated.getBody());
  Writer block(b, run, rotated.getInductionVar());
  ValueRange arguments = rotated.getRegionIterArgs();
  block.map.map(loop.getRegionIterArgs()[run.m], arguments[2]);
  block.map.map(loop.getRegionIterArgs()[run.l], arguments[3]);
  Value previous, flight, o;
  for (Operation &op : loop.getBody()->without_terminator()) {
    if (run.isOfPv(&op))
      continue;
    block.clone(op);
    if (&op == run.qk) {
      previous = plus(b, loc, block.get(run.vWait.getIt()), -1);
      flight = block.issuePv(previous, arguments[1], arguments[0]);
    } else if (total && &op == run.kWait) {
      block.map.lookup(run.kWait.getTile()).getDefiningOp<WaitOp>().setAgain(true);
    } else if (&op == run.softmax) {
      if (total)
        block.awaitNextK(rotated.getInductionVar(), total);
      o = block.finishPv(previous, flight);
      o = RescaleOp::create(b, loc, o.getType(), o, block.map.lookup(run.softmax.getAlpha()));
    }
  }
  Carried out = block.carried(o);
  scf::YieldOp::create(b, loc, ValueRange{out.o, out.p, out.m, out.l});
  ValueRange results = rotated.getResults();
  return {results[0], results[1], results[2], results[3]};
}

/// The releases, behind the last run, of a tile that QK and nobody else reads.
SmallVector<ReleaseOp> releasesOfQ(MutableArrayRef<Run> runs) {
  SmallVector<ReleaseOp> releases;
  WaitOp wait = waitOf(runs.back().qk.getA());
  if (!wait || !llvm::all_of(wait.getTile().getUsers(), [&](Operation *user) {
        return llvm::any_of(runs, [&](Run &run) { return run.loop->isAncestor(user); });
      }))
    return releases;
  for (Operation *op = runs.back().loop->getNextNode(); op; op = op->getNextNode())
    if (auto release = dyn_cast<ReleaseOp>(op))
      if (release.getRing() == wait.getRing() && release.getIt() == wait.getIt())
        releases.push_back(release);
  return releases;
}

void overlap(MutableArrayRef<Run> runs, bool early) {
  scf::ForOp first = runs.front().loop, last = runs.back().loop;
  MutableArrayRef<Run> rest = runs;
  Location loc = first.getLoc();
  OpBuilder b(first);
  Value some = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, first.getLowerBound(),
                                     first.getUpperBound());
  auto branch = scf::IfOp::create(b, loc, first.getResultTypes(), some, /*withElseRegion=*/true);
  SmallVector<ReleaseOp> releases = releasesOfQ(runs);
  auto finish = [&](Value o, Value m, Value l) {
    SmallVector<Value> values(3);
    values[runs.back().o] = o, values[runs.back().m] = m, values[runs.back().l] = l;
    scf::YieldOp::create(b, loc, values);
  };

  b.setInsertionPointToStart(branch.thenBlock());
  Carried carried = peel(b, runs.front());
  Value from = plus(b, loc, first.getLowerBound(), 1);
  Value total = early ? last.getUpperBound() : Value();
  if (early)
    Writer(b, runs.front(), first.getLowerBound()).awaitNextK(first.getLowerBound(), total);
  if (first->hasAttr(atMostOneName)) // the peeled block was all of it
    rest = rest.drop_front();
  for (Run &run : rest) {
    carried = rotate(b, run, from ? from : run.loop.getLowerBound(), total, carried);
    from = {};
  }
  for (ReleaseOp release : releases)
    b.clone(*release);
  Writer tail(b, runs.back(), plus(b, loc, last.getUpperBound(), -1));
  Value it = tail.get(runs.back().vWait.getIt());
  Value o = tail.finishPv(it, tail.issuePv(it, carried.p, carried.o));
  finish(o, carried.m, carried.l);

  b.setInsertionPointToStart(branch.elseBlock());
  for (ReleaseOp release : releases)
    b.clone(*release);
  Run &run = runs.front();
  ValueRange inits = first.getInitArgs();
  finish(inits[run.o], inits[run.m], inits[run.l]);

  for (ReleaseOp release : releases)
    release.erase();
  last.replaceAllUsesWith(branch.getResults());
  for (Run &run : llvm::reverse(runs))
    run.loop.erase();
}

struct OverlapSoftmax : flash::impl::FlashTileOverlapSoftmaxBase<OverlapSoftmax> {
  void runOnOperation() override {
    forEachKernel(getOperation(), [](func::FuncOp kernel, PlanAttr plan) {
      if (plan.getFlag("overlap") != true || sumsGradients(kernel))
        return;
      SmallVector<Run> runs;
      Reason why =
          findRuns<SoftmaxStepOp>(kernel, runs, find, "no run of key blocks holds a softmax step");
      if (!why)
        why = whyNotChained<Run>(runs);
      if (why)
        return leaveAlone(kernel, "overlap", *why);
      gather(runs);
      const bool early = plan.getFlag("early_wait") == true;
      for (Run &run : runs)
        if (early && !why)
          why = whyNotEarly(run);
      overlap(runs, early && !why);
      if (why)
        leaveAlone(kernel, "early_wait", *why);
    });
  }
};

} // namespace
