//===- Flash.cpp - attributes and verifiers of the flash dialect ----------===//
//
// Every sentence says what is demanded, what was found and, where it helps, the way out.
//
//===----------------------------------------------------------------------===//
#include "flash/Flash.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

#include "flash/FlashDialect.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "flash/FlashAttrs.cpp.inc"
#define GET_OP_CLASSES
#include "flash/FlashOps.cpp.inc"

using namespace mlir;
using namespace flash;

void FlashDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "flash/FlashAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "flash/FlashOps.cpp.inc"
      >();
}

//===----------------------------------------------------------------------===//
// #flash.mask<kind, left = 1, right = 0, chunk = 64, sink_tokens = 4>
//===----------------------------------------------------------------------===//

schedule::Mask MaskAttr::mask() const {
  return {getKind(), getLeft(), getRight(), getChunk(), getSinkTokens()};
}

Attribute MaskAttr::parse(AsmParser &parser, Type) {
  schedule::Mask mask;
  StringRef kind;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseLess() || parser.parseKeyword(&kind))
    return {};
  auto found = llvm::find_if(schedule::allMaskKinds,
                             [&](auto k) { return llvm::StringRef(schedule::maskName(k)) == kind; });
  if (found == std::end(schedule::allMaskKinds)) {
    parser.emitError(loc, "expected a mask (dense, causal or local), got '") << kind << "'";
    return {};
  }
  mask.kind = *found;
  if (mask.kind == schedule::MaskKind::causal)
    mask.right = 0;
  while (succeeded(parser.parseOptionalComma())) {
    StringRef name;
    int64_t value;
    SMLoc at = parser.getCurrentLocation();
    if (parser.parseKeyword(&name) || parser.parseEqual() || parser.parseInteger(value))
      return {};
    int64_t *field = llvm::StringSwitch<int64_t *>(name)
                         .Case("left", &mask.left)
                         .Case("right", &mask.right)
                         .Case("chunk", &mask.chunk)
                         .Case("sink_tokens", &mask.sinkTokens)
                         .Default(nullptr);
    if (!field) {
      parser.emitError(at, "expected left, right, chunk or sink_tokens, got '") << name << "'";
      return {};
    }
    *field = value;
  }
  if (parser.parseGreater())
    return {};
  return getChecked([&] { return parser.emitError(loc); }, parser.getContext(), mask.kind, mask.left,
                    mask.right, mask.chunk, mask.sinkTokens);
}

void MaskAttr::print(AsmPrinter &printer) const {
  printer << '<' << llvm::StringRef(schedule::maskName(getKind()));
  if (getKind() == schedule::MaskKind::local) {
    if (getLeft() >= 0)
      printer << ", left = " << getLeft();
    if (getRight() >= 0)
      printer << ", right = " << getRight();
    if (getChunk() > 0)
      printer << ", chunk = " << getChunk();
    if (getSinkTokens() > 0)
      printer << ", sink_tokens = " << getSinkTokens();
  }
  printer << '>';
}

LogicalResult MaskAttr::verify(function_ref<InFlightDiagnostic()> emitError, schedule::MaskKind kind,
                               int64_t left, int64_t right, int64_t chunk, int64_t sinkTokens) {
  schedule::MaskRequest request{kind == schedule::MaskKind::causal, left, right, chunk, sinkTokens};
  if (auto why = schedule::whyNotMask(request))
    return emitError() << *why;
  bool plain = left == -1 && chunk == 0 && sinkTokens == 0;
  if (kind == schedule::MaskKind::dense && !(plain && right == -1))
    return emitError() << "a dense mask has no window, chunk or sink tokens; use local";
  if (kind == schedule::MaskKind::causal && !(plain && right == 0))
    return emitError() << "a causal mask has no window, chunk or sink tokens; use local with right = 0";
  return success();
}

//===----------------------------------------------------------------------===//
// #flash.target<"sm_90a">
//===----------------------------------------------------------------------===//

