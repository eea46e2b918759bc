//===- Record.cpp - plans that were measured ------------------------------===//

#include "flash/Schedule/Record.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

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
    auto at = object.find(field);
    if (at != object.end() && at->is_string())
      return at->get<std::string>();
    demand(field, "a string");
    return {};
  }
  int64_t integer(const char *field, int64_t least) {
    auto at = object.find(field);
    if (at != object.end() && at->is_number_integer() && at->get<int64_t>() >= least)
      return at->get<int64_t>();
    demand(field, "an integer of at least " + std::to_string(least));
    return least;
  }
  bool flag(const char *field) {
    auto at = object.find(field);
    if (at == object.end() || at->is_boolean())
      return at != object.end() && at->get<bool>();
    demand(field, "true or false");
    return false;
  }
  template <class Parse, class T> void name(const char *field, T &into, Parse parse) {
    const std::string given = text(field);
    if (auto found = parse(given))
      into = *found;
    else
      demand(field, "the name of one");
  }

  void fail(std::string sentence) {
    if (whyNot.empty())
      whyNot = std::move(sentence);
  }

private:
  void demand(const char *field, const std::string &what) {
    auto at = object.find(field);
    fail("expected " + std::string(field) + " to be " + what + ", " +
         (at == object.end() ? "it is missing"
                             : "got " + at->dump(-1, ' ', false, Json::error_handler_t::replace)));
  }
  const Json &object;
};
} // namespace

static std::optional<MaskKind> parseMask(std::string_view name) {
  for (MaskKind kind : allMaskKinds)
    if (maskName(kind) == name)
      return kind;
  return std::nullopt;
}

/// None where it is of a target that this build does not know: no problem of it can be asked for.
static std::optional<Record> recordFrom(Reader &reader, const std::string &gpu) {
  Record r;
  r.gpu = gpu;
  const std::string target = reader.text("target");
  if (auto known = parseTarget(target))
    r.target = *known;
  else if (reader.whyNot.empty())
    return std::nullopt;
  reader.name("element", r.element, parseElement);
  const int64_t d = reader.integer("head_size", 1), dv = reader.integer("head_size_v", 1);
  r.head = headTileOf(r.target, d, dv);
  r.softcap = reader.flag("softcap");
  r.backward = reader.flag("backward");
  reader.name("mask", r.mask, parseMask);
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
  return r;
}

std::variant<std::vector<Record>, std::string> parseRecords(std::string_view text) {
  const Json file = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!file.is_object())
    return std::string("expected records as a JSON object");
  auto gpu = file.find("gpu"), all = file.find("records");
  if (gpu == file.end() || !gpu->is_string() || all == file.end() || !all->is_array())
    return std::string("expected records with a string 'gpu' and an array 'records'");
  std::vector<Record> records;
  for (size_t at = 0; const Json &each : *all) {
    const std::string which = "record " + std::to_string(at++);
    if (!each.is_object())
      return which + ": expected an object";
    Reader reader(each);
    if (auto record = recordFrom(reader, gpu->get<std::string>()))
      records.push_back(std::move(*record));
    if (!reader.whyNot.empty())
      return which + ": " + reader.whyNot;
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
  const HeadTile head = headTileOf(problem.target, problem.headSize, problem.headSizeV);
  auto alike = [](int64_t a, int64_t b) { // sides of a window; below 0: unbounded
    return (a < 0) == (b < 0) && lengthBucket(a) == lengthBucket(b);
  };
  const Record *twin = nullptr; // kernels of f16 and bf16 differ in the type that products name
  for (const Record &r : records) {
    if (r.target != problem.target || elementBytes(r.element) != elementBytes(problem.element) ||
        r.head.d != head.d || r.head.dv != head.dv || r.softcap != problem.softcap ||
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
