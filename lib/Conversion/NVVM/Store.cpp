//===- Store.cpp - fragments from and to global memory --------------------===//
//
// The four lanes of a quad hold neighbouring pairs of one 8-column cell. In f32 they are a sector
// of memory, stored as they are. Of packed elements four cells are transposed across the quad, then
// each lane holds one whole cell: 16 contiguous bytes.
//
//===----------------------------------------------------------------------===//
#include "Fragments.h"
#include "flash/Conversion/IrInt.h"
#include "flash/Schedule/Splits.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace flash::nvvm {

using B = ImplicitLocOpBuilder;

static Value pick(B &b, Value vector, ArrayRef<int32_t> which) {
  return LLVM::ShuffleVectorOp::create(b, vector, vector, which);
}

/// Transposes words[4k + i] over the lanes of a quad: lane q's word i becomes lane i's word q.
static Value transposeQuad(B &b, Value words) {
  int64_t size = cast<VectorType>(words.getType()).getNumElements();
  for (int64_t bit : {2, 1}) {
    SmallVector<int32_t> low, high, merge(size);
    for (int64_t i = 0; i < size; ++i) {
      auto &half = i & bit ? high : low;
      merge[i] = static_cast<int32_t>(half.size() + (i & bit ? size / 2 : 0));
      half.push_back(static_cast<int32_t>(i));
    }
    // A lane keeps the half of its own bit and trades the other one.
    Value isHigh = arith::CmpIOp::create(
        b, arith::CmpIPredicate::ne, arith::AndIOp::create(b, laneId(b), i32(b, bit)), i32(b, 0));
    Value a = pick(b, words, low), c = pick(b, words, high);
    Value got = shuffleXor(b, arith::SelectOp::create(b, isHigh, a, c), bit);
    a = arith::SelectOp::create(b, isHigh, got, a);
    c = arith::SelectOp::create(b, isHigh, c, got);
    words = LLVM::ShuffleVectorOp::create(b, a, c, merge);
  }
  return words;
}

void Fragments::storeCells(B &b, tile::StoreOp op, tile::StoreOp::Adaptor in) {
  Value value = in.getValue();
  tile::ViewOp view = viewOf(op.getView());
  ArrayRef<int64_t> shape = op.getValue().getType().getShape();
  const bool isPacked = !op.getValue().getType().getElementType().isF32();
  // What a lane stores at once: a whole cell of every four, or its pair of each.
  const int64_t step = isPacked ? 4 : 1, laneCols = isPacked ? 8 : 2;
  int64_t cells = shape[1] / 8, viewCols = view.getView().getType().getShape()[0];
  Value lane = arith::AndIOp::create(b, laneId(b), i32(b, 3));
  Value length = kernel.length(b, view, in.getBatch());
  int64_t slots = 2 * groupsOf(shape[0]);
  for (int64_t slot = 0; slot < slots; ++slot) {
    SmallVector<int32_t> mine; // of this row, cell by cell
    for (int64_t c = 0; c < cells; ++c) {
      auto pair = static_cast<int32_t>(slot / 2 * 2 * cells + 2 * c + slot % 2);
      if (isPacked)
        mine.push_back(pair);
      else
        mine.append({2 * pair, 2 * pair + 1});
    }
    Value words = pick(b, value, mine);
    if (isPacked)
      words = transposeQuad(b, words);

    IrInt row = IrInt(b, in.getRow()) + IrInt(b, rowOf(b, slot, slots));
    auto isRow = scf::IfOp::create(b, lessThan(row, IrInt(b, length)).get());
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(isRow.thenBlock());
    IrInt col = IrInt(b, toIndex(b, lane)) * laneCols;
    if (in.getCol())
      col = col + IrInt(b, in.getCol());
    Value base = kernel.address(b, view, in.getBatch(), in.getHead(), row.get(), col.get());
    for (int64_t c = 0; c < cells; c += step) {
      OpBuilder::InsertionGuard inner(b);
      if (in.getCol() || (c + step) * 8 > viewCols) {
        if (!in.getCol() && c * 8 >= viewCols)
          break;
        Value isCol = lessThan(col + c * 8, viewCols).get();
        b.setInsertionPointToStart(scf::IfOp::create(b, isCol).thenBlock());
      }
      auto first = static_cast<int32_t>(isPacked ? c : 2 * c);
      SmallVector<int32_t> which{first, first + 1};
      if (isPacked)
        which.append({first + 2, first + 3});
      Value at = LLVM::GEPOp::create(b, base.getType(), view.getView().getType().getElementType(),
                                     base, ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(c * 8)});
      LLVM::StoreOp::create(b, pick(b, words, which), at, /*alignment=*/isPacked ? 16 : 8);
    }
  }
}