schedule::Target TargetAttr::target() const { return *schedule::parseTarget(getName()); }

Attribute TargetAttr::parse(AsmParser &parser, Type) {
  std::string name;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseLess() || parser.parseString(&name) || parser.parseGreater())
    return {};
  return getChecked([&] { return parser.emitError(loc); }, parser.getContext(), StringRef(name));
}

void TargetAttr::print(AsmPrinter &printer) const { printer << "<\"" << getName() << "\">"; }

LogicalResult TargetAttr::verify(function_ref<InFlightDiagnostic()> emitError, StringRef name) {
  if (schedule::parseTarget(name))
    return success();
  InFlightDiagnostic diagnostic = emitError() << "expected a target (";
  llvm::interleaveComma(schedule::allTargets, diagnostic,
                        [&](auto t) { diagnostic << StringRef(schedule::targetName(t)); });
  return diagnostic << "), got '" << name << "'";
}

//===----------------------------------------------------------------------===//
// #flash.plan<tile = [128, 128], stages = 2>
//===----------------------------------------------------------------------===//

namespace {
enum class FieldKind { integer, pair, flag, text, reasons };
struct Field {
  StringLiteral name;
  FieldKind kind;
};
constexpr Field planFields[] = {
    {"tile", FieldKind::pair},        {"stages", FieldKind::integer},
    {"consumers", FieldKind::integer}, {"registers", FieldKind::pair},
    {"split_by", FieldKind::text},    {"overlap", FieldKind::flag},
    {"pack_gqa", FieldKind::flag},    {"splits", FieldKind::integer},
    {"order", FieldKind::text},       {"roles", FieldKind::flag},
    {"skip_blocks", FieldKind::flag}, {"pipeline_loads", FieldKind::flag},
    {"why", FieldKind::reasons},
};

StringRef demanded(FieldKind kind) {
  switch (kind) {
  case FieldKind::integer:
    return "a positive integer";
  case FieldKind::pair:
    return "two positive integers";
  case FieldKind::flag:
    return "true or false";
  case FieldKind::text:
    return "a string";
  case FieldKind::reasons:
    return "a dictionary of strings";
  }
}

bool isPositive(Attribute value) {
  auto integer = dyn_cast<IntegerAttr>(value);
  return integer && integer.getType().isInteger(64) && integer.getInt() > 0;
}

bool holds(FieldKind kind, Attribute value) {
  switch (kind) {
  case FieldKind::integer:
    return isPositive(value);
  case FieldKind::pair: {
    auto array = dyn_cast<ArrayAttr>(value);
    return array && array.size() == 2 && llvm::all_of(array, isPositive);
  }
  case FieldKind::flag:
    return isa<BoolAttr>(value);
  case FieldKind::text:
    return isa<StringAttr>(value);
  case FieldKind::reasons: {
    auto reasons = dyn_cast<DictionaryAttr>(value);
    return reasons && llvm::all_of(reasons, [](NamedAttribute r) { return isa<StringAttr>(r.getValue()); });
  }
  }
}
} // namespace

std::optional<int64_t> PlanAttr::getInt(StringRef field) const {
  if (auto value = getFields().getAs<IntegerAttr>(field))
    return value.getInt();
  return std::nullopt;
}
std::optional<int64_t> PlanAttr::getInt(StringRef field, unsigned index) const {
  if (auto value = getFields().getAs<ArrayAttr>(field))
    return cast<IntegerAttr>(value[index]).getInt();
  return std::nullopt;
}
std::optional<bool> PlanAttr::getFlag(StringRef field) const {
  if (auto value = getFields().getAs<BoolAttr>(field))
    return value.getValue();
  return std::nullopt;
}
std::optional<StringRef> PlanAttr::getText(StringRef field) const {
  if (auto value = getFields().getAs<StringAttr>(field))
    return value.getValue();
  return std::nullopt;
}

