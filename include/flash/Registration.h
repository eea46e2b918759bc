//===- Registration.h - what a tool, plugin or library registers -*- C++ -*-===//
#ifndef FLASH_REGISTRATION_H
#define FLASH_REGISTRATION_H

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace flash {

/// Adds our dialects and those that our passes produce.
void registerDialects(mlir::DialectRegistry &registry);

/// Adds the translations to LLVM IR of every dialect that the pipelines end in.
void registerTranslations(mlir::DialectRegistry &registry);

/// Registers our passes and pipelines with the global pass registry; call it once.
void registerPasses();

} // namespace flash

#endif // FLASH_REGISTRATION_H
