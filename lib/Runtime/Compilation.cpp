//===- Compilation.cpp - from a problem's op to its code ------------------===//
#include "flash/Flash.h"
#include "flash/Pipelines.h"
#include "flash/Registration.h"
#include "flash/Runtime/Program.h"
#include "flash/Runtime/Ptx.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/STLExtras.h"

using namespace flash;

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
    if (mlir::failed(options.parseFromString(optionsText(request.passes), llvm::nulls())))
      return internal("the pipelines lack a pass of " + optionsText(request.passes));
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
  /// The passes as the pipelines' options spell them.
  static std::string optionsText(const std::map<std::string, bool> &passes) {
    std::string text;
    for (const auto &[name, on] : passes)
      text += name + (on ? "=true " : "=false ");
    llvm::replace(text, '_', '-');
    return text;
  }
  std::string said;
};

} // namespace

Or<std::unique_ptr<Program>> Program::compile(const std::string &text) {
  Or<Request> request = readRequest(text);
  if (auto *failure = std::get_if<Failure>(&request))
    return *failure;
  std::unique_ptr<Program> program(new Program(std::move(std::get<Request>(request))));
  if (Outcome failure = program->compile())
    return *failure;
  return program;
}

Outcome Program::refuse(const Request &request) {
  return request.byHand.empty() ? std::nullopt : Compilation().run(opText(request), request);
}

Outcome Program::compile() {
  Compilation compilation;
  if (Outcome failure = compilation.run(mlir, request))
    return failure;
  writeMetadata(*compilation.module);
  if (onGpu()) {
    auto made = translateToPtx(*compilation.module, schedule::targetName(request.problem.target));
    if (!made)
      return internal(llvm::toString(made.takeError()));
    ptx = std::move(*made);
  } else {
    auto made = CpuProgram::create(*compilation.module);
    if (!made)
      return internal(llvm::toString(made.takeError()));
    cpu = std::move(*made);
  }
  return readMetadata();
}
