//===- Kernel.cpp - a kernel under construction ---------------------------===//
#include "Kernel.h"
#include "../KernelRuns.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include <cmath>

using namespace mlir;
using namespace flash;

Scores::Scores(Kernel &kernel, ProblemOpInterface op) : k(kernel) {
  ImplicitLocOpBuilder &b = k.b;
  double headSize = cast<ShapedType>(op.getQ().getType()).getShape().back();
  scale = softmaxScale =
      op.getScale() ? k.scalar("scale", op.getScale()) : k.f32(1.0 / std::sqrt(headSize));
  if (!op.getSoftcap())
    return;
  softcap = k.scalar("softcap", op.getSoftcap());
  softmaxScale = k.f32(1);
  capSlope = arith::DivFOp::create(b, arith::MulFOp::create(b, scale, k.f32(2 * log2e)), softcap);
  capTwice = arith::MulFOp::create(b, softcap, k.f32(2));
}

/// c * tanh(s * scale / c) = c - 2c / (1 + exp2(s * scale * 2 log2(e) / c)): exact to f32 where the
/// hardware's tanh is not.
Value Scores::capped(Value s, int64_t rows, int64_t cols) {
  if (!softcap)
    return s;
  return k.map(s, rows, cols, [&](ImplicitLocOpBuilder &b, ValueRange x) -> Value {
    Value one = arith::ConstantOp::create(b, b.getF32FloatAttr(1));
    Value power = math::Exp2Op::create(b, arith::MulFOp::create(b, x[0], capSlope));
    Value part = arith::DivFOp::create(b, capTwice, arith::AddFOp::create(b, power, one));
    return arith::SubFOp::create(b, softcap, part);
  });
}

Kernel::Kernel(func::FuncOp anchor, StringRef name, Operation *source, PlanAttr plan)
    : b(source->getLoc(), anchor->getContext()) {
  b.setInsertionPoint(anchor);
  func = func::FuncOp::create(b, name, b.getFunctionType({}, {}));
  func->setAttr("flash.kernel", b.getUnitAttr());
  if (Attribute target = source->getAttr("target"))
    func->setAttr("flash.target", target);
  func->setAttr("flash.plan", plan);
  func->setAttr(sourceName, b.getStringAttr(source->getName().stripDialect()));
  b.setInsertionPointToStart(func.addEntryBlock());
}

Value Kernel::argument(StringRef name, Type type, bool keepLast, bool pages) {
  if (auto shaped = dyn_cast<ShapedType>(type)) {
    SmallVector<int64_t> sizes(shaped.getRank(), ShapedType::kDynamic), strides(sizes);
    if (keepLast) {
      sizes.back() = shaped.getShape().back();
      strides.back() = 1;
    }
    if (pages)
      sizes[1] = shaped.getDimSize(1);
    type = MemRefType::get(sizes, shaped.getElementType(),
                           StridedLayoutAttr::get(b.getContext(), ShapedType::kDynamic, strides));
  }
  unsigned index = func.getNumArguments();
  (void)func.insertArgument(index, type,
                            b.getDictionaryAttr(b.getNamedAttr("flash.arg", b.getStringAttr(name))),
                            b.getLoc());
  return func.getArgument(index);
}

Value Kernel::table(StringRef name, Value operand) {
  return operand ? table(name, operand.getType()) : Value();
}

Tables Kernel::keyTables(AttentionOp op) {
  return {.cuSeqlens = table("cu_seqlens_k", op.getCuSeqlensK()),
          .seqused = table("seqused_k", op.getSequsedK()),
          .appended = table("appended", op.getAppended()),
          .pageTable = table("page_table", op.getPageTable()),
          .batchIdx = table("kv_batch_idx", op.getKvBatchIdx()),
          .leftpad = table("leftpad_k", op.getLeftpadK())};
}

Value Kernel::table(StringRef name, Type type) {
  auto shaped = dyn_cast<ShapedType>(type);
  if (!shaped)
    return argument(name, type);
  SmallVector<int64_t> sizes(shaped.getRank(), ShapedType::kDynamic), strides(sizes);
  strides.back() = 1;
  unsigned index = func.getNumArguments();
  auto layout = StridedLayoutAttr::get(b.getContext(), ShapedType::kDynamic, strides);
  (void)func.insertArgument(index, MemRefType::get(sizes, shaped.getElementType(), layout),
                            b.getDictionaryAttr(b.getNamedAttr("flash.arg", b.getStringAttr(name))),
                            b.getLoc());
  return func.getArgument(index);
}

