//===- Record.cpp - plans that were measured ------------------------------===//

#include "flash/Schedule/Record.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>
#include <tuple>

#define JSON_NOEXCEPTION
#include <nlohmann/json.hpp>

namespace flash::schedule {

using Json = nlohmann::json;

int64_t lengthBucket(int64_t length) {
  const int64_t longest = 14; // 16384: from there on only the number of rounds grows
  return length <= 1 ? 0 : min(std::lround(std::log2(double(length))), longest);
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

bool isTooDeep(std::string_view text) {
  const int64_t most = 64;
  return std::ranges::count_if(text, [](char c) { return c && std::strchr("[{<(", c); }) > most;
}

bool isTooDeepPlan(std::string_view text) {
  const size_t longest = 4096;
  return text.size() > longest || isTooDeep(text);
}

namespace {
/// Reads the fields of one record; the first thing that is wrong is kept as a sentence.
class Reader {
public:
  explicit Reader(const Json &object) : object(object) {}

  std::string whyNot;

  std::string text(const char *field) {
    auto at = find(field);
    if (at != object.end() && at->is_string())
      return at->get<std::string>();
    demand(field, "a string");
    return {};
  }
  int64_t integer(const char *field, int64_t least) {
    auto at = find(field);
    if (at != object.end() && at->is_number_integer() && at->get<int64_t>() >= least)
      return at->get<int64_t>();
    demand(field, "an integer of at least " + std::to_string(least));
    return least;
  }
  bool flag(const char *field) {
    auto at = find(field);
    if (at == object.end() || at->is_boolean())
      return at != object.end() && at->get<bool>();
    demand(field, "true or false");
    return false;
  }
  /// One of `all` things, as `nameOf` calls it.
  template <class All, class Name> auto name(const char *field, const All &all, Name nameOf) {
    const std::string given = text(field);
    std::string names;
    for (auto each : all) {
      const std::string_view name = nameOf(each);
      if (name == given)
        return each;
      names += (names.empty() ? "" : ", ") + std::string(name);
    }
    demand(field, "one of " + names);
    return *std::begin(all);
  }
  /// What is only for people.
  void skip(const char *field) { find(field); }
  /// A misspelt field must not be ignored.
  void finish(const std::string &of) {
    for (const auto &[field, value] : object.items())
      if (std::ranges::find(known, field) == known.end())
        fail(of + " no field '" + field + "'; leave it out");
  }

  void fail(std::string sentence) {
    if (whyNot.empty())
      whyNot = std::move(sentence);
  }

private:
  Json::const_iterator find(const char *field) {
    known.push_back(field);
    return object.find(field);
  }
  void demand(const char *field, const std::string &what) {
    auto at = object.find(field);
    fail("expected " + std::string(field) + " to be " + what + ", " +
         (at == object.end() ? "it is missing"
                             : "got " + at->dump(-1, ' ', false, Json::error_handler_t::replace)));
  }
  const Json &object;
  std::vector<std::string_view> known;
};
} // namespace

static Record recordFrom(Reader &reader, const std::string &gpu) {
  Record r;
  r.gpu = gpu;
  r.target = reader.name("target", allTargets, targetName);
  r.element = reader.name("element", allElementTypes, elementName);
  r.headSize = reader.integer("head_size", 1), r.headSizeV = reader.integer("head_size_v", 1);
  r.softcap = reader.flag("softcap");
  r.backward = reader.flag("backward");
  r.mask = reader.name("mask", allMaskKinds, maskName);
  if (r.mask == MaskKind::local) {
    r.left = reader.integer("left", -1);
    r.right = reader.integer("right", -1);
  }
  r.lenQ = reader.integer("queries", 1);
  r.lenK = reader.integer("keys", 1);
  r.plan = reader.text("plan");
  if (isTooDeepPlan(r.plan))
    reader.fail("expected plan to be #flash.plan<...>, got more text or brackets than any has");
  r.why = reader.text("why");
  reader.skip("tflops");
  reader.finish("a record of mask " + std::string(maskName(r.mask)) + " has");
  return r;
}

static bool isOfSameProblem(const Record &one, const Record &other) {
  auto problem = [](const Record &r) {
    return std::tie(r.target, r.element, r.headSize, r.headSizeV, r.softcap, r.backward, r.mask,
                    r.left, r.right, r.lenQ, r.lenK);
  };
  return problem(one) == problem(other);
}

std::variant<std::vector<Record>, std::string> parseRecords(std::string_view text) {
  const Json file = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!file.is_object())
    return std::string("expected records as a JSON object");
  auto gpu = file.find("gpu"), all = file.find("records");
  if (gpu == file.end() || !gpu->is_string() || all == file.end() || !all->is_array())
    return std::string("expected records with a string 'gpu' and an array 'records'");
  Reader whole(file);
  whole.skip("gpu"), whole.skip("records"), whole.finish("records have");
  if (!whole.whyNot.empty())
    return whole.whyNot;
  std::vector<Record> records;
  for (const Json &each : *all) {
    const std::string which = "record " + std::to_string(records.size());
    if (!each.is_object())
      return which + ": expected an object";
    Reader reader(each);
    Record record = recordFrom(reader, gpu->get<std::string>());
    if (!reader.whyNot.empty())
      return which + ": " + reader.whyNot;
    for (size_t at = 0; at < records.size(); ++at)
      if (isOfSameProblem(records[at], record) && records[at].plan != record.plan)
        return which + ": it and record " + std::to_string(at) +
               " have different plans for one problem; leave one out";
    records.push_back(std::move(record));
  }
  return records;
}

std::variant<std::vector<Record>, std::string> readRecords(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in || !text)
    return "the records at " + path + " cannot be read";
  auto read = parseRecords(text.str());
  if (auto *sentence = std::get_if<std::string>(&read))
    return path + ": " + *sentence;
  return read;
}

//===----------------------------------------------------------------------===//
// Matching
//===----------------------------------------------------------------------===//

const Record *recordOf(const Problem &problem, std::string_view gpu,
                       std::span<const Record> records) {
  if (problem.lenQ < 1 || problem.lenK < 1 || hasTables(problem))
    return nullptr;
  const Mask mask = canonical(problem.mask, problem.lenQ, problem.lenK);
  if (mask.chunk > 0 || mask.sinkTokens > 0)
    return nullptr;
  auto headOf = [](const auto &of) {
    const HeadTile head = headTileOf(of.target, of.headSize, of.headSizeV);
    return std::pair(head.d, head.dv);
  };
  auto alike = [](int64_t a, int64_t b) { // sides of a window; below 0: unbounded
    return (a < 0) == (b < 0) && lengthBucket(a) == lengthBucket(b);
  };
  const Record *twin = nullptr; // kernels of f16 and bf16 differ in the type that products name
  for (const Record &r : records) {
    if (r.target != problem.target || elementBytes(r.element) != elementBytes(problem.element) ||
        headOf(r) != headOf(problem) || r.softcap != problem.softcap ||
        r.backward != problem.backward || r.mask != mask.kind ||
        (r.mask == MaskKind::local && !(alike(r.left, mask.left) && alike(r.right, mask.right))) ||
        lengthBucket(r.lenQ) != lengthBucket(problem.lenQ) ||
        lengthBucket(r.lenK) != lengthBucket(problem.lenK) || (!gpu.empty() && r.gpu != gpu))
      continue;
    if (r.element == problem.element)
      return &r;
    if (!twin)
      twin = &r;
  }
  return twin;
}

} // namespace flash::schedule
