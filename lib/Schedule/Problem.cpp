//===- Problem.cpp - what no target computes ------------------------------===//

#include "flash/Schedule/Plan.h"

namespace flash::schedule {

static std::string number(int64_t value) { return std::to_string(value); }

namespace {
constexpr int64_t widest = 256;
constexpr HeadTile widerV{64, 512}; // the one pair past the widest

bool isPlain(int64_t size, int64_t step) {
  return size >= step && size <= widest && size % step == 0;
}
std::string plainRule(int64_t step) {
  return "a multiple of " + number(step) + " from " + number(step) + " to " + number(widest);
}
} // namespace

std::optional<std::string> whyNotHeadSize(std::string_view owner, int64_t size) {
  if (isPlain(size, 8) || size == widerV.dv)
    return std::nullopt;
  return "expected " + std::string(owner) + "'s head size (" + number(size) + ") to be " +
         plainRule(8) + ", or " + number(widerV.dv);
}

static std::optional<std::string> whyNotHeadSizes(const Problem &problem) {
  const int64_t d = problem.headSize, dv = problem.headSizeV;
  const int64_t step = problem.element == ElementType::f8 ? 16 : 8;
  if (!isPlain(d, step))
    return "expected q's head size (" + number(d) + ") to be " + plainRule(step);
  if (!isPlain(dv, step) && !(d == widerV.d && dv == widerV.dv))
    return "expected v's head size (" + number(dv) + ") to be " + plainRule(step) + ", or " +
           number(widerV.dv) + " where q's (" + number(d) + ") is " + number(widerV.d);
  return std::nullopt;
}

static std::optional<std::string> whyNotSizes(const Problem &problem) {
  constexpr int64_t most = 0x7fffffff; // 32 bits hold every count in a kernel
  struct Size {
    const char *what;
    int64_t value, least;
  };
  for (Size size :
       {Size{"a batch", problem.batch, 0}, Size{"a number of q's heads", problem.heads, 0},
        Size{"a number of k's heads", problem.kvHeads, 1},
        Size{"a number of queries", problem.lenQ, 0}, Size{"a number of keys", problem.lenK, 0}})
    if (size.value != unknown && (size.value < size.least || size.value > most))
      return std::string("expected ") + size.what + " from " + number(size.least) +
             " to 2^31 - 1, it is " + number(size.value);
  if (problem.heads != unknown && problem.kvHeads != unknown &&
      problem.heads % problem.kvHeads != 0)
    return "expected q's heads (" + number(problem.heads) + ") to be a multiple of k's (" +
           number(problem.kvHeads) + ")";
  if (problem.numSplits < 0 || problem.numSplits > maxSplitIndex)
    return "expected num_splits from 1 to " + number(maxSplitIndex) +
           ", or 0 for the planner's choice, it is " + number(problem.numSplits);
  return std::nullopt;
}

static std::optional<std::string> whyNotTables(const Problem &problem) {
  if (problem.pageSize && *problem.pageSize != unknown && *problem.pageSize < 1)
    return "expected pages of at least 1 row, it is " + number(*problem.pageSize);
  if (problem.pageSize && problem.packedK)
    return "expected cu_seqlens_k or page_table, got both: the lengths of pages are seqused_k";
  if (problem.pageSize && !problem.usedK)
    return "expected seqused_k besides page_table: it says how many rows of the pages count";
  if (problem.append && !problem.usedK)
    return "expected seqused_k besides k_new: it says where the cache ends";
  if (problem.append && problem.packedK)
    return "expected a cache of rows or pages besides k_new, packed keys have no room behind them";
  if (problem.rotary < 0 || 2 * problem.rotary > problem.headSize)
    return "expected rotary_cos to turn at most q's head size (" + number(problem.headSize) +
           "), got " + number(2 * problem.rotary);
  if (problem.rotary > 0 && !problem.append)
    return "expected k_new besides rotary_cos: the embedding turns q and k_new";
  return std::nullopt;
}

std::optional<std::string> whyNotProblem(const Problem &problem) {
  if (auto sentence = whyNotHeadSizes(problem))
    return sentence;
  if (auto sentence = whyNotSizes(problem))
    return sentence;
  if (auto sentence = whyNotMask(problem.mask))
    return sentence;
  if (auto sentence = whyNotTables(problem))
    return sentence;
  if (problem.deterministic && !problem.backward)
    return "expected deterministic only for gradients: attention is";
  if (problem.element == ElementType::f32 && problem.target != Target::cpu)
    return "expected f16 or bf16 on " + std::string(targetName(problem.target)) +
           ", the element type is f32, which only cpu computes";
  return std::nullopt;
}

bool sizesKnown(const Problem &problem) {
  for (int64_t size : {problem.batch, problem.heads, problem.kvHeads, problem.lenQ, problem.lenK})
    if (size == unknown)
      return false;
  return true;
}

int64_t smsOf(const Problem &problem) {
  return problem.sms > 0 ? problem.sms : machineOf(problem.target).sms;
}

int64_t groupOf(const Problem &problem) {
  if (problem.heads != unknown && problem.kvHeads != unknown)
    return problem.heads == 0 ? 1 : problem.heads / problem.kvHeads;
  return problem.group > 0 ? problem.group : unknown;
}

} // namespace flash::schedule
