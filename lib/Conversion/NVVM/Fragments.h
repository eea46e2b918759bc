//===- Fragments.h - fragments as vectors of a thread's cells ---*- C++ -*-===//
//
// Every warp of an instance holds 16-row groups of a fragment, in the cells of an m16n8 product:
//
//        columns 8c + 2(lane & 3) + {0, 1}
//   row  lane / 4       cells 4c, 4c + 1
//   row  lane / 4 + 8   cells 4c + 2, 4c + 3
//
// A fragment of f32 is a vector of these cells, group by group; one of 16-bit elements is a vector
// of i32 that pack two neighbours, which is the layout of an A operand. A column (Rx1) is a vector
// of two values a group, equal in the four lanes of a quad, except the partial sum l. A row (1xC)
// has the columns of a group's row: a pair of every eight.
//
// In a kernel that multiplies nothing each thread has four neighbouring columns of one row, and of
// a column (Rx1) its row's value.
//
//===----------------------------------------------------------------------===//
#ifndef FLASH_CONVERSION_NVVM_FRAGMENTS_H
#define FLASH_CONVERSION_NVVM_FRAGMENTS_H

#include "Kernel.h"
#include "flash/Tile.h"

namespace flash::nvvm {

class Fragments {
public:
  using B = mlir::ImplicitLocOpBuilder;
  explicit Fragments(Kernel &kernel) : kernel(kernel) {}

  /// Emits a located error for each fragment that has no such vector.
  mlir::LogicalResult check();
  /// The vector of a fragment's or flight's cells.
  mlir::VectorType typeOf(llvm::ArrayRef<int64_t> shape, mlir::Type element) const;

  mlir::Value splat(B &b, mlir::VectorType type, mlir::Value scalar);
  /// `remap` gives the converted value of one captured by the region.
  mlir::Value map(B &b, tile::MapOp op, mlir::ValueRange inputs,
                  llvm::function_ref<mlir::Value(mlir::Value)> remap);
  mlir::Value cast(B &b, tile::CastOp op, mlir::Value value);
  mlir::Value mask(B &b, tile::MaskOp op, tile::MaskOp::Adaptor in);
  mlir::Value rescale(B &b, mlir::Value o, mlir::Value alpha);
  /// The same where alpha is nearly always 1: a warp whose rows agree on that does nothing.
  mlir::Value rescaleRarely(B &b, mlir::Value o, mlir::Value alpha);
  /// Whether one of this thread's values is not finite, i1.
  mlir::Value hasOverflow(B &b, mlir::Value column);

  struct Step {
    mlir::Value p, m, l, alpha;
  };
  Step softmaxStep(B &b, tile::SoftmaxStepOp::Adaptor in);
  Step deferredStep(B &b, tile::SoftmaxStepOp::Adaptor in);

  struct Final {
    mlir::Value o, lse;
  };
  Final finalize(B &b, tile::FinalizeOp op, tile::FinalizeOp::Adaptor in);

  /// In a kernel that multiplies nothing, whose shared memory has room for a value of each thread.
  mlir::Value sum(B &b, tile::SumOp op, mlir::Value value);
  /// Likewise, with room for all values of each thread.
  llvm::SmallVector<mlir::Value> splitRows(B &b, tile::SplitRowsOp op, mlir::ValueRange values);
  /// Packed pairs, as 16 bytes a lane; f32, as 8; or one f32 a row from the first of its lanes.
  void store(B &b, tile::StoreOp op, tile::StoreOp::Adaptor in);
  /// In a warp beside those that store.
  void keepTurn(B &b, tile::KeepTurnOp op, tile::KeepTurnOp::Adaptor in);
  /// Rows of a kernel that multiplies nothing.
  mlir::Value load(B &b, tile::LoadOp op, tile::LoadOp::Adaptor in);
  /// In such a kernel, whose shared memory has room for a fragment.
  mlir::Value rotate(B &b, tile::RotateOp op, tile::RotateOp::Adaptor in);

private:
  /// Row within a fragment of `rows` rows of entry `slot` of a column, as index.
  mlir::Value rowOf(B &b, int64_t slot, int64_t rows, mlir::Value thread = {});
  /// A column's entries, or a row's, one for each cell of `cells`.
  mlir::Value broadcast(B &b, mlir::Value column, mlir::VectorType cells);
  mlir::Value broadcastRow(B &b, mlir::Value row, mlir::VectorType cells);
  mlir::Value reduce(B &b, mlir::Value cells, int64_t groups, bool isMax);
  /// All four lanes' values joined.
  mlir::Value joinQuad(B &b, mlir::Value column, bool isMax);
  int64_t groupsOf(int64_t rows) const {
    return rows / (schedule::warpRows * kernel.gridOf(rows).rows);
  }
  mlir::Value loadSum(B &b, tile::LoadOp op, tile::LoadOp::Adaptor in);
  /// Where a lane's value of a cell lies in it, in memory, behind the lane's first.
  int64_t inCell(int64_t value) const;
  void addRows(B &b, tile::StoreOp op, tile::StoreOp::Adaptor in);
  void addCells(B &b, tile::StoreOp op, tile::StoreOp::Adaptor in);
  void storeSum(B &b, tile::StoreOp op, tile::StoreOp::Adaptor in);
  void storeCells(B &b, tile::StoreOp op, tile::StoreOp::Adaptor in);
  void storeColumn(B &b, tile::StoreOp op, tile::StoreOp::Adaptor in);
  void storeDealt(B &b, tile::StoreOp op, tile::StoreOp::Adaptor in);
  /// Row and first column of what this thread has of a fragment of a kernel that multiplies
  /// nothing, as index.
  std::pair<mlir::Value, mlir::Value> dealt(B &b, tile::FragType type);

  Kernel &kernel;
};

} // namespace flash::nvvm

#endif // FLASH_CONVERSION_NVVM_FRAGMENTS_H
