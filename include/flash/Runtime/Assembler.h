//===- Assembler.h - ptxas as a process -------------------------*- C++ -*-===//
#ifndef FLASH_RUNTIME_ASSEMBLER_H
#define FLASH_RUNTIME_ASSEMBLER_H

#include "flash/Runtime/Failure.h"

namespace flash {

struct Assembler {
  std::string path, version; ///< both empty where there is none
};

/// The assembler in use: the one last named by useAssembler, else $FLASH_PTXAS ("none": no one),
/// else ptxas on $PATH or in /usr/local/cuda/bin. Looked for once.
Assembler findAssembler();

/// Takes `path` from now on; a failure if it does not answer as ptxas does.
Outcome useAssembler(const std::string &path);

struct Assembled {
  std::string cubin;
  std::string report; ///< what ptxas -v says: registers, spills, what costs performance
};

/// `ptx` assembled; `arch` as in "sm_90a".
Or<Assembled> assemble(const Assembler &assembler, const std::string &ptx, const std::string &arch);

} // namespace flash

#endif // FLASH_RUNTIME_ASSEMBLER_H
