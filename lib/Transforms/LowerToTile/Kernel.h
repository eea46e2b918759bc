//===- Kernel.h - a kernel under construction -------------------*- C++ -*-===//
//
// A kernel is a func.func over memrefs and scalars, each argument named by `flash.arg`. The
// builders of its body (Attention.cpp, Backward.cpp, Combine.cpp, Append.cpp, Prepare.cpp) ask for
// arguments by name.
//
//===----------------------------------------------------------------------===//
#ifndef FLASH_TRANSFORMS_LOWERTOTILE_KERNEL_H
#define FLASH_TRANSFORMS_LOWERTOTILE_KERNEL_H

#include "flash/Tile.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace flash {

/// The tables of a view, as arguments of the kernel; null where it has none.
struct Tables {
  mlir::Value cuSeqlens = {}, seqused = {}, appended = {}, pageTable = {}, batchIdx = {},
              leftpad = {};
};

class Kernel {
public:
  /// An empty kernel `name` before `anchor`, for the flash op `source` with its target and plan.
  Kernel(mlir::func::FuncOp anchor, llvm::StringRef name, mlir::Operation *source, PlanAttr plan);

  /// A new argument. A tensor or memref of any layout becomes a memref of dynamic sizes and strides
  /// whose last dimension, the head size, stays as it is; `keepLast = false` makes that dynamic
  /// too. With `pages` dimension 1, the page size, stays as well.
  mlir::Value argument(llvm::StringRef name, mlir::Type type, bool keepLast = true,
                       bool pages = false);
  /// The argument for a table (i32, contiguous) or an index that the source may have; null without.
  mlir::Value table(llvm::StringRef name, mlir::Value operand);
  mlir::Value table(llvm::StringRef name, mlir::Type type);
  /// What says where the rows of an op's queries lie, and of its keys.
  template <typename Op> Tables queryTables(Op op) {
    return {.cuSeqlens = table("cu_seqlens_q", op.getCuSeqlensQ()),
            .seqused = table("seqused_q", op.getSequsedQ())};
  }
  Tables keyTables(AttentionOp op);
  /// An f32 operand of the source: an argument, or a clone of the constant it is.
  mlir::Value scalar(llvm::StringRef name, mlir::Value operand);

  mlir::Value index(int64_t value) { return mlir::arith::ConstantIndexOp::create(b, value); }
  mlir::Value f32(float value) {
    return mlir::arith::ConstantOp::create(b, b.getF32FloatAttr(value));
  }
  mlir::Value dim(mlir::Value memref, int64_t dimension);
  mlir::Value view(mlir::Value memref, int64_t cols, int64_t group, bool partial,
                   const Tables &tables = {}, int64_t padded = 1, bool cells = false);
  mlir::Value ring(llvm::StringRef name, int64_t rows, int64_t cols, mlir::Type element,
                   mlir::Value with = {}, int64_t slots = 1);
  mlir::Value splat(mlir::Value scalar, int64_t rows, int64_t cols);
  mlir::Value wait(mlir::Value ring, mlir::Value it);
  /// The fragment in another element type, rounded.
  mlir::Value cast(mlir::Value frag, mlir::Type element);
  tile::FragType frag(int64_t rows, int64_t cols, mlir::Type element) {
    return tile::FragType::get(b.getContext(), {rows, cols}, element);
  }
  /// An elementwise fragment computation; `body` gets one scalar an input and gives the result.
  mlir::Value
  map(mlir::ValueRange inputs, int64_t rows, int64_t cols,
      llvm::function_ref<mlir::Value(mlir::ImplicitLocOpBuilder &, mlir::ValueRange)> body);
  /// Query heads of a KV head, from two arguments that have heads.
  mlir::Value ratioOf(mlir::Value q, mlir::Value k);
  /// Tiles of `tileRows` packed rows, as for_work counts those of `batch` sequences.
  mlir::Value packedTiles(mlir::Value rows, int64_t tileRows, mlir::Value batch);
  /// Work of one tile a block, in natural order: `body` builds tile m of `tileRows` rows, of a head
  /// and a batch entry. With `packed` (cu_seqlens) `rows` are those of all sequences.
  void forTiles(mlir::Value rows, int64_t tileRows, mlir::Value heads, mlir::Value batch,
                llvm::function_ref<void(mlir::Value m, mlir::Value head, mlir::Value batch)> body,
                mlir::Value packed = {});
  /// Ends the kernel with a return.
  void finish();

  mlir::func::FuncOp func;
  mlir::ImplicitLocOpBuilder b;
};

/// The scores of an op: what q k^T is multiplied by, and its softcap.
class Scores {
public:
  /// Asks for the op's scalars.
  Scores(Kernel &kernel, ProblemOpInterface op);
  /// `s` behind the softcap; s itself where there is none. Then only `scale` is left to multiply
  /// by.
  mlir::Value capped(mlir::Value s, int64_t rows, int64_t cols);

  mlir::Value scale, softcap; ///< the op's; no softcap: null
  mlir::Value softmaxScale;   ///< of capped scores

private:
  Kernel &k;
  mlir::Value capSlope, capTwice;
};

inline constexpr float log2e = 1.44269504088896340736f;

/// Whether dV of gradients has a kernel of its own.
inline bool hasOwnDv(AttentionBackwardOp op) {
  return op.getPlanAttr().getFlag("own_dv").value_or(false);
}

void buildAttention(Kernel &kernel, AttentionOp op);
/// The kernels of gradients, in the order in which they run.
void buildBackwardPrepare(Kernel &kernel, AttentionBackwardOp op);
void buildBackwardDv(Kernel &kernel, AttentionBackwardOp op); ///< where `hasOwnDv`
void buildBackward(Kernel &kernel, AttentionBackwardOp op);
void buildBackwardFinish(Kernel &kernel, AttentionBackwardOp op);
void buildBackwardSink(Kernel &kernel, AttentionBackwardOp op);
/// The kernel that fills the schedule of an attention.
void buildPrepare(Kernel &kernel, AttentionOp op);
void buildCombine(Kernel &kernel, CombineOp op);
void buildAppend(Kernel &kernel, AppendOp op);

} // namespace flash

#endif // FLASH_TRANSFORMS_LOWERTOTILE_KERNEL_H
