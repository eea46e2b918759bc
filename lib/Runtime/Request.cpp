//===- Request.cpp - a problem as text, and its plan ----------------------===//
#include "flash/Runtime/Request.h"

#include "flash/Planning.h"
#include "flash/Schedule/Record.h"
#include "mlir/AsmParser/AsmParser.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>

using namespace flash;
using llvm::StringRef;
namespace json = llvm::json;

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

namespace {

/// Reads the fields of an object; the first thing that is wrong is kept as a sentence.
class Reader {
public:
  explicit Reader(const json::Object &object) : object(object) {}

  std::optional<std::string> whyNot;

  /// Leaves `into` alone where the field is missing or null.
  template <class T> void read(StringRef field, T &into) {
    const json::Value *value = take(field);
    if (!value)
      return;
    if constexpr (std::is_same_v<T, bool>)
      set(field, into, value->getAsBoolean(), "true or false", *value);
    else if constexpr (std::is_same_v<T, std::string>)
      set(field, into, value->getAsString(), "a string", *value);
    else
      set(field, into, integer(*value), "an integer of 32 bits", *value);
  }
  static std::optional<int64_t> integer(const json::Value &value) {
    auto found = value.getAsInteger();
    return found && llvm::isInt<32>(*found) ? found : std::nullopt;
  }
  template <class Parse, class T>
  void readName(StringRef field, T &into, Parse parse, StringRef choices) {
    std::string name;
    read(field, name);
    auto found = parse(name);
    if (found)
      into = *found;
    else
      fail("expected " + field.str() + " to be " + choices.str() + ", got '" + name + "'");
  }
  bool has(StringRef field) { return take(field) != nullptr; }
  const json::Value *take(StringRef field) {
    known.push_back(field);
    const json::Value *value = object.get(field);
    return value && value->kind() != json::Value::Null ? value : nullptr;
  }
  template <class T, class U>
  void set(StringRef field, T &into, std::optional<U> value, StringRef demand,
           const json::Value &got) {
    if (value)
      into = T(*value);
    else
      wrong(field, demand, got);
  }
  void wrong(StringRef field, StringRef demand, const json::Value &got) {
    std::string shown;
    llvm::raw_string_ostream(shown) << got;
    fail("expected " + field.str() + " to be " + demand.str() + ", got " + shown);
  }
  void fail(std::string sentence) {
    if (!whyNot)
      whyNot = std::move(sentence);
  }
  /// A misspelt field must not be ignored.
  void finish() {
    for (const auto &entry : object)
      if (!llvm::is_contained(known, StringRef(entry.first)))
        fail("a problem has no field '" + entry.first.str() + "'");
  }

private:
  const json::Object &object;
  std::vector<StringRef> known;
};

template <class Range, class Name> std::string choicesOf(const Range &range, Name name) {
  std::string all;
  for (auto each : range)
    all += (all.empty() ? "" : ", ") + std::string(name(each));
  return all;
}

const char *const passNames[] = {"split_kv",    "order_work",   "skip_blocks",     "pipeline_loads",
                                 "split_roles", "exact_counts", "overlap_softmax", "hold_q",
                                 "ping_pong",   "defer_max",    "multicast"};

void readPasses(Reader &reader, std::map<std::string, bool> &passes) {
  const json::Value *value = reader.take("passes");
  if (!value)
    return;
  const json::Object *object = value->getAsObject();
  if (!object)
    return reader.wrong("passes", "an object", *value);
  for (const auto &entry : *object) {
    StringRef name = entry.first;
    auto on = entry.second.getAsBoolean();
    if (!llvm::is_contained(passNames, name))
      reader.fail("expected passes to name " + choicesOf(passNames, [](auto n) { return n; }) +
                  ", got '" + name.str() + "'");
    else if (!on)
      reader.wrong("passes' " + name.str(), "true or false", entry.second);
    else
      passes[name.str()] = *on;
  }
}

void readWindow(Reader &reader, schedule::MaskRequest &mask) {
  const json::Value *value = reader.take("window");
  if (!value)
    return;
  const json::Array *sides = value->getAsArray();
  auto side = [&](size_t i) { return Reader::integer((*sides)[i]); };
  if (!sides || sides->size() != 2 || !side(0) || !side(1))
    return reader.wrong("window", "two integers of 32 bits", *value);
  mask.left = *side(0);
  mask.right = *side(1);
}

std::vector<std::string> readRecordFiles(Reader &reader) {
  std::vector<std::string> files;
  const json::Value *value = reader.take("records");
  const json::Array *all = value ? value->getAsArray() : nullptr;
  if (value && !all)
    reader.wrong("records", "an array of files", *value);
  for (size_t i = 0; all && i < all->size(); ++i)
    if (auto path = (*all)[i].getAsString())
      files.push_back(path->str());
    else
      reader.wrong("records", "an array of files", *value);
  return files;
}

//===----------------------------------------------------------------------===//
// Plans by hand
//===----------------------------------------------------------------------===//

/// A plan as text, parsed where nothing is printed.
class HandPlan {
public:
  HandPlan() : context(mlir::MLIRContext::Threading::DISABLED) {
    context.loadDialect<FlashDialect>();
    context.getDiagEngine().registerHandler([this](mlir::Diagnostic &d) {
      if (said.empty())
        said = ": " + d.str();
      return mlir::success();
    });
  }

