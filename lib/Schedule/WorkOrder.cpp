//===- WorkOrder.cpp - L2 sections and varlen tables ----------------------===//

#include "flash/Schedule/WorkOrder.h"
#include "flash/Schedule/Machine.h"

#include <algorithm>

namespace flash::schedule {

std::string_view orderName(WorkOrder order) {
  switch (order) {
  case WorkOrder::single:
    return "single";
  case WorkOrder::fixed:
    return "static";
  case WorkOrder::dynamic:
    return "dynamic";
  case WorkOrder::varlenDynamic:
    return "varlen_dynamic";
  case WorkOrder::backwardLpt:
    return "backward_lpt";
  case WorkOrder::backwardSpt:
    return "backward_spt";
  }
  __builtin_unreachable();
}

std::optional<WorkOrder> parseOrder(std::string_view name) {
  for (WorkOrder order : allWorkOrders)
    if (orderName(order) == name)
      return order;
  return std::nullopt;
}

/// The largest power of two of heads that fit the budget; at least 1.
static int64_t headsThatFit(int64_t headBytes, int64_t budget) {
  int64_t heads = 1;
  while (2 * heads * headBytes <= budget)
    heads *= 2;
  return heads;
}

int64_t keySection(int64_t lenK, int64_t headSize, int64_t headSizeV, int64_t elementBytes,
                   int64_t group, bool packed, int64_t pairs) {
  const int64_t headBytes = lenK * (headSize + headSizeV) * elementBytes;
  if (headBytes <= 0)
    return max(pairs, 1);
  return headsThatFit(headBytes, l2SectionBudget) * (packed ? 1 : group);
}

int64_t querySection(int64_t lenQ, int64_t headSize, int64_t headSizeV, int64_t elementBytes,
                     int64_t pairs) {
  const int64_t accumulatorBytes = 4; // dQ is summed in f32
  const int64_t headBytes =
      lenQ * ((headSize + headSizeV) * elementBytes + headSize * accumulatorBytes);
  return headBytes <= 0 ? max(pairs, 1) : headsThatFit(headBytes, l2BackwardBudget);
}

std::vector<VarlenSequence> prepareVarlen(const VarlenProblem &problem,
                                          std::span<const int64_t> lengthsQ,
                                          std::span<const int64_t> lengthsK) {
  std::vector<VarlenSequence> sequences;
  int64_t tilePairs = 0;
  for (size_t i = 0; i < lengthsQ.size(); ++i) {
    int64_t rows = lengthsQ[i] * (problem.packed ? problem.group : 1);
    sequences.push_back({.index = int64_t(i),
                         .mTiles = ceilDiv(rows, problem.tileM),
                         .nTiles = ceilDiv(lengthsK[i], problem.tileN),
                         .splits = 1,
                         .section = 1});
    tilePairs += sequences.back().mTiles * sequences.back().nTiles;
  }
  // A tenth more than an even share, so that rounding up does not add a wave.
  const int64_t share = max(ceilDiv(11 * tilePairs * problem.heads, 10 * problem.sms), 1);
  const int64_t keyTileBytes =
      problem.tileN * (problem.headSize + problem.headSizeV) * problem.elementBytes;
  const int64_t largestSection = 16;
  for (VarlenSequence &sequence : sequences) {
    sequence.splits = clamp<int64_t>(ceilDiv(sequence.nTiles, share), 1, problem.maxSplits);
    int64_t fitting =
        min(headsThatFit(max(sequence.nTiles, 1) * keyTileBytes, l2SplitBudget), largestSection);
    sequence.section =
        clamp<int64_t>(fitting * (problem.packed ? 1 : problem.group), 1, max(problem.heads, 1));
  }
  std::sort(sequences.begin(), sequences.end(),
            [](const VarlenSequence &a, const VarlenSequence &b) {
              const int64_t workA = a.mTiles * a.nTiles, workB = b.mTiles * b.nTiles;
              return workA != workB ? workA > workB : a.index < b.index;
            });
  return sequences;
}

static WorkShape<int64_t> shapeOf(const VarlenSequence &sequence, int64_t heads) {
  return {sequence.mTiles, heads, 1, sequence.splits, sequence.section};
}

std::vector<int64_t> varlenPrefix(std::span<const VarlenSequence> sequences, int64_t heads) {
  std::vector<int64_t> prefix{0};
  for (const VarlenSequence &sequence : sequences)
    prefix.push_back(prefix.back() + tilesOf(shapeOf(sequence, heads)));
  return prefix;
}

std::optional<Work<int64_t>> varlenWorkAt(int64_t t, std::span<const VarlenSequence> sequences,
                                          std::span<const int64_t> prefix, int64_t heads) {
  if (t < 0 || t >= prefix.back())
    return std::nullopt;
  auto after = std::upper_bound(prefix.begin(), prefix.end(), t);
  size_t at = size_t(after - prefix.begin()) - 1;
  Work<int64_t> work = workAt(WorkOrder::dynamic, t - prefix[at], shapeOf(sequences[at], heads));
  work.batch = sequences[at].index;
  return work;
}

} // namespace flash::schedule
