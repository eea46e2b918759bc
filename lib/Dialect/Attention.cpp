//===- Attention.cpp - verifiers of attention and of its gradients --------===//
#include "Checks.h"

using namespace mlir;
using namespace flash;
using namespace flash::checks;

SmallVector<std::pair<StringRef, Value>> ProblemOpInterface::getTables() {
  return {{"cu_seqlens_q", getCuSeqlensQ()}, {"cu_seqlens_k", getCuSeqlensK()},
          {"seqused_q", getSequsedQ()},      {"seqused_k", getSequsedK()},
          {"page_table", getPageTable()},    {"kv_batch_idx", getKvBatchIdx()},
          {"leftpad_k", getLeftpadK()}};
}

schedule::Problem ProblemOpInterface::problem() {
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
  problem.mask = getMaskAttr().request();
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
  if (auto backward = dyn_cast<AttentionBackwardOp>(getOperation())) {
    problem.backward = true;
    problem.deterministic = backward.getDeterministic();
  } else if (PlanAttr plan = getPlanAttr()) {
    problem.numSplits = plan.getInt("splits").value_or(0);
    problem.packGqa = plan.getFlag("pack_gqa");
  }
  return problem;
}

/// The tables, each of one element a sequence, and what they need beside them.
static LogicalResult verifyTables(ProblemOpInterface op, Size batch) {
  for (auto [name, table] : op.getTables()) {
    if (!table)
      continue;
    auto type = cast<ShapedType>(table.getType());
    bool isPages = name == "page_table", isEnds = name.starts_with("cu_seqlens");
    if (isa<RankedTensorType>(type) != isa<RankedTensorType>(op.getQ().getType()))
      return op->emitOpError() << "expected " << name << " to be a "
                               << (isa<RankedTensorType>(type) ? "memref" : "tensor")
                               << " as q is, got " << type;
    if (isEnds ? failed(hasEnds(op, name, type))
               : failed(hasTable(op, name, type, 1 + isPages, isPages ? "batch x pages" : "batch")))
      return failure();
    if (isPages && op.getKvBatchIdx()) // picks a row of any
      continue;
    if (name == "cu_seqlens_k" && op.getKvBatchIdx())
      continue;
    if (failed(equal(op, {name, "batch", plus(type.getDimSize(0), isEnds ? -1 : 0)}, batch)))
      return failure();
  }
  if (op.getPageTable() && op.getCuSeqlensK())
    return op->emitOpError(
        "expected cu_seqlens_k or page_table, got both: the lengths of pages are seqused_k");
  if (op.getPageTable() && !op.getSequsedK())
    return op->emitOpError("expected seqused_k besides page_table: it says how many rows of the "
                           "pages count");
  if (op.getAppended() && !op.getSequsedK())
    return op->emitOpError("expected seqused_k besides appended: it says where the cache ends");
  return success();
}

namespace {
/// The inputs of attention: q, k, v and their tables.
class Inputs {
public:
  explicit Inputs(ProblemOpInterface op)
      : op(op), q(typeOf(op.getQ())), k(typeOf(op.getK())), v(typeOf(op.getV())),
        packed(op.getCuSeqlensQ()), packedK(op.getCuSeqlensK()), paged(op.getPageTable()) {}

  /// Demands that they make a problem.
  LogicalResult fit();
  /// Demands what o is: v's columns of q's rows, behind `partial` dimensions of parts.
  LogicalResult haveRows(StringRef name, ShapedType type, int64_t partial = 0);
  LogicalResult haveStatistics(StringRef name, ShapedType type, int64_t partial = 0);
  /// Demands a gradient of the input `name`, which it is like.
  LogicalResult haveGradient(StringRef name, ShapedType type);
  LogicalResult haveLogits(StringRef name, ShapedType type) {
    return hasLogits(op, name, type, {"q", "heads", last(q, 2)});
  }
  Size batch() const {
    return packed ? batchOfEnds(typeOf(ProblemOpInterface(op).getCuSeqlensQ()))
                  : Size{"q", "batch", q.getDimSize(0)};
  }

  ProblemOpInterface op;
  ShapedType q, k, v;

private:
  static ShapedType typeOf(Value value) { return cast<ShapedType>(value.getType()); }
  static int64_t last(ShapedType type, int64_t fromLast) {
    return type.getDimSize(type.getRank() - fromLast);
  }
  StringRef rowsOfQ() const {
    return packed ? "total x heads x head size" : "batch x length x heads x head size";
  }
  StringRef rowsOfK() const {
    return packedK ? "total x kv heads x head size"
           : paged ? "pages x page size x kv heads x head size"
                   : "batch x length x kv heads x head size";
  }
  /// Sizes before the columns, from the last, as q's and k's verifiers name them.
  LogicalResult sizesEqual(StringRef name, ShapedType type, StringRef like, ShapedType likeType,
                           int64_t partial);

