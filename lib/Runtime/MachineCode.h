//===- MachineCode.h - object code of this machine, made and loaded -*- C++ -*-===//
#ifndef FLASH_LIB_RUNTIME_MACHINECODE_H
#define FLASH_LIB_RUNTIME_MACHINECODE_H

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/Support/Error.h"
#include <memory>
#include <string>

namespace llvm {
class TargetMachine;
} // namespace llvm

namespace flash {

class MachineCode {
public:
  /// Takes the addresses of a function's arguments.
  using Entry = void (*)(void **);

  /// Object code of a module in the LLVM dialect; level 0 to 3. Functions with a C interface get
  /// an Entry besides.
  static llvm::Expected<std::string> compile(mlir::ModuleOp module, llvm::TargetMachine &machine,
                                             unsigned level);

  /// Links an object into this process. It finds jitSymbols() and nothing else.
  static llvm::Expected<std::unique_ptr<MachineCode>> load(llvm::StringRef object);

  /// The Entry of a function with a C interface.
  llvm::Expected<Entry> find(const llvm::Twine &function);

private:
  std::unique_ptr<llvm::orc::LLJIT> jit;
};

} // namespace flash

#endif // FLASH_LIB_RUNTIME_MACHINECODE_H
