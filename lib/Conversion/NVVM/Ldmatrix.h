//===- Ldmatrix.h - fragments from and to swizzled tiles --------*- C++ -*-===//
//
// ldmatrix takes four 8 x 8 matrices: lane l names row l % 8 of matrix l / 8, and gets of each
// matrix the pair 2 * (l % 4) of row l / 4 (PTX ISA, "ldmatrix"). In a tile (Kernel.h) the 16-byte
// chunk c of row r stands at chunk c ^ r % 8 of its 128 bytes, so that the eight rows of a matrix
// lie in different banks.
//
//===----------------------------------------------------------------------===//
#ifndef FLASH_CONVERSION_NVVM_LDMATRIX_H
#define FLASH_CONVERSION_NVVM_LDMATRIX_H

#include "Kernel.h"
#include "flash/Schedule/Machine.h"

namespace flash::nvvm {

/// The 16 x 16 blocks of a tile of 16-bit elements, each in one ldmatrix of a warp.
class Ldmatrix {
public:
  using B = mlir::ImplicitLocOpBuilder;
  static constexpr int64_t side = 16; ///< of a block

  /// Which quarter of a block each of the four words comes from, in (rows, columns): an A operand
  /// has the second rows before the second columns, a B operand stored n x k the other way round.
  enum Order { rowsFirst, columnsFirst };

  /// `tile`: byte address in shared memory (i32); `row`: of the tile, where block 0 begins (i32, a
  /// multiple of 16), or null for 0; `thread`: the executing one's number, or null for threadId;
  /// `column`: as `row`, where the columns that are named later have none of its bits.
  Ldmatrix(B &b, mlir::Value tile, int64_t rows, Order order, mlir::Value row = {},
           mlir::Value thread = {}, mlir::Value column = {});

  /// The words of the block at (row, column), multiples of 16. `transposed`: each matrix is.
  mlir::SmallVector<mlir::Value, 4> load(B &b, int64_t row, int64_t column,
                                         bool transposed = false) const;
  /// The reverse, by stmatrix (PTX ISA, "stmatrix": sm_90 and later).
  void store(B &b, mlir::ArrayRef<mlir::Value> words, int64_t row, int64_t column) const;

private:
  int64_t rows;
  mlir::Value first; ///< this lane's address in block (0, 0)
};

/// The cells of a tile in this thread, as an A operand: the warp's rows are those of its fragments.
mlir::Value readTile(mlir::ImplicitLocOpBuilder &b, Kernel &kernel, tile::TileType type,
                     mlir::Value address);

/// A row of f32 at a byte address: a pair of every eight columns, in each of the lanes that have
/// them (Fragments.h); of `parts` warps that divide it, the part from column `first` (i32) on.
mlir::Value readRow(mlir::ImplicitLocOpBuilder &b, int64_t cols, mlir::Value address,
                    mlir::Value first = {}, int64_t parts = 1, mlir::Value thread = {});

/// The reverse of readTile, without stmatrix.
void writeTile(mlir::ImplicitLocOpBuilder &b, Kernel &kernel, tile::TileType type,
               mlir::Value address, mlir::Value cells, mlir::Value thread = {});

/// The column of a warp's 8-column cell, behind its first, where `sharing` warps share rows: they
/// take blocks of 16 by turns.
inline int64_t columnOfCell(int64_t cell, int64_t sharing) {
  return cell / 2 * sharing * Ldmatrix::side + cell % 2 * 8;
}

/// The first of the columns of the warp (i32), where warps share rows: of blocks of 16.
mlir::Value firstColumnOfWarp(mlir::ImplicitLocOpBuilder &b, Kernel &kernel, int64_t rows,
                              mlir::Value thread = {});

/// The first of the rows that the warp of `thread` (or null: this thread's) owns, of fragments of
/// `rows` rows (i32).
mlir::Value firstRowOfWarp(mlir::ImplicitLocOpBuilder &b, Kernel &kernel, int64_t rows,
                           mlir::Value thread = {});

} // namespace flash::nvvm

#endif // FLASH_CONVERSION_NVVM_LDMATRIX_H