PlanAttr PlanAttr::with(StringRef field, Attribute value, StringRef why) const {
  NamedAttrList fields(getFields());
  fields.set(field, value);
  if (!why.empty()) {
    NamedAttrList reasons(getFields().getAs<DictionaryAttr>("why"));
    reasons.set(field, StringAttr::get(getContext(), why));
    fields.set("why", reasons.getDictionary(getContext()));
  }
  return get(getContext(), fields.getDictionary(getContext()));
}

Attribute PlanAttr::parse(AsmParser &parser, Type) {
  NamedAttrList fields;
  SMLoc loc = parser.getCurrentLocation();
  auto parseField = [&]() -> ParseResult {
    StringRef name;
    Attribute value;
    SMLoc at = parser.getCurrentLocation();
    if (parser.parseKeyword(&name) || parser.parseEqual() || parser.parseAttribute(value))
      return failure();
    if (fields.get(name))
      return parser.emitError(at, "plan has two fields '") << name << "'";
    fields.set(name, value);
    return success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::LessGreater, parseField))
    return {};
  return getChecked([&] { return parser.emitError(loc); }, parser.getContext(),
                    fields.getDictionary(parser.getContext()));
}

void PlanAttr::print(AsmPrinter &printer) const {
  printer << '<';
  bool first = true;
  for (const Field &field : planFields) { // in the table's order, so that the eye finds them
    Attribute value = getFields().get(field.name);
    if (!value)
      continue;
    printer << (first ? "" : ", ") << field.name << " = ";
    printer.printAttributeWithoutType(value);
    first = false;
  }
  printer << '>';
}

