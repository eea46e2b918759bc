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
bool AttentionOp::isPartial() {
  return getOutputType().getRank() > cast<ShapedType>(getQ().getType()).getRank();
}
SmallVector<std::pair<StringRef, Value>> AttentionOp::getTables() {
  return {{"cu_seqlens_q", getCuSeqlensQ()}, {"cu_seqlens_k", getCuSeqlensK()},
          {"seqused_q", getSequsedQ()},      {"seqused_k", getSequsedK()},
          {"page_table", getPageTable()},    {"kv_batch_idx", getKvBatchIdx()},
          {"leftpad_k", getLeftpadK()}};
}
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
void AppendOp::getEffects(
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

/// A table of sequences: i32, contiguous.
LogicalResult hasTable(Operation *op, StringRef owner, ShapedType type, int64_t rank,
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

int64_t plus(int64_t size, int64_t more) {
  return ShapedType::isDynamic(size) ? size : size + more;
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
  auto size = [](Value value, int64_t dim) {
    auto type = cast<ShapedType>(value.getType());
    int64_t known = type.getDimSize(dim < 0 ? type.getRank() + dim : dim);
    return ShapedType::isDynamic(known) ? schedule::unknown : known;
  };
  Type element = cast<ShapedType>(getQ().getType()).getElementType();
  schedule::Problem problem;
  problem.element = element.isF16()    ? schedule::ElementType::f16
                    : element.isBF16() ? schedule::ElementType::bf16
                                       : schedule::ElementType::f32;
  problem.headSize = size(getQ(), -1);
  problem.headSizeV = size(getV(), -1);
  problem.mask = getMask().request();
  problem.softcap = static_cast<bool>(getSoftcap());
  problem.sink = static_cast<bool>(getSink());
  problem.packedQ = static_cast<bool>(getCuSeqlensQ());
  problem.packedK = static_cast<bool>(getCuSeqlensK());
  problem.usedQ = static_cast<bool>(getSequsedQ());
  problem.usedK = static_cast<bool>(getSequsedK());
  problem.batchIdx = static_cast<bool>(getKvBatchIdx());
  problem.leftpad = static_cast<bool>(getLeftpadK());
  problem.append = static_cast<bool>(getAppended());
  if (getPageTable())
    problem.pageSize = size(getK(), 1);
  problem.heads = size(getQ(), -2);
  problem.kvHeads = size(getK(), -2);
  for (auto [name, table] : getTables())
    if (table && size(table, 0) != schedule::unknown)
      problem.batch = size(table, 0) - StringRef(name).starts_with("cu_seqlens");
  if (!getCuSeqlensQ()) {
    problem.batch = size(getQ(), 0);
    problem.lenQ = size(getQ(), 1);
  }
  if (!getCuSeqlensK() && !getPageTable())
    problem.lenK = size(getK(), 1);
  if (PlanAttr plan = getPlanAttr()) {
    problem.numSplits = plan.getInt("splits").value_or(0);
    problem.packGqa = plan.getFlag("pack_gqa");
  }
  return problem;
}

/// The tables, each of one element a sequence, and what they need beside them.
static LogicalResult verifyTables(AttentionOp op, Size batch) {
  for (auto [name, table] : op.getTables()) {
    if (!table)
      continue;
    auto type = cast<ShapedType>(table.getType());
    bool isPages = name == "page_table", isEnds = name.starts_with("cu_seqlens");
    if (isa<RankedTensorType>(type) != isa<RankedTensorType>(op.getQ().getType()))
      return op.emitOpError() << "expected " << name << " to be a "
                              << (isa<RankedTensorType>(type) ? "memref" : "tensor")
                              << " as q is, got " << type;
    if (failed(hasTable(op, name, type, 1 + isPages,
                        isPages  ? "batch x pages"
                        : isEnds ? "batch + 1"
                                 : "batch")))
      return failure();
    if (isPages && op.getKvBatchIdx()) // picks a row of any
      continue;
    if (isEnds && type.getDimSize(0) == 0)
      return op.emitOpError() << "expected " << name << " of batch + 1 elements, got 0";
    if (name == "cu_seqlens_k" && op.getKvBatchIdx())
      continue;
    if (failed(equal(op, {name, "batch", plus(type.getDimSize(0), isEnds ? -1 : 0)}, batch)))
      return failure();
  }
  if (static_cast<bool>(op.getCuSeqlensQ()) != static_cast<bool>(op.getMaxSeqlenQ()))
    return op.emitOpError(op.getCuSeqlensQ()
                              ? "expected max_seqlen_q besides cu_seqlens_q: it bounds the tiles"
                              : "expected no max_seqlen_q without cu_seqlens_q: q's length bounds "
                                "the tiles");
  if (op.getPageTable() && op.getCuSeqlensK())
    return op.emitOpError(
        "expected cu_seqlens_k or page_table, got both: the lengths of pages are seqused_k");
  if (op.getPageTable() && !op.getSequsedK())
    return op.emitOpError("expected seqused_k besides page_table: it says how many rows of the "
                          "pages count");
  if (op.getAppended() && !op.getSequsedK())
    return op.emitOpError("expected seqused_k besides appended: it says where the cache ends");
  return success();
}

LogicalResult AttentionOp::verify() {
  auto q = cast<ShapedType>(getQ().getType()), k = cast<ShapedType>(getK().getType()),
       v = cast<ShapedType>(getV().getType());
  if (failed(worldsAgree(*this, {{"q", q}, {"k", k}, {"v", v}})))
    return failure();
  ShapedType o = getOutputType(), lse = getLseType();
  const StringRef dense = "batch x length x heads x head size", rows = "total x heads x head size",
                  cached = "batch x length x kv heads x head size",
                  keys = "total x kv heads x head size",
                  pages = "pages x page size x kv heads x head size";
  const bool packed = static_cast<bool>(getCuSeqlensQ()),
             packedK = static_cast<bool>(getCuSeqlensK()),
             paged = static_cast<bool>(getPageTable());
  if (failed(hasRank(*this, "q", q, 4 - packed, packed ? rows : dense)) ||
      failed(hasRank(*this, "k", k, 4 - packedK,
                     packedK ? keys
                     : paged ? pages
                             : cached)) ||
      failed(hasRank(*this, "v", v, 4 - packedK,
                     packedK ? keys
                     : paged ? pages
                             : cached)))
    return failure();
  Type element = q.getElementType();
  if (!element.isF16() && !element.isBF16() && !element.isF32())
    return emitOpError() << "expected q's element type to be f16, bf16 or f32, got " << element;
  if (failed(hasElement(*this, "k", k, element, " as q's")) ||
      failed(hasElement(*this, "v", v, element, " as q's")))
    return failure();
  const Size batch = packed
                         ? Size{"cu_seqlens_q", "batch",
                                plus(cast<ShapedType>(getCuSeqlensQ().getType()).getDimSize(0), -1)}
                         : Size{"q", "batch", q.getDimSize(0)};
  auto kv = [&](int64_t fromLast, ShapedType type) {
    return type.getDimSize(type.getRank() - fromLast);
  };
  if (!packedK && !paged && !getKvBatchIdx() &&
      (failed(equal(*this, {"k", "batch", k.getDimSize(0)}, batch)) ||
       failed(equal(*this, {"v", "batch", v.getDimSize(0)}, batch))))
    return failure();
  if ((!packedK && failed(equal(*this, {"v", paged ? "pages" : "batch", v.getDimSize(0)},
                                {"k", paged ? "pages" : "batch", k.getDimSize(0)}))) ||
      failed(equal(*this, {"v", paged ? "page size" : "length", kv(3, v)},
                   {"k", paged ? "page size" : "length", kv(3, k)})) ||
      failed(equal(*this, {"v", "heads", kv(2, v)}, {"k", "heads", kv(2, k)})) ||
      failed(equal(*this, {"k", "head size", kv(1, k)}, {"q", "head size", kv(1, q)})))
    return failure();
  if (failed(hasRows(*this, "q", q)) || failed(hasRows(*this, "k", k)) ||
      failed(hasRows(*this, "v", v)) || failed(verifyTables(*this, batch)))
    return failure();
  if (auto why = schedule::whyNotProblem(problem()))
    return emitOpError() << *why;

  // o and lse have q's dimensions, and one for the parts before them.
  const int64_t partial = o.getRank() == q.getRank() + 1;
  if (!partial && failed(hasRank(*this, "o", o, q.getRank(),
                                 ((packed ? rows : dense) + ", or splits before them").str())))
    return failure();
  if (partial ? failed(hasElement(*this, "o", o, Float32Type::get(getContext()),
                                  " for partial results"))
              : failed(hasElement(*this, "o", o, element, " as q's")))
    return failure();
  const StringRef names[] = {"batch", "length", "heads"};
  for (auto [index, what] : llvm::enumerate(ArrayRef(names).drop_front(packed)))
    if (failed(equal(*this, {"o", what, o.getDimSize(partial + index)},
                     {"q", what, q.getDimSize(index)})))
      return failure();
  if (failed(equal(*this, {"o", "head size", kv(1, o)}, {"v", "head size", kv(1, v)})) ||
      failed(hasRows(*this, "o", o)))
    return failure();
  std::optional<int64_t> splits = getPlan() ? getPlan()->getInt("splits") : std::nullopt;
  if (partial && splits && !o.isDynamicDim(0) && o.getDimSize(0) != *splits)
    return emitOpError() << "expected o's splits (" << o.getDimSize(0) << ") to equal the plan's ("
                         << *splits << ")";
  if (partial && !lse)
    return emitOpError("expected lse besides a partial o: without it the parts cannot be joined");
  if (lse) {
    std::string shape = packed ? "heads x total" : "batch x heads x length";
    if (failed(hasRank(*this, "lse", lse, q.getRank() - 1 + partial,
                       partial ? "splits x " + shape : shape)) ||
        failed(hasElement(*this, "lse", lse, Float32Type::get(getContext()), "")) ||
        failed(hasLayout(*this, "lse", lse)))
      return failure();
    if (partial && failed(equal(*this, {"lse", "splits", lse.getDimSize(0)},
                                {"o", "splits", o.getDimSize(0)})))
      return failure();
    if ((!packed && failed(equal(*this, {"lse", "batch", lse.getDimSize(partial)}, batch))) ||
        failed(equal(*this, {"lse", "heads", kv(2, lse)}, {"q", "heads", kv(2, q)})) ||
        failed(equal(*this, {"lse", "length", kv(1, lse)}, {"q", "length", kv(3, q)})))
      return failure();
  }
  if (!getSink())
    return success();
  if (partial)
    return emitOpError(
        "expected no sink with a partial o: each part would count it; give it to flash.combine");
  return verifySink(*this, cast<ShapedType>(getSink().getType()), {"q", "heads", kv(2, q)});
}

LogicalResult CombineOp::verify() {
  auto o = cast<ShapedType>(getOPartial().getType()),
       lse = cast<ShapedType>(getLsePartial().getType());
  Type f32 = Float32Type::get(getContext());
  const bool packed = o.getRank() == 4 && lse.getRank() == 3; // total instead of batch, length
  if (failed(worldsAgree(*this, {{"o_partial", o}, {"lse_partial", lse}})) ||
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
  if (getSink() && failed(verifySink(*this, cast<ShapedType>(getSink().getType()),
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
        failed(hasRows(*this, name, type)))
      return failure();
  }
  const Size batch{"k_new", "batch", kNew.getDimSize(0)};
  if (failed(equal(*this, {"v_new", "batch", vNew.getDimSize(0)}, batch)) ||
      failed(equal(*this, {"v_new", "length", vNew.getDimSize(1)},
                   {"k_new", "length", kNew.getDimSize(1)})))
    return failure();
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
  if (failed(
          equal(*this, {"sin", "pairs", sin.getDimSize(1)}, {"cos", "pairs", cos.getDimSize(1)})))
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
  if (packed && (failed(hasTable(*this, "cu_seqlens_q", cast<ShapedType>(getCuSeqlensQ().getType()),
                                 1, "batch + 1"))))
    return failure();
  return equal(*this, {"q", "head size", q.getShape().back()},
               {"k_new", "head size", kNew.getDimSize(3)});
}
