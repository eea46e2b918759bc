//===- RequestText.cpp - a request's texts: the key of its program, its op ===//
#include "flash/Runtime/Request.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/raw_ostream.h"

using namespace flash;
using llvm::StringRef;

static std::string maskText(const schedule::Mask &mask) {
  std::string text = "#flash.mask<" + std::string(schedule::maskName(mask.kind));
  auto add = [&](const char *name, int64_t value, int64_t none) {
    if (value > none)
      text += std::string(", ") + name + " = " + std::to_string(value);
  };
  if (mask.kind == schedule::MaskKind::local) {
    add("left", mask.left, -1);
    add("right", mask.right, -1);
    add("chunk", mask.chunk, 0);
    add("sink_tokens", mask.sinkTokens, 0);
  }
  return text + ">";
}

/// Heads are static only where the plan packs them: the group shapes the tile's rows.
static std::string headsText(const Request &request, int64_t heads) {
  return request.plan.packGqa ? std::to_string(heads) : "?";
}

/// A GPU's copies depend on the size of pages, loops do not.
static std::string pageText(const Request &request) {
  return request.problem.target == schedule::Target::cpu
             ? "?"
             : std::to_string(*request.problem.pageSize);
}

/// Whether query t is turned by the position t behind the keys; else all are by the first one.
static bool turnsByQuery(const schedule::Problem &p) {
  return p.mask.causal || p.mask.left >= 0 || p.mask.right >= 0;
}

std::string flash::keyOf(const Request &request) {
  const schedule::Problem &p = request.problem;
  const schedule::Plan &plan = request.plan;
  std::string key;
  llvm::raw_string_ostream os(key);
  if (request.merge) {
    os << "merge " << StringRef(schedule::targetName(p.target)) << ' '
       << StringRef(schedule::elementName(p.element)) << ' ' << p.headSizeV;
    return key;
  }
  os << StringRef(schedule::targetName(p.target)) << ' '
     << StringRef(schedule::elementName(p.element)) << " head " << p.headSize << ' ' << p.headSizeV
     << ' ' << maskText(plan.mask) << " softcap " << p.softcap << " sink " << p.sink << " heads "
     << headsText(request, p.heads) << ' ' << headsText(request, p.kvHeads) << ' '
     << request.planText << " stages " << plan.stages << " consumers " << plan.consumers << ' '
     << StringRef(schedule::splitByName(plan.splitBy)) << " registers " << plan.producerRegisters
     << ' ' << plan.consumerRegisters << ' ' << plan.pvFromRegisters << " overlap " << plan.overlap
     << " split " << (plan.splits > 1) << (plan.ownSplits ? " own" : "") << " defer "
     << plan.deferMax << " q " << plan.qInRegisters << " early " << plan.earlyWait << " turns "
     << plan.pingPong << " multicast " << plan.multicast << " staged " << plan.stagedColumns
     << " once " << plan.readOnce << " join " << plan.join.atOnce << ' ' << plan.join.aside
     << " transfer " << StringRef(schedule::transferName(plan.transfer)) << " persistent "
     << plan.persistent << " stealing " << plan.stealing;
  if (p.backward)
    os << " backward deterministic " << p.deterministic;
  if (schedule::hasTables(p))
    os << " packed " << p.packedQ << ' ' << p.packedK << " used " << p.usedQ << ' ' << p.usedK
       << " pages " << (p.pageSize ? pageText(request) : "none") << " idx " << p.batchIdx << " pad "
       << p.leftpad << " append " << p.append << " rotary " << p.rotary << ' '
       << p.rotaryInterleaved << ' ' << (p.rotary > 0 && turnsByQuery(p));
  for (const auto &[name, on] : request.passes)
    os << ' ' << name << ' ' << on;
  return key;
}

namespace {
/// The text of a function as it grows: its arguments, and its ops.
struct FunctionText {
  std::string arguments, body;

  /// An argument, as operands are written.
  void argue(const std::string &name, const std::string &type) {
    arguments += (arguments.empty() ? "    %" : ",\n    %") + name + ": " + type;
  }
  /// The clause of a new argument, ` name(%name : type)`.
  std::string clause(const std::string &name, const std::string &type) {
    argue(name, type);
    return " " + name + "(%" + name + " : " + type + ")";
  }
};
} // namespace

/// A memref of any strides, but for the last one where elements are contiguous.
static std::string memrefText(const std::string &sizes, StringRef element, bool contiguous = true) {
  std::string strides;
  for (size_t dim = StringRef(sizes).count('x'); dim > 0; --dim)
    strides += "?, ";
  return "memref<" + sizes + "x" + element.str() + ", strided<[" + strides +
         (contiguous ? "1" : "?") + "], offset: ?>>";
}

