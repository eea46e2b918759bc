//===- Golden.cpp - checks planning answers line by line ------------------===//

#include "Golden.h"

#include "flash/Schedule/BlockRange.h"
#include "flash/Schedule/PackGqa.h"
#include "flash/Schedule/Splits.h"
#include "flash/Schedule/Tile.h"
#include "flash/Schedule/WorkOrder.h"

#define JSON_NOEXCEPTION
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>

using namespace flash::schedule;

namespace {

/// One line's fields; remembers the first that is missing or of another type.
class Line {
public:
  explicit Line(const nlohmann::json &json) : json(json) {}

  int64_t operator[](const char *key) {
    auto found = json.find(key);
    if (found != json.end() && found->is_number_integer())
      return found->get<int64_t>();
    fail(std::string("expected an integer ") + key);
    return 0;
  }
  /// For divisors: at least 1.
  int64_t size(const char *key) {
    int64_t value = (*this)[key];
    if (value < 1)
      fail(std::string("expected ") + key + " of at least 1");
    return std::max<int64_t>(value, 1);
  }
  std::string text(const char *key) {
    auto found = json.find(key);
    if (found != json.end() && found->is_string())
      return found->get<std::string>();
    fail(std::string("expected a string ") + key);
    return {};
  }
  const nlohmann::json &list(const char *key) {
    static const nlohmann::json empty = nlohmann::json::array();
    auto found = json.find(key);
    if (found != json.end() && found->is_array())
      return *found;
    fail(std::string("expected a list ") + key);
    return empty;
  }

  /// Compares what the library says with the line's field.
  void expect(const char *key, int64_t actual) {
    int64_t wanted = (*this)[key];
    if (wanted != actual)
      fail(std::string(key) + " is " + std::to_string(wanted) + ", computed " +
           std::to_string(actual));
  }
  void fail(std::string sentence) {
    if (wrong.empty())
      wrong = std::move(sentence);
  }

