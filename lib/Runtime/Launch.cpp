//===- Launch.cpp - runs a program on one call's operands -----------------===//
#include "flash/Runtime/Program.h"
#include "flash/Schedule/Splits.h"

using namespace flash;

/// Whether there is no row of q: a kernel's tiles would be loaded from no memory, for packed
/// sequences have tiles by their number and bound too.
static bool isEmpty(const schedule::Problem &p) {
  if (p.backward) // keys have gradients without queries, and sinks without sequences
    return false;
  return p.batch == 0 || p.lenQ == 0 || p.heads == 0 || (p.packedQ && p.totalQ == 0);
}

Or<schedule::Problem> Program::sizedOn(const Operands &operands, const FlashScalars &scalars,
                                       int device) const {
  if (!onGpu())
    return invalid("expected a program for a GPU, this one is for the cpu; use flash_run");
  Or<schedule::Problem> sizes = sized(operands, scalars);
  if (std::holds_alternative<Failure>(sizes))
    return sizes;
  schedule::Problem &p = std::get<schedule::Problem>(sizes);
  if (isEmpty(p))
    return p;
  Or<int64_t> sms = cuda::multiprocessors(device, cuda::Capability(schedule::targetName(p.target)));
  if (auto *failure = std::get_if<Failure>(&sms))
    return *failure;
  p.sms = std::get<int64_t>(sms);
  return p;
}

Or<cuda::Loaded::Bytes> Program::counters(int device) {
  if (!onGpu())
    return invalid("expected a program for a GPU, this one is for the cpu, which has no counters");
  return loaded->counters(device);
}

namespace {

/// What one kernel writes for the next: q turned, the f32 parts of split keys, and how many parts
/// each sequence has unless the call says.
struct Parts {
  llvm::SmallVector<std::pair<Operand, FlashTensor>> tensors; // row-major, one behind the other
  llvm::SmallVector<int64_t> offsets;
  int64_t bytes = 0;

  void add(Operand operand, llvm::ArrayRef<int64_t> sizes, int64_t elementBytes,
           bool headsFirst = false) {
    FlashTensor t{nullptr, nullptr, int64_t(sizes.size()), {}, {}};
    int64_t elements = 1;
    for (size_t i = sizes.size(); i--;) {
      t.size[i] = sizes[i], t.stride[i] = elements;
      elements *= sizes[i];
    }
    if (const size_t heads = sizes.size() - 2, rows = heads - 1; headsFirst) {
      t.stride[rows] = t.stride[heads];
      t.stride[heads] = sizes[rows] * t.stride[rows];
    }
    offsets.push_back(bytes);
    bytes += schedule::workspaceBytes(elements, elementBytes);
    tensors.emplace_back(operand, t);
  }
  /// The tensors in `space`.
  llvm::ArrayRef<std::pair<Operand, FlashTensor>> placed(void *space) {
    for (auto [tensor, offset] : llvm::zip(tensors, offsets))
      tensor.second.data = static_cast<char *>(space) + offset;
    return tensors;
  }
};

/// `p`: the problem with the call's sizes.
Parts partsOf(const Request &request, const Operands &operands, const schedule::Problem &p) {
  Parts parts;
  if (request.merge)
    return parts;
  const FlashTensor &q = *operands[Operand::q], &lse = *operands[Operand::lse];
  llvm::SmallVector<int64_t> shape(q.size, q.size + q.rank);
  if (p.backward) {
    for (const schedule::Part &part : schedule::backwardParts(request.plan, p))
      parts.add(*parseOperand(part.name), part.sizes, sizeof(float), part.headsFirst);
    return parts;
  }
  if (p.rotary > 0)
    parts.add(Operand::qTurned, shape, schedule::elementBytes(p.element));
  if (request.plan.splits == 1)
    return parts;
  const int64_t splits = schedule::splitsOf(request.plan, p);
  shape.back() = p.headSizeV;
  shape.insert(shape.begin(), splits);
  parts.add(Operand::oPartial, shape, sizeof(float));
  shape.assign(lse.size, lse.size + lse.rank);
  shape.insert(shape.begin(), splits);
  parts.add(Operand::lsePartial, shape, sizeof(float));
  if (request.plan.ownSplits && !operands[Operand::schedule])
    parts.add(Operand::schedule, {schedule::scheduleRows, p.batch + 1}, sizeof(int32_t));
  return parts;
}

int64_t sectionOf(const Request &request, const schedule::Problem &p) {
  return request.merge ? 1 : schedule::workShapeOf(request.plan, p).section;
}

/// Whether a call for `goal` runs a kernel: one that has a schedule needs none prepared.
bool runs(const cuda::Kernel &kernel, Program::Goal goal, const Operands &given) {
  const bool prepares = kernel.op == "prepare";
  return goal == Program::Goal::schedule ? prepares : !prepares || !given[Operand::schedule];
}

/// Whether tiles of keys are the work of a kernel of gradients.
bool walksKeys(const cuda::Kernel &kernel) {
  return kernel.op == "attention_backward" || kernel.op == "attention_backward_dv";
}

/// The schedule alone needs a place, and a plan that has one.
Outcome whyNoSchedule(const Request &request, const Operands &given) {
  if (!request.plan.ownSplits)
    return invalid("the plan has no schedule to prepare: " + request.plan.reasons.splits);
  if (!given[Operand::schedule])
    return invalid("the call has no schedule");
  return {};
}

} // namespace

