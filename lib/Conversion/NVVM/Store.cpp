//===- Store.cpp - fragments from and to global memory --------------------===//
//
// The four lanes of a quad hold neighbouring pairs of one 8-column cell. In f32 they are a sector
// of memory, stored as they are. Of packed elements four cells are transposed across the quad, then
// each lane holds one whole cell: 16 contiguous bytes.
//
//===----------------------------------------------------------------------===//
#include "Fragments.h"
#include "Ldmatrix.h"
#include "flash/Conversion/IrInt.h"
#include "flash/Schedule/Splits.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
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
  const int64_t sharing = kernel.gridOf(shape[0]).cols, cells = shape[1] / sharing / 8;
  // What a lane stores at once: a whole cell of every four, or its pair of each.
  const bool isWhole = isPacked && cells % 4 == 0;
  const int64_t step = isWhole ? 4 : 1, laneCols = isWhole ? 8 : 2;
  const int64_t viewCols = view.getView().getType().getShape()[0];
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
    if (isWhole)
      words = transposeQuad(b, words);

    IrInt row = IrInt(b, in.getRow()) + IrInt(b, rowOf(b, slot, shape[0]));
    auto isRow = scf::IfOp::create(b, lessThan(row, IrInt(b, length)).get());
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(isRow.thenBlock());
    IrInt col = IrInt(b, toIndex(b, lane)) * laneCols;
    if (sharing > 1) {
      if (isWhole) // two cells a block of columns
        col = col + floorDiv(IrInt(b, toIndex(b, lane)), 2) * ((sharing - 1) * Ldmatrix::side);
      col = col + IrInt(b, toIndex(b, firstColumnOfWarp(b, kernel, shape[0])));
    }
    if (in.getCol())
      col = col + IrInt(b, in.getCol());
    Value base = kernel.address(b, view, in.getBatch(), in.getHead(), row.get(), col.get());
    for (int64_t c = 0; c < cells; c += step) {
      OpBuilder::InsertionGuard inner(b);
      const int64_t first = columnOfCell(c, sharing);
      const int64_t last = columnOfCell(c + step - 1, sharing) + (sharing - 1) * Ldmatrix::side;
      if (in.getCol() || last + 8 > viewCols) {
        if (!in.getCol() && first >= viewCols)
          break;
        Value isCol = lessThan(col + first, viewCols).get();
        b.setInsertionPointToStart(scf::IfOp::create(b, isCol).thenBlock());
      }
      auto word = static_cast<int32_t>(isPacked ? c : 2 * c);
      SmallVector<int32_t> which{word};
      for (int32_t i = 1; i < (isWhole ? 4 : isPacked ? 1 : 2); ++i)
        which.push_back(word + i);
      Value at = LLVM::GEPOp::create(b, base.getType(), view.getView().getType().getElementType(),
                                     base, ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(first)});
      LLVM::StoreOp::create(b, pick(b, words, which), at, /*alignment=*/
                            isWhole    ? 16
                            : isPacked ? 4
                                       : 8);
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
    IrInt row =
        IrInt(b, in.getRow()) + IrInt(b, rowOf(b, slot, op.getValue().getType().getShape()[0]));
    auto isRow = scf::IfOp::create(b, lessThan(row, IrInt(b, length)).get());
    OpBuilder::InsertionGuard inner(b);
    b.setInsertionPointToStart(isRow.thenBlock());
    Value at = kernel.address(b, view, in.getBatch(), in.getHead(), row.get(), Value());
    LLVM::StoreOp::create(b, LLVM::ExtractElementOp::create(b, value, i32(b, slot)), at);
  }
}

std::pair<Value, Value> Fragments::dealt(B &b, tile::FragType type) {
  const int64_t cols = type.getShape()[1] == 1 ? kernel.columns : type.getShape()[1];
  const int64_t aRow = cols / schedule::combineColumns;
  IrInt thread(b, toIndex(b, threadId(b)));
  return {floorDiv(thread, aRow).get(), (remainder(thread, aRow) * schedule::combineColumns).get()};
}

