//===- Checks.h - demands that several verifiers make -----------*- C++ -*-===//
//
// Every sentence says what is demanded, what was found and, where it helps, the way out.
//
//===----------------------------------------------------------------------===//
#ifndef FLASH_LIB_DIALECT_CHECKS_H
#define FLASH_LIB_DIALECT_CHECKS_H

#include "flash/Flash.h"

namespace flash::checks {

using mlir::LogicalResult, mlir::Operation, mlir::ShapedType, mlir::Type, llvm::StringRef;

/// One dimension of an operand, as a sentence names it.
struct Size {
  StringRef owner, what;
  int64_t value;
};

/// Demands that two sizes agree as far as both are known.
LogicalResult equal(Operation *op, Size a, Size b);
LogicalResult hasRank(Operation *op, StringRef owner, ShapedType type, int64_t rank,
                      StringRef shape);
LogicalResult hasElement(Operation *op, StringRef owner, ShapedType type, Type element,
                         StringRef why);
/// A dense tensor, or a strided memref of the default space.
LogicalResult hasLayout(Operation *op, StringRef owner, ShapedType type);
/// Rows of head size elements, contiguous and known when compiling.
LogicalResult hasRows(Operation *op, StringRef owner, ShapedType type);
/// A table of sequences: i32, contiguous.
LogicalResult hasTable(Operation *op, StringRef owner, ShapedType type, int64_t rank,
                       StringRef shape);
/// Where packed sequences end: batch + 1 elements.
LogicalResult hasEnds(Operation *op, StringRef owner, ShapedType type);
/// The batch that the type of cu_seqlens_q says; unknown of a type that hasEnds refuses.
Size batchOfEnds(ShapedType ends);
/// What says how many parts of keys each sequence has; null where nothing does.
LogicalResult hasSchedule(Operation *op, mlir::Value schedule, Size batch);
/// A head size that some attention has, of keys or of values.
LogicalResult hasHeadSize(Operation *op, StringRef owner, int64_t columns);
/// f32, one logit a head, or the gradient of one.
LogicalResult hasLogits(Operation *op, StringRef owner, ShapedType type, Size heads);

/// size + more, where size is known.
int64_t plus(int64_t size, int64_t more);

/// What an op of two worlds gives: how many outputs, and which.
struct Outputs {
  unsigned least, most;
  StringRef names;
};

inline constexpr Outputs attentionOutputs{1, 2, "o and optionally lse"};

/// One world an op: tensors in, tensors out; or memrefs in, memrefs in `outs`. `inputs` are by
/// name; null ones are left out.
LogicalResult worldsAgree(Operation *op, llvm::ArrayRef<std::pair<StringRef, mlir::Value>> inputs,
                          mlir::ValueRange outs, Outputs outputs);

/// The type of output `index`: a result over tensors, an out over memrefs; null where there is
/// none.
ShapedType outputType(Operation *op, mlir::ValueRange outs, unsigned index);

} // namespace flash::checks

#endif // FLASH_LIB_DIALECT_CHECKS_H
