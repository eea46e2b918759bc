//===- Request.cpp - a problem as text, and its plan ----------------------===//
#include "flash/Runtime/Request.h"

#include "flash/Planning.h"
#include "flash/Schedule/Record.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <map>
#include <memory>
#include <mutex>
#include <sys/stat.h>
#include <tuple>

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
                                 "ping_pong",   "defer_max",    "multicast",       "stage_store",
                                 "overlap_sums"};

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
    if (schedule::isTooDeepPlan(text))
      return invalid(
          "expected plan to be #flash.plan<...>, got more text or brackets than any has");
    plan = parsePlan(text, &context);
    if (plan)
      return {};
    return invalid("expected plan to be #flash.plan<...>, got '" + text + "'" + said);
  }

  schedule::PlanOverrides overrides() const { return overridesOf(plan); }

  /// The plan with the fields of `decided`, which hold what it asked for.
  std::string completed(const std::string &decided) {
    mlir::NamedAttrList fields(plan.getFields());
    for (mlir::NamedAttribute field : parsePlan(decided, &context).getFields())
      fields.set(field.getName(), field.getValue());
    std::string text;
    llvm::raw_string_ostream(text)
        << mlir::Attribute(PlanAttr::get(&context, fields.getDictionary(&context)));
    return text;
  }

private:
  mlir::MLIRContext context;
  std::string said;
  PlanAttr plan;
};

/// What the planner decided with the problem's sizes, which the op's types leave open; the other
/// fields follow from what the op says, and flash-select-tiles writes them.
std::string decidedText(const schedule::Plan &plan, const schedule::Problem &problem) {
  std::string text;
  llvm::raw_string_ostream os(text);
  if (problem.backward) {
    os << "#flash.plan<tile = [" << plan.tileM << ", " << plan.tileN
       << "], stages = " << plan.stages;
    if (!plan.roles)
      os << ", warps = " << plan.consumers * schedule::warpgroupWarps;
    if (plan.splitBy != schedule::SplitBy::rows)
      os << ", split_by = \"" << StringRef(schedule::splitByName(plan.splitBy)) << '"';
    os << ", order = \"" << StringRef(schedule::orderName(plan.order))
       << "\", ordered = " << (plan.ordered ? "true" : "false") << '>';
    return text;
  }
  os << "#flash.plan<tile = [" << plan.tileM << ", " << plan.tileN
     << "], pack_gqa = " << (plan.packGqa ? "true" : "false");
  if (!plan.splitsAtLaunch) // one program serves them all
    os << ", splits = " << plan.splits;
  os << ", order = \"" << StringRef(schedule::orderName(plan.order)) << '"';
  if (plan.readOnce)
    os << ", read_once = true";
  if (plan.transfer != schedule::Transfer::tma)
    os << ", transfer = \"" << StringRef(schedule::transferName(plan.transfer)) << '"';
  const auto anyRows = schedule::anyRowsTile(problem, plan);
  if (anyRows && plan.stages != anyRows->tile.stages)
    os << ", stages = " << plan.stages;
  if (anyRows && plan.roles && plan.splitBy == schedule::SplitBy::columns &&
      plan.consumers != anyRows->tile.consumers) // by rows they follow the tile
    os << ", consumers = " << plan.consumers;
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
  // Another file may come with this one's size and time of writing, but not with its number and
  // time of change too.
  using State = std::tuple<dev_t, ino_t, off_t, time_t, long>;
  struct File {
    State state;
    std::shared_ptr<const std::vector<schedule::Record>> records;
  };
  static std::mutex lock;
  static std::map<std::string, File> files;
  struct stat s = {};
  const bool found = stat(path.c_str(), &s) == 0; // before it is read: what comes later is noticed
  const State state{s.st_dev, s.st_ino, s.st_size, s.st_ctim.tv_sec, s.st_ctim.tv_nsec};
  std::lock_guard<std::mutex> guard(lock);
  if (auto known = files.find(path); known != files.end() && found && known->second.state == state)
    return known->second.records;
  auto read = schedule::readRecords(path);
  if (auto *sentence = std::get_if<std::string>(&read))
    return invalid(*sentence);
  auto records = std::make_shared<const std::vector<schedule::Record>>(
      std::get<std::vector<schedule::Record>>(std::move(read)));
  files[path] = {state, records};
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

Or<Request> flash::readRequest(const std::string &text) {
  if (schedule::isTooDeep(text))
    return invalid("expected a problem as JSON, got more brackets than any problem has");
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
  reader.read("backward", p.backward);
  reader.read("deterministic", p.deterministic);
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

  if (r.merge)
    if (auto why = schedule::whyNotHeadSize("o1", p.headSizeV))
      return invalid(*why);
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
    r.plan.splits = 1, r.plan.splitsAtLaunch = r.plan.ownSplits = false;
  r.plan.reasons.tile += leftOut;
  r.planText = decidedText(r.plan, p);
  if (hand)
    r.planText = hand->completed(r.planText);
  return r;
}
