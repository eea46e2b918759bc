//===- ExactCounts.h - consumers of keys ------------------------*- C++ -*-===//
#ifndef FLASH_TRANSFORMS_EXACTCOUNTS_H
#define FLASH_TRANSFORMS_EXACTCOUNTS_H

#include "TileQueries.h"

namespace flash {

/// Lets the consumers of gradients skip the blocks of queries that see none of their keys, or says
/// why not.
Reason countQueriesExactly(mlir::func::FuncOp kernel);

} // namespace flash

#endif // FLASH_TRANSFORMS_EXACTCOUNTS_H
