//===- Explain.cpp - a plan in words --------------------------------------===//

#include "flash/Schedule/Explain.h"

#define JSON_NOEXCEPTION
#include <nlohmann/json.hpp>

namespace flash::schedule {

BlockCount countBlocks(const Plan &plan, const Problem &problem) {
  const WorkShape<int64_t> shape = workShapeOf(plan, problem);
  const int64_t mine = problem.backward ? plan.tileN : plan.tileM,
                others = problem.backward ? plan.tileM : plan.tileN;
  BlockCount count{0, 0, 0};
  // Of very many tiles every so manieth, from the middle of those that it stands for.
  const int64_t most = 1 << 20, step = max(ceilDiv(shape.mTiles * shape.splits, most), 1);
  count.exact = step == 1;
  for (int64_t first = 0; first < shape.mTiles; first += step) {
    const int64_t like = min(step, shape.mTiles - first), m = first + like / 2;
    for (int64_t split = 0; split < shape.splits; ++split) {
      auto runs =
          problem.backward
              ? queryRuns<int64_t>(plan.mask, m * mine, mine, others, problem.lenQ, problem.lenK)
              : keyRuns<int64_t>(plan.mask, m * mine, mine, others, problem.lenQ, problem.lenK,
                                 plan.group, split, shape.splits);
      count.masked += (runs.right + runs.left + runs.sink) * like;
      count.computed += (runs.right + runs.inner + runs.left + runs.sink) * like;
    }
  }
  count.all = shape.mTiles * ceilDiv(problem.backward ? problem.lenQ : problem.lenK, others);
  const int64_t heads =
      shape.heads * shape.batch * (problem.backward ? groupOf(problem) : 1); // that a tile walks
  return {count.all * heads, count.computed * heads, count.masked * heads, count.exact};
}

namespace {
/// The numbers behind both forms of an explanation. Run-time ones are 0 where sizes are unknown.
struct Facts {
  const Machine &machine;
  bool gpu, known;
  int64_t fragments, registers;
  BlockCount blocks{0, 0, 0};
  int64_t tiles = 0, grid = 0, section = 0, rounds = 0;
  double waves = 0;
  std::vector<BackwardKernel> kernels = {};
  std::vector<std::pair<std::string, int64_t>> workspace = {}; ///< bytes of its parts
  int64_t workspaceBytes = 0;
};
} // namespace

static Facts factsOf(const Problem &problem, const Plan &plan) {
  const int64_t threads = warpgroupWarps * warpThreads;
  Facts facts{.machine = machineOf(problem.target),
              .gpu = problem.target != Target::cpu,
              .known = sizesKnown(problem) && !isRagged(problem), // else bounds are
              .fragments = problem.backward
                               ? 0
                               : fragmentRegisters(tileOf(plan), {plan.headTile, plan.headTileV},
                                                   problem.element),
              .registers = threads * (plan.roles * plan.producerRegisters +
                                      plan.consumers * plan.consumerRegisters)};
  if (!facts.known)
    return facts;
  const WorkShape<int64_t> shape = workShapeOf(plan, problem);
  facts.blocks = countBlocks(plan, problem);
  facts.tiles = tilesOf(shape);
  facts.grid = gridOf(plan, problem);
  facts.section = shape.section;
  facts.waves = double(facts.tiles) / double(smsOf(problem));
  facts.rounds = ceilDiv(facts.tiles, smsOf(problem));
  if (!problem.backward)
    return facts;
  facts.kernels = backwardKernels(plan, problem);
  for (const Part &part : backwardParts(plan, problem)) {
    int64_t elements = 1, elementBytes = sizeof(float);
    for (int64_t size : part.sizes)
      elements *= size;
    facts.workspace.emplace_back(part.name, workspaceBytes(elements, elementBytes));
    facts.workspaceBytes += facts.workspace.back().second;
  }
  return facts;
}

static std::string number(int64_t value) { return std::to_string(value); }

static std::string tenths(double value) {
  const int64_t scaled = int64_t(value * 10 + 0.5);
  return number(scaled / 10) + "." + number(scaled % 10);
}

static std::string share(int64_t part, int64_t whole) {
  return whole == 0 ? "0 %" : tenths(100.0 * double(part) / double(whole)) + " %";
}

/// What consumers, or warps in step, divide among them.
static std::string splitWord(const Problem &problem, const Plan &plan) {
  return problem.backward && plan.roles ? "keys" : std::string(splitByName(plan.splitBy));
}

static std::string sizeWord(int64_t size) { return size == unknown ? "any" : number(size); }

static std::string maskWords(const Mask &mask) {
  std::string words(maskName(mask.kind));
  if (mask.kind != MaskKind::local)
    return words;
  auto side = [](int64_t value) { return value < 0 ? std::string("unbounded") : number(value); };
  words += ", left " + side(mask.left) + ", right " + side(mask.right);
  if (mask.chunk > 0)
    words += ", chunks of " + number(mask.chunk);
  if (mask.sinkTokens > 0)
    words += ", " + number(mask.sinkTokens) + " sink tokens";
  return words;
}

/// Which blocks take element masks: some also where nothing but a length bounds what is seen.
static std::string whyMasked(const Problem &problem, const Plan &plan) {
  const std::string edges =
      plan.mask.kind == MaskKind::dense ? "" : "those that the mask's edges cross, and ";
  return "masked are " + edges +
         (problem.backward ? "the last queries and keys where they do not fill a block"
                           : "the last keys of every tile, for code fits any number of keys");
}

namespace {
/// An explanation for people.
class Text {
public:
  Text(const Problem &problem, const Plan &plan, const Facts &facts)
      : problem(problem), plan(plan), facts(facts) {}
  std::string all();

private:
  void line(const char *label, const std::string &words, const std::string &why = {}) {
    const size_t column = 12;
    text += "  " + std::string(label) + std::string(column - std::string_view(label).size(), ' ') +
            words + "\n";
    if (!why.empty())
      text += std::string(column + 2, ' ') + "because: " + why + "\n";
  }
  void block();
  void products();
  void sums();
  void launches();

