//===- Fragments.cpp - softmax, masks and casts on a thread's cells -------===//
//
// Whole-vector ops wherever possible: LLVM scalarises them late, so the IR stays small. Per-row
// operands are spread by one shufflevector.
//
//===----------------------------------------------------------------------===//
#include "Fragments.h"
#include "Ldmatrix.h"
#include "flash/Conversion/IrInt.h"
#include "flash/Schedule/BlockRange.h"
#include "flash/Schedule/Splits.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include <cmath>
#include <limits>

using namespace mlir;

namespace flash::nvvm {

using B = ImplicitLocOpBuilder;

static constexpr float kMaskValue = -0x1p100f; // a power of two: x*c - m*c is exactly 0
static constexpr float kLog2e = 1.44269504088896340736f;
static constexpr float kLn2 = 0.693147180559945309417f;

static Value constant(B &b, Type type, float value) {
  FloatAttr scalar = b.getF32FloatAttr(value);
  if (auto vector = dyn_cast<VectorType>(type))
    return arith::ConstantOp::create(b, DenseElementsAttr::get(vector, scalar));
  return arith::ConstantOp::create(b, scalar);
}
static Value shuffle(B &b, Value x, Value y, ArrayRef<int32_t> which) {
  return LLVM::ShuffleVectorOp::create(b, x, y, which);
}
static int64_t sizeOf(Value vector) { return cast<VectorType>(vector.getType()).getNumElements(); }
static Value exp2(B &b, Value x) { return LLVM::Exp2Op::create(b, x); }
static Value fma(B &b, Value x, Value y, Value z) { return LLVM::FMAOp::create(b, x, y, z); }
/// bf16 are the upper halves of f32: moved there, which a conversion does on the unit of the
/// exponentials.
static Value widen(B &b, Value narrow) {
  const int64_t size = sizeOf(narrow), words = size / 2;
  auto type = VectorType::get({words}, b.getI32Type());
  auto constantOf = [&](int32_t value) -> Value {
    return arith::ConstantOp::create(b, DenseElementsAttr::get(type, b.getI32IntegerAttr(value)));
  };
  Value pairs = LLVM::BitcastOp::create(b, type, narrow);
  Value first = arith::ShLIOp::create(b, pairs, constantOf(16)),
        second = arith::AndIOp::create(b, pairs, constantOf(0xffff0000));
  SmallVector<int32_t> which;
  for (int64_t i = 0; i < size; ++i)
    which.push_back(static_cast<int32_t>(i / 2 + i % 2 * words));
  return LLVM::BitcastOp::create(b, VectorType::get({size}, b.getF32Type()),
                                 shuffle(b, first, second, which));
}
/// x / y to 2 ulp: the exact division calls a subroutine.
static Value divide(B &b, Value x, Value y) {
  return arith::DivFOp::create(b, x, y, arith::FastMathFlags::afn | arith::FastMathFlags::arcp);
}
static Value log2(B &b, Value x) {
  Value result = LLVM::PoisonOp::create(b, x.getType());
  for (int64_t i = 0; i < sizeOf(x); ++i) {
    // llvm.log2 has no selection on NVPTX.
    Value at = i32(b, i);
    Value y = LLVM::CallIntrinsicOp::create(b, b.getF32Type(),
                                            b.getStringAttr("llvm.nvvm.lg2.approx.ftz.f"),
                                            ValueRange{LLVM::ExtractElementOp::create(b, x, at)})
                  .getResult(0);
    result = LLVM::InsertElementOp::create(b, result, y, at);
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Layout
//===----------------------------------------------------------------------===//

static bool isRow(ArrayRef<int64_t> shape) { return shape[0] == 1 && shape[1] > 1; }

LogicalResult Fragments::check() {
  bool ok = true;
  // Where all warps take the same steps they may share rows, of which none has the sum then.
  auto rowsOf = [&](ArrayRef<int64_t> shape) {
    const auto grid = kernel.gridOf(shape[0]);
    const bool shares =
        kernel.inStep && grid.rows && shape[1] % (schedule::warpRows * grid.cols) == 0;
    return schedule::warpRows * (shares ? grid.rows : kernel.warps);
  };
  kernel.func.walk([&](Operation *op) {
    auto check = [&](Type type) {
      ArrayRef<int64_t> shape;
      Type element;
      if (auto fragment = dyn_cast<tile::FragType>(type))
        shape = fragment.getShape(), element = fragment.getElementType();
      else if (auto flight = dyn_cast<tile::FlightType>(type))
        shape = flight.getShape(), element = flight.getElementType();
      else
        return;
      bool isPacked = element.isF16() || element.isBF16();
      if (kernel.columns) {
        const bool fits = shape[1] == 1 ||
                          (shape[1] <= kernel.columns && shape[1] % schedule::combineColumns == 0);
        if (!fits || !(element.isF32() || (isPacked && shape[1] > 1))) {
          op->emitError() << "expected 1 or up to " << kernel.columns << " columns, a multiple of "
                          << schedule::combineColumns << ", of f32 or packed f16 or bf16, got "
                          << type;
          ok = false;
        }
      } else if (isRow(shape)) {
        if (shape[1] % (8 * kernel.rowParts()) || !element.isF32()) {
          op->emitError() << "expected a row of f32 in columns of 8, got " << type;
          ok = false;
        }
      } else if (shape[0] % rowsOf(shape) || (shape[1] != 1 && shape[1] % 8) ||
                 !(element.isF32() || (isPacked && shape[1] > 1))) {
        op->emitError() << "expected rows in 16 a warp (" << kernel.warps
                        << " warps), columns in 8 and f32 or packed f16 or bf16, got " << type;
        ok = false;
      } else if (isPacked && !kernel.columns &&
                 !isa<tile::ReadOp, tile::CastOp, tile::MmaOp, tile::StoreOp, tile::WriteOp>(op) &&
                 op->getDialect()->getNamespace() == tile::TileDialect::getDialectNamespace()) {
        op->emitError() << "packed fragments are only read, cast, multiplied and stored, got "
                        << type;
        ok = false;
      }
    };
    llvm::for_each(op->getResultTypes(), check);
    if (auto cast = dyn_cast<tile::CastOp>(op); cast && ok) {
      Type from = cast.getValue().getType().getElementType();
      Type to = cast.getResult().getType().getElementType();
      if (from != to && !(from.isF32() && !to.isF32())) {
        op->emitError() << "casts go from f32 to f16 or bf16, got " << from << " to " << to;
        ok = false;
      }
    }
  });
  return success(ok);
}

VectorType Fragments::typeOf(ArrayRef<int64_t> shape, Type element) const {
  if (!kernel.columns && isRow(shape))
    return VectorType::get({shape[1] / 4 / kernel.rowParts()}, element);
  const int64_t groups = kernel.columns ? 0 : groupsOf(shape[0]);
  if (shape[1] == 1)
    return VectorType::get({kernel.columns ? 1 : 2 * groups}, element);
  const int64_t cells = kernel.columns ? schedule::combineColumns
                                       : groups * shape[1] / kernel.gridOf(shape[0]).cols / 2;
  if (element.getIntOrFloatBitWidth() == 16)
    return VectorType::get({cells / 2}, IntegerType::get(element.getContext(), 32));
  return VectorType::get({cells}, element);
}

Value Fragments::rowOf(B &b, int64_t slot, int64_t rows, Value thread) {
  Value row = firstRowOfWarp(b, kernel, rows, thread);
  row = arith::AddIOp::create(b, row, arith::ShRUIOp::create(b, laneOf(b, thread), i32(b, 2)));
  return toIndex(b, arith::AddIOp::create(b, row, i32(b, slot / 2 * 16 + slot % 2 * 8)));
}

Value Fragments::broadcast(B &b, Value column, VectorType cells) {
  int64_t slots = sizeOf(column), total = cells.getNumElements();
  if (slots == total)
    return column;
  SmallVector<int32_t> which;
  for (int64_t i = 0; i < total; ++i)
    which.push_back(slots == 1 ? 0 : i / (2 * total / slots) * 2 + (i >> 1 & 1));
  return shuffle(b, column, column, which);
}

Value Fragments::broadcastRow(B &b, Value row, VectorType cells) {
  SmallVector<int32_t> which;
  const int64_t perGroup = 2 * sizeOf(row);
  for (int64_t i = 0; i < cells.getNumElements(); ++i)
    which.push_back(static_cast<int32_t>((i % perGroup >> 2) * 2 + (i & 1)));
  return shuffle(b, row, row, which);
}

Value Fragments::splat(B &b, VectorType type, Value scalar) {
  Attribute value;
  if (matchPattern(scalar, m_Constant(&value)))
    return arith::ConstantOp::create(b, DenseElementsAttr::get(type, value));
  Value one = LLVM::InsertElementOp::create(b, LLVM::PoisonOp::create(b, type), scalar, i32(b, 0));
  return shuffle(b, one, one, SmallVector<int32_t>(type.getNumElements(), 0));
}

//===----------------------------------------------------------------------===//
// Reductions
//===----------------------------------------------------------------------===//

static Value join(B &b, Value x, Value y, bool isMax) {
  if (isMax) // not arith's: arith-expand would make a comparison and a selection of it
    return LLVM::MaxNumOp::create(b, x, y);
  return arith::AddFOp::create(b, x, y);
}

Value Fragments::reduce(B &b, Value cells, int64_t groups, bool isMax) {
  // Two chains a row, as long as the row: a tree would keep half of the cells alive twice.
  int64_t perGroup = sizeOf(cells) / groups;
  Value result;
  for (int64_t g = 0; g < groups; ++g) {
    auto four = [&](int64_t at) {
      auto i = static_cast<int32_t>(g * perGroup + at);
      return shuffle(b, cells, cells, {i, i + 1, i + 2, i + 3});
    };
    Value chain = four(0);
    for (int64_t at = 4; at < perGroup; at += 4)
      chain = join(b, chain, four(at), isMax);
    Value rows = join(b, shuffle(b, chain, chain, {0, 2}), shuffle(b, chain, chain, {1, 3}), isMax);
    if (!result) {
      result = rows;
      continue;
    }
    SmallVector<int32_t> which = llvm::to_vector(llvm::seq<int32_t>(0, 2 * g));
    Value wide = shuffle(b, rows, rows, SmallVector<int32_t>(2 * g, 0)); // equal widths
    wide = g == 1 ? rows : wide;
    which.append({static_cast<int32_t>(2 * g), static_cast<int32_t>(2 * g + 1)});
    result = shuffle(b, result, wide, which);
  }
  return result;
}

Value Fragments::joinQuad(B &b, Value column, bool isMax) {
  for (int64_t mask : {1, 2})
    column = join(b, column, shuffleXor(b, column, mask), isMax);
  return column;
}

//===----------------------------------------------------------------------===//
// Elementwise
//===----------------------------------------------------------------------===//

Value Fragments::cast(B &b, tile::CastOp op, Value value) {
  Type element = op.getResult().getType().getElementType();
  if (element == op.getValue().getType().getElementType())
    return value;
  Value narrow = arith::TruncFOp::create(b, VectorType::get({sizeOf(value)}, element), value);
  return LLVM::BitcastOp::create(b, VectorType::get({sizeOf(value) / 2}, b.getI32Type()), narrow);
}

Value Fragments::map(B &b, tile::MapOp op, ValueRange inputs, function_ref<Value(Value)> remap) {
  auto type = typeOf(op.getResult().getType().getShape(), b.getF32Type());
  IRMapping mapping;
  Block &body = op.getBody().front();
  for (auto [arg, input, of] : llvm::zip(body.getArguments(), inputs, op.getInputs().getTypes())) {
    auto shape = ::llvm::cast<tile::FragType>(of).getShape();
    Value cells = input;
    if (!arg.getType().isF32()) // packed
      cells = LLVM::BitcastOp::create(b, VectorType::get(type.getShape(), arg.getType()), input);
    else if (isRow(shape) && !kernel.columns && shape != op.getResult().getType().getShape())
      cells = broadcastRow(b, input, type);
    else
      cells = broadcast(b, input, type);
    mapping.map(arg, cells);
  }
  auto operand = [&](Value value) {
    if (!mapping.contains(value))
      mapping.map(value, splat(b, VectorType::get(type.getShape(), value.getType()), remap(value)));
    return mapping.lookup(value);
  };
  for (Operation &inner : body.without_terminator()) {
    if (inner.hasTrait<OpTrait::ConstantLike>())
      continue; // spread where it is used
    SmallVector<Value> operands = llvm::map_to_vector(inner.getOperands(), operand);
    Value result;
    if (isa<math::Exp2Op>(inner)) {
      result = exp2(b, operands[0]);
    } else if (isa<math::ExpOp>(inner)) {
      result = exp2(b, arith::MulFOp::create(b, operands[0], constant(b, type, kLog2e)));
    } else if (isa<math::TanhOp>(inner)) {
      // 1 - 2 / (1 + e^2x) keeps f32's accuracy; tanh.approx has 2^-11.
      Value e = exp2(b, arith::MulFOp::create(b, operands[0], constant(b, type, 2 * kLog2e)));
      Value half =
          divide(b, constant(b, type, 2), arith::AddFOp::create(b, e, constant(b, type, 1)));
      result = arith::SubFOp::create(b, constant(b, type, 1), half);
    } else if (isa<arith::DivFOp>(inner)) {
      result = divide(b, operands[0], operands[1]);
    } else if (isa<math::LogOp>(inner)) {
      result = arith::MulFOp::create(b, log2(b, operands[0]), constant(b, type, kLn2));
    } else if (isa<math::FmaOp>(inner)) {
      result = fma(b, operands[0], operands[1], operands[2]);
    } else if (isa<arith::MaxNumFOp>(inner)) { // arith-expand would compare and select
      result = LLVM::MaxNumOp::create(b, operands[0], operands[1]);
    } else if (isa<arith::ExtFOp>(inner) && inner.getOperand(0).getType().isBF16()) {
      result = widen(b, operands[0]);
    } else {
      Operation *copy = inner.clone();
      copy->setOperands(operands);
      for (Value out : copy->getResults())
        out.setType(VectorType::get(type.getShape(), out.getType()));
      b.insert(copy);
      mapping.map(inner.getResults(), copy->getResults());
      continue;
    }
    mapping.map(inner.getResult(0), result);
  }
  return operand(body.getTerminator()->getOperand(0));
}

Value Fragments::rescale(B &b, Value o, Value alpha) {
  return arith::MulFOp::create(b, o, broadcast(b, alpha, ::llvm::cast<VectorType>(o.getType())));
}

Value Fragments::mask(B &b, tile::MaskOp op, tile::MaskOp::Adaptor in) {
  schedule::Mask mask = op.getMask().mask();
  Value value = in.getValue();
  auto type = ::llvm::cast<VectorType>(value.getType());
  const int64_t rows = op.getValue().getType().getShape()[0], slots = 2 * groupsOf(rows);
  const int64_t sharing = kernel.gridOf(rows).cols;
  auto columnType = VectorType::get({slots}, b.getI32Type());
  auto cellType = VectorType::get(type.getShape(), b.getI32Type());

  // A cell's column less what depends on the lane.
  SmallVector<int32_t> columns;
  int64_t perGroup = type.getNumElements() / (slots / 2);
  for (int64_t i = 0; i < type.getNumElements(); ++i)
    columns.push_back(columnOfCell(i % perGroup >> 2, sharing) + (i & 1));
  Value column = arith::ConstantOp::create(b, b.getI32VectorAttr(columns));
  column.setType(cellType);

  Value thread = kernel.anew(b);
  Value lanes =
      arith::ShLIOp::create(b, arith::AndIOp::create(b, laneOf(b, thread), i32(b, 3)), i32(b, 1));
  if (sharing > 1)
    lanes = arith::AddIOp::create(b, lanes, firstColumnOfWarp(b, kernel, rows, thread));
  IrInt first = IrInt(b, in.getCol0()) + IrInt(b, toIndex(b, lanes));
  Value lo = LLVM::PoisonOp::create(b, columnType), hi = lo, sink = lo;
  const bool trans = op.getTrans();
  for (int64_t slot = 0; slot < slots; ++slot) {
    IrInt row = IrInt(b, in.getRow0()) + IrInt(b, rowOf(b, slot, rows, thread));
    if (int64_t group = op.getGroup(); group > 1)
      row = floorDiv(row, group);
    IrInt lenQ(b, in.getLenQ()), lenK(b, in.getLenK());
    auto visible = trans ? schedule::queryInterval(mask, row, lenQ, lenK)
                         : schedule::rowInterval(mask, row, lenQ, lenK);
    auto insert = [&](Value into, IrInt limit) -> Value {
      return LLVM::InsertElementOp::create(b, into, toI32(b, (limit - first).get()), i32(b, slot));
    };
    lo = insert(lo, visible.lo);
    hi = insert(hi, visible.hi);
    sink = insert(sink, visible.sinkEnd);
  }
  auto compare = [&](arith::CmpIPredicate predicate, Value limit) -> Value {
    return arith::CmpIOp::create(b, predicate, column, broadcast(b, limit, cellType));
  };
  Value seen = compare(arith::CmpIPredicate::slt, hi);
  if (trans || mask.boundsLeft())
    seen = arith::AndIOp::create(b, seen, compare(arith::CmpIPredicate::sge, lo));
  if (!trans && mask.hasSinkTokens())
    seen = arith::OrIOp::create(b, seen, compare(arith::CmpIPredicate::slt, sink));
  return arith::SelectOp::create(b, seen, value, constant(b, type, kMaskValue));
}

//===----------------------------------------------------------------------===//
// Softmax
//===----------------------------------------------------------------------===//

/// True where a row has seen a key.
static Value hasKey(B &b, Value m) {
  return arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, m,
                               constant(b, m.getType(), kMaskValue / 2));
}

/// Whether `values` hold somewhere in the warp.
static Value anyOfWarp(B &b, Value values) {
  Value any;
  for (int64_t i = 0; i < sizeOf(values); ++i) {
    Value one = LLVM::ExtractElementOp::create(b, values, i32(b, i));
    any = any ? Value(arith::OrIOp::create(b, any, one)) : one;
  }
  return NVVM::VoteSyncOp::create(b, b.getI1Type(), i32(b, -1), any, NVVM::VoteSyncKind::any);
}

Value Fragments::rescaleRarely(B &b, Value o, Value alpha) {
  Value isNot1 =
      arith::CmpFOp::create(b, arith::CmpFPredicate::UNE, alpha, constant(b, alpha.getType(), 1));
  auto branch = scf::IfOp::create(b, o.getType(), anyOfWarp(b, isNot1), /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  scf::YieldOp::create(b, rescale(b, o, alpha));
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, o);
  return branch.getResult(0);
}

Value Fragments::hasOverflow(B &b, Value column) {
  Value size = LLVM::FAbsOp::create(b, column);
  Value isFinite =
      arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, size,
                            constant(b, column.getType(), std::numeric_limits<float>::infinity()));
  Value all;
  for (int64_t i = 0; i < sizeOf(column); ++i) {
    Value one = LLVM::ExtractElementOp::create(b, isFinite, i32(b, i));
    all = all ? Value(arith::AndIOp::create(b, all, one)) : one;
  }
  return arith::XOrIOp::create(b, all, arith::ConstantOp::create(b, b.getBoolAttr(true)));
}

/// The block's own sums tell whether an older maximum will do; only then is there anything to find.
Fragments::Step Fragments::deferredStep(B &b, tile::SoftmaxStepOp::Adaptor in) {
  Value s = in.getS(), m = in.getM(), l = in.getL();
  auto type = ::llvm::cast<VectorType>(s.getType());
  auto column = ::llvm::cast<VectorType>(m.getType());
  int64_t groups = column.getNumElements() / 2;

  Value c = arith::MulFOp::create(b, in.getScale(), constant(b, b.getF32Type(), kLog2e));
  Value cColumn = splat(b, column, c);
  Value shift = arith::NegFOp::create(b, arith::MulFOp::create(b, m, cColumn));
  Value p = exp2(b, fma(b, s, splat(b, type, c), broadcast(b, shift, type)));
  Value sum = reduce(b, p, groups, /*isMax=*/false);
  // Unordered: NaN and inf are too large as well.
  Value tooLarge = arith::CmpFOp::create(b, arith::CmpFPredicate::UGT, sum,
                                         constant(b, column, schedule::mostDeferredSum));
  Value lNext = arith::AddFOp::create(b, l, sum), one = constant(b, column, 1);
  auto branch =
      scf::IfOp::create(b, TypeRange{type, column, column, column}, anyOfWarp(b, tooLarge),
                        /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, ValueRange{p, m, lNext, one});
  b.setInsertionPointToStart(branch.thenBlock());
  Value top = joinQuad(b, reduce(b, p, groups, /*isMax=*/true), /*isMax=*/true);
  Value power = LLVM::FCeilOp::create(b, log2(b, LLVM::MaxNumOp::create(b, top, one)));
  Value mNext = arith::AddFOp::create(b, m, divide(b, power, cColumn));
  // From the rounded products, so that old and new p are measured alike.
  Value change = arith::AddFOp::create(b, arith::MulFOp::create(b, mNext, cColumn), shift);
  Value lost = arith::CmpFOp::create(b, arith::CmpFPredicate::UGT, power,
                                     constant(b, column, schedule::mostDeferredPower));
  Value alpha =
      arith::SelectOp::create(b, lost, constant(b, column, std::numeric_limits<float>::infinity()),
                              exp2(b, arith::NegFOp::create(b, change)));
  scf::YieldOp::create(
      b, ValueRange{rescale(b, p, alpha), mNext, arith::MulFOp::create(b, lNext, alpha), alpha});
  return {branch.getResult(0), branch.getResult(1), branch.getResult(2), branch.getResult(3)};
}

Fragments::Step Fragments::softmaxStep(B &b, tile::SoftmaxStepOp::Adaptor in) {
  if (in.getMode() == tile::SoftmaxMode::deferred)
    return deferredStep(b, in);
  Value s = in.getS(), m = in.getM(), l = in.getL();
  auto type = ::llvm::cast<VectorType>(s.getType());
  auto column = ::llvm::cast<VectorType>(m.getType());
  bool isFirst = in.getMode() == tile::SoftmaxMode::first;
  int64_t groups = column.getNumElements() / 2;

  Value c = arith::MulFOp::create(b, in.getScale(), constant(b, b.getF32Type(), kLog2e));
  Value cColumn = splat(b, column, c);
  Value mNext = joinQuad(b, reduce(b, s, groups, /*isMax=*/true), /*isMax=*/true);
  if (!isFirst)
    mNext = LLVM::MaxNumOp::create(b, m, mNext);
  // Measured against 0, the scores of a row without a key give p = 0.
  Value reference = arith::SelectOp::create(b, hasKey(b, mNext), mNext, constant(b, column, 0));
  Value shift = arith::NegFOp::create(b, arith::MulFOp::create(b, reference, cColumn));
  Value p = exp2(b, fma(b, s, splat(b, type, c), broadcast(b, shift, type)));
  Value sum = reduce(b, p, groups, /*isMax=*/false);
  if (isFirst)
    return {p, mNext, sum, constant(b, column, 1)};
  // The initial maximum is -inf, which a scale of 0 would turn into NaN.
  Value before = LLVM::MaxNumOp::create(b, m, constant(b, column, kMaskValue));
  // From the rounded products, so that old and new p are measured alike.
  Value alpha = exp2(b, arith::AddFOp::create(b, arith::MulFOp::create(b, before, cColumn), shift));
  return {p, mNext, fma(b, alpha, l, sum), alpha};
}

Fragments::Final Fragments::finalize(B &b, tile::FinalizeOp op, tile::FinalizeOp::Adaptor in) {
  Value o = in.getO(), m = in.getM(), l = in.getL();
  auto column = ::llvm::cast<VectorType>(m.getType());
  Value c = arith::MulFOp::create(b, in.getScale(), constant(b, b.getF32Type(), kLog2e));
  Value zero = constant(b, column, 0), one = constant(b, column, 1);
  Value least = constant(b, column, kMaskValue);

  // In log2 units: the denominator is total * 2^top, o is measured against 2^top / factor.
  Value top = arith::MulFOp::create(b, m, splat(b, column, c));
  Value total = joinQuad(b, l, /*isMax=*/false);
  Value factor = one, logits = constant(b, column, -std::numeric_limits<float>::infinity());
  if (op.getSink()) {
    auto head = arith::MulIOp::create(
        b, in.getHead(), arith::ConstantIndexOp::create(b, static_cast<int64_t>(op.getGroup())));
    for (int64_t slot = 0; slot < column.getNumElements(); ++slot) {
      IrInt which(b, head);
      if (int64_t group = op.getGroup(); group > 1)
        which = which + remainder(IrInt(b, in.getRow0()) +
                                      IrInt(b, rowOf(b, slot, op.getO().getType().getShape()[0])),
                                  group);
      logits = LLVM::InsertElementOp::create(b, logits, kernel.logit(b, op.getSink(), which.get()),
                                             i32(b, slot));
    }
    // A logit that f32 holds may be past it as a power of two.
    Value sink =
        LLVM::MinimumOp::create(b, arith::MulFOp::create(b, logits, constant(b, column, kLog2e)),
                                constant(b, column, std::numeric_limits<float>::max()));
    Value seen = arith::SelectOp::create(b, hasKey(b, m), top, least);
    top = LLVM::MaxNumOp::create(b, seen, LLVM::MaxNumOp::create(b, sink, least));
    factor = exp2(b, arith::SubFOp::create(b, seen, top));
    total = fma(b, total, factor, exp2(b, arith::SubFOp::create(b, sink, top)));
  }
  Value isEmpty = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, total, zero);
  Value inverse = divide(b, factor, arith::SelectOp::create(b, isEmpty, one, total));
  Value lse = arith::MulFOp::create(b, arith::AddFOp::create(b, top, log2(b, total)),
                                    constant(b, column, kLn2));
  if (op.getSink())
    lse = LLVM::MaximumOp::create(b, lse, logits);
  // Without a key the sink is all there is, also where it is below the mask value.
  return {rescale(b, o, inverse), arith::SelectOp::create(b, isEmpty, logits, lse)};
}

} // namespace flash::nvvm
