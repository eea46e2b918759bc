//===- Flash.cpp - the flash dialect and the verifiers of its ops ---------===//
//
// Every sentence says what is demanded, what was found and, where it helps, the way out.
//
//===----------------------------------------------------------------------===//
#include "Checks.h"
#include "mlir/IR/Builders.h"

#include "flash/FlashDialect.cpp.inc"
#include "flash/FlashInterfaces.cpp.inc"
#define GET_OP_CLASSES
#include "flash/FlashOps.cpp.inc"

using namespace mlir;
using namespace flash;
using namespace flash::checks;

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

ShapedType CombineOp::getOutputType() { return outputType(*this, getOuts(), 0); }
ShapedType CombineOp::getLseType() { return outputType(*this, getOuts(), 1); }

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
  if (getSchedule()) // a kernel of the op's own fills it
    effects.emplace_back(MemoryEffects::Write::get(), &getScheduleMutable()[0]);
}
void AttentionBackwardOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  memoryEffects(*this, effects);
}
void CombineOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  memoryEffects(*this, effects);
}
void AppendOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  memoryEffects(*this, effects);
}

LogicalResult CombineOp::verify() {
  auto o = cast<ShapedType>(getOPartial().getType()),
       lse = cast<ShapedType>(getLsePartial().getType());
  Type f32 = Float32Type::get(getContext());
  const bool packed = o.getRank() == 4 && lse.getRank() == 3; // total instead of batch, length
  if (failed(worldsAgree(*this,
                         {{"o_partial", getOPartial()},
                          {"lse_partial", getLsePartial()},
                          {"sink", getSink()},
                          {"cu_seqlens_q", getCuSeqlensQ()},
                          {"seqused_q", getSequsedQ()}},
                         getOuts(), attentionOutputs)) ||
      failed(hasRank(*this, "o_partial", o, 5 - packed,
                     "splits x batch x length x heads x head size")) ||
      failed(hasRank(*this, "lse_partial", lse, 4 - packed,
                     packed ? "splits x heads x total" : "splits x batch x heads x length")) ||
      failed(hasElement(*this, "o_partial", o, f32, "")) ||
      failed(hasElement(*this, "lse_partial", lse, f32, "")) ||
      failed(hasRows(*this, "o_partial", o)) || failed(hasLayout(*this, "lse_partial", lse)))
    return failure();
  auto last = [](ShapedType type, int64_t back) { return type.getDimSize(type.getRank() - back); };
  if (failed(equal(*this, {"lse_partial", "splits", lse.getDimSize(0)},
                   {"o_partial", "splits", o.getDimSize(0)})) ||
      (!packed && failed(equal(*this, {"lse_partial", "batch", lse.getDimSize(1)},
                               {"o_partial", "batch", o.getDimSize(1)}))) ||
      failed(equal(*this, {"lse_partial", "heads", last(lse, 2)},
                   {"o_partial", "heads", last(o, 2)})) ||
      failed(equal(*this, {"lse_partial", "length", last(lse, 1)},
                   {"o_partial", "length", last(o, 3)})))
    return failure();
  if (static_cast<bool>(getCuSeqlensQ()) != packed || static_cast<bool>(getMaxSeqlenQ()) != packed)
    return emitOpError("expected cu_seqlens_q and max_seqlen_q of packed parts, and of no other");
  Size batch{"o_partial", "batch", o.getDimSize(1)};
  if (packed) {
    auto ends = cast<ShapedType>(getCuSeqlensQ().getType());
    if (failed(hasEnds(*this, "cu_seqlens_q", ends)))
      return failure();
    batch = batchOfEnds(ends);
  }
  if (getSequsedQ()) {
    auto used = cast<ShapedType>(getSequsedQ().getType());
    if (failed(hasTable(*this, "seqused_q", used, 1, "batch")) ||
        failed(equal(*this, {"seqused_q", "batch", used.getDimSize(0)}, batch)))
      return failure();
  }
  if (failed(hasSchedule(*this, getSchedule(), batch)) ||
      failed(hasHeadSize(*this, "o_partial", last(o, 1))))
    return failure();
  ShapedType joined = getOutputType(), joinedLse = getLseType();
  if (failed(
          hasRank(*this, "o", joined, 4 - packed,
                  packed ? "total x heads x head size" : "batch x length x heads x head size")) ||
      failed(hasRows(*this, "o", joined)))
    return failure();
  Type element = joined.getElementType();
  if (!element.isF16() && !element.isBF16() && !element.isF32())
    return emitOpError() << "expected o's element type to be f16, bf16 or f32, got " << element;
  const StringRef names[] = {"batch", "length", "heads", "head size"};
  for (auto [index, what] : llvm::enumerate(ArrayRef(names).drop_front(packed)))
    if (failed(equal(*this, {"o", what, joined.getDimSize(index)},
                     {"o_partial", what, o.getDimSize(index + 1)})))
      return failure();
  if (getSink() && failed(hasLogits(*this, "sink", cast<ShapedType>(getSink().getType()),
                                    {"o_partial", "heads", last(o, 2)})))
    return failure();
  if (!joinedLse)
    return success();
  if (failed(hasRank(*this, "lse", joinedLse, 3 - packed,
                     packed ? "heads x total" : "batch x heads x length")) ||
      failed(hasElement(*this, "lse", joinedLse, f32, "")) ||
      failed(hasLayout(*this, "lse", joinedLse)))
    return failure();
  const StringRef statistics[] = {"batch", "heads", "length"};
  for (auto [index, what] : llvm::enumerate(ArrayRef(statistics).drop_front(packed)))
    if (failed(equal(*this, {"lse", what, joinedLse.getDimSize(index)},
                     {"lse_partial", what, lse.getDimSize(index + 1)})))
      return failure();
  return success();
}

