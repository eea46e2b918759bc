//===- Program.cpp - a compiled problem -----------------------------------===//
#include "flash/Runtime/Program.h"

#include "flash/Flash.h"
#include "flash/Pipelines.h"
#include "flash/Registration.h"
#include "flash/Runtime/Assembler.h"
#include "flash/Runtime/Ptx.h"
#include "flash/Schedule/Splits.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"

#include <link.h>

using namespace flash;
using llvm::StringRef;
namespace json = llvm::json;

//===----------------------------------------------------------------------===//
// The build
//===----------------------------------------------------------------------===//

/// The build id among the notes of a segment, or nothing.
static StringRef buildIdOf(StringRef notes) {
  auto padded = [](size_t n) { return (n + 3) / 4 * 4; };
  while (notes.size() >= sizeof(ElfW(Nhdr))) {
    auto *note = reinterpret_cast<const ElfW(Nhdr) *>(notes.data());
    StringRef rest = notes.drop_front(sizeof *note);
    StringRef id = rest.drop_front(std::min(rest.size(), padded(note->n_namesz)));
    if (note->n_type == NT_GNU_BUILD_ID && rest.starts_with("GNU"))
      return id.take_front(note->n_descsz);
    notes = id.drop_front(std::min(id.size(), padded(note->n_descsz)));
  }
  return {};
}

/// The linker's build id of the object that holds this function, in hexadecimal.
static std::string readBuildId() {
  std::string found;
  auto visit = [](dl_phdr_info *object, size_t, void *into) {
    auto address = reinterpret_cast<uintptr_t>(&readBuildId);
    bool ours = false;
    StringRef id;
    for (int i = 0; i < object->dlpi_phnum; ++i) {
      const ElfW(Phdr) &segment = object->dlpi_phdr[i];
      uintptr_t start = object->dlpi_addr + segment.p_vaddr;
      if (segment.p_type == PT_LOAD)
        ours |= address - start < segment.p_memsz;
      if (segment.p_type == PT_NOTE && id.empty())
        id = buildIdOf({reinterpret_cast<const char *>(start), segment.p_memsz});
    }
    if (ours)
      *static_cast<std::string *>(into) = llvm::toHex(id, /*LowerCase=*/true);
    return int(ours);
  };
  dl_iterate_phdr(visit, &found);
  return found;
}

const std::string &flash::buildId() {
  static const std::string id = readBuildId();
  return id;
}

//===----------------------------------------------------------------------===//
// Compiling
//===----------------------------------------------------------------------===//

namespace {

/// An op on its way through the pipeline; what MLIR has to say is kept, not printed.
class Compilation {
public:
  Compilation() : context(registry(), mlir::MLIRContext::Threading::DISABLED) {
    context.getDiagEngine().registerHandler([this](mlir::Diagnostic &d) {
      if (said.empty() && d.getSeverity() == mlir::DiagnosticSeverity::Error)
        said = d.str();
      return mlir::success();
    });
  }

  /// The module of `text` after the pipeline, or what went wrong.
  Outcome run(const std::string &text, const Request &request) {
    module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    if (!module)
      return failed(request);
    PipelineOptions options;
    options.target = std::string(schedule::targetName(request.problem.target));
    setPasses(options, request.passes);
    mlir::PassManager pm(&context);
    if (request.problem.target == schedule::Target::cpu)
      buildFlashToCPU(pm, options);
    else
      buildFlashToNVVM(pm, options);
    if (mlir::failed(pm.run(*module)))
      return failed(request);
    return {};
  }