  bool packed, packedK, paged;
};

LogicalResult Inputs::fit() {
  if (failed(hasRank(op, "q", q, 4 - packed, rowsOfQ())) ||
      failed(hasRank(op, "k", k, 4 - packedK, rowsOfK())) ||
      failed(hasRank(op, "v", v, 4 - packedK, rowsOfK())))
    return failure();
  Type element = q.getElementType();
  if (!element.isF16() && !element.isBF16() && !element.isF32())
    return op->emitOpError() << "expected q's element type to be f16, bf16 or f32, got " << element;
  if (failed(hasElement(op, "k", k, element, " as q's")) ||
      failed(hasElement(op, "v", v, element, " as q's")))
    return failure();
  if (!packedK && !paged && !op.getKvBatchIdx() &&
      (failed(equal(op, {"k", "batch", k.getDimSize(0)}, batch())) ||
       failed(equal(op, {"v", "batch", v.getDimSize(0)}, batch()))))
    return failure();
  if ((!packedK && failed(equal(op, {"v", paged ? "pages" : "batch", v.getDimSize(0)},
                                {"k", paged ? "pages" : "batch", k.getDimSize(0)}))) ||
      failed(equal(op, {"v", paged ? "page size" : "length", last(v, 3)},
                   {"k", paged ? "page size" : "length", last(k, 3)})) ||
      failed(equal(op, {"v", "heads", last(v, 2)}, {"k", "heads", last(k, 2)})) ||
      failed(equal(op, {"k", "head size", last(k, 1)}, {"q", "head size", last(q, 1)})))
    return failure();
  if (failed(hasRows(op, "q", q)) || failed(hasRows(op, "k", k)) || failed(hasRows(op, "v", v)) ||
      failed(verifyTables(op, batch())))
    return failure();
  if (auto why = schedule::whyNotProblem(op.problem()))
    return op->emitOpError() << *why;
  return success();
}

LogicalResult Inputs::sizesEqual(StringRef name, ShapedType type, StringRef like,
                                 ShapedType likeType, int64_t partial) {
  const StringRef names[] = {"batch", "length", "heads"};
  const int64_t sizes = likeType.getRank() - 1;
  for (auto [index, what] : llvm::enumerate(ArrayRef(names).take_back(sizes)))
    if (failed(equal(op, {name, what, type.getDimSize(partial + index)},
                     {like, what, likeType.getDimSize(index)})))
      return failure();
  return success();
}

LogicalResult Inputs::haveRows(StringRef name, ShapedType type, int64_t partial) {
  if (!partial && failed(hasRank(op, name, type, q.getRank(),
                                 name == "o" && isa<AttentionOp>(op.getOperation())
                                     ? (rowsOfQ() + ", or splits before them").str()
                                     : rowsOfQ().str())))
    return failure();
  if (partial ? failed(hasElement(op, name, type, Float32Type::get(op->getContext()),
                                  " for partial results"))
              : failed(hasElement(op, name, type, q.getElementType(), " as q's")))
    return failure();
  if (failed(sizesEqual(name, type, "q", q, partial)) ||
      failed(equal(op, {name, "head size", last(type, 1)}, {"v", "head size", last(v, 1)})))
    return failure();
  return hasRows(op, name, type);
}

LogicalResult Inputs::haveStatistics(StringRef name, ShapedType type, int64_t partial) {
  std::string shape = packed ? "heads x total" : "batch x heads x length";
  if (failed(hasRank(op, name, type, q.getRank() - 1 + partial,
                     partial ? "splits x " + shape : shape)) ||
      failed(hasElement(op, name, type, Float32Type::get(op->getContext()), "")) ||
      failed(hasLayout(op, name, type)))
    return failure();
  if ((!packed && failed(equal(op, {name, "batch", type.getDimSize(partial)}, batch()))) ||
      failed(equal(op, {name, "heads", last(type, 2)}, {"q", "heads", last(q, 2)})))
    return failure();
  return equal(op, {name, "length", last(type, 1)}, {"q", "length", last(q, 3)});
}

LogicalResult Inputs::haveGradient(StringRef name, ShapedType type) {
  const StringRef like = name.drop_front();
  ShapedType likeType = like == "q" ? q : like == "k" ? k : v;
  if (failed(hasRank(op, name, type, likeType.getRank(), like == "q" ? rowsOfQ() : rowsOfK())) ||
      failed(hasElement(op, name, type, q.getElementType(), " as q's")) ||
      failed(sizesEqual(name, type, like, likeType, 0)) ||
      failed(equal(op, {name, "head size", last(type, 1)}, {like, "head size", last(likeType, 1)})))
    return failure();
  return hasRows(op, name, type);
}
} // namespace

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