  std::string wrong;

private:
  const nlohmann::json &json;
};

Mask maskOf(Line &line) {
  Mask mask;
  if (line["local"])
    mask = {MaskKind::local, line["window_left"], line["window_right"], 0, 0};
  else if (line["causal"])
    mask = {MaskKind::causal, -1, 0, 0, 0};
  return mask;
}

void checkKeyRange(Line &line) {
  Mask mask = maskOf(line);
  if (mask.kind == MaskKind::local)
    mask.chunk = line["attention_chunk"];
  const int64_t packedSplit = line["split_idx"] + (line["num_splits_dynamic"] << 16);
  auto range = keyRange<int64_t>(mask, line["m_block"], line.size("block_m"), line.size("block_n"),
                                 line["seqlen_q"], line["seqlen_k"], line.size("qhead_per_khead"),
                                 packedSplit, line.size("num_splits"));
  if (line["n_min"] >= line["n_max"]) { // any empty interval will do
    if (range.nMin < range.nMax)
      line.fail("expected no blocks, computed " + std::to_string(range.nMin) + " to " +
                std::to_string(range.nMax));
    return;
  }
  line.expect("n_min", range.nMin);
  line.expect("n_max", range.nMax);
  line.expect("n_min_right_mask", range.nMinRightMask);
  line.expect("n_min_before_left_mask", range.nMinBeforeLeftMask);
}

void checkQueryRange(Line &line) {
  Mask mask = maskOf(line);
  if (mask.kind == MaskKind::local)
    mask.sinkTokens = line["sink_token_length"];
  auto range = queryRange<int64_t>(mask, line["n_block"], line.size("block_m"),
                                   line.size("block_n"), line["seqlen_q"], line["seqlen_k"]);
  // What kernels walk is no more.
  const int64_t keys = line.size("block_n");
  auto runs = queryRuns<int64_t>(mask, line["n_block"] * keys, keys, line.size("block_m"),
                                 line["seqlen_q"], line["seqlen_k"]);
  const int64_t count = runs.right + runs.inner + runs.left;
  if (count > 0 && (runs.end > line["m_max"] || runs.end - count < line["m_min"]))
    line.fail("kernels walk " + std::to_string(runs.end - count) + " to " +
              std::to_string(runs.end));
  if (line["m_min"] >= line["m_max"]) {
    if (range.mMin < range.mMax)
      line.fail("expected no tiles, computed " + std::to_string(range.mMin) + " to " +
                std::to_string(range.mMax));
    return;
  }
  line.expect("m_min", range.mMin);
  line.expect("m_max", range.mMax);
}

void checkSplits(Line &line) {
  line.expect("num_splits", numSplits({.tiles = line["total_mblocks"],
                                       .mTiles = line["num_m_blocks"],
                                       .nTiles = line["num_n_blocks"],
                                       .kvHeadBytes = line["size_one_kv_head"],
                                       .sms = line.size("num_sms"),
                                       .causalOrLocal = line["causal_or_local"] != 0,
                                       .maxSplits = line["max_splits"]}));
}

void checkPacking(Line &line) {
  line.expect("pack", shouldPackGqa(line["varlen_q"] != 0, line["seqlen_q"],
                                    line.size("qhead_per_khead"), line.size("block_m")));
}

void checkSm90Tile(Line &line) {
  Sm90Tile tile = referenceTileSm90({.headSize = line["headdim"],
                                     .headSizeV = line["headdim_v"],
                                     .causal = line["causal"] != 0,
                                     .local = line["local"] != 0,
                                     .elementBytes = line["element_size"],
                                     .softcap = line["softcap"] != 0,
                                     .vColumnMajor = line["v_colmajor"] != 0,
                                     .pagedWithoutTma = line["paged_kv_non_tma"] != 0});
  line.expect("block_m", tile.tileM);
  line.expect("block_n", tile.tileN);
  line.expect("mma_pv_is_rs", tile.pvFromRegisters);
  line.expect("intra_wg_overlap", tile.overlap);
}

void checkSm8xTile(Line &line) {
  Sm8xTile tile = referenceTileSm8x({.headSize = line["headdim"],
                                     .causal = line["causal"] != 0,
                                     .local = line["local"] != 0,
                                     .elementBytes = line["element_size"],
                                     .paged = line["paged_kv"] != 0,
                                     .varlenAndSplit = line["varlen_and_split"] != 0,
                                     .appendKv = line["append_kv"] != 0,
                                     .sm86Or89 = line["sm86_or_89"] != 0});
  line.expect("block_m", tile.tileM);
  line.expect("block_n", tile.tileN);
  line.expect("num_warps", tile.warps);
  line.expect("stages", tile.stages);
  line.expect("q_in_regs", tile.qInRegisters);
}

void checkOrder(Line &line) {
  struct Name {
    const char *name;
    WorkOrder order;
  };
  const std::string scheduler = line.text("scheduler");
  std::optional<WorkOrder> order;
  for (Name known :
       {Name{"static_persistent", WorkOrder::fixed}, Name{"dynamic_persistent", WorkOrder::dynamic},
        Name{"bwd_lpt", WorkOrder::backwardLpt}, Name{"bwd_lpt_spt", WorkOrder::backwardSpt}})
    if (scheduler == known.name)
      order = known.order;
  if (!order)
    return line.fail("unknown scheduler " + scheduler);

  WorkShape<int64_t> shape{line["num_blocks"], line["num_head"], line["num_batch"],
                           line["num_splits"], 1};
  const int64_t pairs = shape.heads * shape.batch, d = line["headdim"], dv = line["headdim_v"],
                bytes = line["element_size"], other = line["seqlen_other"];
  shape.section = *order == WorkOrder::dynamic
                      ? keySection(other, d, dv, bytes, line.size("qhead_per_khead"),
                                   line["pack_gqa"] != 0, pairs)
                      : querySection(other, d, dv, bytes, pairs);
  const auto &tiles = line.list("tiles");
  if (int64_t(tiles.size()) != tilesOf(shape))
    return line.fail("expected " + std::to_string(tiles.size()) + " tiles, computed " +
                     std::to_string(tilesOf(shape)));
  for (size_t t = 0; t < tiles.size(); ++t) {
    Work<int64_t> work = workAt(*order, int64_t(t), shape);
    nlohmann::json computed = {work.m, work.head, work.batch, work.split};
    if (tiles[t] != computed)
      return line.fail("tile " + std::to_string(t) + " is " + tiles[t].dump() + ", computed " +
                       computed.dump());
  }
}

struct Kind {
  const char *name;
  void (*check)(Line &);
};
constexpr Kind kinds[] = {
    {"n_range", checkKeyRange},   {"m_range", checkQueryRange}, {"num_splits", checkSplits},
    {"order", checkOrder},        {"pack_gqa", checkPacking},   {"tile_sm90", checkSm90Tile},
    {"tile_sm8x", checkSm8xTile},
};

} // namespace

std::string flash::golden::check(std::string_view text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object())
    return "expected a JSON object";
  Line line(json);
  const std::string name = line.text("kind");
  auto kind = std::find_if(std::begin(kinds), std::end(kinds),
                           [&](const Kind &kind) { return name == kind.name; });
  if (kind == std::end(kinds))
    return line.wrong.empty() ? "unknown kind " + name : line.wrong;
  kind->check(line);
  return line.wrong;
}

flash::golden::Outcome flash::golden::checkFolder(const std::string &folder) {
  namespace fs = std::filesystem;
  Outcome outcome;
  const size_t shown = 20;
  auto failed = [&](std::string sentence) {
    ++outcome.failed;
    if (outcome.failures.size() < shown)
      outcome.failures.push_back(std::move(sentence));
  };

  std::error_code error;
  std::vector<fs::path> files;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    if (entry->path().extension() == ".jsonl")
      files.push_back(entry->path());
  std::sort(files.begin(), files.end());
  if (files.empty())
    failed(folder + ": " + (error ? error.message() : "no .jsonl file here"));

  for (const fs::path &file : files) {
    std::ifstream in(file);
    if (!in)
      failed(file.string() + ": cannot be read");
    std::string line;
    for (int number = 1; std::getline(in, line); ++number) {
      if (line.find_first_not_of(" \t\r") == std::string::npos)
        continue;
      std::string wrong = check(line);
      if (wrong.empty())
        ++outcome.passed;
      else
        failed(file.string() + ":" + std::to_string(number) + ": " + wrong);
    }
  }
  return outcome;
}
