//===- Fragments.cpp - what is done element by element, or row by row -----===//
//
// Sums of a row are taken over 16 lanes and then over the lanes, the same way in every kernel. The
// factor of what was summed before is 1 to the bit where the maximum stays, so a block that the
// mask hides changes nothing, and leaving it out changes nothing.
//
//===----------------------------------------------------------------------===//
#include "Loops.h"
#include "flash/Schedule/Mask.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace flash;
using namespace flash::loops;
using namespace flash::tile;

static constexpr float kInfinity = std::numeric_limits<float>::infinity();
static constexpr float kLog2e = 1.44269504088896341f, kLn2 = 0.693147180559945309f;
static const float kMasked = -std::ldexp(1.0f, 100);

/// 2^x in f32 to 1 ulp for x <= 127, 0 below the normal numbers; of a vector or a scalar. Written
/// out, because a call for each lane would cost more than the products.
Value Lowering::exp2(Value x) {
  // (2^f - 1) / f on [-1/2, 1/2], interpolated at Chebyshev's nodes.
  static constexpr float kTerms[] = {0.00015453163359779865f,
                                     0.0013390863314270973f,
                                     0.009618083015084267f,
                                     0.055503569543361664f,
                                     0.24022650718688965f,
                                     0.6931471824645996f,
                                     1.0f};
  Type type = x.getType();
  auto integers = [&](int32_t value) -> Value {
    Type i32 = b.getI32Type();
    Attribute attr = b.getI32IntegerAttr(value);
    if (auto vector = dyn_cast<VectorType>(type))
      return arith::ConstantOp::create(b, cast<TypedAttr>(cast<Attribute>(DenseElementsAttr::get(
                                              cast<ShapedType>(vector.clone(i32)), attr))));
    return arith::ConstantOp::create(b, cast<TypedAttr>(attr));
  };
  Type bitsType =
      isa<VectorType>(type) ? cast<VectorType>(type).clone(b.getI32Type()) : Type(b.getI32Type());
  // Adding 1.5 * 2^23 rounds to an integer, which then stands in the low bits.
  Value magic = real(type, 12582912.0f);
  Value shifted = arith::AddFOp::create(b, x, magic);
  Value rest = arith::SubFOp::create(b, x, arith::SubFOp::create(b, shifted, magic));
  Value sum = real(type, kTerms[0]);
  for (float term : llvm::drop_begin(kTerms))
    sum = math::FmaOp::create(b, sum, rest, real(type, term));
  Value bits = arith::BitcastOp::create(b, bitsType, shifted);
  bits = arith::ShLIOp::create(b, arith::AddIOp::create(b, bits, integers(127)), integers(23));
  Value result = arith::MulFOp::create(b, sum, arith::BitcastOp::create(b, type, bits));
  Value tiny = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, x, real(type, -126.0f));
  Value huge = arith::CmpFOp::create(b, arith::CmpFPredicate::OGE, x, real(type, 127.5f));
  result = arith::SelectOp::create(b, huge, real(type, kInfinity), result);
  return arith::SelectOp::create(b, tiny, real(type, 0.0f), result);
}

/// One value of a vector's lanes, halves joined until one is left.
Value Lowering::across(Value vector, function_ref<Value(Value, Value)> join) {
  for (int64_t n = cast<VectorType>(vector.getType()).getDimSize(0); n > 1; n /= 2) {
    auto half = [&](int64_t from) -> Value {
      return vector::ExtractStridedSliceOp::create(b, vector, ArrayRef<int64_t>{from},
                                                   ArrayRef<int64_t>{n / 2}, ArrayRef<int64_t>{1});
    };
    vector = join(half(0), half(n / 2));
  }
  return vector::ExtractOp::create(b, vector, ArrayRef<int64_t>{0});
}

void Lowering::lower(SplatOp op) {
  Value value = at(op.getValue());
  if (!value.getType().isF32())
    value = arith::ExtFOp::create(b, b.getF32Type(), value);
  elementwise(bufferFor(op.getResult(), {}),
              [&](Value, Value, int64_t lanes) { return splat(value, lanes); });
}

void Lowering::lower(CastOp op) {
  Value from = at(op.getValue()), to = bufferFor(op.getResult(), op.getValue());
  Type element = op.getResult().getType().getElementType();
  if (element.isF32()) {
    if (from != to)
      copy(from, to);
    return;
  }
  elementwise(to, [&](Value row, Value col, int64_t lanes) {
    Value value = vector::LoadOp::create(b, vectorOf(lanes), from, ValueRange{row, col});
    value = arith::TruncFOp::create(b, VectorType::get({lanes}, element), value);
    return arith::ExtFOp::create(b, vectorOf(lanes), value).getResult();
  });
}

