//===- Moving.cpp - views, rings, and what moves between them -------------===//
//
// On the late clock a fill only notes where to copy from; the first wait of its ordinal copies.
//
//===----------------------------------------------------------------------===//
#include "Loops.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/ScopeExit.h"
#include <limits>

using namespace mlir;
using namespace flash;
using namespace flash::loops;
using namespace flash::tile;

//===----------------------------------------------------------------------===//
// Views
//===----------------------------------------------------------------------===//

void Lowering::lower(ViewOp op) { map.map(op.getView(), at(op.getSource())); }

/// An element of a table as an index.
Value Lowering::entry(Value table, ValueRange place) {
  Value element = memref::LoadOp::create(b, at(table), place);
  return arith::IndexCastOp::create(b, b.getIndexType(), element);
}

/// The sequence whose rows stand for those of `batch`.
Value Lowering::sequenceOf(ViewOp view, Value batch) {
  return view.getBatchIdx() ? entry(view.getBatchIdx(), batch) : batch;
}

Value Lowering::lengthOf(ViewOp view, Value batch) {
  auto all = [&]() -> IrInt {
    if (Value used = view.getSeqused()) {
      IrInt rows = toInt(entry(used, batch));
      return view.getAppended() ? rows + toInt(at(view.getAppended())) : rows;
    }
    if (Value starts = view.getCuSeqlens()) {
      Value sequence = sequenceOf(view, batch);
      return toInt(entry(starts, (toInt(sequence) + 1).get())) - toInt(entry(starts, sequence));
    }
    return toInt(memref::DimOp::create(b, at(view.getView()), view.rowDim()));
  };
  IrInt rows = all();
  if (view.getLeftpad())
    rows = rows - toInt(entry(view.getLeftpad(), batch));
  if (view.hasTables())
    rows = max(rows, int64_t(0));
  if (int64_t padded = view.getPadded(); padded > 1)
    rows = ceilDiv(rows, padded) * padded;
  return (rows * view.getGroup()).get();
}
void Lowering::lower(LengthOp op) {
  map.map(op.getRows(), lengthOf(op.getView().getDefiningOp<ViewOp>(), at(op.getBatch())));
}

/// The subscripts of a row, less the column.
SmallVector<Value> Lowering::rowOf(ViewOp view, Value batch, Value head, Value row) {
  SmallVector<Value> subscripts;
  IrInt h = toInt(head), r = toInt(row);
  if (view.getPartial()) {
    IrInt splits = toInt(memref::DimOp::create(b, at(view.getView()), 0));
    subscripts.push_back(remainder(h, splits).get());
    h = floorDiv(h, splits);
  }
  if (int64_t group = view.getGroup(); group > 1) {
    h = h * group + remainder(r, group);
    r = floorDiv(r, group);
  }
  if (view.getLeftpad())
    r = r + toInt(entry(view.getLeftpad(), batch));
  Value sequence = sequenceOf(view, batch);
  if (view.getPageTable()) {
    IrInt slots = toInt(memref::DimOp::create(b, at(view.getView()), view.rowDim()));
    subscripts.push_back(entry(view.getPageTable(), {sequence, floorDiv(r, slots).get()}));
    r = remainder(r, slots);
  } else if (view.hasBatch()) {
    subscripts.push_back(sequence);
  }
  if (view.getCuSeqlens()) {
    IrInt start = toInt(entry(view.getCuSeqlens(), sequence));
    if (int64_t padded = view.getPadded(); padded > 1)
      start = schedule::packedStart(start, toInt(sequence), /*group=*/1, padded) * padded;
    r = r + start;
  }
  if (view.isBare())
    subscripts.push_back(r.get());
  else if (view.isColumn())
    subscripts.append({h.get(), r.get()});
  else
    subscripts.append({r.get(), h.get()});
  return subscripts;
}