Value Kernel::scalar(StringRef name, Value operand) {
  if (auto constant = operand.getDefiningOp<arith::ConstantOp>())
    return b.clone(*constant)->getResult(0);
  return argument(name, operand.getType());
}

Value Kernel::dim(Value memref, int64_t dimension) {
  return memref::DimOp::create(b, memref, dimension);
}

Value Kernel::view(Value memref, int64_t cols, int64_t group, bool partial, const Tables &t,
                   int64_t padded, bool cells) {
  Type element = cast<MemRefType>(memref.getType()).getElementType();
  return tile::ViewOp::create(b, tile::ViewType::get(b.getContext(), {cols}, element), memref,
                              t.cuSeqlens, t.seqused, t.appended, t.pageTable, t.batchIdx,
                              t.leftpad, group, partial, padded, /*once=*/false, cells);
}

Value Kernel::ring(StringRef name, int64_t rows, int64_t cols, Type element, Value with,
                   int64_t slots) {
  return tile::RingOp::create(b, tile::RingType::get(b.getContext(), {slots, rows, cols}, element),
                              name, with);
}

Value Kernel::splat(Value scalar, int64_t rows, int64_t cols) {
  return tile::SplatOp::create(b, frag(rows, cols, scalar.getType()), scalar);
}

Value Kernel::wait(Value ring, Value it) {
  auto type = mlir::cast<tile::RingType>(ring.getType());
  return tile::WaitOp::create(
      b, tile::TileType::get(b.getContext(), type.getShape().drop_front(), type.getElementType()),
      ring, it);
}

Value Kernel::cast(Value f, Type element) {
  auto type = mlir::cast<tile::FragType>(f.getType());
  if (type.getElementType() == element)
    return f;
  return tile::CastOp::create(b, frag(type.getShape()[0], type.getShape()[1], element), f);
}

Value Kernel::ratioOf(Value q, Value k) {
  auto headsOf = [&](Value x) { return dim(x, mlir::cast<MemRefType>(x.getType()).getRank() - 2); };
  // Without heads there is no work, but the ratio is computed all the same.
  return arith::DivUIOp::create(b, headsOf(q), arith::MaxUIOp::create(b, headsOf(k), index(1)));
}

Value Kernel::packedTiles(Value rows, int64_t tileRows, Value batch) {
  Value whole = arith::DivUIOp::create(b, rows, index(tileRows));
  Value any = arith::MinUIOp::create(b, batch, index(1)); // without sequences no tile
  return arith::MulIOp::create(b, arith::AddIOp::create(b, whole, batch), any);
}

Value Kernel::map(ValueRange inputs, int64_t rows, int64_t cols,
                  function_ref<Value(ImplicitLocOpBuilder &, ValueRange)> body) {
  auto map = tile::MapOp::create(b, frag(rows, cols, b.getF32Type()), inputs);
  OpBuilder::InsertionGuard guard(b);
  Block *block = b.createBlock(&map.getBody());
  for (Value input : inputs)
    block->addArgument(cast<tile::FragType>(input.getType()).getElementType(), b.getLoc());
  Value result = body(b, block->getArguments());
  tile::YieldOp::create(b, result);
  return map.getResult();
}

void Kernel::forTiles(Value rows, int64_t tileRows, Value heads, Value batch,
                      function_ref<void(Value, Value, Value)> body, Value packed) {
  Value tiles = packed ? packedTiles(rows, tileRows, batch)
                       : Value(arith::CeilDivUIOp::create(b, rows, index(tileRows)));
  auto work = tile::ForWorkOp::create(
      b, TypeRange(), b.getStringAttr(packed ? "varlen_dynamic" : "single"), tiles, heads, batch,
      index(1), packed ? index(1) : Value(), packed, Value(), Value(), ValueRange(), UnitAttr(),
      packed ? b.getI64IntegerAttr(tileRows) : IntegerAttr(), b.getI64IntegerAttr(1));
  Block *block = b.createBlock(&work.getBody());
  block->addArguments(SmallVector<Type>(4, b.getIndexType()), SmallVector<Location>(4, b.getLoc()));
  body(block->getArgument(0), block->getArgument(1), block->getArgument(2));
  tile::YieldOp::create(b, ValueRange());
}

void Kernel::finish() {
  b.setInsertionPointToEnd(&func.getBody().front());
  func::ReturnOp::create(b);
}
