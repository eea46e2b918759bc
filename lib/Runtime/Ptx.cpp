//===- Ptx.cpp - from the LLVM dialect to PTX -----------------------------===//
#include "flash/Runtime/Ptx.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"

using namespace mlir;

/// The PTX version to write: the first that knows all that the kernels use, so that drivers and
/// assemblers may be older than this build.
static llvm::StringRef ptxFeature(llvm::StringRef chip) {
  return chip.starts_with("sm_8") ? "+ptx80" : "+ptx88";
}

/// llvm.inline_asm has no flag for it: barriers and products must not move into other control flow,
/// and asm without side effects touches no memory.
static void markInlineAsm(llvm::Module &module) {
  for (llvm::Function &function : module)
    for (llvm::Instruction &instruction : llvm::instructions(function)) {
      auto *call = llvm::dyn_cast<llvm::CallInst>(&instruction);
      if (!call || !call->isInlineAsm())
        continue;
      if (llvm::cast<llvm::InlineAsm>(call->getCalledOperand())->hasSideEffects()) {
        call->setConvergent();
      } else {
        call->setDoesNotAccessMemory();
        call->setDoesNotThrow();
      }
    }
}

static void optimize(llvm::Module &module, llvm::TargetMachine &machine) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O3).run(module, modules);
}

llvm::Expected<std::string> flash::translateToPtx(ModuleOp module, std::string_view chip) {
  static const bool isReady = [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
    return true;
  }();
  (void)isReady;
  auto fail = [](const llvm::Twine &what) {
    return llvm::createStringError(llvm::inconvertibleErrorCode(), what);
  };
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> code = translateModuleToLLVMIR(module, context);
  if (!code)
    return fail("the kernel does not translate to LLVM IR");
  llvm::Triple triple("nvptx64-nvidia-cuda");
  std::string error;
  const llvm::Target *target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return fail(error);
  // -O0 would copy accumulators between products, and ptxas would serialise them.
  std::unique_ptr<llvm::TargetMachine> machine(
      target->createTargetMachine(triple, chip, ptxFeature(chip), {}, std::nullopt, std::nullopt,
                                  llvm::CodeGenOptLevel::Aggressive));
  if (!machine)
    return fail("LLVM knows no " + llvm::Twine(llvm::StringRef(chip)));
  code->setDataLayout(machine->createDataLayout());
  code->setTargetTriple(triple);
  markInlineAsm(*code);
  optimize(*code, *machine);
  llvm::SmallString<0> ptx;
  llvm::raw_svector_ostream stream(ptx);
  llvm::legacy::PassManager emit;
  if (machine->addPassesToEmitFile(emit, stream, nullptr, llvm::CodeGenFileType::AssemblyFile))
    return fail("LLVM cannot write PTX");
  emit.run(*code);
  return std::string(ptx);
}