/// Copies rows [row, row + rows of `to`) into `to`; zeros outside the length and past the columns.
void Lowering::moveIn(ViewOp view, Value batch, Value head, Value row, Value to) {
  ArrayRef<int64_t> shape = cast<MemRefType>(to.getType()).getShape();
  Type element = view.getView().getType().getElementType();
  int64_t cols = std::min(view.getView().getType().getShape()[0], shape[1]);
  IrInt length = toInt(lengthOf(view, batch));
  if (view.isColumn() && shape[0] == 1 && shape[1] > 1) { // along the row
    loop(shape[1], 1, [&](Value c) {
      Value global = (toInt(row) + toInt(c)).get();
      auto inside =
          scf::IfOp::create(b, b.getF32Type(), lessThan(toInt(global), length).get(), true);
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(inside.thenBlock());
      Value value = memref::LoadOp::create(b, at(view.getView()), rowOf(view, batch, head, global));
      if (!element.isF32())
        value = arith::ExtFOp::create(b, b.getF32Type(), value);
      scf::YieldOp::create(b, value);
      b.setInsertionPointToStart(inside.elseBlock());
      scf::YieldOp::create(b, real(b.getF32Type(), 0));
      b.setInsertionPointAfter(inside);
      memref::StoreOp::create(b, inside.getResult(0), to, ValueRange{index(0), c});
    });
    return;
  }
  auto zero = [&](Value r, int64_t from) {
    int64_t lanes = std::min(lanesOf(from ? from : shape[1]), lanesOf(shape[1]));
    loop(index(from), index(shape[1]), lanes, [&](Value c) {
      vector::StoreOp::create(b, real(vectorOf(lanes), 0), to, ValueRange{r, c});
    });
  };
  loop(shape[0], 1, [&](Value r) {
    Value global = (toInt(row) + toInt(r)).get();
    auto inside =
        scf::IfOp::create(b, lessThan(toInt(global), length).get(), /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(inside.thenBlock());
    SmallVector<Value> from = rowOf(view, batch, head, global);
    auto widened = [&](Value value, Type type) -> Value {
      return element.isF32() ? value : arith::ExtFOp::create(b, type, value).getResult();
    };
    if (view.isColumn()) {
      Value value = memref::LoadOp::create(b, at(view.getView()), from);
      memref::StoreOp::create(b, widened(value, b.getF32Type()), to, ValueRange{r, index(0)});
    } else {
      int64_t lanes = lanesOf(cols);
      loop(cols, lanes, [&](Value c) {
        SmallVector<Value> source(from);
        source.push_back(c);
        Value value = vector::LoadOp::create(b, VectorType::get({lanes}, element),
                                             at(view.getView()), source);
        vector::StoreOp::create(b, widened(value, vectorOf(lanes)), to, ValueRange{r, c});
      });
    }
    if (cols < shape[1])
      zero(r, cols);
    b.setInsertionPointToStart(inside.elseBlock());
    zero(r, 0);
  });
}

/// Waits for the turn of a store, or passes it on (JitSymbols).
void Lowering::callTurn(StringRef verb, StoreOp op) {
  if (!op.getTurns())
    return;
  Value turns = memref::CastOp::create(b, turnsType(b.getContext()), at(op.getTurns()));
  func::CallOp::create(b, ("flash_turn_" + verb).str(), TypeRange(),
                       ValueRange{turns, at(op.getPlace()), at(op.getTurn())});
}

void Lowering::lower(StoreOp op) {
  callTurn("await", op);
  llvm::scope_exit passOn([&] { callTurn("pass", op); });
  Value value = at(op.getValue());
  ArrayRef<int64_t> shape = op.getValue().getType().getShape();
  if (!op.getRing())
    return moveOut(op, value, 0, shape[1]);
  auto ring = op.getRing().getDefiningOp<RingOp>();
  Value slot = tileOf(ring, slotOf(ring, at(op.getIt())));
  const int64_t width = ring.getType().getShape()[2];
  for (int64_t first = 0; first < shape[1]; first += width) {
    const int64_t cols = std::min(width, shape[1] - first), lanes = lanesOf(cols);
    loop(shape[0], 1, [&](Value r) {
      loop(cols, lanes, [&](Value c) {
        Value from = (toInt(c) + first).get();
        Value part = vector::LoadOp::create(b, vectorOf(lanes), value, ValueRange{r, from});
        vector::StoreOp::create(b, part, slot, ValueRange{r, c});
      });
    });
    moveOut(op, slot, first, cols);
  }
}

/// Stores `from`: the `width` columns from `begin` on of the op's fragment.
void Lowering::moveOut(StoreOp op, Value from, int64_t begin, int64_t width) {
  auto view = op.getView().getDefiningOp<ViewOp>();
  ArrayRef<int64_t> shape = op.getValue().getType().getShape();
  Type element = view.getView().getType().getElementType();
  int64_t cols = view.getView().getType().getShape()[0];
  IrInt length = toInt(lengthOf(view, at(op.getBatch()))), first = toInt(at(op.getRow()));
  auto narrowed = [&](Value value, Type type) -> Value {
    return element.isF32() ? value : arith::TruncFOp::create(b, type, value).getResult();
  };
  /// In its turn a store is alone, else the sum of each element is one step.
  auto put = [&](Value value, ValueRange to) {
    if (op.getSum() && !op.getTurns()) {
      memref::AtomicRMWOp::create(b, arith::AtomicRMWKind::addf,
                                  vector::ExtractOp::create(b, value, ArrayRef<int64_t>{0}),
                                  at(view.getView()), to);
      return;
    }
    if (op.getSum())
      value = arith::AddFOp::create(
          b, vector::LoadOp::create(b, cast<VectorType>(value.getType()), at(view.getView()), to),
          value);
    vector::StoreOp::create(b, value, at(view.getView()), to);
  };
  loop(shape[0], 1, [&](Value r) {
    Value global = (first + toInt(r)).get();
    auto inside = scf::IfOp::create(b, lessThan(toInt(global), length).get(), false);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(inside.thenBlock());
    SmallVector<Value> to = rowOf(view, at(op.getBatch()), at(op.getHead()), global);
    if (view.isColumn()) {
      memref::StoreOp::create(b, narrowed(rowValue(from, r), element), at(view.getView()), to);
      return;
    }
    // A column that is only known when the kernel runs may leave any number of columns.
    const bool single = op.getCol() || (op.getSum() && !op.getTurns());
    int64_t lanes = single ? 1 : std::min(lanesOf(width), lanesOf(cols));
    if (begin)
      lanes = std::min(lanes, lanesOf(begin));
    IrInt shift = toInt(op.getCol() ? at(op.getCol()) : index(0)) + begin;
    IrInt count = min(toInt(index(cols)) - shift, width);
    loop(index(0), count.get(), lanes, [&](Value c) {
      Value value = vector::LoadOp::create(b, vectorOf(lanes), from, ValueRange{r, c});
      SmallVector<Value> target(to);
      target.push_back((shift + toInt(c)).get());
      put(narrowed(value, VectorType::get({lanes}, element)), target);
    });
  });
}

//===----------------------------------------------------------------------===//
// Rings
//===----------------------------------------------------------------------===//

void Lowering::lower(RingOp op) {
  if (baton) {
    memref::GlobalOp slots = rings.lookup(op.getRing()).slots;
    map.map(op.getRing(),
            memref::GetGlobalOp::create(b, slots.getType(), slots.getSymName()).getResult());
    return;
  }
  auto type = MemRefType::get(op.getRing().getType().getShape(), b.getF32Type());
  Value slots = memref::AllocOp::create(b, type, b.getI64IntegerAttr(64));
  allocated.push_back(slots);
  map.map(op.getRing(), slots);
}

Value Lowering::callBaton(StringRef verb, RingOp ring, Value ordinal, bool answers) {
  auto call = func::CallOp::create(b, ("flash_baton_" + verb).str(),
                                   answers ? TypeRange{b.getI1Type()} : TypeRange{},
                                   ValueRange{index(rings.lookup(ring.getRing()).number), ordinal});
  return answers ? call.getResult(0) : Value();
}

Value Lowering::slotOf(RingOp ring, Value ordinal) {
  return remainder(toInt(ordinal), ring.getRing().getType().getShape()[0]).get();
}

/// A tile of `shape` from element `offset` of the ring on.
static Value tileAt(ImplicitLocOpBuilder &b, Value slots, OpFoldResult offset,
                    ArrayRef<int64_t> shape, int64_t stride) {
  auto layout = StridedLayoutAttr::get(b.getContext(), ShapedType::kDynamic, {stride, 1});
  auto type = MemRefType::get(shape, b.getF32Type(), layout);
  SmallVector<OpFoldResult> sizes{b.getIndexAttr(shape[0]), b.getIndexAttr(shape[1])};
  SmallVector<OpFoldResult> strides{b.getIndexAttr(stride), b.getIndexAttr(1)};
  return memref::ReinterpretCastOp::create(b, type, slots, offset, sizes, strides);
}

Value Lowering::tileOf(RingOp ring, Value slot) {
  ArrayRef<int64_t> shape = ring.getRing().getType().getShape().drop_front();
  IrInt offset = toInt(slot) * (shape[0] * shape[1]);
  return tileAt(b, at(ring.getRing()), offset.get(), shape, shape[1]);
}

void Lowering::lower(SliceOp op) {
  auto tile = at(op.getTile()).getDefiningOp<memref::ReinterpretCastOp>();
  IrInt offset = toInt(tile.getOffsets().front()) + toInt(at(op.getCol()));
  if (op.getRow())
    offset = offset + toInt(at(op.getRow())) * tile.getStaticStride(0);
  map.map(op.getResult(), tileAt(b, tile.getSource(), offset.get(),
                                 op.getResult().getType().getShape(), tile.getStaticStride(0)));
}

void Lowering::lower(LoadOp op) {
  auto view = op.getView().getDefiningOp<ViewOp>();
  Value buffer = bufferFor(op.getResult(), {}), head = at(op.getHead());
  if (!op.getLeft())
    return moveIn(view, at(op.getBatch()), head, at(op.getRow()), buffer);
  ArrayRef<int64_t> shape = op.getResult().getType().getShape();
  const int64_t rows = shape[0] / op.getAside();
  loop(op.getAside(), 1, [&](Value part) {
    Value mine =
        tileAt(b, buffer, (toInt(part) * (rows * shape[1])).get(), {rows, shape[1]}, shape[1]);
    auto isThere = scf::IfOp::create(b, lessThan(toInt(part), toInt(at(op.getLeft()))).get(),
                                     /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(isThere.thenBlock());
    moveIn(view, at(op.getBatch()), (toInt(head) + toInt(part)).get(), at(op.getRow()), mine);
    b.setInsertionPointToStart(isThere.elseBlock());
    fillBuffer(mine, view.isColumn() ? -std::numeric_limits<float>::infinity() : 0);
  });
}

void Lowering::lower(ReadOp op) { copy(at(op.getTile()), bufferFor(op.getResult(), {})); }

/// The views that fill a ring anywhere in the kernel.
static SmallVector<ViewOp> sourcesOf(RingOp ring) {
  SmallVector<ViewOp> sources;
  for (Operation *user : ring.getRing().getUsers())
    if (auto fill = dyn_cast<FillOp>(user))
      if (auto view = fill.getView().getDefiningOp<ViewOp>(); !llvm::is_contained(sources, view))
        sources.push_back(view);
  return sources;
}

void Lowering::lower(FillOp op) {
  auto view = op.getView().getDefiningOp<ViewOp>();
  auto ring = op.getRing().getDefiningOp<RingOp>();
  Value ordinal = at(op.getIt()), slot = slotOf(ring, ordinal);
  Value place[] = {at(op.getBatch()), at(op.getHead()), at(op.getRow())};
  if (baton)
    callBaton("acquire", ring, ordinal);
  if (clock == Clock::eager) {
    moveIn(view, place[0], place[1], place[2], tileOf(ring, slot));
  } else {
    memref::GlobalOp pending = rings.lookup(ring.getRing()).pending;
    Value record = memref::GetGlobalOp::create(b, pending.getType(), pending.getSymName());
    SmallVector<ViewOp> sources = sourcesOf(ring);
    Value note[] = {index(llvm::find(sources, view) - sources.begin() + 1), place[0], place[1],
                    place[2]};
    for (auto [i, value] : llvm::enumerate(note))
      memref::StoreOp::create(b, value, record, ValueRange{slot, index(i)});
  }
  if (baton)
    callBaton("commit", ring, ordinal);
}

void Lowering::lower(WriteOp op) {
  auto ring = op.getRing().getDefiningOp<RingOp>();
  Value ordinal = at(op.getIt());
  if (baton)
    callBaton("acquire", ring, ordinal);
  auto slot = tileOf(ring, slotOf(ring, ordinal)).getDefiningOp<memref::ReinterpretCastOp>();
  ArrayRef<int64_t> shape = op.getValue().getType().getShape();
  IrInt offset = toInt(slot.getOffsets().front());
  if (op.getRow())
    offset = offset + toInt(at(op.getRow())) * shape[1];
  copy(at(op.getValue()), tileAt(b, slot.getSource(), offset.get(), shape, shape[1]));
  if (baton)
    callBaton("commit", ring, ordinal);
}

void Lowering::lower(WaitOp op) {
  auto ring = op.getRing().getDefiningOp<RingOp>();
  Value ordinal = at(op.getIt()), slot = slotOf(ring, ordinal);
  if (baton)
    callBaton(op.getAgain() ? "wait_again" : "wait", ring, ordinal);
  Value tile = tileOf(ring, slot);
  map.map(op.getTile(), tile);
  if (clock == Clock::eager || op.getAgain())
    return;
  memref::GlobalOp pending = rings.lookup(ring.getRing()).pending;
  Value record = memref::GetGlobalOp::create(b, pending.getType(), pending.getSymName());
  Value note[4];
  for (auto [i, value] : llvm::enumerate(note))
    value = memref::LoadOp::create(b, record, ValueRange{slot, index(i)});
  memref::StoreOp::create(b, index(0), record, ValueRange{slot, index(0)});
  for (auto [i, view] : llvm::enumerate(sourcesOf(ring))) {
    Value here = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, note[0], index(i + 1));
    auto copies = scf::IfOp::create(b, here, false);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(copies.thenBlock());
    moveIn(view, note[1], note[2], note[3], tile);
  }
}

void Lowering::lower(ReleaseOp op) {
  if (!baton)
    return;
  auto ring = op.getRing().getDefiningOp<RingOp>();
  Value ordinal = at(op.getIt()), last = callBaton("release", ring, ordinal, /*answers=*/true);
  if (clock == Clock::eager)
    return;
  auto poison = scf::IfOp::create(b, last, false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(poison.thenBlock());
  fillBuffer(tileOf(ring, slotOf(ring, ordinal)), std::numeric_limits<float>::quiet_NaN());
}

//===----------------------------------------------------------------------===//
// Tiles from a counter
//===----------------------------------------------------------------------===//

/// Adds one to the counter that the kernel's blocks share, the last of all `tiles` wraps it to 0;
/// gives what it held.
Value Lowering::take(ForWorkOp op, Value tiles) {
  memref::GlobalOp counter = rings.lookup(op.getRing()).counter;
  Value memory = memref::GetGlobalOp::create(b, counter.getType(), counter.getSymName());
  Value held = memref::LoadOp::create(b, memory, index(0));
  held = arith::IndexCastOp::create(b, b.getIndexType(), held);
  IrInt more = toInt(held) + 1;
  more = select(lessThan(more, toInt(tiles)), more, toInt(index(0)));
  memref::StoreOp::create(b, arith::IndexCastOp::create(b, b.getI32Type(), more.get()), memory,
                          index(0));
  return held;
}

/// Hands on `next` as the ring's ordinal `it`.
void Lowering::publish(ForWorkOp op, Value it, Value next) {
  auto ring = op.getRing().getDefiningOp<RingOp>();
  callBaton("acquire", ring, it);
  memref::StoreOp::create(b, arith::IndexCastOp::create(b, b.getI32Type(), next), at(op.getRing()),
                          ValueRange{slotOf(ring, it), index(0), index(0)});
  callBaton("commit", ring, it);
}

/// The ordinal that was handed on as the ring's ordinal `it`.
Value Lowering::follow(ForWorkOp op, Value it) {
  auto ring = op.getRing().getDefiningOp<RingOp>();
  callBaton("wait", ring, it);
  Value place[] = {slotOf(ring, it), index(0), index(0)};
  Value next = memref::LoadOp::create(b, at(op.getRing()), place);
  Value last = callBaton("release", ring, it, /*answers=*/true);
  if (clock == Clock::late) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(scf::IfOp::create(b, last, false).thenBlock());
    Value none = arith::ConstantOp::create(b, b.getI32IntegerAttr(noTile));
    memref::StoreOp::create(b, none, at(op.getRing()), place);
  }
  return arith::IndexCastOp::create(b, b.getIndexType(), next);
}
