//===- PackedWork.h - the sequence of a tile, as IR -------------*- C++ -*-===//
//
// What both conversions emit where the tiles of packed sequences are counted through
// (flash/Schedule/WorkOrder.h): a search among the sequences' starts.
//
//===----------------------------------------------------------------------===//
#ifndef FLASH_CONVERSION_PACKEDWORK_H
#define FLASH_CONVERSION_PACKEDWORK_H

#include "flash/Conversion/IrInt.h"
#include "flash/Schedule/WorkOrder.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace flash {

/// The tile of ordinal `t`; `rowsBefore` emits the load of an element of the table. There is at
/// least one sequence.
inline schedule::Work<IrInt> packedWorkAt(mlir::ImplicitLocOpBuilder &b, IrInt t,
                                          const schedule::WorkShape<IrInt> &shape, IrInt batch,
                                          int64_t group, int64_t tileM,
                                          llvm::function_ref<IrInt(IrInt)> rowsBefore) {
  auto startOf = [&](IrInt sequence) {
    return schedule::packedStart(rowsBefore(sequence), sequence, group, tileM);
  };
  IrInt tile = schedule::packedTileOf(t, shape), zero(b, int64_t(0));
  mlir::Value init[] = {zero.get(), batch.get()};
  llvm::SmallVector<mlir::Type> types(2, b.getIndexType());
  llvm::SmallVector<mlir::Location> locations(2, b.getLoc());
  // The sequence is in [first, end).
  auto search = mlir::scf::WhileOp::create(b, types, init);
  mlir::OpBuilder::InsertionGuard guard(b);
  mlir::Block *before = b.createBlock(&search.getBefore(), {}, types, locations);
  mlir::scf::ConditionOp::create(
      b, lessThan(IrInt(b, before->getArgument(0)) + 1, IrInt(b, before->getArgument(1))).get(),
      before->getArguments());
  mlir::Block *after = b.createBlock(&search.getAfter(), {}, types, locations);
  IrInt first(b, after->getArgument(0)), end(b, after->getArgument(1));
  IrInt middle = floorDiv(first + end, int64_t(2));
  IrBool isPast = lessThan(tile, startOf(middle));
  mlir::scf::YieldOp::create(
      b, mlir::ValueRange{select(isPast, first, middle).get(), select(isPast, middle, end).get()});
  b.setInsertionPointAfter(search);
  IrInt sequence(b, search.getResult(0));
  // The last one also has the tiles of rows behind all sequences, which hold none.
  IrInt next = select(lessThan(sequence + 1, batch), startOf(sequence + 1), shape.mTiles);
  return schedule::packedWorkAt(t, sequence, startOf(sequence), next, shape);
}

} // namespace flash

#endif // FLASH_CONVERSION_PACKEDWORK_H
