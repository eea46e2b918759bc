//===- Flash.cpp - the flash dialect and the verifiers of its ops ---------===//
//
// Every sentence says what is demanded, what was found and, where it helps, the way out.
//
//===----------------------------------------------------------------------===//
#include "flash/Flash.h"
#include "mlir/IR/Builders.h"
#include <array>

#include "flash/FlashDialect.cpp.inc"
#define GET_OP_CLASSES
#include "flash/FlashOps.cpp.inc"

using namespace mlir;
using namespace flash;

void FlashDialect::initialize() {
  registerAttributes();
  addOperations<
#define GET_OP_LIST
#include "flash/FlashOps.cpp.inc"
      >();
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

/// The types of o and lse: results over tensors, outs over memrefs.
template <typename OpT> static ShapedType outputType(OpT op, unsigned index) {
  if (index < op.getNumResults())
    return cast<ShapedType>(op->getResult(index).getType());
  if (op.getNumResults() == 0 && index < op.getOuts().size())
    return cast<ShapedType>(op.getOuts()[index].getType());
  return {};
}
ShapedType AttentionOp::getOutputType() { return outputType(*this, 0); }
ShapedType AttentionOp::getLseType() { return outputType(*this, 1); }
ShapedType CombineOp::getOutputType() { return outputType(*this, 0); }
ShapedType CombineOp::getLseType() { return outputType(*this, 1); }

/// Over memrefs every input is read and every out is written.
template <typename OpT>
static void
memoryEffects(OpT op,
              SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  for (OpOperand &operand : op->getOpOperands()) {
    if (!isa<MemRefType>(operand.get().getType()))
      continue;
    if (operand.getOperandNumber() >= op->getNumOperands() - op.getOuts().size()) // outs stand last
      effects.emplace_back(MemoryEffects::Write::get(), &operand);
    else
      effects.emplace_back(MemoryEffects::Read::get(), &operand);
  }
}
void AttentionOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  memoryEffects(*this, effects);
}
void CombineOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  memoryEffects(*this, effects);
}

