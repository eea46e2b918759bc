//===- DivideKeys.cpp - what the consumers of a tile of keys divide -------===//
//
// In gradients the scores' rows are keys, and so are those of everything else in registers but dQ:
//
//   S, dP, P, dS, dK, dV   consumer w's rows, with its rows of K and V as left operand
//   the ring of dS         written by all, each its rows; every product for dQ waits for all
//   dQ = dS^T K            over all keys: w's rows of queries where that leaves each whole
//   products,
//                          else w's columns
//
//===----------------------------------------------------------------------===//
#include "Divide.h"
#include "flash/Schedule/Machine.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace flash;
using namespace flash::tile;
using flash::schedule::SplitBy;

bool flash::dividesKeys(ForWorkOp work) {
  auto ofKeys = [](MaskOp mask) {
    return mask.getTrans() ? WalkResult::interrupt() : WalkResult::advance();
  };
  return work.walk(ofKeys).wasInterrupted();
}

Reason flash::findKeys(ForWorkOp work, Division &division) {
  llvm::SmallSetVector<int64_t, 2> rows;
  Reason why;
  work.walk([&](MmaOp mma) {
    if (!mma.getTransA())
      return;
    ArrayRef<int64_t> shape = mma.getResult().getType().getShape();
    const int64_t product = schedule::warpRows * schedule::warpgroupWarps;
    division.queriesBy =
        shape[0] % (division.consumers * product) ? SplitBy::columns : SplitBy::rows;
    const int64_t divided = shape[division.queriesBy == SplitBy::columns];
    if (divided % division.consumers)
      why = (Twine(division.consumers) + " consumers do not divide " + Twine(divided) + " columns")
                .str();
    division.queryValues.insert(mma.getResult());
    for (Operation *user : mma.getResult().getUsers())
      division.queryValues.insert_range(user->getResults());
  });
  work.walk([&](Operation *op) {
    for (Value result : op->getResults())
      if (ArrayRef<int64_t> shape = registerShape(result.getType());
          !shape.empty() && shape[0] > 1 && !division.queryValues.contains(result))
        rows.insert(shape[0]);
  });
  if (why)
    return why;
  if (rows.size() != 1)
    return "fragments are not all of one height";
  if (rows[0] % division.consumers)
    return (Twine(division.consumers) + " consumers do not divide " + Twine(rows[0]) + " rows")
        .str();
  division.part = rows[0] / division.consumers;
  return std::nullopt;
}

void flash::narrowKeys(ForWorkOp work, Value w, const Division &division, const IRMapping &map) {
  OpBuilder b(work);
  Location loc = work.getLoc();
  auto constant = [&](int64_t value) -> Value {
    return arith::ConstantIndexOp::create(b, loc, value);
  };
  auto times = [&](Value x, int64_t n) -> Value {
    return arith::MulIOp::create(b, loc, x, constant(n));
  };
  auto plus = [&](Value x, Value y) -> Value { return arith::AddIOp::create(b, loc, x, y); };
  const bool byRows = division.queriesBy == SplitBy::rows;
  const Value zero = constant(0), first = times(w, division.part);
  llvm::SmallDenseSet<Value> queryValues;
  for (Value original : division.queryValues)
    queryValues.insert(map.lookup(original));

  auto narrow = [&](Value value) {
    SmallVector<int64_t> shape(registerShape(value.getType()));
    if (shape.empty() || shape[0] == 1)
      return;
    if (queryValues.contains(value))
      shape[byRows ? 0 : 1] /= division.consumers;
    else
      shape[0] = division.part;
    auto of = [&](auto type) {
      value.setType(decltype(type)::get(type.getContext(), shape, type.getElementType()));
    };
    if (auto frag = dyn_cast<FragType>(value.getType()))
      of(frag);
    else
      of(cast<FlightType>(value.getType()));
  };
  /// Part `w` of the operand's rows or columns.
  auto slice = [&](OpOperand &operand, bool ofRows) {
    auto tile = cast<TileType>(operand.get().getType());
    SmallVector<int64_t> shape(tile.getShape());
    int64_t &size = shape[ofRows ? 0 : 1];
    size /= division.consumers;
    Value at = times(w, size);
    auto part = TileType::get(b.getContext(), shape, tile.getElementType());
    operand.set(
        SliceOp::create(b, loc, part, operand.get(), ofRows ? zero : at, ofRows ? at : Value()));
  };
  /// Each consumer has turns of its own.
  auto toOwnPlace = [&](OpOperand &place) {
    place.assign(plus(times(place.get(), division.consumers), w));
  };
  work.walk([&](Operation *op) {
    llvm::for_each(op->getResults(), narrow);
    for (Region &region : op->getRegions())
      for (Block &block : region)
        llvm::for_each(block.getArguments(), narrow);
    b.setInsertionPoint(op);
    if (auto mma = dyn_cast<MmaOp>(op)) {
      if (mma.getTransA())
        slice(byRows ? mma.getAMutable() : mma.getBMutable(), /*ofRows=*/false);
      else if (isa<TileType>(mma.getA().getType()))
        slice(mma.getAMutable(), /*ofRows=*/true);
    } else if (auto write = dyn_cast<WriteOp>(op)) {
      write.getRowMutable().assign(first);
    } else if (auto keep = dyn_cast<KeepTurnOp>(op)) {
      toOwnPlace(keep.getPlaceMutable());
    } else if (auto mask = dyn_cast<MaskOp>(op)) {
      mask.getRow0Mutable().assign(plus(mask.getRow0(), first));
    } else if (auto store = dyn_cast<StoreOp>(op)) {
      if (store.getTurns())
        toOwnPlace(store.getPlaceMutable()[0]);
      ArrayRef<int64_t> shape = store.getValue().getType().getShape();
      if (!queryValues.contains(store.getValue()))
        store.getRowMutable().assign(plus(store.getRow(), first));
      else if (byRows)
        store.getRowMutable().assign(plus(store.getRow(), times(w, shape[0])));
      else
        store.getColMutable().assign(store.getCol() ? plus(store.getCol(), times(w, shape[1]))
                                                    : times(w, shape[1]));
    }
  });
}
