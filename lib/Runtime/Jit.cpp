//===- Jit.cpp - kernels compiled for this machine ------------------------===//
#include "MachineCode.h"
#include "flash/Registration.h"
#include "flash/Runtime/CpuProgram.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVMPass.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/MemRefToLLVM/MemRefToLLVM.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVMPass.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ExecutionEngine/Orc/JITTargetMachineBuilder.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"
#include <future>
#include <pthread.h>
#include <thread>

using namespace flash;
using namespace mlir;
namespace json = llvm::json;

CpuProgram::CpuProgram(Saved saved) : parts(std::move(saved)) {}
CpuProgram::~CpuProgram() = default;

//===----------------------------------------------------------------------===//
// Compiling
//===----------------------------------------------------------------------===//

/// What run() needs to know of the kernels, as JSON.
static std::string describe(ModuleOp module) {
  auto nameOf = [](func::FuncOp function, unsigned i) {
    auto name = function.getArgAttrOfType<StringAttr>(i, "flash.arg");
    return name ? name.str() : ("#" + llvm::Twine(i)).str();
  };
  json::Object kernels;
  for (auto function : module.getOps<func::FuncOp>()) {
    if (function->hasAttr("flash.kernel")) {
      json::Array parameters, programs, rings;
      for (unsigned i = 0; i + 2 < function.getNumArguments(); ++i) {
        Type type = function.getArgumentTypes()[i];
        auto memref = dyn_cast<MemRefType>(type);
        StringRef kind = memref ? "tensor" : type.isIndex() ? "index" : "real";
        parameters.push_back(
            json::Array{nameOf(function, i), kind, memref ? memref.getRank() : int64_t(0)});
      }
      if (auto names = function->getAttrOfType<ArrayAttr>("flash.programs"))
        for (auto name : names.getAsRange<StringAttr>())
          programs.push_back(name.getValue());
      if (auto all = function->getAttrOfType<ArrayAttr>("flash.rings"))
        for (auto ring : all.getAsRange<DictionaryAttr>()) {
          auto count = [&](StringRef name) { return ring.getAs<IntegerAttr>(name).getInt(); };
          rings.push_back(json::Array{ring.getAs<StringAttr>("name").getValue(), count("stages"),
                                      count("writers"), count("releases"), count("cluster")});
        }
      kernels[function.getName()] = json::Object{{"parameters", std::move(parameters)},
                                                 {"programs", std::move(programs)},
                                                 {"turns", function->hasAttr("flash.turns")},
                                                 {"rings", std::move(rings)}};
    }
  }
  return llvm::formatv("{0}", json::Value(std::move(kernels))).str();
}

/// What describe() wrote; only ever read back by the build that wrote it.
llvm::Error CpuProgram::readDescription() {
  auto parsed = json::parse(parts.description);
  if (!parsed)
    return parsed.takeError();
  for (const auto &[name, value] : *parsed->getAsObject()) {
    Kernel &kernel = kernels[StringRef(name)];
    auto arrayOf = [&](StringRef field) -> const json::Array & {
      return *value.getAsObject()->getArray(field);
    };
    for (const json::Value &each : arrayOf("parameters")) {
      const json::Array &p = *each.getAsArray();
      StringRef kind = *p[1].getAsString();
      kernel.parameters.push_back({p[0].getAsString()->str(),
                                   kind == "tensor"  ? Parameter::tensor
                                   : kind == "index" ? Parameter::index
                                                     : Parameter::real,
                                   *p[2].getAsInteger()});
    }
    kernel.turns = *value.getAsObject()->getBoolean("turns");
    for (const json::Value &program : arrayOf("programs"))
      kernel.programs.push_back({program.getAsString()->str(), nullptr});
    for (const json::Value &each : arrayOf("rings")) {
      const json::Array &r = *each.getAsArray();
      kernel.rings.push_back({r[0].getAsString()->str(), *r[1].getAsInteger(), *r[2].getAsInteger(),
                              *r[3].getAsInteger(), *r[4].getAsInteger()});
    }
  }
  return llvm::Error::success();
}

LogicalResult flash::lowerLoopsToLLVM(ModuleOp module) {
  // LLVM knows none of our attributes.
  for (auto function : module.getOps<func::FuncOp>()) {
    for (NamedAttribute attr : llvm::to_vector(function->getDiscardableAttrs()))
      if (attr.getName().strref().starts_with("flash."))
        function->removeDiscardableAttr(attr.getName());
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      function.removeArgAttr(i, "flash.arg");
  }
  PassManager pm(module.getContext());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  // Arithmetic on f16 and bf16 happens in f32; casts of bf16 become integer operations.
  arith::ArithEmulateUnsupportedFloatsOptions emulate;
  emulate.sourceTypeStrs = {"bf16", "f16"};
  pm.addPass(arith::createArithEmulateUnsupportedFloats(emulate));
  arith::ArithExpandOpsPassOptions expand;
  expand.includeBf16 = true;
  pm.addPass(arith::createArithExpandOpsPass(expand));
  pm.addPass(createSCFToControlFlowPass());
  pm.addPass(createConvertVectorToLLVMPass());
  pm.addPass(createConvertMathToLLVMPass());
  pm.addPass(createFinalizeMemRefToLLVMConversionPass());
  pm.addPass(createArithToLLVMConversionPass());
  pm.addPass(createConvertControlFlowToLLVMPass());
  pm.addPass(createConvertFuncToLLVMPass());
  pm.addPass(createReconcileUnrealizedCastsPass());
  return pm.run(module);
}