LogicalResult PlanAttr::verify(function_ref<InFlightDiagnostic()> emitError, DictionaryAttr fields) {
  for (NamedAttribute entry : fields) {
    auto field = llvm::find_if(planFields, [&](const Field &f) { return f.name == entry.getName(); });
    if (field == std::end(planFields))
      return emitError() << "a plan has no field '" << entry.getName().getValue() << "'";
    if (!holds(field->kind, entry.getValue()))
      return emitError() << "plan field '" << field->name << "' needs " << demanded(field->kind)
                         << ", got " << entry.getValue();
  }
  return success();
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
static void memoryEffects(OpT op, SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  for (OpOperand &operand : op->getOpOperands()) {
    if (!isa<MemRefType>(operand.get().getType()))
      continue;
    if (llvm::is_contained(op.getOuts(), operand.get()))
      effects.emplace_back(MemoryEffects::Write::get(), &operand);
    else
      effects.emplace_back(MemoryEffects::Read::get(), &operand);
  }
}
void AttentionOp::getEffects(SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  memoryEffects(*this, effects);
}
void CombineOp::getEffects(SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
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
  return op->emitOpError() << "expected " << a.owner << "'s " << a.what << " (" << a.value << ") to equal "
                           << b.owner << "'s (" << b.value << ")";
}

LogicalResult hasRank(Operation *op, StringRef owner, ShapedType type, int64_t rank, StringRef shape) {
  if (type.getRank() == rank)
    return success();
  return op->emitOpError() << "expected " << owner << " of rank " << rank << " (" << shape << "), got rank "
                           << type.getRank();
}

LogicalResult hasElement(Operation *op, StringRef owner, ShapedType type, Type element, StringRef why) {
  if (type.getElementType() == element)
    return success();
  return op->emitOpError() << "expected " << owner << "'s element type to be " << element << why << ", got "
                           << type.getElementType();
}

LogicalResult hasContiguousRows(Operation *op, StringRef owner, Type type) {
  auto memref = dyn_cast<MemRefType>(type);
  if (!memref)
    return success();
  SmallVector<int64_t> strides;
  int64_t offset;
  if (failed(memref.getStridesAndOffset(strides, offset)))
    return op->emitOpError() << "expected " << owner << " to be a strided memref, got " << memref;
  if (strides.back() != 1)
    return op->emitOpError() << "expected " << owner << "'s last dimension to be contiguous, its stride is "
                             << (ShapedType::isDynamic(strides.back()) ? std::string("unknown")
                                                                        : std::to_string(strides.back()));
  return success();
}

/// One world an op: tensors in, tensors out; or memrefs in, memrefs in `outs`.
template <typename OpT> LogicalResult worldsAgree(OpT op, ArrayRef<std::pair<StringRef, Type>> inputs) {
  bool tensors = isa<RankedTensorType>(inputs.front().second);
  for (auto [name, type] : inputs)
    if (isa<RankedTensorType>(type) != tensors)
      return op.emitOpError() << "expected " << name << " to be a " << (tensors ? "tensor" : "memref") << " as "
                              << inputs.front().first << " is, got " << type;
  if (tensors && !op.getOuts().empty())
    return op.emitOpError("expected results instead of outs over tensors");
  if (!tensors && op.getNumResults() != 0)
    return op.emitOpError("expected outs instead of results over memrefs");
  unsigned outputs = op.getNumResults() + op.getOuts().size();
  if (outputs < 1 || outputs > 2)
    return op.emitOpError() << "expected o and optionally lse as " << (tensors ? "results" : "outs") << ", got "
                            << outputs;
  return success();
}
} // namespace

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
  if (failed(hasElement(*this, "k", k, element, " as q's")) || failed(hasElement(*this, "v", v, element, " as q's")))
    return failure();
  if (failed(equal(*this, {"k", "batch", k.getDimSize(0)}, {"q", "batch", q.getDimSize(0)})) ||
      failed(equal(*this, {"v", "batch", v.getDimSize(0)}, {"q", "batch", q.getDimSize(0)})) ||
      failed(equal(*this, {"v", "length", v.getDimSize(1)}, {"k", "length", k.getDimSize(1)})) ||
      failed(equal(*this, {"v", "heads", v.getDimSize(2)}, {"k", "heads", k.getDimSize(2)})) ||
      failed(equal(*this, {"k", "head size", k.getDimSize(3)}, {"q", "head size", q.getDimSize(3)})))
    return failure();
  for (auto [name, type] : {std::pair<StringRef, ShapedType>{"q", q}, {"k", k}, {"v", v}}) {
    if (type.isDynamicDim(3))
      return emitOpError() << "expected " << name << "'s head size to be known when compiling";
    if (failed(hasContiguousRows(*this, name, type)))
      return failure();
  }
  int64_t heads = q.getDimSize(2), kvHeads = k.getDimSize(2);
  if (!ShapedType::isDynamic(heads) && !ShapedType::isDynamic(kvHeads) && (kvHeads == 0 ? heads != 0 : heads % kvHeads))
    return emitOpError() << "expected q's heads (" << heads << ") to be a multiple of k's (" << kvHeads << ")";

  int64_t partial = o.getRank() == 5;
  if (!partial && failed(hasRank(*this, "o", o, 4, "batch x length x heads x head size, or splits before them")))
    return failure();
  if (partial ? failed(hasElement(*this, "o", o, Float32Type::get(getContext()), " for partial results"))
              : failed(hasElement(*this, "o", o, element, " as q's")))
    return failure();
  for (auto [index, what] : llvm::enumerate(ArrayRef<StringRef>{"batch", "length", "heads"}))
    if (failed(equal(*this, {"o", what, o.getDimSize(partial + index)}, {"q", what, q.getDimSize(index)})))
      return failure();
  if (failed(equal(*this, {"o", "head size", o.getDimSize(partial + 3)}, {"v", "head size", v.getDimSize(3)})) ||
      failed(hasContiguousRows(*this, "o", o)))
    return failure();
  if (partial && !lse)
    return emitOpError("expected lse besides a partial o: without it the parts cannot be joined");
  if (lse) {
    if (failed(hasRank(*this, "lse", lse, 3 + partial, partial ? "splits x batch x heads x length" : "batch x heads x length")) ||
        failed(hasElement(*this, "lse", lse, Float32Type::get(getContext()), "")))
      return failure();
    if (partial && failed(equal(*this, {"lse", "splits", lse.getDimSize(0)}, {"o", "splits", o.getDimSize(0)})))
      return failure();
    if (failed(equal(*this, {"lse", "batch", lse.getDimSize(partial)}, {"q", "batch", q.getDimSize(0)})) ||
        failed(equal(*this, {"lse", "heads", lse.getDimSize(partial + 1)}, {"q", "heads", heads})) ||
        failed(equal(*this, {"lse", "length", lse.getDimSize(partial + 2)}, {"q", "length", q.getDimSize(1)})))
      return failure();
  }
  if (getSink()) {
    auto sink = cast<ShapedType>(getSink().getType());
    if (failed(hasRank(*this, "sink", sink, 1, "heads")) ||
        failed(hasElement(*this, "sink", sink, Float32Type::get(getContext()), "")) ||
        failed(equal(*this, {"sink", "heads", sink.getDimSize(0)}, {"q", "heads", heads})))
      return failure();
    if (isa<RankedTensorType>(sink) != isa<RankedTensorType>(q))
      return emitOpError() << "expected sink to be a " << (isa<RankedTensorType>(q) ? "tensor" : "memref")
                           << " as q is, got " << sink;
  }
  return success();
}

