//===- Divide.h - what the consumers of a tile divide -----------*- C++ -*-===//
#ifndef FLASH_TRANSFORMS_SPLITROLES_DIVIDE_H
#define FLASH_TRANSFORMS_SPLITROLES_DIVIDE_H

#include "../TileQueries.h"
#include "flash/Schedule/Tile.h"
#include "mlir/IR/IRMapping.h"

namespace flash {

/// What the consumers of a tile divide, found before anything is changed.
struct Division {
  int64_t consumers = 1;
  bool copies = false; ///< the consumers copy too, each its share of every tile
  schedule::SplitBy by = schedule::SplitBy::rows;
  int64_t part = 0;                          ///< rows or columns of one consumer
  mlir::SetVector<mlir::Value> rowRings;     ///< by rows: rings whose tiles hold rows of the output
  mlir::SetVector<mlir::Value> columnValues; ///< by columns: what holds columns of the output
  bool keys = false;                         ///< by rows that are keys (DivideKeys.cpp)
  mlir::SetVector<mlir::Value> queryValues;  ///< then: what holds dQ
  schedule::SplitBy queriesBy = schedule::SplitBy::columns; ///< how they are divided
};

/// Finds what `work`'s consumers divide, or the reason why they cannot.
Reason findDivision(tile::ForWorkOp work, Division &division);

/// The producer's clone of the work: one fill of a tile's rows becomes one fill of each consumer's.
void divideProducer(tile::ForWorkOp work, const Division &division);

/// The clone of consumer `w`: its rows or columns of everything. `map` leads from the work that
/// the division was found in to the clone.
void divideConsumer(tile::ForWorkOp work, mlir::Value w, const Division &division,
                    const mlir::IRMapping &map);

/// The same of gradients.
bool dividesKeys(tile::ForWorkOp work);
Reason findKeys(tile::ForWorkOp work, Division &division);
void narrowKeys(tile::ForWorkOp work, mlir::Value w, const Division &division,
                const mlir::IRMapping &map);

/// Rings as the divided programs use them.
void divideRings(mlir::func::FuncOp kernel, const Division &division);

} // namespace flash

#endif // FLASH_TRANSFORMS_SPLITROLES_DIVIDE_H