/// The processor that code is for: one fixed feature set wherever it runs, so that a result does
/// not hang on the machine, and bf16 instructions (which flush denormals) are never used by
/// default.
static llvm::orc::JITTargetMachineBuilder processor(const CpuOptions &options) {
  auto target = llvm::orc::JITTargetMachineBuilder(llvm::Triple(llvm::sys::getProcessTriple()));
  auto host = llvm::sys::getHostCPUFeatures();
  bool v3 = host["avx2"] && host["fma"] && host["f16c"] && host["bmi2"];
  std::string wanted = !options.cpu.empty() ? options.cpu : v3 ? "x86-64-v3" : "host";
  target.setCPU(wanted == "host" ? llvm::sys::getHostCPUName().str() : wanted);
  if (wanted == "host")
    for (auto &feature : host)
      target.getFeatures().AddFeature(feature.first(), feature.second);
  target.setRelocationModel(llvm::Reloc::PIC_);
  return target;
}

std::string CpuProgram::processorName(const CpuOptions &options) {
  auto target = processor(options);
  return target.getCPU() + target.getFeatures().getString();
}

static void initialize() {
  static const bool once = [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    return true;
  }();
  (void)once;
}

llvm::Expected<std::unique_ptr<CpuProgram>> CpuProgram::create(ModuleOp module,
                                                               const CpuOptions &options) {
  initialize();
  DialectRegistry registry;
  registerTranslations(registry);
  module.getContext()->appendDialectRegistry(registry);

  std::string description = describe(module);
  std::string sentence;
  {
    ScopedDiagnosticHandler handler(module.getContext(), [&](Diagnostic &diagnostic) {
      if (diagnostic.getSeverity() == DiagnosticSeverity::Error && sentence.empty())
        sentence = diagnostic.str();
      return success();
    });
    if (failed(lowerLoopsToLLVM(module)))
      return llvm::createStringError("kernel does not lower to LLVM: " + sentence);
  }
  auto machine = processor(options).createTargetMachine();
  if (!machine)
    return machine.takeError();
  // The loops are vectors already: more than level 1 finds nothing to do in them.
  auto object = MachineCode::compile(module, **machine, options.optimize ? 1 : 0);
  if (!object)
    return object.takeError();
  return load({std::move(description), std::move(*object)});
}

llvm::Expected<std::unique_ptr<CpuProgram>> CpuProgram::load(Saved saved) {
  initialize();
  std::unique_ptr<CpuProgram> program(new CpuProgram(std::move(saved)));
  if (llvm::Error error = program->readDescription())
    return std::move(error);
  auto code = MachineCode::load(program->saved().object);
  if (!code)
    return code.takeError();
  program->code = std::move(*code);
  if (llvm::Error error = program->resolve())
    return std::move(error);
  return std::move(program);
}