/// From the L2 cache, where the kernel before has just written: 0.2 us sooner on decodes of 15 to
/// 80 than through L1. Not moved across other effects, such as the wait for that kernel. Only where
/// `isThere`, else `none`: no branch keeps loads apart then.
static Value loadFromL2(B &b, VectorType type, Value at, Value isThere, Value none) {
  const auto n = static_cast<int32_t>(type.getNumElements());
  const bool isWide = n == schedule::combineColumns;
  Type result = type.getElementType();
  if (isWide)
    result = LLVM::LLVMStructType::getLiteral(b.getContext(), SmallVector<Type>(n, result));
  Value loaded =
      LLVM::InlineAsmOp::create(
          b, result, ValueRange{at, isThere, none},
          isWide ? "mov.f32 $0, $6;\n\tmov.f32 $1, $6;\n\tmov.f32 $2, $6;\n\tmov.f32 $3, $6;\n\t"
                   "@$5 ld.global.cg.v4.f32 {$0, $1, $2, $3}, [$4];"
                 : "mov.f32 $0, $3;\n\t@$2 ld.global.cg.f32 $0, [$1];",
          isWide ? "=&f,=&f,=&f,=&f,l,b,f,~{memory}" : "=&f,l,b,f,~{memory}",
          /*has_side_effects=*/true, /*is_align_stack=*/false,
          LLVM::tailcallkind::TailCallKind::None,
          LLVM::AsmDialectAttr::get(b.getContext(), LLVM::AsmDialect::AD_ATT), ArrayAttr())
          .getRes();
  Value vector = LLVM::PoisonOp::create(b, type);
  for (int32_t i = 0; i < n; ++i)
    vector = LLVM::InsertElementOp::create(
        b, vector, isWide ? Value(LLVM::ExtractValueOp::create(b, loaded, i)) : loaded, i32(b, i));
  return vector;
}

Value Fragments::load(B &b, tile::LoadOp op, tile::LoadOp::Adaptor in) {
  tile::ViewOp view = viewOf(op.getView());
  if (view.getCells())
    return loadSum(b, op, in);
  tile::FragType type = op.getResult().getType();
  const bool isColumn = type.getShape()[1] == 1;
  auto [row, col] = dealt(b, type);
  Value part;
  if (const int64_t rows = type.getShape()[0] / op.getAside(); op.getAside() > 1) {
    part = floorDiv(IrInt(b, row), rows).get();
    row = remainder(IrInt(b, row), rows).get();
  }
  IrInt global = IrInt(b, in.getRow()) + IrInt(b, row),
        length(b, kernel.length(b, view, in.getBatch()));
  VectorType vector = typeOf(type.getShape(), type.getElementType());
  Value isRow = lessThan(global, length).get();
  if (const int64_t cols = view.getView().getType().getShape()[0];
      !isColumn && cols < type.getShape()[1])
    isRow = arith::AndIOp::create(b, isRow, lessThan(IrInt(b, col), cols).get());
  auto place = [&] {
    return kernel.address(b, view, in.getBatch(), in.getHead(), global.get(),
                          isColumn ? Value() : col, part);
  };
  if (view.getPartial()) {
    float none = 0;
    if (op.getLeft()) {
      Value isPart =
          lessThan(part ? IrInt(b, part) : constant(global, 0), IrInt(b, in.getLeft())).get();
      isRow = arith::AndIOp::create(b, isRow, isPart);
      if (isColumn)
        none = -std::numeric_limits<float>::infinity();
    }
    return loadFromL2(b, vector, place(), isRow,
                      arith::ConstantOp::create(b, b.getF32FloatAttr(none)));
  }
  Value zero = LLVM::ZeroOp::create(b, vector);
  auto branch = scf::IfOp::create(b, vector, isRow, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, zero);
  b.setInsertionPointToStart(branch.thenBlock());
  const int64_t bytes = vector.getNumElements() * vector.getElementTypeBitWidth() / 8;
  scf::YieldOp::create(b, LLVM::LoadOp::create(b, vector, place(), bytes).getResult());
  return branch.getResult(0);
}

