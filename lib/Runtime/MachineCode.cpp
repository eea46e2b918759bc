//===- MachineCode.cpp - object code of this machine, made and loaded -----===//
#include "MachineCode.h"
#include "JitSymbols.h"
#include "mlir/ExecutionEngine/OptUtils.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/ExecutionEngine/Orc/AbsoluteSymbols.h"
#include "llvm/ExecutionEngine/Orc/RTDyldObjectLinkingLayer.h"
#include "llvm/ExecutionEngine/SectionMemoryManager.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Target/TargetMachine.h"

using namespace flash;

static constexpr llvm::StringLiteral cInterface = "_mlir_ciface_"; // as MLIR names them
static constexpr llvm::StringLiteral entryPrefix = "flash_entry_";

/// void entry(ptr arguments): loads each argument from its address and calls the function.
static void addEntry(llvm::Function &function) {
  llvm::LLVMContext &context = function.getContext();
  llvm::StringRef name = function.getName().drop_front(cInterface.size());
  auto *pointer = llvm::PointerType::get(context, 0);
  auto *type = llvm::FunctionType::get(llvm::Type::getVoidTy(context), {pointer}, false);
  auto *entry = llvm::Function::Create(type, llvm::Function::ExternalLinkage, entryPrefix + name,
                                       function.getParent());
  llvm::IRBuilder<> b(llvm::BasicBlock::Create(context, "", entry));
  llvm::SmallVector<llvm::Value *> arguments;
  for (llvm::Argument &argument : function.args()) {
    auto *slot = b.CreateConstGEP1_64(pointer, entry->getArg(0), argument.getArgNo());
    arguments.push_back(b.CreateLoad(argument.getType(), b.CreateLoad(pointer, slot)));
  }
  b.CreateCall(&function, arguments);
  b.CreateRetVoid();
}

llvm::Expected<std::string> MachineCode::compile(mlir::ModuleOp module,
                                                 llvm::TargetMachine &machine, unsigned level) {
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> code = mlir::translateModuleToLLVMIR(module, context);
  if (!code)
    return llvm::createStringError("the kernel does not translate to LLVM IR");
  code->setDataLayout(machine.createDataLayout());
  code->setTargetTriple(machine.getTargetTriple());
  for (llvm::Function &function : llvm::make_early_inc_range(*code))
    if (!function.isDeclaration() && function.getName().starts_with(cInterface))
      addEntry(function);
  if (llvm::Error error = mlir::makeOptimizingTransformer(level, 0, &machine)(code.get()))
    return std::move(error);
  llvm::SmallString<0> object;
  llvm::raw_svector_ostream stream(object);
  llvm::legacy::PassManager emit;
  if (machine.addPassesToEmitFile(emit, stream, nullptr, llvm::CodeGenFileType::ObjectFile))
    return llvm::createStringError("LLVM cannot write object code for this machine");
  emit.run(*code);
  return std::string(object);
}

llvm::Expected<std::unique_ptr<MachineCode>> MachineCode::load(llvm::StringRef object) {
  llvm::orc::LLJITBuilder builder;
  builder.setLinkProcessSymbolsByDefault(false);
  builder.setPlatformSetUp(llvm::orc::setUpInactivePlatform);
  builder.setObjectLinkingLayerCreator([](llvm::orc::ExecutionSession &session) {
    return std::make_unique<llvm::orc::RTDyldObjectLinkingLayer>(
        session,
        [](const llvm::MemoryBuffer &) { return std::make_unique<llvm::SectionMemoryManager>(); });
  });
  auto jit = builder.create();
  if (!jit)
    return jit.takeError();
  // Errors come back from find(); a library prints nothing.
  (*jit)->getExecutionSession().setErrorReporter(
      [](llvm::Error error) { llvm::consumeError(std::move(error)); });
  llvm::orc::MangleAndInterner intern((*jit)->getExecutionSession(), (*jit)->getDataLayout());
  if (llvm::Error error =
          (*jit)->getMainJITDylib().define(llvm::orc::absoluteSymbols(jitSymbols(intern))))
    return std::move(error);
  if (llvm::Error error =
          (*jit)->addObjectFile(llvm::MemoryBuffer::getMemBufferCopy(object, "kernel")))
    return std::move(error);
  auto code = std::make_unique<MachineCode>();
  code->jit = std::move(*jit);
  return std::move(code);
}

llvm::Expected<MachineCode::Entry> MachineCode::find(const llvm::Twine &function) {
  auto address = jit->lookup((entryPrefix + function).str());
  if (!address)
    return address.takeError();
  return address->toPtr<Entry>();
}