void Fragments::storeColumn(B &b, tile::StoreOp op, tile::StoreOp::Adaptor in) {
  Value value = in.getValue();
  tile::ViewOp view = viewOf(op.getView());
  Value length = kernel.length(b, view, in.getBatch());
  Value isFirst = arith::CmpIOp::create(b, arith::CmpIPredicate::eq,
                                        arith::AndIOp::create(b, laneId(b), i32(b, 3)), i32(b, 0));
  auto inQuad = scf::IfOp::create(b, isFirst);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(inQuad.thenBlock());
  int64_t slots = cast<VectorType>(value.getType()).getNumElements();
  for (int64_t slot = 0; slot < slots; ++slot) {
    IrInt row = IrInt(b, in.getRow()) + IrInt(b, rowOf(b, slot, slots));
    auto isRow = scf::IfOp::create(b, lessThan(row, IrInt(b, length)).get());
    OpBuilder::InsertionGuard inner(b);
    b.setInsertionPointToStart(isRow.thenBlock());
    Value at = kernel.address(b, view, in.getBatch(), in.getHead(), row.get(), Value());
    LLVM::StoreOp::create(b, LLVM::ExtractElementOp::create(b, value, i32(b, slot)), at);
  }
}

std::pair<Value, Value> Fragments::dealt(B &b) {
  const int64_t aRow = kernel.columns / schedule::combineColumns;
  IrInt thread(b, toIndex(b, threadId(b)));
  return {floorDiv(thread, aRow).get(), (remainder(thread, aRow) * schedule::combineColumns).get()};
}

Value Fragments::load(B &b, tile::LoadOp op, tile::LoadOp::Adaptor in) {
  tile::ViewOp view = viewOf(op.getView());
  tile::FragType type = op.getResult().getType();
  const bool isColumn = type.getShape()[1] == 1;
  auto [row, col] = dealt(b);
  IrInt global = IrInt(b, in.getRow()) + IrInt(b, row),
        length(b, kernel.length(b, view, in.getBatch()));
  // A row past the end reads the last one: no branch keeps loads apart. Without rows there is no
  // work.
  Value at = kernel.address(b, view, in.getBatch(), in.getHead(), min(global, length - 1).get(),
                            isColumn ? Value() : col);
  VectorType vector = typeOf(type.getShape(), type.getElementType());
  Value value = LLVM::LoadOp::create(b, vector, at, vector.getNumElements() * sizeof(float));
  Value isRow = lessThan(global, length).get();
  return arith::SelectOp::create(b, isRow, value, LLVM::ZeroOp::create(b, vector).getResult());
}

void Fragments::storeDealt(B &b, tile::StoreOp op, tile::StoreOp::Adaptor in) {
  tile::ViewOp view = viewOf(op.getView());
  ArrayRef<int64_t> shape = op.getValue().getType().getShape();
  const bool isColumn = shape[1] == 1;
  auto [row, col] = dealt(b);
  IrInt global = IrInt(b, in.getRow()) + IrInt(b, row),
        length(b, kernel.length(b, view, in.getBatch()));
  Value mine = arith::AndIOp::create(b, lessThan(global, length).get(),
                                     lessThan(IrInt(b, row), shape[0]).get());
  if (isColumn)
    mine = arith::AndIOp::create(b, mine, lessThan(IrInt(b, col), 1).get());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(scf::IfOp::create(b, mine).thenBlock());
  Value at =
      kernel.address(b, view, in.getBatch(), in.getHead(), global.get(), isColumn ? Value() : col);
  const unsigned bytes = view.getView().getType().getElementType().getIntOrFloatBitWidth() / 8;
  LLVM::StoreOp::create(b, in.getValue(), at, isColumn ? bytes : bytes * schedule::combineColumns);
}

void Fragments::store(B &b, tile::StoreOp op, tile::StoreOp::Adaptor in) {
  if (kernel.columns)
    storeDealt(b, op, in);
  else if (op.getValue().getType().getShape()[1] == 1)
    storeColumn(b, op, in);
  else
    storeCells(b, op, in);
}

} // namespace flash::nvvm
