//===- Attributes.cpp - #flash.mask, #flash.target, #flash.plan -----------===//
//
// How they are written, and the sentences for what makes no sense.
//
//===----------------------------------------------------------------------===//
#include "flash/Flash.h"
#include "flash/Schedule/Plan.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

#define GET_ATTRDEF_CLASSES
#include "flash/FlashAttrs.cpp.inc"

using namespace mlir;
using namespace flash;

void FlashDialect::registerAttributes() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "flash/FlashAttrs.cpp.inc"
      >();
}

/// Lengths stay below it, and so does everything that a plan or a mask counts in rows.
static constexpr int64_t planLimit = std::numeric_limits<int32_t>::max();

//===----------------------------------------------------------------------===//
// #flash.mask<kind, left = 1, right = 0, chunk = 64, sink_tokens = 4>
//===----------------------------------------------------------------------===//

static schedule::MaskRequest asked(const schedule::Mask &mask) {
  return {mask.kind == schedule::MaskKind::causal, mask.left, mask.right, mask.chunk,
          mask.sinkTokens};
}
schedule::MaskRequest MaskAttr::request() const { return asked(mask()); }
schedule::Mask MaskAttr::mask() const {
  return {getKind(), getLeft(), getRight(), getChunk(), getSinkTokens()};
}

Attribute MaskAttr::parse(AsmParser &parser, Type type) {
  schedule::Mask mask;
  StringRef kind;
  SMLoc loc = parser.getCurrentLocation();
  if (type) { // the parser takes `#flash.mask<causal> : T` for an attribute with a type
    parser.emitError(loc, "a mask has no type; before ':' write it without '#flash.mask'");
    return {};
  }
  if (parser.parseLess() || parser.parseKeyword(&kind))
    return {};
  auto found = llvm::find_if(schedule::allMaskKinds, [&](auto k) {
    return llvm::StringRef(schedule::maskName(k)) == kind;
  });
  if (found == std::end(schedule::allMaskKinds)) {
    parser.emitError(loc, "expected a mask (dense, causal or local), got '") << kind << "'";
    return {};
  }
  mask.kind = *found;
  if (mask.kind == schedule::MaskKind::causal)
    mask.right = 0;
  SmallVector<StringRef> seen;
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
    if (llvm::is_contained(seen, name)) {
      parser.emitError(at, "mask has two fields '") << name << "'";
      return {};
    }
    seen.push_back(name);
    *field = value;
  }
  if (parser.parseGreater())
    return {};
  return getChecked([&] { return parser.emitError(loc); }, parser.getContext(), mask.kind,
                    mask.left, mask.right, mask.chunk, mask.sinkTokens);
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