Or<int64_t> Program::workspaceBytes(const Operands &operands, const FlashScalars &scalars,
                                    int device) const {
  Or<schedule::Problem> sizes = sizedOn(operands, scalars, device);
  if (auto *failure = std::get_if<Failure>(&sizes))
    return *failure;
  const schedule::Problem &p = std::get<schedule::Problem>(sizes);
  return partsOf(request, operands, p).bytes;
}

Outcome Program::launch(const Operands &given, FlashScalars scalars, int device, void *stream,
                        Goal goal) {
  if (goal == Goal::schedule)
    if (Outcome failure = whyNoSchedule(request, given))
      return failure;
  Or<schedule::Problem> sizes = sizedOn(given, scalars, device);
  if (auto *failure = std::get_if<Failure>(&sizes))
    return *failure;
  const schedule::Problem &p = std::get<schedule::Problem>(sizes);
  if (p.append ? p.batch == 0 : isEmpty(p))
    return {};
  Operands operands = given;
  if (!request.merge && !isEmpty(p))
    if (auto why = schedule::whyNotTiles(request.plan, p))
      return invalid(*why);
  // Kernels look a page up also where no key counts, and do not care what they find.
  FlashTensor noPages;
  if (const FlashTensor *pages = given[Operand::pageTable]; pages && pages->size[1] == 0) {
    noPages = *pages;
    noPages.data = given[Operand::sequsedK]->data, noPages.stride[0] = 0;
    operands[Operand::pageTable] = &noPages;
  }
  Parts parts = partsOf(request, operands, p);
  const FlashTensor *space = operands[Operand::workspace];
  if (goal == Goal::schedule)
    parts = {};
  if (parts.bytes > 0) {
    const int64_t align = schedule::workspaceAlign;
    if (!space || space->rank != 1 || space->size[0] * int64_t(sizeof(float)) < parts.bytes ||
        !space->data || reinterpret_cast<uintptr_t>(space->data) % align)
      return invalid("expected a workspace of " + std::to_string(parts.bytes / sizeof(float)) +
                     " f32 at a multiple of " + std::to_string(align) +
                     " bytes, as flash_workspace says");
  }
  for (auto &[operand, tensor] : parts.placed(parts.bytes > 0 ? space->data : nullptr))
    operands[operand] = &tensor;
  cuda::Launch launch{0,
                      sectionOf(request, p),
                      request.merge ? 1 : splitsOf(request.plan, p),
                      p.sms,
                      true,
                      scalars,
                      device,
                      stream};
  for (size_t i = 0; i < kernels.size(); ++i) {
    if (!runs(kernels[i], goal, given))
      continue;
    int64_t blocks = 0;
    if (kernels[i].op == "combine") {
      const int64_t aside = request.merge ? 1 : request.plan.join.aside;
      blocks =
          schedule::ceilDiv(p.lenQ, schedule::combineRows(p.headSizeV, aside)) * p.heads * p.batch;
    } else if (kernels[i].op == "prepare") {
      blocks = isEmpty(p) ? 0 : p.batch;
    } else if (kernels[i].op == "append") { // rows of k_new, and of q where it is turned
      const int64_t fresh = operands[Operand::kNew]->size[1];
      blocks = schedule::ceilDiv(p.rotary > 0 ? std::max(fresh, p.lenQ) : fresh,
                                 schedule::combineRows(std::max(p.headSize, p.headSizeV))) *
               (p.rotary > 0 ? std::max(p.heads, p.kvHeads) : p.kvHeads) * p.batch;
    } else if (p.backward && !(p.packedK && walksKeys(kernels[i]))) {
      for (const schedule::BackwardKernel &kernel : schedule::backwardKernels(request.plan, p))
        if (kernel.op == kernels[i].op)
          blocks = kernel.blocks;
    } else if (p.backward) {
      // Without a key there is nothing to load, and no tensor to load it from.
      if (const int64_t rows = operands[Operand::k]->size[0])
        blocks = schedule::packedStart(rows, p.batch, 1, request.plan.tileN) * p.kvHeads;
    } else if (!isEmpty(p)) {
      blocks = schedule::gridOf(request.plan, p);
    }
    if (blocks == 0)
      continue;
    launch.blocks = blocks;
    if (Outcome failure = loaded->launch(i, operands, launch))
      return failure;
    launch.first = false;
  }
  return {};
}

