//===- WorkOrder.cpp - names of orders, and L2 sections -------------------===//

#include "flash/Schedule/WorkOrder.h"

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

} // namespace flash::schedule