LogicalResult CombineOp::verify() {
  auto o = cast<ShapedType>(getOPartial().getType()), lse = cast<ShapedType>(getLsePartial().getType());
  Type f32 = Float32Type::get(getContext());
  if (failed(worldsAgree(*this, {{"o_partial", o}, {"lse_partial", lse}})) ||
      failed(hasRank(*this, "o_partial", o, 5, "splits x batch x length x heads x head size")) ||
      failed(hasRank(*this, "lse_partial", lse, 4, "splits x batch x heads x length")) ||
      failed(hasElement(*this, "o_partial", o, f32, "")) || failed(hasElement(*this, "lse_partial", lse, f32, "")) ||
      failed(hasContiguousRows(*this, "o_partial", o)))
    return failure();
  if (o.isDynamicDim(4))
    return emitOpError("expected o_partial's head size to be known when compiling");
  if (failed(equal(*this, {"lse_partial", "splits", lse.getDimSize(0)}, {"o_partial", "splits", o.getDimSize(0)})) ||
      failed(equal(*this, {"lse_partial", "batch", lse.getDimSize(1)}, {"o_partial", "batch", o.getDimSize(1)})) ||
      failed(equal(*this, {"lse_partial", "heads", lse.getDimSize(2)}, {"o_partial", "heads", o.getDimSize(3)})) ||
      failed(equal(*this, {"lse_partial", "length", lse.getDimSize(3)}, {"o_partial", "length", o.getDimSize(2)})))
    return failure();
  ShapedType joined = getOutputType(), joinedLse = getLseType();
  if (failed(hasRank(*this, "o", joined, 4, "batch x length x heads x head size")) ||
      failed(hasContiguousRows(*this, "o", joined)))
    return failure();
  Type element = joined.getElementType();
  if (!element.isF16() && !element.isBF16() && !element.isF32())
    return emitOpError() << "expected o's element type to be f16, bf16 or f32, got " << element;
  for (auto [index, what] : llvm::enumerate(ArrayRef<StringRef>{"batch", "length", "heads", "head size"}))
    if (failed(equal(*this, {"o", what, joined.getDimSize(index)}, {"o_partial", what, o.getDimSize(index + 1)})))
      return failure();
  if (!joinedLse)
    return success();
  if (failed(hasRank(*this, "lse", joinedLse, 3, "batch x heads x length")) ||
      failed(hasElement(*this, "lse", joinedLse, f32, "")))
    return failure();
  for (auto [index, what] : llvm::enumerate(ArrayRef<StringRef>{"batch", "heads", "length"}))
    if (failed(equal(*this, {"lse", what, joinedLse.getDimSize(index)}, {"lse_partial", what, lse.getDimSize(index + 1)})))
      return failure();
  return success();
}