  Failure failed(const Request &request) const {
    // What the planner accepted has to compile; only a plan by hand can still be at fault.
    std::string sentence = said.empty() ? "the compiler failed without a word" : said;
    return request.byHand.empty() ? internal(sentence) : invalid(sentence);
  }

  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;

private:
  static const mlir::DialectRegistry &registry() {
    static const mlir::DialectRegistry all = [] {
      mlir::DialectRegistry r;
      registerDialects(r);
      registerTranslations(r);
      return r;
    }();
    return all;
  }
  static void setPasses(PipelineOptions &options, const std::map<std::string, bool> &passes) {
    auto set = [&](const char *name, auto &option) {
      if (auto at = passes.find(name); at != passes.end())
        option = at->second;
    };
    set("split_kv", options.splitKV);
    set("order_work", options.orderWork);
    set("skip_blocks", options.skipBlocks);
    set("pipeline_loads", options.pipelineLoads);
    set("split_roles", options.splitRoles);
    set("exact_counts", options.exactCounts);
    set("overlap_softmax", options.overlapSoftmax);
    set("hold_q", options.holdQ);
    set("ping_pong", options.pingPong);
    set("defer_max", options.deferMax);
    set("multicast", options.multicast);
  }
  std::string said;
};

json::Value jsonOf(mlir::Attribute attribute) {
  if (auto text = llvm::dyn_cast<mlir::StringAttr>(attribute))
    return text.getValue();
  if (auto integer = llvm::dyn_cast<mlir::IntegerAttr>(attribute))
    return integer.getInt();
  if (auto array = llvm::dyn_cast<mlir::ArrayAttr>(attribute)) {
    json::Array all;
    for (mlir::Attribute each : array)
      all.push_back(jsonOf(each));
    return all;
  }
  json::Object object;
  for (mlir::NamedAttribute field : llvm::dyn_cast<mlir::DictionaryAttr>(attribute))
    object[field.getName().strref()] = jsonOf(field.getValue());
  return object;
}

/// The kernels of a module: what a launcher has to know.
json::Array kernelsOf(mlir::ModuleOp module) {
  json::Array kernels;
  module.walk([&](mlir::LLVM::LLVMFuncOp function) {
    if (!function->hasAttr(mlir::NVVM::NVVMDialect::getKernelFuncAttrName()))
      return;
    json::Object kernel{{"name", function.getName()},
                        {"follows", function->hasAttr("flash.follows")}};
    for (StringRef field : {"op", "threads", "shared_bytes", "cluster", "params"})
      if (mlir::Attribute value = function->getAttr(("flash." + field).str()))
        kernel[field] = jsonOf(value);
    kernels.push_back(std::move(kernel));
  });
  return kernels;
}

/// The kernels of a CPU program in the order in which they run.
json::Array cpuKernelsOf(mlir::ModuleOp module) {
  json::Array kernels;
  for (auto function : module.getOps<mlir::func::FuncOp>())
    if (function->hasAttr("flash.kernel"))
      kernels.push_back(json::Object{{"name", function.getName()}});
  return kernels;
}

std::string metadataOf(const Request &request, json::Array kernels) {
  json::Object about{{"target", StringRef(schedule::targetName(request.problem.target))},
                     {"plan", request.planText},
                     {"kernels", std::move(kernels)}};
  return llvm::formatv("{0:2}", json::Value(std::move(about))).str();
}

std::optional<cuda::Param> paramOf(const json::Object &entry) {
  StringRef kind = entry.getString("kind").value_or(""), arg = entry.getString("arg").value_or("");
  cuda::Param p;
  p.dim = entry.getInteger("dim").value_or(0);
  p.rows = entry.getInteger("rows").value_or(0);
  p.group = entry.getInteger("group").value_or(1);
  for (auto [name, kind] : {std::pair{"scale", cuda::Param::scale},
                            {"softcap", cuda::Param::softcap},
                            {"section", cuda::Param::section},
                            {"max_seqlen_q", cuda::Param::longest},
                            {"appended", cuda::Param::appended}})
    if (arg == name) {
      p.kind = kind;
      return p;
    }
  if (kind == "counter") {
    p.kind = cuda::Param::counter;
    return p;
  }
  auto operand = parseOperand(arg);
  if (!operand)
    return std::nullopt;
  p.operand = *operand;
  if (kind == "tensor_map")
    p.kind = cuda::Param::tensorMap;
  else if (kind == "pointer")
    p.kind = cuda::Param::pointer;
  else if (kind == "size")
    p.kind = cuda::Param::size;
  else if (kind == "stride")
    p.kind = cuda::Param::stride;
  else
    return std::nullopt;
  if (p.dim < 0 || p.dim >= FLASH_MAX_RANK)
    return std::nullopt;
  return p;
}

} // namespace

