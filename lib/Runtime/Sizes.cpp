//===- Sizes.cpp - the problem of one call: its operands, checked ---------===//
#include "flash/Runtime/Program.h"
#include "llvm/ADT/STLExtras.h"

using namespace flash;

/// Whether `t` is there, of that shape (unknown: any size) and laid out as kernels read it.
static Outcome check(Operand operand, const FlashTensor *t, llvm::ArrayRef<int64_t> shape,
                     schedule::ElementType element) {
  std::string name(operandName(operand));
  if (!t)
    return invalid("the call has no " + name);
  if (t->rank != int64_t(shape.size()))
    return invalid("expected " + name + " of rank " + std::to_string(shape.size()) + ", got rank " +
                   std::to_string(t->rank));
  for (auto [i, size] : llvm::enumerate(shape))
    if (t->size[i] < 0 || t->size[i] > std::numeric_limits<int32_t>::max() ||
        (size != schedule::unknown && t->size[i] != size))
      return invalid("expected " + name + "'s size " + std::to_string(i) + " (" +
                     std::to_string(t->size[i]) + ") to be " +
                     (size == schedule::unknown ? "from 0 to 2^31 - 1" : std::to_string(size)));
  const bool empty = llvm::is_contained(llvm::ArrayRef(t->size, t->rank), 0);
  const bool rows = operand != Operand::lse && operand != Operand::sink &&
                    operand != Operand::lsePartial && operand != Operand::dsink,
             statistic = !rows || operand == Operand::oPartial;
  const bool table = isTable(operand);
  const int64_t last = t->rank - 1;
  if (rows && !empty && t->size[last] > 1 && t->stride[last] != 1)
    return invalid("expected " + name + "'s last dimension to be contiguous, got stride " +
                   std::to_string(t->stride[last]));
  const int64_t bytes = statistic ? sizeof(float)
                        : table   ? sizeof(int32_t)
                                  : schedule::elementBytes(element);
  if (!empty && reinterpret_cast<uintptr_t>(t->data) % bytes)
    return invalid("expected " + name + "'s address to be a multiple of its element's " +
                   std::to_string(bytes) + " bytes");
  if (!t->data && !empty)
    return invalid("expected " + name + "'s data, got a null pointer");
  return {};
}