Outcome Program::run(const Operands &operands, FlashScalars scalars, int workers, Goal goal) {
  if (goal == Goal::schedule)
    if (Outcome failure = whyNoSchedule(request, operands))
      return failure;
  if (onGpu())
    return invalid("expected a program for the cpu, this one is for a GPU; use flash_launch");
  if (workers < 1)
    return invalid("expected at least 1 worker, got " + std::to_string(workers));
  Or<schedule::Problem> sizes = sized(operands, scalars);
  if (auto *failure = std::get_if<Failure>(&sizes))
    return *failure;
  const schedule::Problem &p = std::get<schedule::Problem>(sizes);
  if (p.append ? p.batch == 0 : isEmpty(p))
    return {};

  std::vector<Argument> arguments;
  auto pass = [&](std::string name, const FlashTensor &t) {
    arguments.push_back({std::move(name),
                         Tensor{t.data, {t.size, t.size + t.rank}, {t.stride, t.stride + t.rank}}});
  };
  for (const FlashTensor *t : operands.tensors)
    if (t)
      pass(t->name, *t);
  arguments.push_back({"scale", scalars.scale});
  arguments.push_back({"softcap", scalars.softcap});
  arguments.push_back({"section", sectionOf(request, p)});
  if (p.packedQ)
    arguments.push_back({"max_seqlen_q", p.lenQ});
  arguments.push_back({"max_splits", request.merge ? 1 : splitsOf(request.plan, p)});
  arguments.push_back({"sms", smsOf(p)});
  if (p.append)
    arguments.push_back({"appended", operands[Operand::kNew]->size[1]});

  Parts parts = partsOf(request, operands, p);
  std::unique_ptr<char[]> space(new (std::nothrow) char[parts.bytes]);
  if (!space)
    return internal("no memory for " + std::to_string(parts.bytes) +
                    " bytes that one kernel writes for the next; use fewer splits");
  for (auto &[operand, t] : parts.placed(space.get()))
    pass(std::string(operandName(operand)), t);
  for (const cuda::Kernel &kernel : kernels)
    if (!runs(kernel, goal, operands))
      continue;
    else if (llvm::Error error = cpu->run(kernel.name, arguments, workers))
      return internal(llvm::toString(std::move(error)));
  return {};
}