Or<std::unique_ptr<Program>> Program::compile(const std::string &text) {
  Or<Request> request = readRequest(text);
  if (auto *failure = std::get_if<Failure>(&request))
    return *failure;
  std::unique_ptr<Program> program(new Program(std::move(std::get<Request>(request))));
  program->mlir = opText(program->request);
  if (Outcome failure = program->onGpu() ? program->compileForGpu() : program->compileForCpu())
    return *failure;
  return program;
}

Outcome Program::compileForGpu() {
  Compilation compilation;
  if (Outcome failure = compilation.run(mlir, request))
    return failure;
  metadata = metadataOf(request, kernelsOf(*compilation.module));
  auto translated =
      translateToPtx(*compilation.module, schedule::targetName(request.problem.target));
  if (!translated)
    return internal(llvm::toString(translated.takeError()));
  ptx = std::move(*translated);
  return readMetadata();
}

Outcome Program::compileForCpu() {
  Compilation compilation;
  if (Outcome failure = compilation.run(mlir, request))
    return failure;
  json::Array all = cpuKernelsOf(*compilation.module);
  for (const json::Value &kernel : all)
    cpuKernels.push_back(kernel.getAsObject()->getString("name")->str());
  metadata = metadataOf(request, std::move(all));
  auto made = CpuProgram::create(*compilation.module);
  if (!made)
    return internal(llvm::toString(made.takeError()));
  cpu = std::move(*made);
  return {};
}

Outcome Program::loadForCpu(CpuProgram::Saved saved) {
  auto parsed = json::parse(metadata);
  if (!parsed)
    return internal(llvm::toString(parsed.takeError()));
  for (const json::Value &kernel : *parsed->getAsObject()->getArray("kernels"))
    cpuKernels.push_back(kernel.getAsObject()->getString("name")->str());
  auto loaded = CpuProgram::load(std::move(saved));
  if (!loaded)
    return internal(llvm::toString(loaded.takeError()));
  cpu = std::move(*loaded);
  return {};
}

Outcome Program::readMetadata() {
  kernels.clear();
  Failure broken = internal("the kernel's description is not one: " + metadata);
  auto parsed = json::parse(metadata);
  if (!parsed) {
    llvm::consumeError(parsed.takeError());
    return broken;
  }
  const json::Object *object = parsed->getAsObject();
  const json::Array *all = object ? object->getArray("kernels") : nullptr;
  if (!all || all->empty())
    return broken;
  for (const json::Value &value : *all) {
    const json::Object *entry = value.getAsObject();
    const json::Array *params = entry ? entry->getArray("params") : nullptr;
    if (!params)
      return broken;
    cuda::Kernel kernel;
    kernel.name = entry->getString("name").value_or("").str();
    kernel.op = entry->getString("op").value_or("").str();
    kernel.follows = entry->getBoolean("follows").value_or(false);
    kernel.threads = entry->getInteger("threads").value_or(0);
    kernel.sharedBytes = entry->getInteger("shared_bytes").value_or(0);
    kernel.cluster = entry->getInteger("cluster").value_or(1);
    for (const json::Value &each : *params) {
      auto param = each.getAsObject() ? paramOf(*each.getAsObject()) : std::nullopt;
      if (!param)
        return broken;
      kernel.params.push_back(*param);
    }
    kernels.push_back(std::move(kernel));
  }
  loadImage();
  return {};
}