/// The problem with a call's sizes, once all operands are there and agree.
Or<schedule::Problem> Program::sized(const Operands &operands, const FlashScalars &scalars) const {
  schedule::Problem p = request.problem;
  auto need = [&](Operand operand, llvm::ArrayRef<int64_t> shape) {
    return check(operand, operands[operand], shape, p.element);
  };
  using Shape = llvm::SmallVector<int64_t>;
  const int64_t any = schedule::unknown;
  if (request.merge) {
    if (Outcome failure = need(Operand::o, {any, any, any, p.headSizeV}))
      return *failure;
    const FlashTensor &o = *operands[Operand::o], *parts = operands[Operand::oPartial];
    p.batch = o.size[0], p.lenQ = o.size[1], p.heads = o.size[2];
    Shape lse{p.batch, p.heads, p.lenQ};
    if (Outcome failure = need(Operand::lse, lse))
      return *failure;
    Shape oPartial(o.size, o.size + o.rank);
    oPartial.insert(oPartial.begin(), any);
    if (Outcome failure = need(Operand::oPartial, oPartial))
      return *failure;
    lse.insert(lse.begin(), parts->size[0]);
    if (Outcome failure = need(Operand::lsePartial, lse))
      return *failure;
    return p;
  }
  const int64_t heads = request.plan.packGqa ? p.heads : any,
                kvHeads = request.plan.packGqa ? p.kvHeads : any;
  for (auto [most, packed] : {std::pair{scalars.max_seqlen_q, p.packedQ},
                              {scalars.max_seqlen_k, p.packedK || p.pageSize}})
    if (packed && (most < 0 || most > std::numeric_limits<int32_t>::max()))
      return invalid("expected max_seqlen_q and max_seqlen_k from 0 to 2^31 - 1, got " +
                     std::to_string(most));
  if (Outcome failure = need(Operand::q, p.packedQ ? Shape{any, heads, p.headSize}
                                                   : Shape{any, any, heads, p.headSize}))
    return *failure;
  const FlashTensor &q = *operands[Operand::q];
  p.heads = q.size[q.rank - 2];
  if (p.packedQ) {
    if (Outcome failure = need(Operand::cuSeqlensQ, {any}))
      return *failure;
    p.batch = operands[Operand::cuSeqlensQ]->size[0] - 1;
    p.lenQ = scalars.max_seqlen_q;
    p.totalQ = q.size[0];
    if (p.batch < 0)
      return invalid("expected cu_seqlens_q of batch + 1 elements, got 0");
  } else {
    p.batch = q.size[0], p.lenQ = q.size[1];
  }
  const bool chosen = p.pageSize || p.batchIdx; // rows of k are not the batch's
  const int64_t page = p.pageSize && onGpu() ? *p.pageSize : any;
  if (Outcome failure =
          need(Operand::k, p.packedK ? Shape{any, kvHeads, p.headSize}
                                     : Shape{chosen ? any : p.batch, page, kvHeads, p.headSize}))
    return *failure;
  const FlashTensor &k = *operands[Operand::k];
  p.lenK = p.packedK || p.pageSize ? scalars.max_seqlen_k : k.size[1];
  p.kvHeads = k.size[k.rank - 2];
  Shape v(k.size, k.size + k.rank), o(q.size, q.size + q.rank);
  v.back() = o.back() = p.headSizeV;
  std::vector<std::pair<Operand, Shape>> others = {
      {Operand::v, v},
      {Operand::o, o},
      {Operand::lse, p.packedQ ? Shape{p.heads, q.size[0]} : Shape{p.batch, p.heads, p.lenQ}}};
  auto add = [&](bool has, Operand operand, Shape shape) {
    if (has)
      others.emplace_back(operand, std::move(shape));
  };
  add(p.sink, Operand::sink, {p.heads});
  add(p.backward, Operand::dO, o);
  add(p.backward, Operand::dq, Shape(q.size, q.size + q.rank));
  add(p.backward, Operand::dk, Shape(k.size, k.size + k.rank));
  add(p.backward, Operand::dv, v);
  add(p.backward && p.sink, Operand::dsink, {p.heads});
  add(p.packedK, Operand::cuSeqlensK, {p.batchIdx ? any : p.batch + 1});
  add(p.usedQ, Operand::sequsedQ, {p.batch});
  add(p.usedK, Operand::sequsedK, {p.batch});
  add(p.pageSize.has_value(), Operand::pageTable, {p.batchIdx ? any : p.batch, any});
  add(p.batchIdx, Operand::kvBatchIdx, {p.batch});
  add(p.leftpad, Operand::leftpadK, {p.batch});
  if (operands[Operand::schedule] && !request.plan.ownSplits)
    return invalid("expected no schedule: the plan has one number of splits for all sequences");
  add(operands[Operand::schedule], Operand::schedule, {schedule::scheduleRows, p.batch + 1});
  const FlashTensor *fresh = p.append ? operands[Operand::kNew] : nullptr;
  const int64_t rows = fresh && fresh->rank == 4 ? fresh->size[1] : any;
  add(p.append, Operand::kNew, {p.batch, rows, p.kvHeads, p.headSize});
  add(p.append, Operand::vNew, {p.batch, rows, p.kvHeads, p.headSizeV});
  const FlashTensor *cos = p.rotary > 0 ? operands[Operand::rotaryCos] : nullptr;
  const int64_t positions = cos && cos->rank == 2 ? cos->size[0] : any;
  add(p.rotary > 0, Operand::rotaryCos, {positions, p.rotary});
  add(p.rotary > 0, Operand::rotarySin, {positions, p.rotary});
  for (auto &[operand, shape] : others)
    if (Outcome failure = need(operand, shape))
      return *failure;
  if (auto why = schedule::whyNotProblem(p))
    return invalid(*why);
  return p;
}
