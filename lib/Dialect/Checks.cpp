//===- Checks.cpp - demands that several verifiers make -------------------===//
#include "Checks.h"
#include "flash/Schedule/Plan.h"
#include "flash/Schedule/WorkOrder.h"

using namespace mlir;
using namespace flash;
using namespace flash::checks;

LogicalResult checks::equal(Operation *op, Size a, Size b) {
  if (ShapedType::isDynamic(a.value) || ShapedType::isDynamic(b.value) || a.value == b.value)
    return success();
  return op->emitOpError() << "expected " << a.owner << "'s " << a.what << " (" << a.value
                           << ") to equal " << b.owner << "'s (" << b.value << ")";
}

LogicalResult checks::hasRank(Operation *op, StringRef owner, ShapedType type, int64_t rank,
                              StringRef shape) {
  if (type.getRank() == rank)
    return success();
  return op->emitOpError() << "expected " << owner << " of rank " << rank << " (" << shape
                           << "), got rank " << type.getRank();
}

LogicalResult checks::hasElement(Operation *op, StringRef owner, ShapedType type, Type element,
                                 StringRef why) {
  if (type.getElementType() == element)
    return success();
  return op->emitOpError() << "expected " << owner << "'s element type to be " << element << why
                           << ", got " << type.getElementType();
}

LogicalResult checks::hasLayout(Operation *op, StringRef owner, ShapedType type) {
  if (auto tensor = dyn_cast<RankedTensorType>(type)) {
    if (tensor.getEncoding())
      return op->emitOpError() << "expected " << owner << " without an encoding, got " << tensor;
    return success();
  }
  auto memref = cast<MemRefType>(type);
  if (!memref.isStrided())
    return op->emitOpError() << "expected " << owner << " to be a strided memref, got " << memref;
  if (memref.getMemorySpace())
    return op->emitOpError() << "expected " << owner << " in the default memory space, got "
                             << memref;
  return success();
}

LogicalResult checks::hasRows(Operation *op, StringRef owner, ShapedType type) {
  if (failed(hasLayout(op, owner, type)))
    return failure();
  if (ShapedType::isDynamic(type.getShape().back()))
    return op->emitOpError() << "expected " << owner << "'s head size to be known when compiling";
  auto memref = dyn_cast<MemRefType>(type);
  if (!memref)
    return success();
  int64_t stride = memref.getStridesAndOffset().first.back();
  if (stride == 1)
    return success();
  return op->emitOpError() << "expected " << owner
                           << "'s last dimension to be contiguous, its stride is "
                           << (ShapedType::isDynamic(stride) ? std::string("unknown")
                                                             : std::to_string(stride));
}

LogicalResult checks::hasTable(Operation *op, StringRef owner, ShapedType type, int64_t rank,
                               StringRef shape) {
  if (failed(hasRank(op, owner, type, rank, shape)) ||
      failed(hasElement(op, owner, type, IntegerType::get(op->getContext(), 32), "")) ||
      failed(hasLayout(op, owner, type)))
    return failure();
  auto memref = dyn_cast<MemRefType>(type);
  if (memref && memref.getStridesAndOffset().first.back() != 1)
    return op->emitOpError() << "expected " << owner << "'s elements to be contiguous, got "
                             << memref;
  return success();
}

int64_t checks::plus(int64_t size, int64_t more) {
  return ShapedType::isDynamic(size) ? size : size + more;
}

LogicalResult checks::hasEnds(Operation *op, StringRef owner, ShapedType type) {
  if (failed(hasTable(op, owner, type, 1, "batch + 1")))
    return failure();
  if (type.getDimSize(0) == 0)
    return op->emitOpError() << "expected " << owner << " of batch + 1 elements, got 0";
  return success();
}

checks::Size checks::batchOfEnds(ShapedType ends) {
  return {"cu_seqlens_q", "batch",
          ends.getRank() ? plus(ends.getDimSize(0), -1) : ShapedType::kDynamic};
}

LogicalResult checks::hasSchedule(Operation *op, Value schedule, Size batch) {
  if (!schedule)
    return success();
  if (op->getNumResults())
    return op->emitOpError("expected no schedule over tensors: a kernel writes it in place");
  auto type = cast<ShapedType>(schedule.getType());
  const std::string rows = std::to_string(schedule::scheduleRows);
  if (failed(hasTable(op, "schedule", type, 2, rows + " x batch + 1")))
    return failure();
  if (!type.isDynamicDim(0) && type.getDimSize(0) != schedule::scheduleRows)
    return op->emitOpError() << "expected schedule of " << rows << " rows, got "
                             << type.getDimSize(0);
  return equal(op, {"schedule", "batch", plus(type.getDimSize(1), -1)}, batch);
}

LogicalResult checks::hasHeadSize(Operation *op, StringRef owner, int64_t columns) {
  if (auto why = schedule::whyNotHeadSize(owner.str(), columns))
    return op->emitOpError() << *why;
  return success();
}

LogicalResult checks::hasLogits(Operation *op, StringRef owner, ShapedType type, Size heads) {
  if (failed(hasRank(op, owner, type, 1, "heads")) ||
      failed(hasElement(op, owner, type, Float32Type::get(op->getContext()), "")) ||
      failed(hasLayout(op, owner, type)))
    return failure();
  return equal(op, {owner, "heads", type.getDimSize(0)}, heads);
}

LogicalResult checks::worldsAgree(Operation *op, ArrayRef<std::pair<StringRef, Value>> inputs,
                                  ValueRange outs, Outputs outputs) {
  bool tensors = isa<RankedTensorType>(inputs.front().second.getType());
  for (auto [name, value] : inputs)
    if (value && isa<RankedTensorType>(value.getType()) != tensors)
      return op->emitOpError() << "expected " << name << " to be a "
                               << (tensors ? "tensor" : "memref") << " as " << inputs.front().first
                               << " is, got " << value.getType();
  if (tensors && !outs.empty())
    return op->emitOpError("expected results instead of outs over tensors");
  if (!tensors && op->getNumResults() != 0)
    return op->emitOpError("expected outs instead of results over memrefs");
  unsigned count = op->getNumResults() + outs.size();
  if (count < outputs.least || count > outputs.most)
    return op->emitOpError() << "expected " << outputs.names << " as "
                             << (tensors ? "results" : "outs") << ", got " << count;
  return success();
}

ShapedType checks::outputType(Operation *op, ValueRange outs, unsigned index) {
  if (index < op->getNumResults())
    return cast<ShapedType>(op->getResult(index).getType());
  if (op->getNumResults() == 0 && index < outs.size())
    return cast<ShapedType>(outs[index].getType());
  return {};
}
