//===- Divide.cpp - what the consumers of a tile divide -------------------===//
//
// By rows, everything in registers is M / C rows high and Q has a slot for each consumer. By
// columns, every consumer computes all scores, and the columns of V and of the output are divided.
//
//===----------------------------------------------------------------------===//
#include "Divide.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/EquivalenceClasses.h"

using namespace mlir;
using namespace flash;
using namespace flash::tile;
using flash::schedule::SplitBy;

//===----------------------------------------------------------------------===//
// Looking
//===----------------------------------------------------------------------===//

static Reason divide(Division &division, int64_t size, StringRef what) {
  if (size % division.consumers)
    return (Twine(division.consumers) + " consumers do not divide " + Twine(size) + " " + what)
        .str();
  division.part = size / division.consumers;
  return std::nullopt;
}

/// By rows all fragments are rows of one tile, and so are the tiles that multiply from the left.
static Reason findRows(ForWorkOp work, Division &division) {
  llvm::SmallSetVector<int64_t, 2> rows;
  SetVector<Value> sharedRings;
  work.walk([&](Operation *op) {
    for (Type type : op->getResultTypes())
      if (ArrayRef<int64_t> shape = registerShape(type); !shape.empty())
        rows.insert(shape[0]);
    auto mma = dyn_cast<MmaOp>(op);
    if (!mma)
      return;
    if (WaitOp wait = waitOf(mma.getA()))
      division.rowRings.insert(wait.getRing());
    if (WaitOp wait = waitOf(mma.getB()))
      sharedRings.insert(wait.getRing());
  });
  if (rows.size() != 1)
    return "fragments are not all of one height";
  for (Value ring : division.rowRings)
    if (sharedRings.contains(ring))
      return "a ring multiplies from both sides and cannot be divided by rows";
  return divide(division, rows[0], "rows");
}

/// By columns: the output as it reaches `finalize`, and all that holds the same columns.
static Reason findColumns(ForWorkOp work, Division &division) {
  FinalizeOp finalize;
  work.walk([&](FinalizeOp op) { finalize = op; });
  if (!finalize)
    return "without an output there are no columns to divide";
  const int64_t columns = finalize.getO().getType().getShape()[1];
  llvm::EquivalenceClasses<Value> alike;
  auto join = [&](ValueRange values) {
    Value first;
    for (Value value : values)
      if (ArrayRef<int64_t> shape = registerShape(value.getType());
          !shape.empty() && shape[1] == columns)
        first = first ? *alike.unionSets(first, value) : value;
  };
  auto keepsColumns = [](Operation *op) {
    return isa<CastOp, MapOp, RescaleOp, FinalizeOp, MmaWaitOp>(op);
  };
  work.walk([&](Operation *op) {
    if (keepsColumns(op)) {
      SmallVector<Value> values(op->getOperands());
      llvm::append_range(values, op->getResults());
      join(values);
    } else if (auto mma = dyn_cast<MmaOp>(op); mma && mma.getAcc()) {
      join({mma.getAcc(), mma.getResult()});
    } else if (auto loop = dyn_cast<scf::ForOp>(op)) {
      for (auto [init, argument, yielded, result] :
           llvm::zip(loop.getInitArgs(), loop.getRegionIterArgs(), loop.getYieldedValues(),
                     loop.getResults()))
        join({init, argument, yielded, result});
    } else if (auto branch = dyn_cast<scf::IfOp>(op); branch && branch.getNumResults()) {
      for (auto [yes, no, result] : llvm::zip(branch.thenYield().getOperands(),
                                              branch.elseYield().getOperands(), op->getResults()))
        join({yes, no, result});
    }
  });
  for (Value value : alike.members(finalize.getO())) {
    division.columnValues.insert(value);
    Operation *def = value.getDefiningOp();
    auto mma = dyn_cast_or_null<MmaOp>(def);
    if (!work.getBody().isAncestor(value.getParentRegion()))
      return "a part of the output comes from outside the work";
    if (def && !keepsColumns(def) && !isa<SplatOp, scf::ForOp, scf::IfOp>(def) &&
        (!mma || mma.getTransB()))
      return (def->getName().getStringRef() + " cannot give a part of the output's columns").str();
    for (Operation *user : value.getUsers()) {
      auto mma = dyn_cast<MmaOp>(user);
      if (!keepsColumns(user) && !isa<StoreOp, scf::ForOp, scf::YieldOp>(user) &&
          (!mma || mma.getA() == value))
        return (user->getName().getStringRef() + " cannot take a part of the output's columns")
            .str();
    }
  }
  return divide(division, columns, "columns");
}

