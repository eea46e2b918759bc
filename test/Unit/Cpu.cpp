//===- Cpu.cpp - attention through the CPU pipeline, and what it should be ===//
#include "Cpu.h"
#include "flash/Registration.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/Support/raw_ostream.h"
#include <cmath>
#include <limits>
#include <random>

using namespace flash;
using namespace flash::test;

double Problem::scale() const { return 1 / std::sqrt(double(d)); }

std::string Problem::describe() const {
  std::string text;
  llvm::raw_string_ostream(text) << element << " b" << batch << " h" << heads << "/" << kvHeads
                                 << " q" << lenQ << " k" << lenK << " d" << d << "/" << dv
                                 << " splits " << splits << " "
                                 << std::string(schedule::maskName(mask.kind)) << " " << mask.left
                                 << "," << mask.right << " chunk " << mask.chunk << " sinks "
                                 << mask.sinkTokens << " cap " << softcap << " sink " << sink
                                 << " seed " << seed << " rows " << int(rows);
  for (size_t b = 0; b < usedQ.size(); ++b)
    text += " " + std::to_string(usedQ[b]) + "/" + std::to_string(usedK[b]);
  return text;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

static const llvm::fltSemantics &semanticsOf(const std::string &element) {
  return element == "f16" ? llvm::APFloat::IEEEhalf() : llvm::APFloat::BFloat();
}
Buffer::Buffer(std::string element, std::vector<int64_t> sizes)
    : element(std::move(element)), sizes(std::move(sizes)), total(1) {
  for (int64_t size : this->sizes)
    total *= size;
  // At least one element, so that there is an address.
  words.resize(this->element == "f32" ? std::max<size_t>(total, 1) : 0);
  halves.resize(this->element == "f32" ? 0 : std::max<size_t>(total, 1));
  for (size_t i = 0; i < total; ++i)
    set(i, std::numeric_limits<float>::quiet_NaN());
}
float Buffer::get(size_t i) const {
  if (element == "f32")
    return llvm::bit_cast<float>(words[i]);
  llvm::APFloat value(semanticsOf(element), llvm::APInt(16, halves[i]));
  bool loses;
  value.convert(llvm::APFloat::IEEEsingle(), llvm::APFloat::rmNearestTiesToEven, &loses);
  return value.convertToFloat();
}
void Buffer::set(size_t i, float number) {
  if (element == "f32")
    return (void)(words[i] = llvm::bit_cast<uint32_t>(number));
  llvm::APFloat value(number);
  bool loses;
  value.convert(semanticsOf(element), llvm::APFloat::rmNearestTiesToEven, &loses);
  halves[i] = uint16_t(value.bitcastToAPInt().getZExtValue());
}
Tensor Buffer::tensor() {
  Tensor result;
  result.data = words.empty() ? static_cast<void *>(halves.data()) : words.data();
  result.sizes.assign(sizes.begin(), sizes.end());
  result.strides.assign(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;)
    result.strides[i - 1] = result.strides[i] * sizes[i];
  return result;
}

Inputs flash::test::drawInputs(const Problem &p) {
  std::mt19937_64 random(p.seed);
  std::normal_distribution<float> normal;
  auto draw = [&](std::string element, std::vector<int64_t> sizes) {
    Buffer buffer(std::move(element), std::move(sizes));
    for (size_t i = 0; i < buffer.count(); ++i)
      buffer.set(i, normal(random));
    return buffer;
  };
  return {draw(p.element, {p.batch, p.lenQ, p.heads, p.d}),
          draw(p.element, {p.batch, p.lenK, p.kvHeads, p.d}),
          draw(p.element, {p.batch, p.lenK, p.kvHeads, p.dv}), draw("f32", {p.heads})};
}
Outputs flash::test::emptyOutputs(const Problem &p) {
  return {Buffer(p.element, {p.batch, p.lenQ, p.heads, p.dv}),
          Buffer("f32", {p.batch, p.heads, p.lenQ})};
}

//===----------------------------------------------------------------------===//
// The answer
//===----------------------------------------------------------------------===//

Outputs flash::test::expected(const Problem &p, Inputs &in) {
  Outputs out = {Buffer("f32", {p.batch, p.lenQ, p.heads, p.dv}),
                 Buffer("f32", {p.batch, p.heads, p.lenQ})};
  std::vector<double> s(p.lenK), o(p.dv);
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t h = 0; h < p.heads; ++h)
      for (int64_t i = 0; i < p.lenQ; ++i) {
        const int64_t lenQ = p.queries(b), lenK = p.keys(b);
        int64_t kvHead = h / (p.heads / p.kvHeads);
        auto rowQ = ((b * p.lenQ + i) * p.heads + h);
        auto lseAt = (b * p.heads + h) * p.lenQ + i;
        if (i >= lenQ) {
          for (int64_t c = 0; c < p.dv; ++c)
            out.o.set(rowQ * p.dv + c, 0);
          out.lse.set(lseAt, 0);
          continue;
        }
        auto seen = schedule::rowInterval<int64_t>(p.mask, i, lenQ, lenK);
        double top = p.sink ? in.sink.get(h) : -std::numeric_limits<double>::infinity();
        for (int64_t j = 0; j < lenK; ++j) {
          bool visible = (seen.lo <= j && j < seen.hi) || j < seen.sinkEnd;
          s[j] = -std::numeric_limits<double>::infinity();
          if (!visible)
            continue;
          s[j] = 0;
          for (int64_t c = 0; c < p.d; ++c)
            s[j] += double(in.q.get(rowQ * p.d + c)) *
                    in.k.get(((b * p.lenK + j) * p.kvHeads + kvHead) * p.d + c);
          s[j] *= p.scale();
          if (p.softcap)
            s[j] = p.softcap * std::tanh(s[j] / p.softcap);
          top = std::max(top, s[j]);
        }
        bool empty = std::isinf(top);
        double sum = p.sink ? std::exp(in.sink.get(h) - top) : 0;
        std::fill(o.begin(), o.end(), 0);
        for (int64_t j = 0; j < lenK && !empty; ++j) {
          double weight = std::exp(s[j] - top);
          sum += weight;
          for (int64_t c = 0; c < p.dv; ++c)
            o[c] += weight * in.v.get(((b * p.lenK + j) * p.kvHeads + kvHead) * p.dv + c);
        }
        for (int64_t c = 0; c < p.dv; ++c)
          out.o.set(rowQ * p.dv + c, empty ? 0 : o[c] / sum);
        out.lse.set(lseAt, empty ? top : top + std::log(sum));
      }
  return out;
}