ShapedType AttentionOp::getOutputType() { return outputType(*this, getOuts(), 0); }
ShapedType AttentionOp::getLseType() { return outputType(*this, getOuts(), 1); }
bool AttentionOp::isPartial() {
  return getOutputType().getRank() > cast<ShapedType>(getQ().getType()).getRank();
}

LogicalResult AttentionOp::verify() {
  if (failed(worldsAgree(*this, {{"q", getQ()}, {"k", getK()}, {"v", getV()}, {"sink", getSink()}},
                         getOuts(), attentionOutputs)))
    return failure();
  Inputs inputs(*this);
  if (static_cast<bool>(getCuSeqlensQ()) != static_cast<bool>(getMaxSeqlenQ()))
    return emitOpError(getCuSeqlensQ()
                           ? "expected max_seqlen_q besides cu_seqlens_q: it bounds the tiles"
                           : "expected no max_seqlen_q without cu_seqlens_q: q's length bounds "
                             "the tiles");
  if (failed(inputs.fit()))
    return failure();

  // o and lse have q's dimensions, and one for the parts before them.
  ShapedType o = getOutputType(), lse = getLseType();
  const int64_t partial = o.getRank() == inputs.q.getRank() + 1;
  if (failed(inputs.haveRows("o", o, partial)) ||
      failed(hasSchedule(*this, getSchedule(), inputs.batch())))
    return failure();
  if (getSchedule() && !partial)
    return emitOpError("expected a schedule with a partial o: it says how many parts there are");
  std::optional<int64_t> splits = getPlan() ? getPlan()->getInt("splits") : std::nullopt;
  if (partial && splits && !o.isDynamicDim(0) && o.getDimSize(0) != *splits)
    return emitOpError() << "expected o's splits (" << o.getDimSize(0) << ") to equal the plan's ("
                         << *splits << ")";
  if (partial && !lse)
    return emitOpError("expected lse besides a partial o: without it the parts cannot be joined");
  if (lse) {
    if (failed(inputs.haveStatistics("lse", lse, partial)))
      return failure();
    if (partial && failed(equal(*this, {"lse", "splits", lse.getDimSize(0)},
                                {"o", "splits", o.getDimSize(0)})))
      return failure();
  }
  if (!getSink())
    return success();
  if (partial)
    return emitOpError(
        "expected no sink with a partial o: each part would count it; give it to flash.combine");
  return inputs.haveLogits("sink", cast<ShapedType>(getSink().getType()));
}

//===----------------------------------------------------------------------===//
// Its gradients
//===----------------------------------------------------------------------===//

SmallVector<ShapedType> AttentionBackwardOp::getGradientTypes() {
  SmallVector<ShapedType> types;
  while (ShapedType type = outputType(*this, getOuts(), types.size()))
    types.push_back(type);
  return types;
}

LogicalResult AttentionBackwardOp::verify() {
  const Outputs gradients =
      getSink() ? Outputs{4, 4, "dq, dk, dv and dsink"} : Outputs{3, 3, "dq, dk and dv"};
  if (failed(worldsAgree(*this,
                         {{"q", getQ()},
                          {"k", getK()},
                          {"v", getV()},
                          {"o", getO()},
                          {"lse", getLse()},
                          {"do", getDO()},
                          {"sink", getSink()}},
                         getOuts(), gradients)))
    return failure();
  auto typeOf = [](Value value) { return cast<ShapedType>(value.getType()); };
  Inputs inputs(*this);
  if (failed(inputs.fit()) || failed(inputs.haveRows("o", typeOf(getO()))) ||
      failed(inputs.haveStatistics("lse", typeOf(getLse()))) ||
      failed(inputs.haveRows("do", typeOf(getDO()))) ||
      (getSink() && failed(inputs.haveLogits("sink", typeOf(getSink())))))
    return failure();
  const StringRef names[] = {"dq", "dk", "dv"};
  SmallVector<ShapedType> types = getGradientTypes();
  for (auto [name, type] : llvm::zip(names, types))
    if (failed(inputs.haveGradient(name, type)))
      return failure();
  return getSink() ? inputs.haveLogits("dsink", types.back()) : success();
}