static std::string mergeText(const schedule::Problem &p) {
  // Each dimension but the rows' columns is known when it runs.
  const std::string rows = "?x?x?", columns = std::to_string(p.headSizeV),
                    o = memrefText(rows + "x" + columns, schedule::elementName(p.element)),
                    lse = memrefText(rows, "f32", false),
                    oPartial = memrefText("?x" + rows + "x" + columns, "f32"),
                    lsePartial = memrefText("?x" + rows, "f32", false);
  FunctionText f;
  f.argue("o_partial", oPartial);
  f.argue("lse_partial", lsePartial);
  f.argue("o", o);
  f.argue("lse", lse);
  return "func.func @flash_merge(\n" + f.arguments +
         ") {\n  flash.combine %o_partial, %lse_partial outs(%o, %lse : " + o + ", " + lse +
         ")\n      {target = #flash.target<\"" + std::string(schedule::targetName(p.target)) +
         "\">}\n      : " + oPartial + ", " + lsePartial + "\n  return\n}\n";
}

namespace {
/// The types of an attention's operands.
struct Types {
  explicit Types(const Request &request)
      : p(request.problem), heads(headsText(request, p.heads)),
        kvHeads(headsText(request, p.kvHeads)), element(schedule::elementName(p.element)),
        queries(p.packedQ ? "?x" : "?x?x"), keys(p.packedK    ? "?x"
                                                 : p.pageSize ? "?x" + pageText(request) + "x"
                                                              : "?x?x") {}

  std::string tensor(const std::string &sizes, const std::string &heads, int64_t headSize) const {
    return memrefText(sizes + heads + "x" + std::to_string(headSize), element);
  }

  const schedule::Problem &p;
  const std::string heads, kvHeads, element, queries, keys;
  const std::string q = tensor(queries, heads, p.headSize), k = tensor(keys, kvHeads, p.headSize),
                    v = tensor(keys, kvHeads, p.headSizeV), o = tensor(queries, heads, p.headSizeV),
                    statistic = (p.packedQ ? "" : "?x") + heads + "x?",
                    lse = memrefText(statistic, "f32", false),
                    sink = memrefText(heads, "f32", false), rows = memrefText("?", "i32");
};
} // namespace

static std::string functionText(const FunctionText &f) {
  return "func.func @" + std::string(kernelName) + "(\n" + f.arguments + ") {\n" + f.body +
         "  return\n}\n";
}
static std::string targetText(const schedule::Problem &p) {
  return "target = #flash.target<\"" + std::string(schedule::targetName(p.target)) + "\">";
}

/// The clauses of the scalars, as new arguments.
static std::string scalarsText(const schedule::Problem &p, FunctionText &f) {
  f.argue("scale", "f32");
  if (p.softcap)
    f.argue("softcap", "f32");
  return p.softcap ? " scale %scale softcap %softcap" : " scale %scale";
}

static std::string backwardText(const Request &request) {
  const schedule::Problem &p = request.problem;
  const Types t(request);
  FunctionText f;
  struct List {
    std::string names, types;
  } inputs, outs;
  auto add = [&](List &list, const std::string &name, const std::string &type) {
    f.argue(name, type);
    list.names += (list.names.empty() ? "%" : ", %") + name;
    list.types += (list.types.empty() ? "" : ", ") + type;
  };
  add(inputs, "q", t.q);
  add(inputs, "k", t.k);
  add(inputs, "v", t.v);
  add(inputs, "o", t.o);
  add(inputs, "lse", t.lse);
  add(inputs, "do", t.o);
  std::string clauses = p.sink ? f.clause("sink", t.sink) : "";
  clauses += scalarsText(p, f);
  for (auto [has, name] : {std::pair{p.packedQ, "cu_seqlens_q"},
                           {p.packedK, "cu_seqlens_k"},
                           {p.usedQ, "seqused_q"},
                           {p.usedK, "seqused_k"}})
    if (has)
      clauses += f.clause(name, t.rows);
  add(outs, "dq", t.q);
  add(outs, "dk", t.k);
  add(outs, "dv", t.v);
  if (p.sink)
    add(outs, "dsink", t.sink);
  f.body = "  flash.attention_backward " + inputs.names + clauses + "\n      outs(" + outs.names +
           " : " + outs.types + ")\n      by " + maskText(request.plan.mask) + "\n      {" +
           (p.deterministic ? "deterministic, " : "") + targetText(p) +
           ", plan = " + request.planText + "}\n      : " + inputs.types + "\n";
  return functionText(f);
}