LogicalResult Lowering::lower(MapOp op) {
  Block &body = op.getBody().front();
  for (Operation &inner : body.without_terminator())
    if (!llvm::all_of(inner.getResultTypes(),
                      [](Type type) { return type.isIntOrIndexOrFloat(); }) ||
        (inner.getNumOperands() && !OpTrait::hasElementwiseMappableTraits(&inner)))
      return inner.emitOpError("has no vector form, which flash_tile.map needs as loops");
  int64_t rows = op.getResult().getType().getShape()[0];
  int64_t cols = op.getResult().getType().getShape()[1];
  SmallVector<Value> from;
  for (Value input : op.getInputs())
    from.push_back(at(input));
  elementwise(bufferFor(op.getResult(), op.getInputs()), [&](Value row, Value col, int64_t lanes) {
    IRMapping inner(map);
    auto vectorOfType = [&](Type type) { return VectorType::get({lanes}, type); };
    for (auto [buffer, argument] : llvm::zip(from, body.getArguments())) {
      ArrayRef<int64_t> shape = cast<MemRefType>(buffer.getType()).getShape();
      Value from = shape[0] == rows ? row : index(0); // one row stands for all
      Value value = shape[1] != cols
                        ? splat(rowValue(buffer, from), lanes)
                        : vector::LoadOp::create(b, vectorOf(lanes), buffer, ValueRange{from, col})
                              .getResult();
      if (!argument.getType().isF32()) // exact: the buffer holds rounded values
        value = arith::TruncFOp::create(b, vectorOfType(argument.getType()), value);
      inner.map(argument, value);
    }
    auto wide = [&](Value original) {
      Value value = inner.lookup(original);
      return isa<VectorType>(value.getType()) ? value : splat(value, lanes);
    };
    for (Operation &op : body.without_terminator()) {
      for (Value operand : op.getOperands())
        inner.map(operand, wide(operand));
      if (auto power = dyn_cast<math::Exp2Op>(op); power && power.getType().isF32()) {
        inner.map(power.getResult(), exp2(inner.lookup(power.getOperand())));
        continue;
      }
      Operation *made = b.clone(op, inner);
      if (op.getNumOperands())
        for (Value result : made->getResults())
          result.setType(vectorOfType(result.getType()));
    }
    Value result = wide(body.getTerminator()->getOperand(0));
    if (!cast<VectorType>(result.getType()).getElementType().isF32())
      result = arith::ExtFOp::create(b, vectorOf(lanes), result);
    return result;
  });
  return success();
}

/// Rows are summed as softmax_step sums them, and of all rows one behind the other.
void Lowering::lower(SumOp op) {
  Value from = at(op.getValue()), to = bufferFor(op.getResult(), {});
  ArrayRef<int64_t> shape = op.getValue().getType().getShape();
  int64_t lanes = lanesOf(shape[1]);
  auto plus = [&](Value x, Value y) -> Value { return arith::AddFOp::create(b, x, y); };
  auto sumOver = [&](int64_t size, int64_t step, Value init,
                     function_ref<Value(Value)> term) -> Value {
    auto made = scf::ForOp::create(b, index(0), index(size), index(step), init);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(made.getBody());
    Value sum = plus(made.getRegionIterArg(0), term(made.getInductionVar()));
    scf::YieldOp::create(b, sum);
    return made.getResult(0);
  };
  auto ofRow = [&](Value row) {
    return across(sumOver(shape[1], lanes, real(vectorOf(lanes), 0),
                          [&](Value col) -> Value {
                            return vector::LoadOp::create(b, vectorOf(lanes), from,
                                                          ValueRange{row, col});
                          }),
                  plus);
  };
  if (op.getResult().getType().getShape()[0] == shape[0]) {
    loop(shape[0], 1,
         [&](Value row) { memref::StoreOp::create(b, ofRow(row), to, ValueRange{row, index(0)}); });
    return;
  }
  Value all = sumOver(shape[0], 1, real(b.getF32Type(), 0), ofRow);
  memref::StoreOp::create(b, all, to, ValueRange{index(0), index(0)});
}

