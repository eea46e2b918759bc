//===- Mask.cpp - masks made canonical ------------------------------------===//

#include "flash/Schedule/Mask.h"

namespace flash::schedule {

std::string_view maskName(MaskKind kind) {
  switch (kind) {
  case MaskKind::dense:
    return "dense";
  case MaskKind::causal:
    return "causal";
  case MaskKind::local:
    return "local";
  }
  __builtin_unreachable();
}

std::optional<std::string> whyNotMask(const MaskRequest &request) {
  auto side = [](const char *name, int64_t value) {
    return std::string("expected the window's ") + name +
           " side to be at least 0, or -1 for unbounded, it is " + std::to_string(value);
  };
  if (request.left < -1)
    return side("left", request.left);
  if (request.right < -1)
    return side("right", request.right);
  if (request.causal && request.right > 0)
    return "a causal mask ends at the diagonal, the window's right side is " +
           std::to_string(request.right) + "; leave causal out, or the right side -1 or 0";
  if (request.chunk < 0)
    return "expected an attention chunk of at least 1, or 0 for none, it is " +
           std::to_string(request.chunk);
  if (request.sinkTokens < 0)
    return "expected at least 0 sink tokens, there are " + std::to_string(request.sinkTokens);
  return std::nullopt;
}

Mask canonical(const MaskRequest &request, int64_t lenQ, int64_t lenK) {
  Mask mask{MaskKind::local, request.left, request.causal ? 0 : request.right, request.chunk,
            request.sinkTokens};
  // A bound that no row can reach is none.
  if (lenK >= 0 && mask.left >= lenK - 1)
    mask.left = -1;
  if (lenQ >= 0 && mask.right >= lenQ - 1)
    mask.right = -1;
  if (mask.chunk == 0 && mask.left == -1 && mask.right <= 0)
    return {mask.right == 0 ? MaskKind::causal : MaskKind::dense, -1, mask.right, 0, 0};
  if (!mask.boundsLeft())
    mask.sinkTokens = 0; // the window reaches them anyway
  if (mask.chunk > 0) {
    // A window cannot reach further than its chunk. Sink tokens lie outside it and are held to the
    // right side as it was asked for.
    const int64_t widest = mask.chunk - 1;
    mask.left = mask.left < 0 ? widest : min(mask.left, widest);
    if (mask.sinkTokens == 0)
      mask.right = mask.right < 0 ? widest : min(mask.right, widest);
  }
  return mask;
}

} // namespace flash::schedule
