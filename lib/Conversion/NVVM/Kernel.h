//===- Kernel.h - a kernel on its way to an llvm.func -----------*- C++ -*-===//
//
// The parameters a kernel needs grow on demand: a memref argument becomes a tensor map, a pointer,
// sizes and strides, whichever its uses ask for. `flash.params` tells the launcher their order.
//
//===----------------------------------------------------------------------===//
#ifndef FLASH_CONVERSION_NVVM_KERNEL_H
#define FLASH_CONVERSION_NVVM_KERNEL_H

#include "flash/Schedule/Machine.h"
#include "flash/Tile.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "llvm/ADT/MapVector.h"
#include <numeric>

namespace flash::nvvm {

class Kernel {
public:
  /// `func` after flash-tile-assign; emits the errors of a kernel that cannot be converted.
  static mlir::FailureOr<Kernel> create(mlir::func::FuncOp func);

  mlir::func::FuncOp func;
  int64_t threads;       ///< of a block
  int64_t sharedBytes;   ///< of a block
  int64_t warps;         ///< of the instance that multiplies
  int64_t consumers = 0; ///< instances of the role that multiplies
  int64_t keepers = 0;   ///< and of the one that keeps their turns
  bool hasRoles;
  bool gradients; ///< whether it sums them up
  bool inStep;    ///< warps multiply by mma.sync and copy, all in the same steps
  int64_t leastRows = schedule::warpRows; ///< of a warp, where a fragment has as many
  int64_t columns = 0;     ///< of the fragments of a kernel that multiplies nothing; else 0
  int64_t cluster;         ///< blocks that share rings
  bool startsLate = false; ///< its threads meet when they know their tile, not at the start
  int64_t scoreRows = 0;   ///< of the fragments that a row (1xC) is spread over; else 0

  /// How the warps of an instance share fragments of `rows` rows: 16 rows (or as many as leastRows
  /// says), or times that, each; where there are more warps than that makes, they take blocks of 16
  /// columns by turns.
  struct WarpGrid {
    int64_t rows, cols;
  };
  WarpGrid gridOf(int64_t rows) const {
    const int64_t sharing = std::gcd(warps, std::max<int64_t>(rows / leastRows, 1));
    return {sharing, warps / sharing};
  }
  /// The warps that divide a row (1xC).
  int64_t rowParts() const { return scoreRows ? gridOf(scoreRows).cols : 1; }

  /// Whether the machine adds four neighbouring f32 to global memory at once.
  bool addsFours() const {
    return schedule::machineOf(func->getAttrOfType<TargetAttr>("flash.target").target()).addsFours;
  }

  /// In gradients by warps in step the thread's number anew: what follows from it is more than
  /// registers keep over loops. Else null.
  mlir::Value anew(mlir::ImplicitLocOpBuilder &b) const;

  // Parameters. `memref` is an argument of the kernel.
  mlir::Value tensorMap(tile::ViewOp view, int64_t rows); ///< boxes of that many rows
  mlir::Value pointer(mlir::Value memref);
  mlir::Value size(mlir::Value memref, unsigned dim);   ///< i32
  mlir::Value stride(mlir::Value memref, unsigned dim); ///< i64, elements
  mlir::Value counterNumber();                          ///< i32: the launch's counter
  /// Where that counter is, in global memory.
  mlir::Value counter(mlir::ImplicitLocOpBuilder &b);
  /// Gives scalar arguments and memref.dim their parameters.
  void bindScalars(mlir::RewriterBase &rewriter);
  llvm::ArrayRef<mlir::Value> tensorMaps() const { return maps; }

  /// The address of an element of a table of sequences, [row] or [row, col].
  mlir::Value element(mlir::ImplicitLocOpBuilder &b, mlir::Value table, mlir::Value row,
                      mlir::Value col = {});
  /// An element of a table of sequences, [row] or [row, col], as index.
  mlir::Value entry(mlir::ImplicitLocOpBuilder &b, mlir::Value table, mlir::Value row,
                    mlir::Value col = {});
  /// Rows in use of a sequence of the view, as index.
  mlir::Value length(mlir::ImplicitLocOpBuilder &b, tile::ViewOp view, mlir::Value batch);
  /// Where row `row` of `batch` lies in the view's memref, by its tables; of type index.
  struct Place {
    mlir::Value batch; ///< or page; null where the memref has none
    mlir::Value row;
  };
  Place place(mlir::ImplicitLocOpBuilder &b, tile::ViewOp view, mlir::Value batch, mlir::Value row);
  /// Address of element (batch, head, row, col) of the view, `part` parts on; coordinates of type
  /// index.
  mlir::Value address(mlir::ImplicitLocOpBuilder &b, tile::ViewOp view, mlir::Value batch,
                      mlir::Value head, mlir::Value row, mlir::Value col, mlir::Value part = {});
  /// A head's logit of a sink.
  mlir::Value logit(mlir::ImplicitLocOpBuilder &b, mlir::Value sink, mlir::Value head);