void Lowering::lower(SplitRowsOp op) {
  const int64_t parts = op.parts();
  for (auto [i, result] : llvm::enumerate(op.getResults())) {
    Value from = at(op.getValues()[i / parts]), to = bufferFor(result, {});
    ArrayRef<int64_t> shape = cast<FragType>(result.getType()).getShape();
    const int64_t first = i % parts * shape[0];
    elementwise(to, [&](Value row, Value col, int64_t lanes) -> Value {
      Value source = (toInt(row) + first).get();
      return vector::LoadOp::create(b, vectorOf(lanes), from, ValueRange{source, col});
    });
  }
}

void Lowering::lower(MaskOp op) {
  Value from = at(op.getValue()), to = bufferFor(op.getResult(), op.getValue());
  if (from != to)
    copy(from, to);
  ArrayRef<int64_t> shape = op.getResult().getType().getShape();
  const bool trans = op.getTrans(); // then queries are columns
  const int64_t queries = shape[trans], keys = shape[!trans];
  IrInt query0 = toInt(at(trans ? op.getCol0() : op.getRow0())),
        key0 = toInt(at(trans ? op.getRow0() : op.getCol0())), lenQ = toInt(at(op.getLenQ()));
  loop(queries, 1, [&](Value q) {
    IrInt query = query0 + toInt(q), none = toInt(index(0)), all = toInt(index(keys));
    auto seen = schedule::rowInterval(op.getMask().mask(), floorDiv(query, op.getGroup()), lenQ,
                                      toInt(at(op.getLenK())));
    auto here = [&](IrInt key) { return schedule::clamp(key - key0, none, all); };
    auto hide = [&](IrInt begin, IrInt end) {
      loop(begin.get(), end.get(), 1, [&](Value k) {
        memref::StoreOp::create(b, real(b.getF32Type(), kMasked), to,
                                trans ? ValueRange{k, q} : ValueRange{q, k});
      });
    };
    IrInt sinkEnd = here(seen.sinkEnd), lo = here(seen.lo), hi = here(seen.hi);
    if (trans) { // such a row is no query of this sequence
      auto isQuery = lessThan(query, lenQ);
      sinkEnd = select(isQuery, sinkEnd, none);
      hi = select(isQuery, hi, none);
    }
    hide(sinkEnd, lo);
    hide(max(sinkEnd, hi), all);
  });
}

