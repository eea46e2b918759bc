//===- Kernel.cpp - a kernel under construction ---------------------------===//
#include "Kernel.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace flash;

Kernel::Kernel(func::FuncOp anchor, StringRef name, Operation *source, PlanAttr plan)
    : b(source->getLoc(), anchor->getContext()) {
  b.setInsertionPoint(anchor);
  func = func::FuncOp::create(b, name, b.getFunctionType({}, {}));
  func->setAttr("flash.kernel", b.getUnitAttr());
  if (Attribute target = source->getAttr("target"))
    func->setAttr("flash.target", target);
  func->setAttr("flash.plan", plan);
  func->setAttr("flash.op", b.getStringAttr(source->getName().stripDialect()));
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
  (void)func.insertArgument(index, type, b.getDictionaryAttr(b.getNamedAttr("flash.arg", b.getStringAttr(name))),
                            b.getLoc());
  return func.getArgument(index);
}

Value Kernel::table(StringRef name, Value operand) {
  if (!operand)
    return {};
  auto shaped = dyn_cast<ShapedType>(operand.getType());
  if (!shaped)
    return argument(name, operand.getType());
  SmallVector<int64_t> sizes(shaped.getRank(), ShapedType::kDynamic), strides(sizes);
  strides.back() = 1;
  unsigned index = func.getNumArguments();
  auto layout = StridedLayoutAttr::get(b.getContext(), ShapedType::kDynamic, strides);
  (void)func.insertArgument(index, MemRefType::get(sizes, shaped.getElementType(), layout),
                            b.getDictionaryAttr(b.getNamedAttr("flash.arg", b.getStringAttr(name))), b.getLoc());
  return func.getArgument(index);
}

Value Kernel::scalar(StringRef name, Value operand) {
  if (auto constant = operand.getDefiningOp<arith::ConstantOp>())
    return b.clone(*constant)->getResult(0);
  return argument(name, operand.getType());
}

Value Kernel::dim(Value memref, int64_t dimension) { return memref::DimOp::create(b, memref, dimension); }

Value Kernel::view(Value memref, int64_t cols, int64_t group, bool partial, const Tables &t) {
  Type element = cast<MemRefType>(memref.getType()).getElementType();
  return tile::ViewOp::create(b, tile::ViewType::get(b.getContext(), {cols}, element), memref, t.cuSeqlens, t.seqused,
                              t.appended, t.pageTable, t.batchIdx, t.leftpad, group, partial);
}

Value Kernel::ring(StringRef name, int64_t rows, int64_t cols, Type element) {
  return tile::RingOp::create(b, tile::RingType::get(b.getContext(), {1, rows, cols}, element), name, /*writers=*/1,
                              /*releases=*/1, IntegerAttr(), IntegerAttr());
}

Value Kernel::splat(Value scalar, int64_t rows, int64_t cols) {
  return tile::SplatOp::create(b, frag(rows, cols, scalar.getType()), scalar);
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
                      function_ref<void(Value, Value, Value)> body) {
  Value tiles = arith::CeilDivUIOp::create(b, rows, index(tileRows));
  auto work = tile::ForWorkOp::create(b, TypeRange(), b.getStringAttr("single"), tiles, heads, batch, index(1), Value(),
                                      Value(), Value(), ValueRange(), UnitAttr(), IntegerAttr(), b.getI64IntegerAttr(1));
  Block *block = b.createBlock(&work.getBody());
  block->addArguments(SmallVector<Type>(4, b.getIndexType()), SmallVector<Location>(4, b.getLoc()));
  body(block->getArgument(0), block->getArgument(1), block->getArgument(2));
  tile::YieldOp::create(b, ValueRange());
}

void Kernel::finish() {
  b.setInsertionPointToEnd(&func.getBody().front());
  func::ReturnOp::create(b);
}
