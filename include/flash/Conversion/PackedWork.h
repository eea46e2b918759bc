//===- PackedWork.h - the sequence of a tile, as IR -------------*- C++ -*-===//
//
// What both conversions emit where sequences differ in their tiles (flash/Schedule/WorkOrder.h): a
// search among the sequences' starts.
//
//===----------------------------------------------------------------------===//
#ifndef FLASH_CONVERSION_PACKEDWORK_H
#define FLASH_CONVERSION_PACKEDWORK_H

#include "flash/Conversion/IrInt.h"
#include "flash/Schedule/WorkOrder.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace flash {

/// The last of the places 0 .. n-1 that starts at `tile` or before; there is at least one.
inline IrInt lastStart(mlir::ImplicitLocOpBuilder &b, IrInt tile, IrInt n,
                       llvm::function_ref<IrInt(IrInt)> startOf) {
  IrInt zero(b, int64_t(0));
  mlir::Value init[] = {zero.get(), n.get()};
  llvm::SmallVector<mlir::Type> types(2, b.getIndexType());
  llvm::SmallVector<mlir::Location> locations(2, b.getLoc());
  // It is in [first, end).
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
  return IrInt(b, search.getResult(0));
}

/// The tile of ordinal `t`; `rowsBefore` emits the load of an element of the table.
inline schedule::Work<IrInt> packedWorkAt(mlir::ImplicitLocOpBuilder &b, IrInt t,
                                          const schedule::WorkShape<IrInt> &shape, IrInt batch,
                                          int64_t group, int64_t tileM,
                                          llvm::function_ref<IrInt(IrInt)> rowsBefore) {
  auto startOf = [&](IrInt sequence) {
    return schedule::packedStart(rowsBefore(sequence), sequence, group, tileM);
  };
  IrInt sequence = lastStart(b, schedule::packedTileOf(t, shape), batch, startOf);
  // The last one also has the tiles of rows behind all sequences, which hold none.
  IrInt next = select(lessThan(sequence + 1, batch), startOf(sequence + 1), shape.mTiles);
  return schedule::packedWorkAt(t, sequence, startOf(sequence), next, shape);
}

/// The tile of ordinal `t`; `entry` emits the load of the schedule's element (row, column).
inline schedule::Work<IrInt>
scheduledWorkAt(mlir::ImplicitLocOpBuilder &b, IrInt t, IrInt heads, IrInt batch,
                llvm::function_ref<IrInt(schedule::ScheduleRow, IrInt)> entry) {
  auto startOf = [&](IrInt place) { return entry(schedule::startsRow, place); };
  IrInt place = lastStart(b, t, batch, startOf);
  IrInt sequence = entry(schedule::sequenceRow, place);
  return schedule::scheduledWorkAt<IrInt>(t,
                                          {startOf(place), startOf(place + 1), sequence,
                                           entry(schedule::splitsRow, sequence),
                                           entry(schedule::sectionRow, sequence)},
                                          heads);
}

} // namespace flash

#endif // FLASH_CONVERSION_PACKEDWORK_H