std::optional<std::string> flash::test::differs(const Problem &p, const Outputs &got,
                                                const Outputs &want) {
  double bound = p.element == "f32" ? 1e-5 : p.element == "f16" ? 5e-3 : 1.2e-2;
  double square = 0, error = 0;
  std::string text;
  llvm::raw_string_ostream os(text);
  for (size_t i = 0; i < want.o.count(); ++i) {
    double delta = double(got.o.get(i)) - want.o.get(i);
    if (!(std::fabs(delta) <= 10 * bound)) {
      os << "o[" << i << "] is " << got.o.get(i) << ", expected " << want.o.get(i);
      return text;
    }
    square += double(want.o.get(i)) * want.o.get(i), error += delta * delta;
  }
  if (error > bound * bound * square) {
    os << "o is off by " << std::sqrt(error / square);
    return text;
  }
  for (size_t i = 0; i < want.lse.count(); ++i) {
    double a = got.lse.get(i), b = want.lse.get(i);
    if (!(a == b || std::fabs(a - b) <= 1e-4)) {
      os << "lse[" << i << "] is " << a << ", expected " << b;
      return text;
    }
  }
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// Compiling and running
//===----------------------------------------------------------------------===//

std::string flash::test::maskText(const schedule::Mask &mask) {
  std::string text = "#flash.mask<" + std::string(schedule::maskName(mask.kind));
  for (auto [name, value] : {std::pair("left", mask.left), std::pair("right", mask.right)})
    if (mask.kind == schedule::MaskKind::local && value >= 0)
      text += std::string(", ") + name + " = " + std::to_string(value);
  if (mask.chunk)
    text += ", chunk = " + std::to_string(mask.chunk);
  if (mask.sinkTokens)
    text += ", sink_tokens = " + std::to_string(mask.sinkTokens);
  return text + ">";
}

std::string flash::test::opText(const Problem &p, const std::string &plan) {
  std::string text;
  llvm::raw_string_ostream os(text);
  auto tensor = [&](const std::string &sizes) { return "tensor<" + sizes + "x" + p.element + ">"; };
  auto n = [](int64_t value) { return std::to_string(value); };
  const bool packed = p.rows == Problem::packed;
  const std::string rows = packed ? "?x" : "?x?x", before = packed ? "" : "?x";
  std::string q = tensor(rows + n(p.heads) + "x" + n(p.d)),
              k = tensor(rows + n(p.kvHeads) + "x" + n(p.d)),
              v = tensor(rows + n(p.kvHeads) + "x" + n(p.dv)),
              o = tensor(rows + n(p.heads) + "x" + n(p.dv)),
              lse = "tensor<" + before + n(p.heads) + "x?xf32>";
  const std::string table = "tensor<?xi32>", pages = "tensor<?x?xi32>";
  std::string arguments, clauses, ofRows; // what a combine says too
  if (packed) {
    arguments = ", %cu_q: " + table + ", %cu_k: " + table + ", %most: index";
    ofRows = " cu_seqlens_q(%cu_q : " + table + ") max_seqlen_q %most";
    clauses = ofRows + " cu_seqlens_k(%cu_k : " + table + ")";
  } else if (p.rows == Problem::paged) {
    arguments =
        ", %used_q: " + table + ", %used_k: " + table + ", %pages: " + pages + ", %pad: " + table;
    ofRows = " seqused_q(%used_q : " + table + ")";
    clauses = ofRows + " seqused_k(%used_k : " + table + ") page_table(%pages : " + pages +
              ") leftpad_k(%pad : " + table + ")";
  }
  std::string sink = "tensor<" + n(p.heads) + "xf32>";
  os << "func.func @f(%q: " << q << ", %k: " << k << ", %v: " << v << ", %scale: f32"
     << (p.sink ? ", %sink: " + sink : "") << (p.softcap ? ", %cap: f32" : "") << arguments
     << ") -> (" << o << ", " << lse << ") {\n";
  std::string head = "flash.attention %q, %k, %v" +
                     std::string(p.sink && p.splits == 1 ? " sink(%sink : " + sink + ")" : "") +
                     " scale %scale" + (p.softcap ? " softcap %cap" : "") + clauses + " by " +
                     maskText(p.mask) + " {target = #flash.target<\"cpu\">, plan = #flash.plan<" +
                     plan + ">} : " + q + ", " + k + ", " + v + " -> ";
  if (p.splits == 1) {
    os << "  %o, %lse = " << head << o << ", " << lse << "\n";
  } else {
    std::string parts = "tensor<" + n(p.splits) + "x" + rows + n(p.heads) + "x" + n(p.dv) + "xf32>",
                logs = "tensor<" + n(p.splits) + "x" + before + n(p.heads) + "x?xf32>";
    os << "  %op, %lp = " << head << parts << ", " << logs
       << "\n  %o, %lse = flash.combine %op, %lp" << ofRows << " {target = "
       << "#flash.target<\"cpu\">, plan = #flash.plan<"
       << (p.splits % 2 ? "tile = [3, 6], aside = 3" : "tile = [4, 1]") << ">} : " << parts << ", "
       << logs << " -> " << o << ", " << lse << "\n";
  }
  os << "  return %o, %lse : " << o << ", " << lse << "\n}\n";
  return text;
}

std::unique_ptr<mlir::MLIRContext> flash::test::makeContext() {
  mlir::DialectRegistry registry;
  registerDialects(registry);
  registerTranslations(registry);
  return std::make_unique<mlir::MLIRContext>(registry, mlir::MLIRContext::Threading::DISABLED);
}

llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>>
flash::test::compile(mlir::MLIRContext &context, const std::string &text,
                     const std::function<void(mlir::OpPassManager &)> &build) {
  std::string said;
  mlir::ScopedDiagnosticHandler handler(&context, [&](mlir::Diagnostic &diagnostic) {
    said += diagnostic.str() + "\n";
    return mlir::success();
  });
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  if (!module)
    return llvm::createStringError(said);
  mlir::PassManager pm(&context);
  build(pm);
  if (mlir::failed(pm.run(*module)))
    return llvm::createStringError(said);
  return std::move(module);
}

namespace {

/// The tensors of a call as its problem has them in memory; NaN wherever no row lies.
class Memory {
public:
  Memory(const Problem &p, Inputs &in)
      : p(p), packed(p.rows == Problem::packed), q(place(in.q, p.heads, p.d, false)),
        k(place(in.k, p.kvHeads, p.d, true)), v(place(in.v, p.kvHeads, p.dv, true)),
        o(p.element, shape({}, p.heads, p.dv)), lse("f32", statistics({})),
        parts("f32", shape({p.splits}, p.heads, p.dv)), logs("f32", statistics({p.splits})) {}

  std::vector<Argument> arguments() {
    std::vector<Argument> all = {{"q", q.tensor()},
                                 {"k", k.tensor()},
                                 {"v", v.tensor()},
                                 {"o", o.tensor()},
                                 {"lse", lse.tensor()},
                                 {"o_partial", parts.tensor()},
                                 {"lse_partial", logs.tensor()},
                                 {"max_seqlen_q", p.lenQ}};
    auto add = [&](const char *name, std::vector<int32_t> &table, std::vector<int64_t> sizes) {
      Tensor t{table.data(), {sizes.begin(), sizes.end()}, {1}};
      if (sizes.size() > 1)
        t.strides = {sizes[1], 1};
      all.push_back({name, std::move(t)});
    };
    add("cu_seqlens_q", endsQ, {p.batch + 1}), add("cu_seqlens_k", endsK, {p.batch + 1});
    add("seqused_q", usedQ, {p.batch}), add("seqused_k", usedK, {p.batch});
    add("page_table", table, {p.batch, perSequence()}), add("leftpad_k", pad, {p.batch});
    return all;
  }

  Outputs outputs() {
    Outputs out = emptyOutputs(p);
    for (int64_t b = 0; b < p.batch; ++b)
      for (int64_t i = 0; i < p.lenQ; ++i)
        for (int64_t h = 0; h < p.heads; ++h) {
          const bool inside = i < p.queries(b);
          const int64_t row = packed ? endsQ[b] + i : b * p.lenQ + i;
          const int64_t log = packed ? h * total(endsQ) + row : (b * p.heads + h) * p.lenQ + i;
          out.lse.set((b * p.heads + h) * p.lenQ + i, inside ? lse.get(log) : 0);
          for (int64_t c = 0; c < p.dv; ++c)
            out.o.set(((b * p.lenQ + i) * p.heads + h) * p.dv + c,
                      inside ? o.get((row * p.heads + h) * p.dv + c) : 0);
        }
    return out;
  }

private:
  static constexpr int64_t pageSize = 4, behind = 3; ///< rows of no sequence
  int64_t perSequence() const { return (p.lenK + p.batch) / pageSize + 1; }
  int64_t total(const std::vector<int32_t> &ends) const { return ends.back() + behind; }

  std::vector<int64_t> shape(std::vector<int64_t> sizes, int64_t heads, int64_t columns) const {
    if (packed)
      sizes.push_back(total(endsQ));
    else
      sizes.insert(sizes.end(), {p.batch, p.lenQ});
    sizes.insert(sizes.end(), {heads, columns});
    return sizes;
  }
  std::vector<int64_t> statistics(std::vector<int64_t> sizes) const {
    if (packed)
      sizes.insert(sizes.end(), {p.heads, total(endsQ)});
    else
      sizes.insert(sizes.end(), {p.batch, p.heads, p.lenQ});
    return sizes;
  }
  /// The tables, made before anything is placed.
  bool makeTables() {
    const int64_t pagesOfAll = p.batch * perSequence();
    for (int64_t b = 0; b < p.batch; ++b) {
      endsQ.push_back(endsQ.back() + int32_t(p.queries(b)));
      endsK.push_back(endsK.back() + int32_t(p.keys(b)));
      pad.push_back(int32_t(b));
      usedQ.push_back(int32_t(p.queries(b))), usedK.push_back(int32_t(p.keys(b) + b));
      for (int64_t i = 0; i < perSequence(); ++i) // from the last page on
        table.push_back(int32_t(pagesOfAll - 1 - (b * perSequence() + i)));
    }
    return true;
  }
  Buffer place(const Buffer &from, int64_t heads, int64_t columns, bool isKey) {
    const int64_t length = isKey ? p.lenK : p.lenQ, all = isKey ? total(endsK) : total(endsQ);
    std::vector<int64_t> sizes{p.batch, length, heads, columns};
    if (packed)
      sizes = {all, heads, columns};
    else if (isKey && p.rows == Problem::paged)
      sizes = {p.batch * perSequence(), pageSize, heads, columns};
    Buffer to(p.element, sizes);
    for (int64_t b = 0; b < p.batch; ++b)
      for (int64_t i = 0; i < (isKey ? p.keys(b) : p.queries(b)); ++i) {
        int64_t row = b * length + i;
        if (packed) {
          row = (isKey ? endsK : endsQ)[b] + i;
        } else if (isKey && p.rows == Problem::paged) {
          const int64_t at = i + pad[b];
          row = table[b * perSequence() + at / pageSize] * pageSize + at % pageSize;
        }
        for (int64_t c = 0; c < heads * columns; ++c)
          to.set(row * heads * columns + c, from.get((b * length + i) * heads * columns + c));
      }
    return to;
  }

  const Problem &p;
  std::vector<int32_t> endsQ{0}, endsK{0}, usedQ, usedK, table, pad;
  const bool packed, made = makeTables();
  Buffer q, k, v, o, lse, parts, logs;
};

} // namespace

llvm::Expected<Outputs> flash::test::runKernels(CpuProgram &program, const Problem &p, Inputs &in,
                                                unsigned workers, uint64_t seed) {
  Memory memory(p, in);
  std::vector<Argument> arguments = memory.arguments();
  arguments.push_back({"sink", in.sink.tensor()});
  arguments.push_back({"scale", float(p.scale())});
  arguments.push_back({"softcap", float(p.softcap)});
  arguments.push_back({"section", int64_t(2)});
  if (llvm::Error error = program.run("f", arguments, workers, seed))
    return std::move(error);
  if (p.splits > 1)
    if (llvm::Error error = program.run("f_combine", arguments, workers, seed))
      return std::move(error);
  return memory.outputs();
}