  Outcome parse(const std::string &text) {
    plan = parsed(text);
    if (plan)
      return {};
    return invalid("expected plan to be #flash.plan<...>, got '" + text + "'" + said);
  }

  schedule::PlanOverrides overrides() const { return overridesOf(plan); }

  /// The plan with the fields of `decided` that it leaves out.
  std::string completed(const std::string &decided) {
    mlir::NamedAttrList fields(parsed(decided).getFields());
    for (mlir::NamedAttribute field : plan.getFields())
      fields.set(field.getName(), field.getValue());
    std::string text;
    llvm::raw_string_ostream(text)
        << mlir::Attribute(PlanAttr::get(&context, fields.getDictionary(&context)));
    return text;
  }

private:
  PlanAttr parsed(const std::string &text) {
    return llvm::dyn_cast_or_null<PlanAttr>(mlir::parseAttribute(text, &context));
  }
  mlir::MLIRContext context;
  std::string said;
  PlanAttr plan;
};

/// What the planner decided with the problem's sizes, which the op's types leave open; the other
/// fields follow from what the op says, and flash-select-tiles writes them.
std::string decidedText(const schedule::Plan &plan, const schedule::Problem &problem) {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << "#flash.plan<tile = [" << plan.tileM << ", " << plan.tileN
     << "], pack_gqa = " << (plan.packGqa ? "true" : "false");
  if (!plan.splitsAtLaunch) // one program serves them all
    os << ", splits = " << plan.splits;
  os << ", order = \"" << StringRef(schedule::orderName(plan.order)) << '"';
  if (plan.transfer != schedule::Transfer::tma)
    os << ", transfer = \"" << StringRef(schedule::transferName(plan.transfer)) << '"';
  const schedule::HeadTile head{plan.headTile, plan.headTileV};
  const auto anyRows = schedule::defaultTile(problem.target, head, plan.mask.kind,
                                              schedule::unlimited, schedule::hasTables(problem));
  if (anyRows && plan.stages != anyRows->tile.stages)
    os << ", stages = " << plan.stages;
  if (anyRows && plan.deferMax != anyRows->tile.deferMax)
    os << ", defer_max = " << (plan.deferMax ? "true" : "false");
  if (anyRows && plan.overlap != anyRows->tile.overlap)
    os << ", overlap = " << (plan.overlap ? "true" : "false");
  os << '>';
  return text;
}

} // namespace