LogicalResult MaskAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                               schedule::MaskKind kind, int64_t left, int64_t right, int64_t chunk,
                               int64_t sinkTokens) {
  if (auto why = schedule::whyNotMask(asked({kind, left, right, chunk, sinkTokens})))
    return emitError() << *why;
  for (int64_t value : {left, right, chunk, sinkTokens})
    if (value > planLimit)
      return emitError() << "expected a mask's numbers to be at most " << planLimit << ", got "
                         << value << "; leave out a bound that no key reaches";
  bool plain = left == -1 && chunk == 0 && sinkTokens == 0;
  if (kind == schedule::MaskKind::dense && !(plain && right == -1))
    return emitError() << "a dense mask has no window, chunk or sink tokens; use local";
  if (kind == schedule::MaskKind::causal && !(plain && right == 0))
    return emitError()
           << "a causal mask has no window, chunk or sink tokens; use local with right = 0";
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
enum class FieldKind { integer, columns, pair, flag, order, splitBy, transfer, reasons };
struct Field {
  StringLiteral name;
  FieldKind kind;
};
constexpr Field planFields[] = {
    {"tile", FieldKind::pair},
    {"stages", FieldKind::integer},
    {"consumers", FieldKind::integer},
    {"registers", FieldKind::pair},
    {"warps", FieldKind::integer},
    {"in_step", FieldKind::flag},
    {"persistent", FieldKind::flag},
    {"split_by", FieldKind::splitBy},
    {"overlap", FieldKind::flag},
    {"q_in_regs", FieldKind::flag},
    {"early_wait", FieldKind::flag},
    {"own_dv", FieldKind::flag},
    {"alternate", FieldKind::flag},
    {"late_v", FieldKind::flag},
    {"late_dp", FieldKind::flag},
    {"ping_pong", FieldKind::flag},
    {"pack_gqa", FieldKind::flag},
    {"splits", FieldKind::integer},
    {"order", FieldKind::order},
    {"roles", FieldKind::flag},
    {"skip_blocks", FieldKind::flag},
    {"pipeline_loads", FieldKind::flag},
    {"stealing", FieldKind::flag},
    {"ordered", FieldKind::flag},
    {"exact_counts", FieldKind::flag},
    {"transfer", FieldKind::transfer},
    {"defer_max", FieldKind::flag},
    {"multicast", FieldKind::flag},
    {"staged_columns", FieldKind::columns},
    {"read_once", FieldKind::flag},
    {"join", FieldKind::pair},
    {"aside", FieldKind::integer},
    {"why", FieldKind::reasons},
};

template <typename Names>
std::string oneOf(const Names &all, std::string_view (*name)(std::decay_t<decltype(all[0])>)) {
  std::string text = "one of";
  for (auto value : all)
    text += (text.back() == 'f' ? " \"" : ", \"") + std::string(name(value)) + '"';
  return text;
}

std::string demanded(FieldKind kind) {
  const std::string limit = " from 1 to " + std::to_string(planLimit);
  switch (kind) {
  case FieldKind::integer:
    return "an integer" + limit;
  case FieldKind::columns:
    return "an integer from 0 to " + std::to_string(planLimit);
  case FieldKind::pair:
    return "two integers" + limit;
  case FieldKind::flag:
    return "true or false";
  case FieldKind::order:
    return oneOf(schedule::allWorkOrders, schedule::orderName);
  case FieldKind::splitBy:
    return oneOf(std::array{schedule::SplitBy::rows, schedule::SplitBy::columns},
                 schedule::splitByName);
  case FieldKind::transfer:
    return oneOf(std::array{schedule::Transfer::tma, schedule::Transfer::gather},
                 schedule::transferName);
  case FieldKind::reasons:
    return "a dictionary of strings";
  }
}

bool isCount(Attribute value) {
  auto integer = dyn_cast<IntegerAttr>(value);
  return integer && integer.getType().isSignlessInteger(64) && integer.getInt() > 0 &&
         integer.getInt() <= planLimit;
}

bool holds(FieldKind kind, Attribute value) {
  switch (kind) {
  case FieldKind::integer:
    return isCount(value);
  case FieldKind::columns: {
    auto integer = dyn_cast<IntegerAttr>(value);
    return isCount(value) ||
           (integer && integer.getType().isSignlessInteger(64) && integer.getInt() == 0);
  }
  case FieldKind::pair: {
    auto array = dyn_cast<ArrayAttr>(value);
    return array && array.size() == 2 && llvm::all_of(array, isCount);
  }
  case FieldKind::flag:
    return isa<BoolAttr>(value);
  case FieldKind::order: {
    auto name = dyn_cast<StringAttr>(value);
    return name && schedule::parseOrder(name.getValue());
  }
  case FieldKind::splitBy: {
    auto name = dyn_cast<StringAttr>(value);
    return name && schedule::parseSplitBy(name.getValue());
  }
  case FieldKind::transfer: {
    auto name = dyn_cast<StringAttr>(value);
    return name && schedule::parseTransfer(name.getValue());
  }
  case FieldKind::reasons: {
    auto reasons = dyn_cast<DictionaryAttr>(value);
    return reasons &&
           llvm::all_of(reasons, [](NamedAttribute r) { return isa<StringAttr>(r.getValue()); });
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

PlanAttr PlanAttr::because(StringRef why) const {
  PlanAttr all = *this;
  auto given = getFields().getAs<DictionaryAttr>("why");
  for (NamedAttribute field : getFields())
    if (field.getName() != "why" && !(given && given.contains(field.getName())))
      all = all.with(field.getName(), field.getValue(), why);
  return all;
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

LogicalResult PlanAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                               DictionaryAttr fields) {
  for (NamedAttribute entry : fields) {
    auto field =
        llvm::find_if(planFields, [&](const Field &f) { return f.name == entry.getName(); });
    if (field == std::end(planFields)) {
      InFlightDiagnostic diagnostic = emitError()
                                      << "a plan has no field '" << entry.getName().getValue()
                                      << "'; its fields are ";
      llvm::interleaveComma(planFields, diagnostic, [&](const Field &f) { diagnostic << f.name; });
      return diagnostic;
    }
    if (!holds(field->kind, entry.getValue()))
      return emitError() << "plan field '" << field->name << "' needs " << demanded(field->kind)
                         << ", got " << entry.getValue();
  }
  return success();
}