std::string flash::opText(const Request &request) {
  const schedule::Problem &p = request.problem;
  if (request.merge)
    return mergeText(p);
  if (p.backward)
    return backwardText(request);
  const Types t(request);
  const std::string &heads = t.heads, &kvHeads = t.kvHeads, &queries = t.queries, &q = t.q,
                    &k = t.k, &v = t.v, &o = t.o, &lse = t.lse, &rows = t.rows;
  FunctionText f;
  f.argue("q", q);
  f.argue("k", k);
  f.argue("v", v);
  f.argue("o", o);
  f.argue("lse", lse);
  std::string clauses;
  const bool split = request.plan.splits > 1;
  const std::string joins = p.sink ? f.clause("sink", t.sink) : "",
                    oPartial = memrefText(
                        "?x" + queries + heads + "x" + std::to_string(p.headSizeV), "f32"),
                    lsePartial = memrefText("?x" + t.statistic, "f32", false);
  if (split) {
    f.argue("o_partial", oPartial);
    f.argue("lse_partial", lsePartial);
  } else {
    clauses += joins;
  }
  clauses += scalarsText(p, f);
  std::string packedQ, pages, index; // clauses that an append has too
  std::string usedQ;                 // and one that a combine has
  if (p.packedQ) {
    packedQ = f.clause("cu_seqlens_q", rows) + " max_seqlen_q %max_seqlen_q";
    f.argue("max_seqlen_q", "index");
  }
  clauses += packedQ;
  if (p.packedK)
    clauses += f.clause("cu_seqlens_k", rows);
  if (p.usedQ)
    usedQ = f.clause("seqused_q", rows);
  clauses += usedQ;
  if (p.usedK)
    clauses += f.clause("seqused_k", rows);
  if (p.append)
    clauses += " appended %appended";
  if (p.pageSize)
    pages = f.clause("page_table", memrefText("?x?", "i32"));
  if (p.batchIdx)
    index = f.clause("kv_batch_idx", rows);
  clauses += pages + index;
  if (p.leftpad)
    clauses += f.clause("leftpad_k", rows);

  llvm::raw_string_ostream os(f.body);
  const std::string target = targetText(p);
  std::string read = "%q", readType = q;
  if (p.append) {
    const std::string kNew = t.tensor("?x?x", kvHeads, p.headSize),
                      vNew = t.tensor("?x?x", kvHeads, p.headSizeV),
                      angles = memrefText("?x" + std::to_string(p.rotary), t.element);
    f.argue("k_new", kNew);
    f.argue("v_new", vNew);
    os << "  %c1 = arith.constant 1 : index\n  %appended = memref.dim %k_new, %c1 : " << kNew
       << "\n";
    std::string rotary, outs = "%k, %v", outTypes = k + ", " + v;
    if (p.rotary > 0) {
      f.argue("rotary_cos", angles);
      f.argue("rotary_sin", angles);
      read = "%q_turned";
      readType =
          "memref<" + queries + heads + "x" + std::to_string(p.headSize) + "x" + t.element + ">";
      std::string sizes;
      const int64_t rank = p.packedQ ? 3 : 4;
      for (int64_t dim = 0; dim < rank - 1; ++dim) {
        if (dim == rank - 2 && heads != "?")
          continue;
        os << "  %d" << dim << " = arith.constant " << dim << " : index\n  %s" << dim
           << " = memref.dim %q, %d" << dim << " : " << q << "\n";
        sizes += (sizes.empty() ? "%s" : ", %s") + std::to_string(dim);
      }
      os << "  %q_turned = memref.alloc(" << sizes << ") : " << readType << "\n";
      rotary = " rotary(%rotary_cos, %rotary_sin : " + angles + ", " + angles + ") q(%q : " + q +
               ")" + packedQ;
      outs += ", %q_turned";
      outTypes += ", " + readType;
    }
    os << "  flash.append %k_new, %v_new seqused_k(%seqused_k : " << rows << ")" << pages << index
       << rotary << "\n      outs(" << outs << " : " << outTypes << ")\n      {"
       << (p.rotary > 0 && !turnsByQuery(p) ? "fixed, " : "")
       << (p.rotaryInterleaved ? "interleaved, " : "") << target << "}\n      : " << kNew << ", "
       << vNew << "\n";
  }
  const std::string own =
      split && request.plan.ownSplits ? f.clause("schedule", memrefText("?x?", "i32")) : "";
  const std::string outs = "outs(%o, %lse : " + o + ", " + lse + ")";
  os << "  flash.attention " << read << ", %k, %v" << clauses << own << "\n      "
     << (split ? "outs(%o_partial, %lse_partial : " + oPartial + ", " + lsePartial + ")" : outs)
     << "\n      by " << maskText(request.plan.mask) << "\n      {" << target
     << ", plan = " << request.planText << "}\n      : " << readType << ", " << k << ", " << v
     << "\n";
  if (split) {
    os << "  flash.combine %o_partial, %lse_partial" << joins << packedQ << usedQ << own << " "
       << outs << "\n      {" << target;
    if (const schedule::Join &join = request.plan.join; p.target != schedule::Target::cpu)
      os << ", plan = #flash.plan<tile = [" << schedule::combineRows(p.headSizeV, join.aside)
         << ", " << join.atOnce << "], aside = " << join.aside << ">";
    os << "} : " << oPartial << ", " << lsePartial << "\n";
  }
  if (read != "%q")
    os << "  memref.dealloc %q_turned : " << readType << "\n";
  return functionText(f);
}
