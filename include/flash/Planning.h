//===- Planning.h - flash ops as the planning library sees them -*- C++ -*-===//
#ifndef FLASH_PLANNING_H
#define FLASH_PLANNING_H

#include "flash/Flash.h"
#include "flash/Schedule/Splits.h"

namespace flash {

/// The op as a problem of the planning library; sizes that its types leave open are unknown.
schedule::Problem problemOf(ProblemOpInterface op, schedule::Target target);

/// A plan as text: `#flash.plan<...>`, or its fields alone. Null where it is none, which the
/// context's diagnostics explain.
PlanAttr parsePlan(llvm::StringRef text, mlir::MLIRContext *context);

/// What the fields of a plan fix; nothing where there is no plan.
schedule::PlanOverrides overridesOf(PlanAttr plan);

/// The whole plan of an op that has a target, with what is fixed kept; an error at the op says why
/// there is none. The parts that a partial op is made of are its splits.
mlir::FailureOr<schedule::Plan> planOf(ProblemOpInterface op, schedule::PlanOverrides fixed);
inline mlir::FailureOr<schedule::Plan> planOf(ProblemOpInterface op) {
  return planOf(op, overridesOf(op.getPlanAttr()));
}

/// Demands what flash-select-tiles writes: a target and a tile.
mlir::LogicalResult isTiled(ProblemOpInterface op);

/// `plan` (which may be null) with a field and the reason for it, unless a hand has written the
/// field.
PlanAttr filled(PlanAttr plan, llvm::StringRef field, mlir::Attribute value,
                llvm::StringRef why = {});

/// The plan of a flash.combine, with what `plan` (which may be null) has: rows of a tile and the
/// parts it reads at once; a CPU has `cpuRows`, one by one.
PlanAttr combinePlan(PlanAttr plan, TargetAttr target, int64_t headSizeV, int64_t cpuRows,
                     schedule::Join join);

/// `[first, second]` as plans write pairs.
mlir::ArrayAttr pairOf(mlir::Builder &builder, int64_t first, int64_t second);

} // namespace flash

#endif // FLASH_PLANNING_H