LogicalResult AppendOp::verify() {
  auto kNew = cast<MemRefType>(getKNew().getType()), vNew = cast<MemRefType>(getVNew().getType());
  if (getOuts().size() != 2 + static_cast<bool>(getQ()))
    return emitOpError() << "expected outs k and v" << (getQ() ? " and q turned" : "") << ", got "
                         << getOuts().size();
  auto k = cast<MemRefType>(getOuts()[0].getType()), v = cast<MemRefType>(getOuts()[1].getType());
  const StringRef fresh = "batch x length x kv heads x head size",
                  cached = getPageTable() ? "pages x page size x kv heads x head size" : fresh;
  std::pair<StringRef, MemRefType> all[] = {{"k_new", kNew}, {"v_new", vNew}, {"k", k}, {"v", v}};
  Type element = kNew.getElementType();
  if (!element.isF16() && !element.isBF16() && !element.isF32())
    return emitOpError() << "expected k_new's element type to be f16, bf16 or f32, got " << element;
  for (auto [index, named] : llvm::enumerate(all)) {
    auto [name, type] = named;
    if (failed(hasRank(*this, name, type, 4, index < 2 ? fresh : cached)) ||
        failed(hasElement(*this, name, type, element, " as k_new's")) ||
        failed(hasRows(*this, name, type)) ||
        failed(hasHeadSize(*this, name, type.getShape().back())))
      return failure();
  }
  const Size batch{"k_new", "batch", kNew.getDimSize(0)};
  const bool paged = static_cast<bool>(getPageTable());
  if (failed(equal(*this, {"v_new", "batch", vNew.getDimSize(0)}, batch)) ||
      failed(equal(*this, {"v_new", "length", vNew.getDimSize(1)},
                   {"k_new", "length", kNew.getDimSize(1)})) ||
      (!paged && !getKvBatchIdx() && failed(equal(*this, {"k", "batch", k.getDimSize(0)}, batch))))
    return failure();
  for (auto [dim, what] :
       {std::pair{0, paged ? "pages" : "batch"}, {1, paged ? "page size" : "length"}})
    if (failed(equal(*this, {"v", what, v.getDimSize(dim)}, {"k", what, k.getDimSize(dim)})))
      return failure();
  if (paged && k.getDimSize(1) == 0)
    return emitOpError("expected pages of at least 1 row, got 0");
  for (auto [mine, cache] : {std::pair{all[0], all[2]}, {all[1], all[3]}})
    for (auto [dim, what] : {std::pair{2, "heads"}, {3, "head size"}})
      if (failed(equal(*this, {cache.first, what, cache.second.getDimSize(dim)},
                       {mine.first, what, mine.second.getDimSize(dim)})))
        return failure();
  if (failed(equal(*this, {"v_new", "heads", vNew.getDimSize(2)},
                   {"k_new", "heads", kNew.getDimSize(2)})))
    return failure();
  for (auto [name, table] : {std::pair<StringRef, Value>{"seqused_k", getSequsedK()},
                             {"kv_batch_idx", getKvBatchIdx()},
                             {"page_table", getPageTable()}}) {
    if (!table)
      continue;
    auto type = cast<MemRefType>(table.getType());
    bool isPages = name == "page_table";
    if (failed(hasTable(*this, name, type, 1 + isPages, isPages ? "batch x pages" : "batch")) ||
        (!(isPages && getKvBatchIdx()) &&
         failed(equal(*this, {name, "batch", type.getDimSize(0)}, batch))))
      return failure();
  }
  if (static_cast<bool>(getCos()) != static_cast<bool>(getSin()))
    return emitOpError("expected cos and sin together");
  if (getQ() && !getCos())
    return emitOpError("expected cos and sin besides q: they are what turns it");
  if (static_cast<bool>(getCuSeqlensQ()) != static_cast<bool>(getMaxSeqlenQ()) ||
      (getCuSeqlensQ() && !getQ()))
    return emitOpError("expected cu_seqlens_q and max_seqlen_q together, besides q");
  if (!getCos())
    return success();
  auto cos = cast<MemRefType>(getCos().getType()), sin = cast<MemRefType>(getSin().getType());
  for (auto [name, type] : {std::pair<StringRef, MemRefType>{"cos", cos}, {"sin", sin}})
    if (failed(hasRank(*this, name, type, 2, "positions x pairs")) ||
        failed(hasElement(*this, name, type, element, " as k_new's")) ||
        failed(hasRows(*this, name, type)))
      return failure();
  for (auto [dim, what] : {std::pair{0, "positions"}, {1, "pairs"}})
    if (failed(
            equal(*this, {"sin", what, sin.getDimSize(dim)}, {"cos", what, cos.getDimSize(dim)})))
      return failure();
  if (2 * cos.getDimSize(1) > kNew.getDimSize(3))
    return emitOpError() << "expected cos to turn at most k_new's head size (" << kNew.getDimSize(3)
                         << "), got " << 2 * cos.getDimSize(1);
  if (!getQ())
    return success();
  auto q = cast<MemRefType>(getQ().getType()), turned = cast<MemRefType>(getOuts()[2].getType());
  const bool packed = static_cast<bool>(getCuSeqlensQ());
  for (auto [name, type] : {std::pair<StringRef, MemRefType>{"q", q}, {"q turned", turned}})
    if (failed(
            hasRank(*this, name, type, 4 - packed,
                    packed ? "total x heads x head size" : "batch x length x heads x head size")) ||
        failed(hasElement(*this, name, type, element, " as k_new's")) ||
        failed(hasRows(*this, name, type)))
      return failure();
  for (int64_t dim = 0; dim < q.getRank(); ++dim)
    if (failed(equal(*this, {"q turned", "size", turned.getDimSize(dim)},
                     {"q", "size", q.getDimSize(dim)})))
      return failure();
  Size rows{"q", "batch", q.getDimSize(0)};
  if (packed) {
    auto ends = cast<ShapedType>(getCuSeqlensQ().getType());
    if (failed(hasEnds(*this, "cu_seqlens_q", ends)))
      return failure();
    rows = batchOfEnds(ends);
  }
  if (failed(equal(*this, rows, batch)))
    return failure();
  return equal(*this, {"q", "head size", q.getShape().back()},
               {"k_new", "head size", kNew.getDimSize(3)});
}