void Lowering::lower(SoftmaxStepOp op) {
  bool first = op.getMode() == SoftmaxMode::first, deferred = op.getMode() == SoftmaxMode::deferred;
  ArrayRef<int64_t> shape = op.getS().getType().getShape();
  int64_t lanes = lanesOf(shape[1]);
  VectorType vector = vectorOf(lanes);
  Type f32 = b.getF32Type();
  Value s = at(op.getS()), m = at(op.getM()), l = at(op.getL());
  Value p = bufferFor(op.getP(), op.getS());
  Value mNext = bufferFor(op.getMNext(), op.getM()), lNext = bufferFor(op.getLNext(), op.getL());
  Value alpha = bufferFor(op.getAlpha(), {});
  Value c = arith::MulFOp::create(b, at(op.getScale()), real(f32, kLog2e));
  auto larger = [&](Value x, Value y) -> Value {
    Value less = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, x, y);
    return arith::SelectOp::create(b, less, x, y);
  };
  auto plus = [&](Value x, Value y) -> Value { return arith::AddFOp::create(b, x, y); };
  auto overRow = [&](Value init, function_ref<Value(Value col, Value sum)> step) -> Value {
    auto made = scf::ForOp::create(b, index(0), index(shape[1]), index(lanes), init);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(made.getBody());
    scf::YieldOp::create(b, step(made.getInductionVar(), made.getRegionIterArg(0)));
    return made.getResult(0);
  };
  loop(shape[0], 1, [&](Value row) {
    auto elements = [&](Value col) -> Value {
      return vector::LoadOp::create(b, vector, s, ValueRange{row, col});
    };
    Value before = first ? Value() : rowValue(m, row), sum = first ? Value() : rowValue(l, row);
    Value top = before;
    if (!deferred) {
      top = overRow(real(vector, -kInfinity),
                    [&](Value col, Value sum) { return larger(elements(col), sum); });
      top = across(top, larger);
      if (!first)
        top = larger(before, top);
    }
    // A row that has seen no key is measured against 0: its p = exp2(c * masked) is 0.
    Value dead = arith::CmpFOp::create(b, arith::CmpFPredicate::OLE, top, real(f32, kMasked / 2));
    Value zero = real(f32, 0);
    Value level = arith::SelectOp::create(b, dead, zero, arith::MulFOp::create(b, c, top));
    Value negative = splat(arith::NegFOp::create(b, level), lanes), factor = splat(c, lanes);
    Value sums = overRow(real(vector, 0), [&](Value col, Value sum) {
      Value value = exp2(math::FmaOp::create(b, elements(col), factor, negative));
      vector::StoreOp::create(b, value, p, ValueRange{row, col});
      return plus(value, sum);
    });
    Value total = across(sums, plus), scale = real(f32, 1);
    if (deferred) {
      // Almost always 2^0 of it all.
      Value largest =
          across(overRow(real(vector, 0),
                         [&](Value col, Value sum) {
                           Value value = vector::LoadOp::create(b, vector, p, ValueRange{row, col});
                           return larger(value, sum);
                         }),
                 larger);
      Value tooLarge = arith::CmpFOp::create(b, arith::CmpFPredicate::UGT, total,
                                             real(f32, schedule::mostDeferredSum));
      Value power = math::CeilOp::create(b, math::Log2Op::create(b, larger(largest, real(f32, 1))));
      power = arith::SelectOp::create(b, tooLarge, power, zero);
      top = arith::AddFOp::create(b, before, arith::DivFOp::create(b, power, c));
      // From the rounded products, so that old and new p are measured alike.
      scale = exp2(arith::SubFOp::create(b, level, arith::MulFOp::create(b, c, top)));
      Value lost = arith::CmpFOp::create(b, arith::CmpFPredicate::UGT, power,
                                         real(f32, schedule::mostDeferredPower));
      scale = arith::SelectOp::create(b, lost, real(f32, kInfinity), scale);
      scale = arith::SelectOp::create(b, tooLarge, scale, real(f32, 1));
      total = arith::MulFOp::create(b, scale, plus(sum, total));
      loop(index(0), index(shape[1]), lanes, [&](Value col) {
        Value value = vector::LoadOp::create(b, vector, p, ValueRange{row, col});
        vector::StoreOp::create(b, arith::MulFOp::create(b, value, splat(scale, lanes)), p,
                                ValueRange{row, col});
      });
    } else if (!first) {
      scale = exp2(arith::SubFOp::create(b, arith::MulFOp::create(b, c, before), level));
      total = plus(arith::MulFOp::create(b, scale, sum), total);
    }
    Value place[] = {row, index(0)};
    memref::StoreOp::create(b, top, mNext, place);
    memref::StoreOp::create(b, total, lNext, place);
    memref::StoreOp::create(b, scale, alpha, place);
  });
}

void Lowering::lower(RescaleOp op) {
  Value from = at(op.getO()), alpha = at(op.getAlpha());
  elementwise(bufferFor(op.getResult(), op.getO()), [&](Value row, Value col, int64_t lanes) {
    Value value = vector::LoadOp::create(b, vectorOf(lanes), from, ValueRange{row, col});
    return arith::MulFOp::create(b, value, splat(rowValue(alpha, row), lanes)).getResult();
  });
}

void Lowering::lower(OverflowedOp op) {
  Value values = at(op.getValue());
  int64_t rows = op.getValue().getType().getShape()[0];
  Value no = arith::ConstantOp::create(b, b.getBoolAttr(false));
  auto made = scf::ForOp::create(b, index(0), index(rows), index(1), no);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(made.getBody());
  Value size = math::AbsFOp::create(b, rowValue(values, made.getInductionVar()));
  Value isNot =
      arith::CmpFOp::create(b, arith::CmpFPredicate::UGE, size, real(b.getF32Type(), kInfinity));
  scf::YieldOp::create(b, ValueRange(arith::OrIOp::create(b, made.getRegionIterArg(0), isNot)));
  map.map(op.getResult(), made.getResult(0));
}