/// The records of a file, read again only when it has changed: every new length asks for them.
static Or<std::shared_ptr<const std::vector<schedule::Record>>> recordsAt(const std::string &path) {
  struct File {
    std::filesystem::file_time_type time;
    uintmax_t size;
    std::shared_ptr<const std::vector<schedule::Record>> records;
  };
  static std::mutex lock;
  static std::map<std::string, File> files;
  std::error_code noTime, noSize;
  const auto time = std::filesystem::last_write_time(path, noTime);
  const uintmax_t size = std::filesystem::file_size(path, noSize);
  std::lock_guard guard(lock);
  if (auto known = files.find(path); known != files.end() && !noTime && !noSize &&
                                     known->second.time == time && known->second.size == size)
    return known->second.records;
  auto read = schedule::readRecords(path);
  if (auto *sentence = std::get_if<std::string>(&read))
    return invalid(*sentence);
  auto records = std::make_shared<const std::vector<schedule::Record>>(
      std::get<std::vector<schedule::Record>>(std::move(read)));
  files[path] = {time, size, records};
  return records;
}

/// The first record of the problem in the files.
static Or<std::optional<schedule::Record>> recordIn(const std::vector<std::string> &files,
                                                    const schedule::Problem &problem,
                                                    const std::string &gpu) {
  for (const std::string &file : files) {
    auto read = recordsAt(file);
    if (auto *failure = std::get_if<Failure>(&read))
      return *failure;
    const auto &records = *std::get<0>(read);
    if (const schedule::Record *record = schedule::recordOf(problem, gpu, records))
      return std::optional(*record);
  }
  return std::optional<schedule::Record>();
}

/// Puts what a record advises into `plan` and `overrides`, or says why that does not fit and leaves
/// `overrides` alone.
static std::string whyNotAdvice(const schedule::Record &record, const schedule::Problem &problem,
                                std::optional<schedule::Transfer> transfer, HandPlan &plan,
                                schedule::PlanOverrides &overrides) {
  const std::string but = "; the record for " + record.gpu + " is left out: ";
  if (Outcome failure = plan.parse(record.plan))
    return but + failure->sentence;
  schedule::PlanOverrides advised = plan.overrides();
  if (!advised.transfer)
    advised.transfer = transfer;
  advised.why = "record for " + record.gpu + ": " + record.why;
  auto planned = schedule::makePlan(problem, advised);
  if (auto *refusal = std::get_if<schedule::Refusal>(&planned))
    return but + refusal->sentence;
  overrides = std::move(advised);
  return {};
}

/// Parsers recurse; what is nested deeper than any problem is must not reach them.
static bool isTooDeep(StringRef text) {
  constexpr int deepest = 64;
  int depth = 0;
  for (char c : text) {
    depth += StringRef("[{<(").contains(c) - StringRef("]}>)").contains(c);
    if (depth > deepest)
      return true;
  }
  return false;
}

