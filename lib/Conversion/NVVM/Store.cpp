//===- Store.cpp - fragments to global memory -----------------------------===//
//
// The four lanes of a quad hold neighbouring pairs of one 8-column cell. Four cells are transposed
// across the quad, then each lane holds one whole cell: 16 contiguous bytes.
//
//===----------------------------------------------------------------------===//
#include "Fragments.h"
#include "flash/Conversion/IrInt.h"
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

void Fragments::storePacked(B &b, tile::StoreOp op, tile::StoreOp::Adaptor in) {
  Value value = in.getValue();
  tile::ViewOp view = viewOf(op.getView());
  ArrayRef<int64_t> shape = op.getValue().getType().getShape();
  int64_t cells = shape[1] / 8, viewCols = view.getView().getType().getShape()[0];
  Value lane = arith::AndIOp::create(b, laneId(b), i32(b, 3));
  Value length = toIndex(b, kernel.length(b, view));
  int64_t slots = 2 * groupsOf(shape[0]);
  for (int64_t slot = 0; slot < slots; ++slot) {
    SmallVector<int32_t> mine; // the words of this row, cell by cell
    for (int64_t c = 0; c < cells; ++c)
      mine.push_back(static_cast<int32_t>(slot / 2 * 2 * cells + 2 * c + slot % 2));
    Value words = transposeQuad(b, pick(b, value, mine));

    IrInt row = IrInt(b, in.getRow()) + IrInt(b, rowOf(b, slot, slots));
    auto isRow = scf::IfOp::create(b, lessThan(row, IrInt(b, length)).get());
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(isRow.thenBlock());
    IrInt col = IrInt(b, toIndex(b, lane)) * 8;
    if (in.getCol())
      col = col + IrInt(b, in.getCol());
    Value base = kernel.address(b, view, in.getBatch(), in.getHead(), row.get(), col.get());
    for (int64_t c = 0; c < cells; c += 4) {
      OpBuilder::InsertionGuard inner(b);
      if (in.getCol() || (c + 4) * 8 > viewCols) {
        if (!in.getCol() && c * 8 >= viewCols)
          break;
        Value isCol = lessThan(col + c * 8, viewCols).get();
        b.setInsertionPointToStart(scf::IfOp::create(b, isCol).thenBlock());
      }
      auto first = static_cast<int32_t>(c);
      Value four = pick(b, words, {first, first + 1, first + 2, first + 3});
      Value at = LLVM::GEPOp::create(b, base.getType(), b.getI16Type(), base,
                                     ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(c * 8)});
      LLVM::StoreOp::create(b, four, at, /*alignment=*/16);
    }
  }
}

void Fragments::storeColumn(B &b, tile::StoreOp op, tile::StoreOp::Adaptor in) {
  Value value = in.getValue();
  tile::ViewOp view = viewOf(op.getView());
  Value length = toIndex(b, kernel.length(b, view));
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

void Fragments::store(B &b, tile::StoreOp op, tile::StoreOp::Adaptor in) {
  if (op.getValue().getType().getShape()[1] == 1)
    storeColumn(b, op, in);
  else
    storePacked(b, op, in);
}

} // namespace flash::nvvm