  /// Elements from one row of the view to the next, i64.
  mlir::Value rowStride(tile::ViewOp view) { return stride(view.getSource(), view.rowDim()); }

  /// The llvm.func in place of the func.func; all uses of the old arguments must be gone.
  mlir::LLVM::LLVMFuncOp finish();

  /// Byte `offset` of the block's shared memory.
  mlir::Value shared(mlir::ImplicitLocOpBuilder &b, mlir::Value offset);

private:
  mlir::LogicalResult check();

  struct Parameter {
    llvm::StringRef kind;
    unsigned arg;
    int64_t detail; ///< dim, or rows of a tensor map
    int64_t group;  ///< query heads that a tensor map takes for rows
    mlir::Value value;
  };
  /// h and s where `both` is spelled h * splits + s, as the lowering does: without a division.
  std::optional<std::pair<mlir::Value, mlir::Value>> headAndSplit(mlir::Value both);
  mlir::Value parameter(llvm::StringRef kind, mlir::Value arg, int64_t detail, mlir::Type type,
                        int64_t group = 1);

  unsigned oldArguments = 0;
  llvm::SmallVector<Parameter> parameters;
  llvm::SmallVector<mlir::Value> maps;
};

/// The view behind a value of view type, the ring behind one of ring type.
tile::ViewOp viewOf(mlir::Value value);
tile::RingOp ringOf(mlir::Value value);

/// Bytes of a ring's slot: 64-column panels of rows x 128 bytes, or a row of f32.
int64_t slotBytes(tile::RingType type);
int64_t panelsOf(int64_t cols);
inline constexpr int64_t panelCols = 64, panelRowBytes = 128;

/// Where a slice's tile begins, behind the one it is of, in units of `unit` bytes (i32).
mlir::Value sliceOffset(mlir::ImplicitLocOpBuilder &b, tile::SliceOp op, tile::SliceOp::Adaptor in,
                        int64_t unit);
/// Rows of the panels that a tile, or the one it is a slice of, lies in.
int64_t panelRows(mlir::Value tile);

// Numbers of the executing thread, i32.
mlir::Value threadId(mlir::ImplicitLocOpBuilder &b);
mlir::Value laneId(mlir::ImplicitLocOpBuilder &b);
/// The lane of `thread` (or null: this thread's).
mlir::Value laneOf(mlir::ImplicitLocOpBuilder &b, mlir::Value thread);
/// threadId read anew: what follows from it is computed here, not kept in registers over a loop.
mlir::Value freshThreadId(mlir::ImplicitLocOpBuilder &b);
/// `value` (i32 or i64), of which nothing is known: likewise.
mlir::Value opaque(mlir::ImplicitLocOpBuilder &b, mlir::Value value);
mlir::Value i32(mlir::ImplicitLocOpBuilder &b, int64_t value);
mlir::Value toI32(mlir::ImplicitLocOpBuilder &b, mlir::Value index);
mlir::Value toIndex(mlir::ImplicitLocOpBuilder &b, mlir::Value i32);
/// `value` of lane (lane ^ mask).
mlir::Value shuffleXor(mlir::ImplicitLocOpBuilder &b, mlir::Value value, int64_t mask);
/// Whether `predicate` (i1) holds in any of `threads` threads, which meet at named barrier `id`.
mlir::Value anyAtBarrier(mlir::ImplicitLocOpBuilder &b, mlir::Value predicate, mlir::Value id,
                         int64_t threads);
/// What this thread read or wrote of shared memory is before what the copy engine and products do
/// there next (PTX ISA, "Async proxy"): the arrival that lets them is no order across proxies.
void fenceProxies(mlir::ImplicitLocOpBuilder &b);
/// `value` of lane 0: tells the compiler that it is uniform.
mlir::Value broadcastLane0(mlir::ImplicitLocOpBuilder &b, mlir::Value value);
/// Of the block, uniform.
mlir::Value warpId(mlir::ImplicitLocOpBuilder &b);

} // namespace flash::nvvm

#endif // FLASH_CONVERSION_NVVM_KERNEL_H