void Lowering::lower(FinalizeOp op) {
  int64_t rows = op.getM().getType().getShape()[0];
  Type f32 = b.getF32Type();
  Value o = at(op.getO()), m = at(op.getM()), l = at(op.getL());
  Value lse = bufferFor(op.getLse(), {}), inverse = newBuffer(rows, 1);
  Value c = arith::MulFOp::create(b, at(op.getScale()), real(f32, kLog2e));
  Value zero = real(f32, 0), minus = real(f32, -kInfinity);
  loop(rows, 1, [&](Value row) {
    Value place[] = {row, index(0)};
    Value sum = rowValue(l, row), scale = real(f32, 1);
    Value level = arith::MulFOp::create(b, c, rowValue(m, row)), least = minus;
    if (op.getSink()) {
      IrInt r = toInt(at(op.getRow0())) + toInt(row);
      IrInt head = toInt(at(op.getHead())) * op.getGroup() + remainder(r, op.getGroup());
      least = memref::LoadOp::create(b, at(op.getSink()), head.get());
      // A logit that f32 holds may be past it as a power of two.
      Value logit = arith::MinimumFOp::create(b, arith::MulFOp::create(b, least, real(f32, kLog2e)),
                                              real(f32, std::numeric_limits<float>::max()));
      // Rows past the sequence of a packed tile have heads as well, so the load is always inside.
      Value none = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, sum, zero);
      level = arith::SelectOp::create(b, none, minus, level);
      // Not below the mask value: a sink of -inf under a row without a key is no sink.
      Value top = arith::MaximumFOp::create(b, arith::MaximumFOp::create(b, level, logit),
                                            real(f32, kMasked));
      scale = exp2(arith::SubFOp::create(b, level, top));
      sum = arith::AddFOp::create(b, arith::MulFOp::create(b, scale, sum),
                                  exp2(arith::SubFOp::create(b, logit, top)));
      level = top;
    }
    Value empty = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, sum, zero);
    Value log = arith::AddFOp::create(b, level, math::Log2Op::create(b, sum));
    log = arith::MaximumFOp::create(b, arith::MulFOp::create(b, log, real(f32, kLn2)), least);
    // Without a key the sink is all there is, also where it is below the mask value.
    memref::StoreOp::create(b, arith::SelectOp::create(b, empty, least, log), lse, place);
    Value ratio = arith::DivFOp::create(b, scale, sum);
    memref::StoreOp::create(b, arith::SelectOp::create(b, empty, zero, ratio), inverse, place);
  });
  elementwise(bufferFor(op.getResult(), op.getO()), [&](Value row, Value col, int64_t lanes) {
    Value value = vector::LoadOp::create(b, vectorOf(lanes), o, ValueRange{row, col});
    return arith::MulFOp::create(b, value, splat(rowValue(inverse, row), lanes)).getResult();
  });
}

void Lowering::lower(RotateOp op) {
  Value from = at(op.getValue()), to = bufferFor(op.getResult(), op.getValue());
  if (from != to)
    copy(from, to);
  Type f32 = b.getF32Type(), element = op.getValue().getType().getElementType();
  int64_t pairs = cast<MemRefType>(op.getCos().getType()).getDimSize(1);
  auto rounded = [&](Value value) -> Value {
    if (element.isF32())
      return value;
    Value narrow = arith::TruncFOp::create(b, element, value);
    return arith::ExtFOp::create(b, f32, narrow);
  };
  loop(op.getValue().getType().getShape()[0], 1, [&](Value row) {
    IrInt position = toInt(at(op.getPosition()));
    if (!op.getFixed())
      position = position + toInt(row);
    IrInt positions = toInt(memref::DimOp::create(b, at(op.getCos()), 0));
    auto known = scf::IfOp::create(b, lessThan(position, positions).get(), false);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(known.thenBlock());
    loop(pairs, 1, [&](Value i) {
      auto angle = [&](Value table) -> Value {
        Value value = memref::LoadOp::create(b, at(table), ValueRange{position.get(), i});
        return element.isF32() ? value : arith::ExtFOp::create(b, f32, value).getResult();
      };
      IrInt first = op.getInterleaved() ? toInt(i) * 2 : toInt(i);
      Value places[2][2] = {{row, first.get()},
                            {row, (first + (op.getInterleaved() ? 1 : pairs)).get()}};
      Value x = memref::LoadOp::create(b, to, places[0]), c = angle(op.getCos());
      Value y = memref::LoadOp::create(b, to, places[1]), s = angle(op.getSin());
      auto times = [&](Value a, Value d) -> Value { return arith::MulFOp::create(b, a, d); };
      Value turnedX = arith::SubFOp::create(b, times(x, c), times(y, s));
      Value turnedY = arith::AddFOp::create(b, times(x, s), times(y, c));
      memref::StoreOp::create(b, rounded(turnedX), to, places[0]);
      memref::StoreOp::create(b, rounded(turnedY), to, places[1]);
    });
  });
}