void Program::loadImage() {
  loaded = std::make_unique<cuda::Loaded>(
      kernels, cuda::Capability(schedule::targetName(request.problem.target)), ptx, cubin,
      request.problem.element);
}

Outcome Program::assemble() {
  Assembler assembler = findAssembler();
  if (!onGpu() || assembler.path.empty() || !cubin.empty())
    return {};
  Or<Assembled> made =
      flash::assemble(assembler, ptx, std::string(schedule::targetName(request.problem.target)));
  if (auto *failure = std::get_if<Failure>(&made))
    return *failure;
  cubin = std::move(std::get<Assembled>(made).cubin);
  report = std::move(std::get<Assembled>(made).report);
  loadImage();
  return {};
}

//===----------------------------------------------------------------------===//
// Parts and blobs
//===----------------------------------------------------------------------===//

Or<std::string> Program::part(const std::string &name) const {
  if (name == "mlir")
    return mlir;
  if (name == "plan")
    return request.planText;
  if (name == "metadata")
    return metadata;
  if (name == "ptx")
    return ptx;
  if (name == "cubin")
    return cubin;
  if (name == "report")
    return report;
  return invalid("a program has no part '" + name +
                 "'; expected mlir, plan, metadata, ptx, cubin, report or blob");
}

// A blob is a line of JSON that says which build made it, how long each section is and what they
// and their sizes hash to; and the sections one behind the other.
static std::string blobHeader(json::Array sizes, StringRef sections) {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << json::Value(json::Array(sizes));
  const std::string hash = llvm::utohexstr(llvm::xxh3_64bits(text + sections.str()));
  text.clear();
  os << json::Value(
      json::Object{{"build", buildId()}, {"hash", hash}, {"sizes", std::move(sizes)}});
  return text;
}

std::string Program::blob() const {
  static const CpuProgram::Saved none;
  const CpuProgram::Saved &code = cpu ? cpu->saved() : none;
  json::Array sizes;
  std::string sections;
  for (const std::string *section :
       {&request.text, &metadata, &ptx, &cubin, &report, &code.description, &code.object}) {
    sizes.push_back(int64_t(section->size()));
    sections += *section;
  }
  return blobHeader(std::move(sizes), sections) + '\n' + sections;
}