llvm::Error CpuProgram::resolve() {
  auto find = [&](const llvm::Twine &name, Entry &entry) -> llvm::Error {
    auto found = code->find(name);
    if (!found)
      return found.takeError();
    entry = *found;
    return llvm::Error::success();
  };
  for (auto &[name, kernel] : kernels) {
    if (kernel.programs.empty()) {
      if (llvm::Error error = find(name, kernel.entry))
        return error;
      continue;
    }
    if (llvm::Error error = find(name + "_reset", kernel.reset))
      return error;
    for (auto &[program, entry] : kernel.programs)
      if (llvm::Error error = find(program, entry))
        return error;
  }
  return llvm::Error::success();
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

namespace {
/// The arguments of one call as jitted code takes them: pointers to what each argument is. Each
/// thread adds its own worker and workers.
class Call {
public:
  /// {allocated, aligned, offset, sizes..., strides...}, as MLIR lays memrefs out.
  void add(const Tensor &tensor) {
    auto pointer = static_cast<int64_t>(reinterpret_cast<intptr_t>(tensor.data));
    auto &descriptor = *descriptors.emplace_back(std::make_unique<llvm::SmallVector<int64_t>>(
        llvm::SmallVector<int64_t>{pointer, pointer, 0}));
    llvm::append_range(descriptor, tensor.sizes);
    llvm::append_range(descriptor, tensor.strides);
    descriptors.push_back(std::make_unique<llvm::SmallVector<int64_t>>(llvm::SmallVector<int64_t>{
        static_cast<int64_t>(reinterpret_cast<intptr_t>(descriptor.data()))}));
    pointers.push_back(descriptors.back()->data());
  }
  void add(const float &value) { pointers.push_back(const_cast<float *>(&value)); }
  void add(const int64_t &value) { pointers.push_back(const_cast<int64_t *>(&value)); }

  void run(void (*entry)(void **), int64_t worker, int64_t workers) const {
    llvm::SmallVector<void *> all(pointers);
    all.append({&worker, &workers});
    entry(all.data());
  }

private:
  std::vector<std::unique_ptr<llvm::SmallVector<int64_t>>> descriptors;
  llvm::SmallVector<void *> pointers;
};
} // namespace

/// Runs work(0, n) to work(n - 1, n), each on a thread of its own; n is `count`, or fewer where the
/// system grants fewer (std::thread would end the process). All of them run at once, as those need
/// that wait for each other: none begins before n is known.
static void share(unsigned count, llvm::function_ref<void(int64_t, int64_t)> work) {
  struct Task {
    llvm::function_ref<void(int64_t, int64_t)> work;
    std::shared_future<int64_t> all;
    int64_t number;
    pthread_t thread;
  };
  std::promise<int64_t> all;
  std::vector<Task> tasks(count - 1, Task{work, all.get_future().share(), 0, {}});
  auto start = [](void *argument) -> void * {
    auto *task = static_cast<Task *>(argument);
    task->work(task->number, task->all.get());
    return nullptr;
  };
  int64_t running = 1;
  for (Task &task : tasks) {
    task.number = running;
    if (pthread_create(&task.thread, nullptr, start, &task) != 0)
      break;
    ++running;
  }
  all.set_value(running);
  work(0, running);
  for (int64_t number = 1; number < running; ++number)
    pthread_join(tasks[number - 1].thread, nullptr);
}

llvm::Error CpuProgram::run(llvm::StringRef name, llvm::ArrayRef<Argument> arguments,
                            unsigned workers, uint64_t seed) {
  auto found = kernels.find(name);
  if (found == kernels.end())
    return llvm::createStringError("the program has no kernel " + name);
  Kernel &kernel = found->second;
  Call call;
  for (const Parameter &parameter : kernel.parameters) {
    auto *argument = llvm::find_if(arguments, [&](auto &a) { return a.name == parameter.name; });
    if (argument == arguments.end())
      return llvm::createStringError("kernel " + name + " needs the argument " + parameter.name);
    if (argument->value.index() != size_t(parameter.kind))
      return llvm::createStringError("argument " + parameter.name + " of kernel " + name +
                                     " is of another kind (tensor, f32 or index)");
    if (auto *tensor = std::get_if<Tensor>(&argument->value))
      if (int64_t(tensor->sizes.size()) != parameter.rank ||
          tensor->strides.size() != tensor->sizes.size())
        return llvm::createStringError(
            llvm::formatv("expected {0} sizes and strides of argument {1} of kernel {2}, got {3} "
                          "and {4}",
                          parameter.rank, parameter.name, name, tensor->sizes.size(),
                          tensor->strides.size())
                .str());
    std::visit([&](auto &value) { call.add(value); }, argument->value);
  }
  if (!workers)
    workers = std::max(1u, std::thread::hardware_concurrency());

  if (!kernel.programs.empty()) {
    if (kernel.turns) // one behind the other, the first would wait for the next
      workers = 1;
    std::lock_guard<std::mutex> lock(batonMutex);
    std::vector<std::vector<int64_t>> fills; // of each block
    for (unsigned worker = 0; worker < workers; ++worker) {
      kernel.reset(nullptr);
      std::vector<Baton::Program> programs;
      for (auto &[program, entry] : kernel.programs)
        programs.push_back(
            {llvm::StringRef(program).drop_front(name.size() + 1).str(),
             [&call, entry = entry, worker, workers] { call.run(entry, worker, workers); }});
      Baton baton(kernel.rings, seed + worker);
      if (llvm::Error error = baton.run(std::move(programs)))
        return error;
      fills.push_back(baton.fills());
    }
    // Blocks of a cluster that did not fill a ring alike would have waited for each other.
    for (auto [number, ring] : llvm::enumerate(kernel.rings))
      for (unsigned worker = 0; workers % ring.cluster == 0 && worker < workers; ++worker)
        if (int64_t first = worker - worker % ring.cluster;
            fills[worker][number] != fills[first][number])
          return llvm::createStringError(
              llvm::formatv("unmatched: blocks {0} and {1} of a cluster fill ring {2} {3} and {4} "
                            "times",
                            first, worker, ring.name, fills[first][number], fills[worker][number])
                  .str());
    return llvm::Error::success();
  }
  share(workers, [&](int64_t worker, int64_t all) { call.run(kernel.entry, worker, all); });
  return llvm::Error::success();
}