Reason flash::findDivision(ForWorkOp work, Division &division) {
  division.keys = dividesKeys(work);
  if (division.keys)
    return findKeys(work, division);
  return division.by == SplitBy::rows ? findRows(work, division) : findColumns(work, division);
}

//===----------------------------------------------------------------------===//
// Dividing
//===----------------------------------------------------------------------===//

static Value constant(OpBuilder &b, Location loc, int64_t value) {
  return arith::ConstantIndexOp::create(b, loc, value);
}

void flash::divideProducer(ForWorkOp work, const Division &division) {
  work.walk([&](FillOp fill) {
    if (!division.rowRings.contains(fill.getRing()))
      return;
    OpBuilder b(fill);
    Location loc = fill.getLoc();
    Value row = fill.getRow();
    Value it = arith::MulIOp::create(b, loc, fill.getIt(), constant(b, loc, division.consumers));
    for (int64_t i = 0; i < division.consumers; ++i) {
      FillOp::create(b, loc, fill.getView(), fill.getBatch(), fill.getHead(), row, fill.getRing(),
                     it);
      if (i + 1 == division.consumers)
        break;
      row = arith::AddIOp::create(b, loc, row, constant(b, loc, division.part));
      it = arith::AddIOp::create(b, loc, it, constant(b, loc, 1));
    }
    fill.erase();
  });
}

/// Leaves consumer `w` its rows of everything, from row w * part on.
static void narrowRows(ForWorkOp work, Value w, const Division &division) {
  OpBuilder b(work);
  Location loc = work.getLoc();
  Value first = arith::MulIOp::create(b, loc, w, constant(b, loc, division.part));
  Value consumers = constant(b, loc, division.consumers);

  DenseMap<Value, Value> rows, ordinals;
  auto replace = [&](DenseMap<Value, Value> &made, OpOperand &operand, auto make) {
    auto [entry, isNew] = made.try_emplace(operand.get());
    if (isNew) {
      if (work.getBody().isAncestor(operand.get().getParentRegion()))
        b.setInsertionPointAfterValue(operand.get());
      else
        b.setInsertionPointToStart(&work.getBody().front());
      entry->second = make(operand.get());
    }
    operand.set(entry->second);
  };
  auto toOwnRow = [&](OpOperand &row) {
    replace(rows, row, [&](Value v) { return arith::AddIOp::create(b, loc, v, first); });
  };
  auto toOwnOrdinal = [&](Value ring, OpOperand &it) {
    if (division.rowRings.contains(ring))
      replace(ordinals, it, [&](Value v) -> Value {
        return arith::AddIOp::create(b, loc, arith::MulIOp::create(b, loc, v, consumers), w);
      });
  };
  auto narrow = [&](Value value) {
    auto narrowed = [&](auto type) {
      SmallVector<int64_t> shape(type.getShape());
      shape[0] = division.part;
      value.setType(decltype(type)::get(type.getContext(), shape, type.getElementType()));
    };
    if (auto frag = dyn_cast<FragType>(value.getType()))
      narrowed(frag);
    else if (auto flight = dyn_cast<FlightType>(value.getType()))
      narrowed(flight);
    else if (auto tile = dyn_cast<TileType>(value.getType()))
      if (WaitOp wait = waitOf(value); wait && division.rowRings.contains(wait.getRing()))
        narrowed(tile);
  };
  work.walk([&](Operation *op) {
    llvm::for_each(op->getResults(), narrow);
    for (Region &region : op->getRegions())
      for (Block &block : region)
        llvm::for_each(block.getArguments(), narrow);
    if (auto mask = dyn_cast<MaskOp>(op))
      toOwnRow(mask.getRow0Mutable());
    else if (auto load = dyn_cast<LoadOp>(op))
      toOwnRow(load.getRowMutable());
    else if (auto store = dyn_cast<StoreOp>(op))
      toOwnRow(store.getRowMutable());
    else if (auto finalize = dyn_cast<FinalizeOp>(op); finalize && finalize.getRow0())
      toOwnRow(finalize.getRow0Mutable()[0]);
    else if (auto wait = dyn_cast<WaitOp>(op))
      toOwnOrdinal(wait.getRing(), wait.getItMutable());
    else if (auto release = dyn_cast<ReleaseOp>(op))
      toOwnOrdinal(release.getRing(), release.getItMutable());
  });
}