namespace {
/// One dimension of an operand, as a sentence names it.
struct Size {
  StringRef owner, what;
  int64_t value;
};

/// Demands that two sizes agree as far as both are known.
LogicalResult equal(Operation *op, Size a, Size b) {
  if (ShapedType::isDynamic(a.value) || ShapedType::isDynamic(b.value) || a.value == b.value)
    return success();
  return op->emitOpError() << "expected " << a.owner << "'s " << a.what << " (" << a.value
                           << ") to equal " << b.owner << "'s (" << b.value << ")";
}

LogicalResult hasRank(Operation *op, StringRef owner, ShapedType type, int64_t rank,
                      StringRef shape) {
  if (type.getRank() == rank)
    return success();
  return op->emitOpError() << "expected " << owner << " of rank " << rank << " (" << shape
                           << "), got rank " << type.getRank();
}

LogicalResult hasElement(Operation *op, StringRef owner, ShapedType type, Type element,
                         StringRef why) {
  if (type.getElementType() == element)
    return success();
  return op->emitOpError() << "expected " << owner << "'s element type to be " << element << why
                           << ", got " << type.getElementType();
}

/// A dense tensor, or a strided memref of the default space.
LogicalResult hasLayout(Operation *op, StringRef owner, ShapedType type) {
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

/// Rows of head size elements, contiguous and known when compiling.
LogicalResult hasRows(Operation *op, StringRef owner, ShapedType type) {
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

/// One logit a head, in the world of the other inputs.
template <typename OpT> LogicalResult verifySink(OpT op, ShapedType sink, Size heads) {
  if (failed(hasRank(op, "sink", sink, 1, "heads")) ||
      failed(hasElement(op, "sink", sink, Float32Type::get(op.getContext()), "")) ||
      failed(hasLayout(op, "sink", sink)))
    return failure();
  return equal(op, {"sink", "heads", sink.getDimSize(0)}, heads);
}

/// One world an op: tensors in, tensors out; or memrefs in, memrefs in `outs`.
template <typename OpT>
LogicalResult worldsAgree(OpT op, ArrayRef<std::pair<StringRef, Type>> inputs) {
  bool tensors = isa<RankedTensorType>(inputs.front().second);
  for (auto [name, type] : inputs)
    if (isa<RankedTensorType>(type) != tensors)
      return op.emitOpError() << "expected " << name << " to be a "
                              << (tensors ? "tensor" : "memref") << " as " << inputs.front().first
                              << " is, got " << type;
  if (op.getSink() && isa<RankedTensorType>(op.getSink().getType()) != tensors)
    return op.emitOpError() << "expected sink to be a " << (tensors ? "tensor" : "memref") << " as "
                            << inputs.front().first << " is, got " << op.getSink().getType();
  if (tensors && !op.getOuts().empty())
    return op.emitOpError("expected results instead of outs over tensors");
  if (!tensors && op.getNumResults() != 0)
    return op.emitOpError("expected outs instead of results over memrefs");
  unsigned outputs = op.getNumResults() + op.getOuts().size();
  if (outputs < 1 || outputs > 2)
    return op.emitOpError() << "expected o and optionally lse as " << (tensors ? "results" : "outs")
                            << ", got " << outputs;
  return success();
}
} // namespace

schedule::Problem AttentionOp::problem() {
  auto size = [](Value value, unsigned dim) {
    int64_t known = cast<ShapedType>(value.getType()).getDimSize(dim);
    return ShapedType::isDynamic(known) ? schedule::unknown : known;
  };
  Type element = cast<ShapedType>(getQ().getType()).getElementType();
  schedule::Problem problem;
  problem.element = element.isF16()    ? schedule::ElementType::f16
                    : element.isBF16() ? schedule::ElementType::bf16
                                       : schedule::ElementType::f32;
  problem.headSize = size(getQ(), 3);
  problem.headSizeV = size(getV(), 3);
  problem.mask = getMask().request();
  problem.softcap = static_cast<bool>(getSoftcap());
  problem.sink = static_cast<bool>(getSink());
  problem.batch = size(getQ(), 0);
  problem.heads = size(getQ(), 2);
  problem.kvHeads = size(getK(), 2);
  problem.lenQ = size(getQ(), 1);
  problem.lenK = size(getK(), 1);
  if (PlanAttr plan = getPlanAttr()) {
    problem.numSplits = plan.getInt("splits").value_or(0);
    problem.packGqa = plan.getFlag("pack_gqa");
  }
  return problem;
}

LogicalResult AttentionOp::verify() {
  auto q = cast<ShapedType>(getQ().getType()), k = cast<ShapedType>(getK().getType()),
       v = cast<ShapedType>(getV().getType());
  if (failed(worldsAgree(*this, {{"q", q}, {"k", k}, {"v", v}})))
    return failure();
  ShapedType o = getOutputType(), lse = getLseType();
  if (failed(hasRank(*this, "q", q, 4, "batch x length x heads x head size")) ||
      failed(hasRank(*this, "k", k, 4, "batch x length x kv heads x head size")) ||
      failed(hasRank(*this, "v", v, 4, "batch x length x kv heads x head size")))
    return failure();
  Type element = q.getElementType();
  if (!element.isF16() && !element.isBF16() && !element.isF32())
    return emitOpError() << "expected q's element type to be f16, bf16 or f32, got " << element;
  if (failed(hasElement(*this, "k", k, element, " as q's")) ||
      failed(hasElement(*this, "v", v, element, " as q's")))
    return failure();
  if (failed(equal(*this, {"k", "batch", k.getDimSize(0)}, {"q", "batch", q.getDimSize(0)})) ||
      failed(equal(*this, {"v", "batch", v.getDimSize(0)}, {"q", "batch", q.getDimSize(0)})) ||
      failed(equal(*this, {"v", "length", v.getDimSize(1)}, {"k", "length", k.getDimSize(1)})) ||
      failed(equal(*this, {"v", "heads", v.getDimSize(2)}, {"k", "heads", k.getDimSize(2)})) ||
      failed(
          equal(*this, {"k", "head size", k.getDimSize(3)}, {"q", "head size", q.getDimSize(3)})))
    return failure();
  if (failed(hasRows(*this, "q", q)) || failed(hasRows(*this, "k", k)) ||
      failed(hasRows(*this, "v", v)))
    return failure();
  if (auto why = schedule::whyNotProblem(problem()))
    return emitOpError() << *why;

  int64_t partial = o.getRank() == 5;
  if (!partial && failed(hasRank(*this, "o", o, 4,
                                 "batch x length x heads x head size, or splits before them")))
    return failure();
  if (partial ? failed(hasElement(*this, "o", o, Float32Type::get(getContext()),
                                  " for partial results"))
              : failed(hasElement(*this, "o", o, element, " as q's")))
    return failure();
  for (auto [index, what] : llvm::enumerate(std::array<StringRef, 3>{"batch", "length", "heads"}))
    if (failed(equal(*this, {"o", what, o.getDimSize(partial + index)},
                     {"q", what, q.getDimSize(index)})))
      return failure();
  if (failed(equal(*this, {"o", "head size", o.getDimSize(partial + 3)},
                   {"v", "head size", v.getDimSize(3)})) ||
      failed(hasRows(*this, "o", o)))
    return failure();
  std::optional<int64_t> splits = getPlan() ? getPlan()->getInt("splits") : std::nullopt;
  if (partial && splits && !o.isDynamicDim(0) && o.getDimSize(0) != *splits)
    return emitOpError() << "expected o's splits (" << o.getDimSize(0) << ") to equal the plan's ("
                         << *splits << ")";
  if (partial && !lse)
    return emitOpError("expected lse besides a partial o: without it the parts cannot be joined");
  if (lse) {
    if (failed(hasRank(*this, "lse", lse, 3 + partial,
                       partial ? "splits x batch x heads x length" : "batch x heads x length")) ||
        failed(hasElement(*this, "lse", lse, Float32Type::get(getContext()), "")) ||
        failed(hasLayout(*this, "lse", lse)))
      return failure();
    if (partial && failed(equal(*this, {"lse", "splits", lse.getDimSize(0)},
                                {"o", "splits", o.getDimSize(0)})))
      return failure();
    if (failed(equal(*this, {"lse", "batch", lse.getDimSize(partial)},
                     {"q", "batch", q.getDimSize(0)})) ||
        failed(equal(*this, {"lse", "heads", lse.getDimSize(partial + 1)},
                     {"q", "heads", q.getDimSize(2)})) ||
        failed(equal(*this, {"lse", "length", lse.getDimSize(partial + 2)},
                     {"q", "length", q.getDimSize(1)})))
      return failure();
  }
  if (!getSink())
    return success();
  if (partial)
    return emitOpError(
        "expected no sink with a partial o: each part would count it; give it to flash.combine");
  return verifySink(*this, cast<ShapedType>(getSink().getType()), {"q", "heads", q.getDimSize(2)});
}

LogicalResult CombineOp::verify() {
  auto o = cast<ShapedType>(getOPartial().getType()),
       lse = cast<ShapedType>(getLsePartial().getType());
  Type f32 = Float32Type::get(getContext());
  if (failed(worldsAgree(*this, {{"o_partial", o}, {"lse_partial", lse}})) ||
      failed(hasRank(*this, "o_partial", o, 5, "splits x batch x length x heads x head size")) ||
      failed(hasRank(*this, "lse_partial", lse, 4, "splits x batch x heads x length")) ||
      failed(hasElement(*this, "o_partial", o, f32, "")) ||
      failed(hasElement(*this, "lse_partial", lse, f32, "")) ||
      failed(hasRows(*this, "o_partial", o)) || failed(hasLayout(*this, "lse_partial", lse)))
    return failure();
  if (failed(equal(*this, {"lse_partial", "splits", lse.getDimSize(0)},
                   {"o_partial", "splits", o.getDimSize(0)})) ||
      failed(equal(*this, {"lse_partial", "batch", lse.getDimSize(1)},
                   {"o_partial", "batch", o.getDimSize(1)})) ||
      failed(equal(*this, {"lse_partial", "heads", lse.getDimSize(2)},
                   {"o_partial", "heads", o.getDimSize(3)})) ||
      failed(equal(*this, {"lse_partial", "length", lse.getDimSize(3)},
                   {"o_partial", "length", o.getDimSize(2)})))
    return failure();
  ShapedType joined = getOutputType(), joinedLse = getLseType();
  if (failed(hasRank(*this, "o", joined, 4, "batch x length x heads x head size")) ||
      failed(hasRows(*this, "o", joined)))
    return failure();
  Type element = joined.getElementType();
  if (!element.isF16() && !element.isBF16() && !element.isF32())
    return emitOpError() << "expected o's element type to be f16, bf16 or f32, got " << element;
  for (auto [index, what] :
       llvm::enumerate(ArrayRef<StringRef>{"batch", "length", "heads", "head size"}))
    if (failed(equal(*this, {"o", what, joined.getDimSize(index)},
                     {"o_partial", what, o.getDimSize(index + 1)})))
      return failure();
  if (getSink() && failed(verifySink(*this, cast<ShapedType>(getSink().getType()),
                                     {"o_partial", "heads", o.getDimSize(3)})))
    return failure();
  if (!joinedLse)
    return success();
  if (failed(hasRank(*this, "lse", joinedLse, 3, "batch x heads x length")) ||
      failed(hasElement(*this, "lse", joinedLse, f32, "")) ||
      failed(hasLayout(*this, "lse", joinedLse)))
    return failure();
  for (auto [index, what] : llvm::enumerate(std::array<StringRef, 3>{"batch", "heads", "length"}))
    if (failed(equal(*this, {"lse", what, joinedLse.getDimSize(index)},
                     {"lse_partial", what, lse.getDimSize(index + 1)})))
      return failure();
  return success();
}
