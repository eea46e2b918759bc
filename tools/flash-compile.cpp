//===- flash-compile.cpp - from an op to a kernel, or to its plan ---------===//
//
// Reads a module, runs a pipeline on it and writes what was asked for. Output is
// written to a temporary file that takes its name only when it is complete.
//
//===----------------------------------------------------------------------===//
#include "flash/Flash.h"
#include "flash/Pipelines.h"
#include "flash/Planning.h"
#include "flash/Registration.h"
#include "flash/Runtime/Assembler.h"
#include "flash/Runtime/CpuProgram.h"
#include "flash/Runtime/Ptx.h"
#include "flash/Schedule/Explain.h"
#include "flash/Schedule/Record.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Support/FileUtilities.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/WithColor.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
namespace cl = llvm::cl;

namespace {

enum class Emit { mlir, llvm, ptx, cubin };

cl::OptionCategory category("flash-compile options");
cl::opt<std::string> input(cl::Positional, cl::desc("<file.mlir, or - for standard input>"),
                           cl::init("-"), cl::cat(category));
cl::opt<std::string> output("o", cl::desc("Where to write (default: standard output)"),
                            cl::value_desc("file"), cl::init("-"), cl::cat(category));
cl::opt<Emit>
    emit("emit", cl::desc("What to write (default: mlir):"), cl::init(Emit::mlir),
         cl::cat(category),
         cl::values(clEnumValN(Emit::mlir, "mlir", "the kernel as tile ops, after every tile pass"),
                    clEnumValN(Emit::llvm, "llvm", "LLVM IR"), clEnumValN(Emit::ptx, "ptx", "PTX"),
                    clEnumValN(Emit::cubin, "cubin", "machine code, by ptxas")));
cl::opt<std::string> target(
    "target",
    cl::desc("Machine of ops that name none: sm_80, sm_86, sm_89, sm_90a (the default) or cpu"),
    cl::init("sm_90a"), cl::cat(category));
cl::opt<std::string> recordsFile("records",
                                 cl::desc("Measured plans, for ops that have no plan of their own"),
                                 cl::value_desc("file"), cl::cat(category));
cl::opt<bool> explain("explain", cl::desc("Write the plan and why, instead of a kernel"),
                      cl::cat(category));
cl::opt<bool> json("json", cl::desc("With --explain: JSON, one object an op"), cl::cat(category));
cl::extrahelp examples(R"(
EXAMPLES:
  flash-compile f.mlir                                  tile ops for SM90
  flash-compile f.mlir --emit=ptx -o f.ptx              PTX
  flash-compile f.mlir --target=sm_80 --emit=ptx        for Ampere; sm_86 and sm_89 likewise
  flash-compile f.mlir --emit=cubin -o f.cubin          a cubin; needs ptxas, of FLASH_PTXAS, PATH or /usr/local/cuda/bin
  flash-compile f.mlir --target=cpu --emit=llvm         LLVM IR for the host
  flash-compile f.mlir --explain                        the plan and why
  flash-compile f.mlir --explain --records=h200.json    the same with measured plans
  flash-compile f.mlir --explain --json | jq .tile      the same for programs
)");

/// Prints a complaint that has no place in the input.
int complain(const llvm::Twine &sentence) {
  llvm::WithColor::error(llvm::errs(), "flash-compile") << sentence << "\n";
  return EXIT_FAILURE;
}

/// Gives ops without a plan what a record advises; what does not fit is left out with a warning.
void takeAdvice(flash::AttentionOp op, ArrayRef<flash::schedule::Record> records) {
  const flash::schedule::Problem problem = flash::problemOf(op, op.getTarget()->target());
  const auto *record = flash::schedule::recordOf(problem, /*gpu=*/"", records);
  if (op.getPlan() || !record)
    return;
  auto but = [&] { return op.emitWarning("the record for " + record->gpu + " is left out: "); };
  std::string said; // by the parser, which does not know where the text is from
  flash::PlanAttr plan;
  {
    ScopedDiagnosticHandler listen(op.getContext(), [&](Diagnostic &d) { said += "; " + d.str(); });
    plan = flash::parsePlan(record->plan, op.getContext());
  }
  if (!plan) {
    but() << "expected " << recordsFile << " to give a plan, it has '" << record->plan << "'"
          << said;
    return;
  }
  auto planned = flash::schedule::makePlan(problem, flash::overridesOf(plan));
  if (auto *refusal = std::get_if<flash::schedule::Refusal>(&planned)) {
    but() << refusal->sentence;
    return;
  }
  op.setPlanAttr(plan.because("record for " + record->gpu + ": " + record->why));
}

bool isOurs(Operation *op) { return isa_and_nonnull<flash::FlashDialect>(op->getDialect()); }

/// Names the target of ops that name none, which is what all is compiled for, and asks the records.
LogicalResult prepare(ModuleOp module, ArrayRef<flash::schedule::Record> records) {
  auto fallback = flash::TargetAttr::get(module.getContext(), target);
  const bool forOne = !explain && emit != Emit::mlir;
  flash::TargetAttr first;
  WalkResult result = module.walk([&](Operation *op) -> WalkResult {
    if (!isOurs(op))
      return success();
    auto own = op->getAttrOfType<flash::TargetAttr>("target");
    if (!own)
      op->setAttr("target", own = fallback);
    if (!first)
      first = own;
    if (forOne && own != first)
      return op->emitOpError("expected one target in a file, this op is for ")
             << own.getName() << " and one before it for " << first.getName()
             << "; give each a file of its own, or name one by --target";
    if (auto attention = dyn_cast<flash::AttentionOp>(op))
      takeAdvice(attention, records);
    return success();
  });
  if (result.wasInterrupted())
    return failure();
  if (!first)
    return module.emitError("expected a flash op, there is none");
  target = first.getName().str();
  if (target == "cpu" && (emit == Emit::ptx || emit == Emit::cubin))
    return module.emitError(
        "the cpu has neither ptx nor cubin; use --emit=llvm or a GPU's target, as sm_90a");
  // Nothing else has a translation to GPU code.
  for (Operation &each : *module.getBody())
    if (forOne && target != "cpu" && !isa_and_nonnull<LLVM::LLVMDialect>(each.getDialect()) &&
        !each.walk([](Operation *op) {
               return isOurs(op) ? WalkResult::interrupt() : WalkResult::advance();
             })
             .wasInterrupted())
      return each.emitOpError("expected functions with a flash op, which become code for a GPU, "
                              "this has none; move it to another file");
  return success();
}

/// Where a failure has no better place, the module's.
FailureOr<std::string> orError(ModuleOp module, llvm::Expected<std::string> text) {
  if (!text)
    return module.emitError(llvm::toString(text.takeError()));
  return std::move(*text);
}

/// What `--emit` asks for, or a failure that was reported.
FailureOr<std::string> kernelOf(ModuleOp module) {
  flash::PipelineOptions options;
  options.target = target;
  PassManager pm(module.getContext());
  if (emit == Emit::mlir)
    flash::buildFlashToTile(pm, options);
  else if (target == "cpu")
    flash::buildFlashToCPU(pm, options);
  else
    flash::buildFlashToNVVM(pm, options);
  if (failed(pm.run(module)))
    return failure();

  std::string text;
  llvm::raw_string_ostream os(text);
  switch (emit) {
  case Emit::mlir:
    module.print(os);
    return text;
  case Emit::llvm: {
    if (target == "cpu" && failed(flash::lowerLoopsToLLVM(module)))
      return failure();
    llvm::LLVMContext context;
    std::unique_ptr<llvm::Module> code = translateModuleToLLVMIR(module, context);
    if (!code)
      return failure();
    code->print(os, nullptr);
    return text;
  }
  case Emit::ptx:
    return orError(module, flash::translateToPtx(module, target));
  case Emit::cubin: {
    FailureOr<std::string> ptx = orError(module, flash::translateToPtx(module, target));
    if (failed(ptx))
      return failure();
    flash::Assembler assembler = flash::findAssembler();
    if (assembler.path.empty())
      return module.emitError("expected ptxas ")
             << (std::getenv("FLASH_PTXAS") ? "where FLASH_PTXAS says"
                                            : "on PATH or in /usr/local/cuda/bin")
             << ", there is none; use --emit=ptx";
    flash::Or<flash::Assembled> made = flash::assemble(assembler, *ptx, target);
    if (auto *refusal = std::get_if<flash::Failure>(&made))
      return module.emitError(refusal->sentence);
    auto &[cubin, report] = std::get<flash::Assembled>(made);
    for (StringRef line : llvm::split(report, '\n'))
      if (line.contains("Potential Performance Loss"))
        module.emitWarning(line.trim()) << "; a smaller tile may help";
    return std::move(cubin);
  }
  }
}

/// The plan of every attention and its gradients in the module, one after the other.
FailureOr<std::string> explanationOf(ModuleOp module) {
  auto byHand = [](flash::ProblemOpInterface op) {
    return op->hasAttr("plan") ? WalkResult::interrupt() : WalkResult::advance();
  };
  // The passes may have something against a plan that the planner took.
  if (module.walk(byHand).wasInterrupted() &&
      failed(kernelOf(*OwningOpRef<ModuleOp>(module.clone()))))
    return failure();
  std::string text;
  WalkResult result = module.walk([&](flash::ProblemOpInterface op) -> WalkResult {
    FailureOr<flash::schedule::Plan> plan = flash::planOf(op);
    if (failed(plan))
      return failure();
    text +=
        flash::schedule::explain(flash::problemOf(op, op.getTargetAttr().target()), *plan, json);
    return success();
  });
  if (result.wasInterrupted())
    return failure();
  if (text.empty())
    return module.emitError("expected an attention or its gradients to explain, there is none");
  return text;
}

} // namespace

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  cl::SetVersionPrinter([](llvm::raw_ostream &os) {
    os << "flash-compile " FLASH_VERSION " on LLVM " LLVM_VERSION_STRING "\n";
  });
  cl::HideUnrelatedOptions(category);
  cl::ParseCommandLineOptions(argc, argv, "From a flash op to a kernel, or to its plan\n");
  if (!flash::schedule::parseTarget(target.getValue()))
    return complain("target must be sm_80, sm_86, sm_89, sm_90a or cpu, not '" + target + "'");
  if (explain && emit.getNumOccurrences())
    return complain("--explain writes the plan instead of a kernel; leave it or --emit out");
  if (json && !explain)
    return complain("--json says how --explain writes; add --explain");

  std::vector<flash::schedule::Record> records;
  if (!recordsFile.empty()) {
    auto read = flash::schedule::readRecords(recordsFile);
    if (auto *sentence = std::get_if<std::string>(&read))
      return complain(*sentence);
    records = std::move(std::get<std::vector<flash::schedule::Record>>(read));
  }
  std::string error;
  std::unique_ptr<llvm::MemoryBuffer> buffer = openInputFile(input, &error);
  if (!buffer)
    return complain(error);
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(std::move(buffer), llvm::SMLoc());

  DialectRegistry registry;
  flash::registerDialects(registry);
  flash::registerTranslations(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  context.loadDialect<flash::FlashDialect>();
  context.printOpOnDiagnostic(false); // the place in the input says it better
  SourceMgrDiagnosticHandler diagnostics(sources, &context);
  OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(sources, &context);
  if (!module || failed(prepare(*module, records)))
    return EXIT_FAILURE;
  FailureOr<std::string> text = explain ? explanationOf(*module) : kernelOf(*module);
  if (failed(text))
    return EXIT_FAILURE;
  // Written under another name and renamed, so that no half of a result ever lies there.
  if (llvm::Error failed = llvm::writeToOutput(output, [&](llvm::raw_ostream &os) {
        os << *text;
        return llvm::Error::success();
      }))
    return complain(llvm::toString(std::move(failed)));
  return EXIT_SUCCESS;
}