Or<Request> flash::readRequest(const std::string &text) {
  if (isTooDeep(text))
    return invalid("expected a problem as JSON, got brackets nested deeper than any problem has");
  auto parsed = json::parse(text);
  if (!parsed)
    return invalid("expected a problem as JSON: " + llvm::toString(parsed.takeError()));
  const json::Object *object = parsed->getAsObject();
  if (!object)
    return invalid("expected a problem as a JSON object");

  Request r;
  r.text = text;
  schedule::Problem &p = r.problem;
  Reader reader(*object);
  reader.readName("target", p.target, schedule::parseTarget,
                  choicesOf(schedule::allTargets, schedule::targetName));
  reader.readName("element", p.element, schedule::parseElement,
                  choicesOf(schedule::allElementTypes, schedule::elementName));
  reader.read("head_size", p.headSize);
  p.headSizeV = p.headSize;
  reader.read("head_size_v", p.headSizeV);
  reader.read("merge", r.merge);
  reader.read("causal", p.mask.causal);
  readWindow(reader, p.mask);
  reader.read("chunk", p.mask.chunk);
  reader.read("sink_tokens", p.mask.sinkTokens);
  reader.read("softcap", p.softcap);
  reader.read("sink", p.sink);
  reader.read("batch", p.batch);
  reader.read("heads", p.heads);
  reader.read("kv_heads", p.kvHeads);
  reader.read("len_q", p.lenQ);
  reader.read("len_k", p.lenK);
  reader.read("packed_q", p.packedQ);
  reader.read("packed_k", p.packedK);
  reader.read("total_q", p.totalQ);
  reader.read("used_q", p.usedQ);
  reader.read("used_k", p.usedK);
  if (int64_t size = 0; reader.has("page_size")) {
    reader.read("page_size", size);
    p.pageSize = size;
  }
  reader.read("kv_batch_idx", p.batchIdx);
  reader.read("leftpad_k", p.leftpad);
  reader.read("append", p.append);
  reader.read("rotary", p.rotary);
  reader.read("rotary_interleaved", p.rotaryInterleaved);
  reader.read("num_splits", p.numSplits);
  reader.read("sms", p.sms);
  if (const json::Value *pack = reader.take("pack_gqa"))
    reader.set("pack_gqa", p.packGqa, pack->getAsBoolean(), "true or false", *pack);
  std::optional<schedule::Transfer> transfer;
  if (reader.take("transfer"))
    reader.readName("transfer", transfer, schedule::parseTransfer, "tma or gather");
  reader.read("plan", r.byHand);
  std::string gpu;
  reader.read("gpu", gpu);
  const std::vector<std::string> files = readRecordFiles(reader);
  readPasses(reader, r.passes);
  reader.finish();
  if (reader.whyNot)
    return invalid(*reader.whyNot);

  if (auto why = schedule::whyNotProblem(p))
    return invalid(*why);
  if (r.merge)
    return p.element == schedule::ElementType::f8
               ? Or<Request>(notBuilt("f8e4m3 is not built; use f16 or bf16"))
               : r;
  std::optional<HandPlan> hand;
  schedule::PlanOverrides overrides;
  if (!r.byHand.empty()) {
    if (Outcome failure = hand.emplace().parse(r.byHand))
      return *failure;
    overrides = hand->overrides();
  }
  if (!overrides.transfer)
    overrides.transfer = transfer;
  std::string leftOut;
  if (!hand) {
    auto found = recordIn(files, p, gpu);
    if (auto *failure = std::get_if<Failure>(&found))
      return *failure;
    if (auto &record = std::get<std::optional<schedule::Record>>(found)) {
      leftOut = whyNotAdvice(*record, p, transfer, hand.emplace(), overrides);
      if (leftOut.empty())
        r.byHand = record->plan;
      else
        hand.reset();
    }
    // What is kept of the request must not change with the files.
    json::Object settled(*object);
    settled.erase("records");
    settled.erase("gpu");
    if (!r.byHand.empty())
      settled["plan"] = r.byHand;
    r.text = llvm::formatv("{0}", json::Value(std::move(settled)));
  }
  auto planned = schedule::makePlan(p, overrides);
  if (auto *refusal = std::get_if<schedule::Refusal>(&planned))
    return refusal->kind == schedule::Refusal::invalid ? invalid(refusal->sentence)
                                                       : notBuilt(refusal->sentence);
  r.plan = std::get<schedule::Plan>(planned);
  if (auto pass = r.passes.find("split_kv"); pass != r.passes.end() && !pass->second)
    r.plan.splits = 1, r.plan.splitsAtLaunch = false;
  r.plan.reasons.tile += leftOut;
  r.planText = decidedText(r.plan, p);
  if (hand)
    r.planText = hand->completed(r.planText);
  return r;
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

static std::string maskText(const schedule::Mask &mask) {
  std::string text = "#flash.mask<" + std::string(schedule::maskName(mask.kind));
  auto add = [&](const char *name, int64_t value, int64_t none) {
    if (value > none)
      text += std::string(", ") + name + " = " + std::to_string(value);
  };
  if (mask.kind == schedule::MaskKind::local) {
    add("left", mask.left, -1);
    add("right", mask.right, -1);
    add("chunk", mask.chunk, 0);
    add("sink_tokens", mask.sinkTokens, 0);
  }
  return text + ">";
}

/// Heads are static only where the plan packs them: the group shapes the tile's rows.
static std::string headsText(const Request &request, int64_t heads) {
  return request.plan.packGqa ? std::to_string(heads) : "?";
}

/// A GPU's copies depend on the size of pages, loops do not.
static std::string pageText(const Request &request) {
  return request.problem.target == schedule::Target::cpu
             ? "?"
             : std::to_string(*request.problem.pageSize);
}

/// Whether query t is turned by the position t behind the keys; else all are by the first one.
static bool turnsByQuery(const schedule::Problem &p) {
  return p.mask.causal || p.mask.left >= 0 || p.mask.right >= 0;
}

std::string flash::keyOf(const Request &request) {
  const schedule::Problem &p = request.problem;
  const schedule::Plan &plan = request.plan;
  std::string key;
  llvm::raw_string_ostream os(key);
  if (request.merge) {
    os << "merge " << StringRef(schedule::targetName(p.target)) << ' '
       << StringRef(schedule::elementName(p.element)) << ' ' << p.headSizeV << ' ' << p.packedQ;
    return key;
  }
  os << StringRef(schedule::targetName(p.target)) << ' '
     << StringRef(schedule::elementName(p.element)) << " head " << p.headSize << ' ' << p.headSizeV
     << ' ' << maskText(plan.mask) << " softcap " << p.softcap << " sink " << p.sink << " heads "
     << headsText(request, p.heads) << ' ' << headsText(request, p.kvHeads) << ' '
     << request.planText << " stages " << plan.stages << " consumers " << plan.consumers << ' '
     << StringRef(schedule::splitByName(plan.splitBy)) << " registers " << plan.producerRegisters
     << ' ' << plan.consumerRegisters << ' ' << plan.pvFromRegisters << " overlap " << plan.overlap
     << " split " << (plan.splits > 1) << " defer " << plan.deferMax << " q " << plan.qInRegisters
     << " early " << plan.earlyWait << " turns " << plan.pingPong << " multicast " << plan.multicast
     << " transfer " << StringRef(schedule::transferName(plan.transfer)) << " persistent "
     << plan.persistent << " stealing " << plan.stealing;
  if (schedule::hasTables(p))
    os << " packed " << p.packedQ << ' ' << p.packedK << " used " << p.usedQ << ' ' << p.usedK
       << " pages " << (p.pageSize ? pageText(request) : "none") << " idx " << p.batchIdx << " pad "
       << p.leftpad << " append " << p.append << " rotary " << p.rotary << ' '
       << p.rotaryInterleaved << ' ' << turnsByQuery(p);
  for (const auto &[name, on] : request.passes)
    os << ' ' << name << ' ' << on;
  return key;
}

namespace {
/// The text of a function as it grows: its arguments, and its ops.
struct FunctionText {
  std::string arguments, body;

  /// An argument, as operands are written.
  void argue(const std::string &name, const std::string &type) {
    arguments += (arguments.empty() ? "    %" : ",\n    %") + name + ": " + type;
  }
  /// ` clause(%name : type)`, of a new argument.
  std::string table(const std::string &clause, const std::string &name, const std::string &type) {
    argue(name, type);
    return " " + clause + "(%" + name + " : " + type + ")";
  }
};
} // namespace

static std::string mergeText(const schedule::Problem &p) {
  // Each dimension but the rows' columns is known when it runs.
  auto tensor = [](int rank, const std::string &last, const std::string &element) {
    std::string sizes, strides;
    for (int dim = 1; dim < rank; ++dim)
      sizes += "?x", strides += "?, ";
    return "memref<" + sizes + last + "x" + element + ", strided<[" + strides +
           (last == "?" ? "?" : "1") + "], offset: ?>>";
  };
  const int rank = p.packedQ ? 3 : 4;
  const std::string columns = std::to_string(p.headSizeV);
  const std::string o = tensor(rank, columns, std::string(schedule::elementName(p.element))),
                    lse = tensor(rank - 1, "?", "f32"), oPartial = tensor(rank + 1, columns, "f32"),
                    lsePartial = tensor(rank, "?", "f32");
  FunctionText f;
  f.argue("o_partial", oPartial);
  f.argue("lse_partial", lsePartial);
  f.argue("o", o);
  f.argue("lse", lse);
  return "func.func @flash_merge(\n" + f.arguments +
         ") {\n  flash.combine %o_partial, %lse_partial outs(%o, %lse : " + o + ", " + lse +
         ")\n      {target = #flash.target<\"" + std::string(schedule::targetName(p.target)) +
         "\">}\n      : " + oPartial + ", " + lsePartial + "\n  return\n}\n";
}

std::string flash::opText(const Request &request) {
  const schedule::Problem &p = request.problem;
  if (request.merge)
    return mergeText(p);
  const std::string element(schedule::elementName(p.element));
  const std::string heads = headsText(request, p.heads), kvHeads = headsText(request, p.kvHeads);
  auto tensor = [&](std::string sizes, const std::string &heads, int64_t headSize) {
    std::string strides = sizes.size() > 2 ? "[?, ?, ?, 1]" : "[?, ?, 1]";
    return "memref<" + sizes + heads + "x" + std::to_string(headSize) + "x" + element +
           ", strided<" + strides + ", offset: ?>>";
  };
  const std::string queries = p.packedQ ? "?x" : "?x?x", keys = p.packedK ? "?x"
                                                                : p.pageSize
                                                                    ? "?x" + pageText(request) + "x"
                                                                    : "?x?x";
  const std::string q = tensor(queries, heads, p.headSize), k = tensor(keys, kvHeads, p.headSize),
                    v = tensor(keys, kvHeads, p.headSizeV), o = tensor(queries, heads, p.headSizeV),
                    lse = p.packedQ
                              ? "memref<" + heads + "x?xf32, strided<[?, ?], offset: ?>>"
                              : "memref<?x" + heads + "x?xf32, strided<[?, ?, ?], offset: ?>>",
                    sink = "memref<" + heads + "xf32, strided<[?], offset: ?>>",
                    rows = "memref<?xi32, strided<[1], offset: ?>>",
                    table = "memref<?x?xi32, strided<[?, 1], offset: ?>>";
  FunctionText f;
  f.argue("q", q);
  f.argue("k", k);
  f.argue("v", v);
  f.argue("o", o);
  f.argue("lse", lse);
  std::string clauses;
  const bool split = request.plan.splits > 1;
  const std::string joins = p.sink ? f.table("sink", "sink", sink) : "",
                    oPartial = "memref<?x" + queries + heads + "x" + std::to_string(p.headSizeV) +
                               "xf32, strided<[?, ?, ?, " + (p.packedQ ? "" : "?, ") +
                               "1], offset: ?>>",
                    lsePartial =
                        p.packedQ
                            ? "memref<?x" + heads + "x?xf32, strided<[?, ?, ?], offset: ?>>"
                            : "memref<?x?x" + heads + "x?xf32, strided<[?, ?, ?, ?], offset: ?>>";
  if (split) {
    f.argue("o_partial", oPartial);
    f.argue("lse_partial", lsePartial);
  } else {
    clauses += joins;
  }
  f.argue("scale", "f32");
  clauses += " scale %scale";
  if (p.softcap) {
    f.argue("softcap", "f32");
    clauses += " softcap %softcap";
  }
  std::string packedQ, pages, index; // clauses that an append has too
  if (p.packedQ) {
    packedQ = f.table("cu_seqlens_q", "cu_seqlens_q", rows) + " max_seqlen_q %max_seqlen_q";
    f.argue("max_seqlen_q", "index");
  }
  clauses += packedQ;
  if (p.packedK)
    clauses += f.table("cu_seqlens_k", "cu_seqlens_k", rows);
  if (p.usedQ)
    clauses += f.table("seqused_q", "seqused_q", rows);
  if (p.usedK)
    clauses += f.table("seqused_k", "seqused_k", rows);
  if (p.append)
    clauses += " appended %appended";
  if (p.pageSize)
    pages = f.table("page_table", "page_table", table);
  if (p.batchIdx)
    index = f.table("kv_batch_idx", "kv_batch_idx", rows);
  clauses += pages + index;
  if (p.leftpad)
    clauses += f.table("leftpad_k", "leftpad_k", rows);

  llvm::raw_string_ostream os(f.body);
  const std::string target =
      "target = #flash.target<\"" + std::string(schedule::targetName(p.target)) + "\">";
  std::string read = "%q", readType = q;
  if (p.append) {
    const std::string kNew = tensor("?x?x", kvHeads, p.headSize),
                      vNew = tensor("?x?x", kvHeads, p.headSizeV),
                      angles = "memref<?x" + std::to_string(p.rotary) + "x" + element +
                               ", strided<[?, 1], offset: ?>>";
    f.argue("k_new", kNew);
    f.argue("v_new", vNew);
    os << "  %c1 = arith.constant 1 : index\n  %appended = memref.dim %k_new, %c1 : " << kNew
       << "\n";
    std::string rotary, outs = "%k, %v", outTypes = k + ", " + v;
    if (p.rotary > 0) {
      f.argue("rotary_cos", angles);
      f.argue("rotary_sin", angles);
      read = "%q_turned";
      readType =
          "memref<" + queries + heads + "x" + std::to_string(p.headSize) + "x" + element + ">";
      std::string sizes;
      const int64_t rank = p.packedQ ? 3 : 4;
      for (int64_t dim = 0; dim < rank - 1; ++dim) {
        if (dim == rank - 2 && heads != "?")
          continue;
        os << "  %d" << dim << " = arith.constant " << dim << " : index\n  %s" << dim
           << " = memref.dim %q, %d" << dim << " : " << q << "\n";
        sizes += (sizes.empty() ? "%s" : ", %s") + std::to_string(dim);
      }
      os << "  %q_turned = memref.alloc(" << sizes << ") : " << readType << "\n";
      rotary = " rotary(%rotary_cos, %rotary_sin : " + angles + ", " + angles + ") q(%q : " + q +
               ")" + packedQ;
      outs += ", %q_turned";
      outTypes += ", " + readType;
    }
    os << "  flash.append %k_new, %v_new seqused_k(%seqused_k : " << rows << ")" << pages << index
       << rotary << "\n      outs(" << outs << " : " << outTypes << ")\n      {"
       << (p.rotary > 0 && !turnsByQuery(p) ? "fixed, " : "")
       << (p.rotaryInterleaved ? "interleaved, " : "") << target << "}\n      : " << kNew << ", "
       << vNew << "\n";
  }
  const std::string outs = "outs(%o, %lse : " + o + ", " + lse + ")";
  os << "  flash.attention " << read << ", %k, %v" << clauses << "\n      "
     << (split ? "outs(%o_partial, %lse_partial : " + oPartial + ", " + lsePartial + ")" : outs)
     << "\n      by " << maskText(request.plan.mask) << "\n      {" << target
     << ", plan = " << request.planText << "}\n      : " << readType << ", " << k << ", " << v
     << "\n";
  if (split)
    os << "  flash.combine %o_partial, %lse_partial" << joins << " " << outs << "\n      {"
       << target << "} : " << oPartial << ", " << lsePartial << "\n";
  if (read != "%q")
    os << "  memref.dealloc %q_turned : " << readType << "\n";
  return "func.func @" + std::string(kernelName) + "(\n" + f.arguments + ") {\n" + f.body +
         "  return\n}\n";
}