Or<std::unique_ptr<Program>> Program::load(const std::string &blob) {
  Failure broken = invalid("expected a program's blob made by this build");
  auto [header, rest] = StringRef(blob).split('\n');
  auto parsed = json::parse(header);
  if (!parsed) {
    llvm::consumeError(parsed.takeError());
    return broken;
  }
  const json::Object *object = parsed->getAsObject();
  const json::Array *sizes = object ? object->getArray("sizes") : nullptr;
  std::string sections[7];
  if (!sizes || sizes->size() != std::size(sections) || header != blobHeader(*sizes, rest))
    return broken;
  for (auto [section, size] : llvm::zip(sections, *sizes)) {
    const size_t bytes = size.getAsInteger().value_or(0);
    section = rest.take_front(bytes).str();
    rest = rest.drop_front(section.size());
  }
  Or<Request> request = readRequest(sections[0]);
  if (std::holds_alternative<Failure>(request))
    return broken;
  std::unique_ptr<Program> program(new Program(std::move(std::get<Request>(request))));
  program->mlir = opText(program->request);
  program->metadata = sections[1];
  program->ptx = sections[2];
  program->cubin = sections[3];
  program->report = sections[4];
  if (program->onGpu() ? program->readMetadata() : program->loadForCpu({sections[5], sections[6]}))
    return broken;
  return program;
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

/// The problem with a call's sizes, once all operands are there and agree.
Or<schedule::Problem> Program::sized(const Operands &operands, const FlashScalars &scalars) const {
  schedule::Problem p = request.problem;
  auto need = [&](Operand operand, llvm::ArrayRef<int64_t> shape) -> Outcome {
    std::string name(operandName(operand));
    const FlashTensor *t = operands[operand];
    if (!t)
      return invalid("the call has no " + name);
    if (t->rank != int64_t(shape.size()))
      return invalid("expected " + name + " of rank " + std::to_string(shape.size()) +
                     ", got rank " + std::to_string(t->rank));
    for (auto [i, size] : llvm::enumerate(shape))
      if (t->size[i] < 0 || t->size[i] > std::numeric_limits<int32_t>::max() ||
          (size != schedule::unknown && t->size[i] != size))
        return invalid("expected " + name + "'s size " + std::to_string(i) + " (" +
                       std::to_string(t->size[i]) + ") to be " +
                       (size == schedule::unknown ? "from 0 to 2^31 - 1" : std::to_string(size)));
    const bool empty = llvm::is_contained(llvm::ArrayRef(t->size, t->rank), 0);
    const bool rows = operand != Operand::lse && operand != Operand::sink &&
                      operand != Operand::lsePartial,
               statistic = !rows || operand == Operand::oPartial;
    const bool table = isTable(operand);
    const int64_t last = t->rank - 1;
    if (rows && !empty && t->size[last] > 1 && t->stride[last] != 1)
      return invalid("expected " + name + "'s last dimension to be contiguous, got stride " +
                     std::to_string(t->stride[last]));
    const int64_t bytes = statistic ? sizeof(float)
                          : table   ? sizeof(int32_t)
                                    : schedule::elementBytes(p.element);
    if (!empty && reinterpret_cast<uintptr_t>(t->data) % bytes)
      return invalid("expected " + name + "'s address to be a multiple of its element's " +
                     std::to_string(bytes) + " bytes");
    if (!t->data && !empty)
      return invalid("expected " + name + "'s data, got a null pointer");
    return {};
  };
  using Shape = llvm::SmallVector<int64_t>;
  const int64_t any = schedule::unknown;
  if (request.merge) {
    if (Outcome failure = need(Operand::o, p.packedQ ? Shape{any, any, p.headSizeV}
                                                     : Shape{any, any, any, p.headSizeV}))
      return *failure;
    const FlashTensor &o = *operands[Operand::o], *parts = operands[Operand::oPartial];
    p.batch = p.packedQ ? 1 : o.size[0];
    p.lenQ = o.size[o.rank - 3], p.heads = o.size[o.rank - 2];
    Shape lse = p.packedQ ? Shape{p.heads, p.lenQ} : Shape{p.batch, p.heads, p.lenQ};
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
  add(p.packedK, Operand::cuSeqlensK, {p.batchIdx ? any : p.batch + 1});
  add(p.usedQ, Operand::sequsedQ, {p.batch});
  add(p.usedK, Operand::sequsedK, {p.batch});
  add(p.pageSize.has_value(), Operand::pageTable, {p.batchIdx ? any : p.batch, any});
  add(p.batchIdx, Operand::kvBatchIdx, {p.batch});
  add(p.leftpad, Operand::leftpadK, {p.batch});
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

/// Whether there is no row of q: a kernel's tiles would be loaded from no memory, for packed
/// sequences have tiles by their number and bound too.
static bool isEmpty(const schedule::Problem &p) {
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

namespace {

/// What one kernel writes for the next: q turned, and the f32 parts of split keys.
struct Parts {
  llvm::SmallVector<std::pair<Operand, FlashTensor>> tensors; // row-major, one behind the other
  llvm::SmallVector<int64_t> offsets;
  int64_t bytes = 0;

  void add(Operand operand, llvm::ArrayRef<int64_t> sizes, int64_t elementBytes) {
    const int64_t align = 16;
    FlashTensor t{nullptr, nullptr, int64_t(sizes.size()), {}, {}};
    int64_t elements = 1;
    for (size_t i = sizes.size(); i--;) {
      t.size[i] = sizes[i], t.stride[i] = elements;
      elements *= sizes[i];
    }
    offsets.push_back(bytes);
    bytes += schedule::ceilDiv(elements * elementBytes, align) * align;
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
  return parts;
}

int64_t sectionOf(const Request &request, const schedule::Problem &p) {
  return request.merge ? 1 : schedule::workShapeOf(request.plan, p).section;
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

Outcome Program::launch(const Operands &given, FlashScalars scalars, int device, void *stream) {
  Or<schedule::Problem> sizes = sizedOn(given, scalars, device);
  if (auto *failure = std::get_if<Failure>(&sizes))
    return *failure;
  const schedule::Problem &p = std::get<schedule::Problem>(sizes);
  if (p.append ? p.batch == 0 : isEmpty(p))
    return {};
  Operands operands = given;
  Parts parts = partsOf(request, operands, p);
  const FlashTensor *space = operands[Operand::workspace];
  if (parts.bytes > 0) {
    const int64_t align = 16;
    if (!space || space->rank != 1 || space->size[0] * int64_t(sizeof(float)) < parts.bytes ||
        !space->data || reinterpret_cast<uintptr_t>(space->data) % align)
      return invalid("expected a workspace of " + std::to_string(parts.bytes / sizeof(float)) +
                     " f32 at a multiple of " + std::to_string(align) +
                     " bytes, as flash_workspace says");
  }
  for (auto &[operand, tensor] : parts.placed(parts.bytes > 0 ? space->data : nullptr))
    operands[operand] = &tensor;
  const int64_t section = sectionOf(request, p);
  for (size_t i = 0; i < kernels.size(); ++i) {
    int64_t blocks = 0;
    if (kernels[i].op == "combine") { // packed sequences are joined as one
      const FlashTensor &o = *operands[Operand::o];
      blocks = schedule::ceilDiv(o.size[o.rank - 3], schedule::combineRows(p.headSizeV)) * p.heads *
               (p.packedQ ? 1 : p.batch);
    } else if (kernels[i].op == "append") { // rows of k_new, and of q where it is turned
      const int64_t fresh = operands[Operand::kNew]->size[1];
      blocks = schedule::ceilDiv(p.rotary > 0 ? std::max(fresh, p.lenQ) : fresh,
                                 schedule::combineRows(std::max(p.headSize, p.headSizeV))) *
               (p.rotary > 0 ? std::max(p.heads, p.kvHeads) : p.kvHeads) * p.batch;
    } else if (!isEmpty(p)) {
      blocks = schedule::gridOf(request.plan, p);
    }
    if (blocks == 0)
      continue;
    if (Outcome failure = loaded->launch(i, operands, {blocks, section, scalars, device, stream}))
      return failure;
  }
  return {};
}

Outcome Program::run(const Operands &operands, FlashScalars scalars, int workers) {
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
  for (const FlashTensor *t : operands.tensors)
    if (t)
      arguments.push_back(
          {t->name,
           Tensor{t->data, {t->size, t->size + t->rank}, {t->stride, t->stride + t->rank}}});
  arguments.push_back({"scale", scalars.scale});
  arguments.push_back({"softcap", scalars.softcap});
  arguments.push_back({"section", sectionOf(request, p)});
  if (p.packedQ)
    arguments.push_back({"max_seqlen_q", p.lenQ});
  if (p.append)
    arguments.push_back({"appended", operands[Operand::kNew]->size[1]});

  Parts parts = partsOf(request, operands, p);
  std::unique_ptr<char[]> space(new (std::nothrow) char[parts.bytes]);
  if (!space)
    return internal("no memory for " + std::to_string(parts.bytes) +
                    " bytes that one kernel writes for the next; use fewer splits");
  for (auto &[operand, t] : parts.placed(space.get()))
    arguments.push_back({std::string(operandName(operand)),
                         Tensor{t.data, {t.size, t.size + t.rank}, {t.stride, t.stride + t.rank}}});
  for (const std::string &kernel : cpuKernels)
    if (llvm::Error error = cpu->run(kernel, arguments, workers))
      return internal(llvm::toString(std::move(error)));
  return {};
}