/// The other column of a pair is another thread's: all pass theirs through shared memory.
Value Fragments::rotate(B &b, tile::RotateOp op, tile::RotateOp::Adaptor in) {
  constexpr int64_t columns = schedule::combineColumns;
  tile::FragType type = op.getValue().getType();
  Type element = type.getElementType(), f32 = b.getF32Type();
  auto own = VectorType::get({columns}, f32), narrow = VectorType::get({columns}, element);
  Value value = in.getValue();
  if (!element.isF32())
    value = arith::ExtFOp::create(b, own, LLVM::BitcastOp::create(b, narrow, value).getResult());
  NVVM::Barrier0Op::create(b); // who still reads what was passed before
  Value mine = arith::MulIOp::create(b, threadId(b), i32(b, columns * sizeof(float)));
  LLVM::StoreOp::create(b, value, kernel.shared(b, mine), /*alignment=*/16);
  NVVM::Barrier0Op::create(b);

  auto [row, col] = dealt(b, type);
  const int64_t pairs = cast<MemRefType>(op.getCos().getType()).getDimSize(1);
  IrInt position(b, in.getPosition());
  if (!op.getFixed())
    position = position + IrInt(b, row);
  Value isKnown = lessThan(position, IrInt(b, toIndex(b, kernel.size(op.getCos(), 0)))).get();
  for (int64_t i = 0; i < columns; ++i) {
    IrInt at = IrInt(b, col) + i, pair = floorDiv(at, 2), other = at + (i % 2 ? -1 : 1);
    auto isFirst = lessThan(constant(at, i % 2), 1); // of its pair
    if (!op.getInterleaved()) {
      isFirst = lessThan(at, pairs);
      pair = select(isFirst, at, at - pairs);
      other = select(isFirst, at + pairs, at - pairs);
    }
    Value turns = arith::AndIOp::create(b, isKnown, lessThan(at, 2 * pairs).get());
    Value x = LLVM::ExtractElementOp::create(b, value, i32(b, i));
    auto branch = scf::IfOp::create(b, f32, turns, /*withElseRegion=*/true);
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(branch.elseBlock());
      scf::YieldOp::create(b, x);
      b.setInsertionPointToStart(branch.thenBlock());
      auto angle = [&](Value table) -> Value {
        Value offset = arith::IndexCastOp::create(b, b.getI64Type(), position.get());
        offset = arith::MulIOp::create(b, offset, kernel.stride(table, 0));
        offset = arith::AddIOp::create(b, offset,
                                       arith::IndexCastOp::create(b, b.getI64Type(), pair.get()));
        Value base = kernel.pointer(table);
        Value read = LLVM::LoadOp::create(
            b, element, LLVM::GEPOp::create(b, base.getType(), element, base, ValueRange{offset}));
        return element.isF32() ? read : arith::ExtFOp::create(b, f32, read).getResult();
      };
      IrInt place = (IrInt(b, row) * type.getShape()[1] + other) * int64_t(sizeof(float));
      Value y = LLVM::LoadOp::create(b, f32, kernel.shared(b, toI32(b, place.get())));
      Value sine = angle(op.getSin());
      sine = arith::SelectOp::create(b, isFirst.get(), arith::NegFOp::create(b, sine), sine);
      Value turned = arith::AddFOp::create(b, arith::MulFOp::create(b, x, angle(op.getCos())),
                                           arith::MulFOp::create(b, y, sine));
      scf::YieldOp::create(b, turned);
    }
    value = LLVM::InsertElementOp::create(b, value, branch.getResult(0), i32(b, i));
  }
  if (element.isF32())
    return value;
  return LLVM::BitcastOp::create(b, in.getValue().getType(),
                                 arith::TruncFOp::create(b, narrow, value).getResult());
}

void Fragments::storeDealt(B &b, tile::StoreOp op, tile::StoreOp::Adaptor in) {
  tile::ViewOp view = viewOf(op.getView());
  ArrayRef<int64_t> shape = op.getValue().getType().getShape();
  const bool isColumn = shape[1] == 1;
  auto [row, col] = dealt(b, op.getValue().getType());
  IrInt global = IrInt(b, in.getRow()) + IrInt(b, row),
        length(b, kernel.length(b, view, in.getBatch()));
  Value mine = arith::AndIOp::create(b, lessThan(global, length).get(),
                                     lessThan(IrInt(b, row), shape[0]).get());
  const int64_t cols = view.getView().getType().getShape()[0];
  if (isColumn || cols < shape[1])
    mine = arith::AndIOp::create(b, mine, lessThan(IrInt(b, col), cols).get());
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
  else if (op.getSum())
    storeSum(b, op, in);
  else if (op.getValue().getType().getShape()[1] == 1)
    storeColumn(b, op, in);
  else
    storeCells(b, op, in);
}

} // namespace flash::nvvm