/// Leaves consumer `w` its columns of V and of the output, from column w * part on. What all
/// consumers compute alike is written by the first.
static void narrowColumns(ForWorkOp work, Value w, const Division &division, const IRMapping &map) {
  OpBuilder b(work);
  Location loc = work.getLoc();
  Value first = arith::MulIOp::create(b, loc, w, constant(b, loc, division.part));
  Value zero = constant(b, loc, 0);
  Value isFirst = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, w, zero);
  llvm::SmallDenseSet<Value> narrowed;
  for (Value original : division.columnValues) {
    Value value = map.lookup(original);
    narrowed.insert(value);
    SmallVector<int64_t> shape(registerShape(value.getType()));
    shape[1] = division.part;
    if (auto frag = dyn_cast<FragType>(value.getType()))
      value.setType(FragType::get(b.getContext(), shape, frag.getElementType()));
    else if (auto flight = dyn_cast<FlightType>(value.getType()))
      value.setType(FlightType::get(b.getContext(), shape, flight.getElementType()));
    if (auto mma = value.getDefiningOp<MmaOp>()) {
      TileType tile = mma.getB().getType();
      auto part =
          TileType::get(b.getContext(), {tile.getShape()[0], division.part}, tile.getElementType());
      b.setInsertionPoint(mma);
      mma.getBMutable().assign(SliceOp::create(b, loc, part, mma.getB(), first, /*row=*/Value()));
    }
  }
  work.walk([&](StoreOp store) {
    b.setInsertionPoint(store);
    if (narrowed.contains(store.getValue())) {
      Value col =
          store.getCol() ? arith::AddIOp::create(b, loc, store.getCol(), first).getResult() : first;
      store.getColMutable().assign(col);
    } else {
      auto branch = scf::IfOp::create(b, loc, isFirst);
      store->moveBefore(branch.thenBlock()->getTerminator());
    }
  });
}

void flash::divideConsumer(ForWorkOp work, Value w, const Division &division,
                           const IRMapping &map) {
  if (division.keys)
    narrowKeys(work, w, division, map);
  else if (division.by == SplitBy::rows)
    narrowRows(work, w, division);
  else
    narrowColumns(work, w, division, map);
}

void flash::divideRings(func::FuncOp kernel, const Division &division) {
  for (RingOp ring : kernel.getBody().getOps<RingOp>()) {
    if (!division.rowRings.contains(ring.getRing())) {
      ring.setReleases(ring.getReleases() * division.consumers);
      const bool written = llvm::any_of(ring.getRing().getUsers(), llvm::IsaPred<WriteOp>);
      if (division.copies || written)
        ring.setWriters(ring.getWriters() * division.consumers);
      continue;
    }
    RingType type = ring.getRing().getType();
    ArrayRef<int64_t> shape = type.getShape();
    ring.getRing().setType(RingType::get(kernel.getContext(),
                                         {shape[0] * division.consumers, division.part, shape[2]},
                                         type.getElementType()));
  }
}