  const Problem &problem;
  const Plan &plan;
  const Facts &facts;
  std::string text;
};
} // namespace

std::string Text::all() {
  const std::string target(facts.machine.name);
  text = (problem.backward ? "gradients of attention on " : "attention on ") + target + ": " +
         std::string(elementName(problem.element)) + ", head sizes " + number(problem.headSize) +
         " and " + number(problem.headSizeV) + (problem.softcap ? ", softcap" : "") +
         (problem.sink ? ", learnable sink" : "") + "\n";
  line("sizes", "batch " + sizeWord(problem.batch) + ", heads " + sizeWord(problem.heads) + " on " +
                    sizeWord(problem.kvHeads) + " KV heads, " + sizeWord(problem.lenQ) +
                    " queries, " + sizeWord(problem.lenK) + " keys");
  line("mask", maskWords(plan.mask), plan.reasons.mask);
  line("tile",
       number(plan.tileM) + " queries x " + number(plan.tileN) + " keys, head sizes in " +
           number(plan.headTile) + " and " + number(plan.headTileV) + ", " + number(plan.stages) +
           (plan.stages == 1 ? " stage" : " stages"),
       plan.reasons.tile);
  if (facts.gpu)
    block();
  if (facts.known) {
    const BlockCount &blocks = facts.blocks;
    line("blocks",
         (blocks.exact ? "" : "about ") + number(blocks.computed) + " of " + number(blocks.all) +
             " computed (" + share(blocks.computed, blocks.all) + "), " +
             number(blocks.all - blocks.computed) + " skipped, " + number(blocks.masked) +
             " masked",
         blocks.masked ? whyMasked(problem, plan) : "");
  }
  if (problem.backward) {
    sums();
  } else {
    line("heads",
         plan.packGqa ? number(plan.group) + " query heads packed into a tile"
                      : "one query head a tile",
         plan.reasons.packGqa);
    line("splits", (plan.ownSplits ? "up to " : "") + number(plan.splits), plan.reasons.splits);
  }
  launches();
  return text;
}

/// What a block of a GPU is made of.
void Text::block() {
  const std::string threads =
      number(plan.threads) + " of " + number(facts.machine.maxThreads) + " threads";
  if (plan.roles)
    line("roles", "1 producer, " + number(plan.consumers) + " consumers that split the " +
                      splitWord(problem, plan) + ", " + threads);
  else
    line("warps", number(plan.consumers * warpgroupWarps) + " that copy and compute, " + threads,
         plan.reasons.roles);
  products();
  line("shared", number(plan.sharedBytes) + " of " + number(facts.machine.sharedBytesPerBlock) +
                     " bytes (" + share(plan.sharedBytes, facts.machine.sharedBytesPerBlock) + ")");
  if (plan.consumerRegisters == 0) // left to the assembler
    return;
  line("registers",
       (problem.backward ? "a consumer thread has " + number(plan.consumerRegisters)
                         : "a consumer thread holds " + number(facts.fragments) +
                               " in fragments + " + number(registersBesideFragments) +
                               " others of " + number(plan.consumerRegisters)) +
           ", " +
           (plan.roles ? "a producer thread has " + number(plan.producerRegisters) + ", "
                       : std::string()) +
           "the block " + number(facts.registers) + " of " + number(facts.machine.registersPerSm));
}

void Text::products() {
  if (problem.backward) {
    line("dV",
         std::string(plan.ownDv ? "a kernel of its own" : "beside dK") +
             (plan.alternate ? ", Q and dO take turns in two slots" : ""),
         plan.reasons.ownDv);
    line("products", std::string(plan.overlap ? "dQ's runs beside the next softmax"
                                              : "one query block after the other") +
                         (plan.lateV ? ", V follows the first queries" : "") +
                         (plan.lateDp ? ", dP is awaited behind the exponentials" : ""));
    line("copies", std::string(transferName(plan.roles ? Transfer::tma : Transfer::gather)));
    return;
  }
  line("products",
       std::string(plan.pvFromRegisters ? "P from registers" : "P through shared memory") +
           (plan.overlap ? ", the next scores run under this softmax" : ", one product at a time") +
           (plan.qInRegisters ? ", Q in registers" : "") +
           (plan.earlyWait ? ", the next K awaited before PV" : "") +
           (plan.pingPong ? ", consumers take turns" : "") +
           (plan.deferMax ? ", unmasked blocks measured against an older maximum" : "") +
           (plan.multicast ? ", two blocks share keys and values" : ""));
  line("copies", std::string(transferName(plan.transfer)), plan.reasons.transfer);
  if (plan.readOnce)
    line("caches", "keys and values are the first to go", plan.reasons.readOnce);
  line("output",
       plan.stagedColumns ? "via shared memory, " + number(plan.stagedColumns) + " columns at once"
                          : "from registers",
       plan.reasons.staging);
}

/// How gradients are added up over blocks.
void Text::sums() {
  line("sum of dQ", std::string(plan.ordered ? "in the order of the key tiles" : "in any order"),
       plan.reasons.ordered);
  if (facts.gpu)
    line("added",
         plan.stagedColumns
             ? "via shared memory, " + number(plan.stagedColumns) + " columns at once"
             : "from registers",
         plan.reasons.staging);
}

void Text::launches() {
  std::string order(orderName(plan.order));
  order += plan.persistent ? ", persistent" : ", one tile a block";
  order += plan.stealing ? ", tiles from a counter" : "";
  if (plan.order == WorkOrder::dynamic && facts.known)
    order += ", L2 sections of " + number(facts.section) + " heads";
  line("order", order, plan.reasons.order);
  if (!facts.known) {
    line("waves", "known with all sizes, as are blocks" +
                      std::string(problem.backward ? ", kernels and workspace" : ""));
    return;
  }
  line("waves", number(facts.tiles) + " tiles on " + number(smsOf(problem)) +
                    (facts.gpu             ? " SMs: "
                     : smsOf(problem) == 1 ? " worker: "
                                           : " workers: ") +
                    tenths(facts.waves) + " waves in " + number(facts.rounds) + " rounds, grid " +
                    number(facts.grid));
  const char *label = "kernels";
  for (const BackwardKernel &kernel : facts.kernels) {
    line(label, std::string(kernel.op) + ": " + number(kernel.blocks) +
                    (facts.gpu ? " blocks of " + number(kernel.threads) + " threads" : " tiles"));
    label = "";
  }
  if (!problem.backward)
    return;
  std::string parts;
  for (const auto &[name, bytes] : facts.workspace)
    parts += (parts.empty() ? ": " : ", ") + name + " " + number(bytes);
  line("workspace", number(facts.workspaceBytes) + " bytes" + parts);
}

static std::string asJson(const Problem &problem, const Plan &plan, const Facts &facts) {
  using Json = nlohmann::ordered_json;
  auto size = [](int64_t value) { return value == unknown ? Json() : Json(value); };
  Json json;
  json["target"] = facts.machine.name;
  json["backward"] = problem.backward;
  json["problem"] = {{"element", elementName(problem.element)},
                     {"head_size", problem.headSize},
                     {"head_size_v", problem.headSizeV},
                     {"softcap", problem.softcap},
                     {"sink", problem.sink},
                     {"batch", size(problem.batch)},
                     {"heads", size(problem.heads)},
                     {"kv_heads", size(problem.kvHeads)},
                     {"queries", size(problem.lenQ)},
                     {"keys", size(problem.lenK)}};
  json["mask"] = {{"kind", maskName(plan.mask.kind)},
                  {"left", plan.mask.left},
                  {"right", plan.mask.right},
                  {"chunk", plan.mask.chunk},
                  {"sink_tokens", plan.mask.sinkTokens},
                  {"why", plan.reasons.mask}};
  json["tile"] = {{"m", plan.tileM},
                  {"n", plan.tileN},
                  {"head", plan.headTile},
                  {"head_v", plan.headTileV},
                  {"stages", plan.stages},
                  {"consumers", plan.consumers},
                  {"split_by", splitWord(problem, plan)},
                  {"overlap", plan.overlap}};
  if (problem.backward)
    json["tile"].update({{"own_dv", plan.ownDv},
                         {"alternate", plan.alternate},
                         {"late_v", plan.lateV},
                         {"late_dp", plan.lateDp},
                         {"why_own_dv", plan.reasons.ownDv}});
  else
    json["tile"].update({{"pv_from_registers", plan.pvFromRegisters},
                         {"q_in_regs", plan.qInRegisters},
                         {"defer_max", plan.deferMax},
                         {"multicast", plan.multicast},
                         {"early_wait", plan.earlyWait},
                         {"ping_pong", plan.pingPong}});
  json["tile"]["why"] = plan.reasons.tile;
  if (!plan.reasons.roles.empty())
    json["tile"]["why_in_step"] = plan.reasons.roles;
  if (facts.gpu) {
    if (!problem.backward) {
      json["tile"]["transfer"] = transferName(plan.transfer);
      json["tile"]["read_once"] = plan.readOnce;
    }
    json["output"] = {{"staged_columns", plan.stagedColumns}, {"why", plan.reasons.staging}};
    json["shared_bytes"] = {{"used", plan.sharedBytes},
                            {"limit", facts.machine.sharedBytesPerBlock}};
    json["registers"] = {{"consumer", plan.consumerRegisters},
                         {"producer", plan.producerRegisters},
                         {"used", facts.registers},
                         {"limit", facts.machine.registersPerSm}};
    if (!problem.backward)
      json["registers"].update(
          {{"fragments", facts.fragments}, {"beside_fragments", registersBesideFragments}});
    json["threads"] = {{"used", plan.threads}, {"limit", facts.machine.maxThreads}};
  }
  if (problem.backward) {
    json["sum_of_dq"] = {{"ordered", plan.ordered}, {"why", plan.reasons.ordered}};
  } else {
    json["pack_gqa"] = {
        {"packed", plan.packGqa}, {"group", plan.group}, {"why", plan.reasons.packGqa}};
    json["splits"] = {{"count", plan.splits}, {"why", plan.reasons.splits}};
  }
  json["order"] = {{"name", orderName(plan.order)},
                   {"persistent", plan.persistent},
                   {"stealing", plan.stealing},
                   {"why", plan.reasons.order},
                   {"why_stealing", plan.reasons.stealing}};
  if (facts.known) {
    json["order"]["l2_section"] = facts.section;
    json["blocks"] = {{"all", facts.blocks.all},
                      {"computed", facts.blocks.computed},
                      {"skipped", facts.blocks.all - facts.blocks.computed},
                      {"masked", facts.blocks.masked},
                      {"exact", facts.blocks.exact},
                      {"why_masked", whyMasked(problem, plan)}};
    json["waves"] = {{"tiles", facts.tiles},
                     {"sms", smsOf(problem)},
                     {"grid", facts.grid},
                     {"waves", facts.waves},
                     {"rounds", facts.rounds}};
  }
  for (const BackwardKernel &kernel : facts.kernels)
    json["kernels"].push_back(
        {{"op", kernel.op}, {"blocks", kernel.blocks}, {"threads", kernel.threads}});
  if (!facts.workspace.empty()) {
    json["workspace"] = {{"bytes", facts.workspaceBytes}};
    for (const auto &[name, bytes] : facts.workspace)
      json["workspace"]["parts"][name] = bytes;
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string explain(const Problem &problem, const Plan &plan, bool json) {
  const Facts facts = factsOf(problem, plan);
  return json ? asJson(problem, plan, facts) : Text(problem, plan, facts).all();
}

} // namespace flash::schedule
