//===- TileQueries.h - what several tile passes ask -------------*- C++ -*-===//
#ifndef FLASH_TRANSFORMS_TILEQUERIES_H
#define FLASH_TRANSFORMS_TILEQUERIES_H

#include "KernelRuns.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include <optional>
#include <string>

namespace flash {

/// Why a pass leaves a kernel alone; none if it does not.
using Reason = std::optional<std::string>;

/// Calls `visit` for each kernel below `root` that has a plan.
inline void forEachKernel(mlir::Operation *root,
                          llvm::function_ref<void(mlir::func::FuncOp, PlanAttr)> visit) {
  root->walk([&](mlir::func::FuncOp kernel) {
    if (PlanAttr plan = planOfKernel(kernel))
      visit(kernel, plan);
  });
}

/// Writes into the plan that a pass left the kernel alone, and why. `off`: what the field is then,
/// false if left out.
inline void leaveAlone(mlir::func::FuncOp kernel, llvm::StringRef field, llvm::StringRef why,
                       mlir::Attribute off = {}) {
  if (!off)
    off = mlir::BoolAttr::get(kernel.getContext(), false);
  kernel->setAttr(planName, planOfKernel(kernel).with(field, off, why));
}

/// Fills `runs` with the kernel's runs that hold an `Op`, each looked into by `find`; why one is
/// not what it should be, or why (`none`) there is no run.
template <class Op, class Run>
Reason findRuns(mlir::func::FuncOp kernel, llvm::SmallVectorImpl<Run> &runs, Reason (*find)(Run &),
                const char *none) {
  for (mlir::scf::ForOp loop : runsIn(kernel))
    if (!loop.getBody()->template getOps<Op>().empty())
      runs.emplace_back().loop = loop;
  if (runs.empty())
    return none;
  for (Run &run : runs)
    if (Reason why = find(run))
      return why;
  return std::nullopt;
}

/// Demands that runs follow each other with nothing but index arithmetic between them.
template <class Run> Reason whyNotChained(llvm::ArrayRef<Run> runs) {
  for (auto [run, next] : llvm::zip(runs, runs.drop_front())) {
    mlir::scf::ForOp from = run.loop, to = next.loop;
    if (from->getBlock() != to->getBlock() || !llvm::equal(from.getResults(), to.getInitArgs()) ||
        !llvm::all_of(from.getResults(), [](mlir::Value v) { return v.hasOneUse(); }))
      return "the runs do not continue each other";
    for (mlir::Operation *op = from->getNextNode(); op != to; op = op->getNextNode())
      if (!mlir::isPure(op) || op->getNumRegions())
        return (op->getName().getStringRef() + " stands between two runs").str();
  }
  return std::nullopt;
}

/// The wait that gave `tile`, or the tile it is a slice of; null for other values.
inline tile::WaitOp waitOf(mlir::Value tile) {
  while (auto slice = tile.getDefiningOp<tile::SliceOp>())
    tile = slice.getTile();
  return tile.getDefiningOp<tile::WaitOp>();
}

/// The releases of the tile that `wait` gives.
inline llvm::SmallVector<tile::ReleaseOp> releasesOf(tile::WaitOp wait) {
  llvm::SmallVector<tile::ReleaseOp> releases;
  for (mlir::Operation *user : wait.getRing().getUsers())
    if (auto release = mlir::dyn_cast<tile::ReleaseOp>(user);
        release && release.getIt() == wait.getIt())
      releases.push_back(release);
  return releases;
}

/// `value` where `b` stands: what computes it in `body` is cloned as far as `map` does not have it.
inline mlir::Value clonedFrom(mlir::Block *body, mlir::Value value, mlir::OpBuilder &b,
                              mlir::IRMapping &map) {
  mlir::Operation *def = value.getDefiningOp();
  if (map.contains(value) || !def || def->getBlock() != body)
    return map.lookupOrDefault(value);
  for (mlir::Value operand : def->getOperands())
    clonedFrom(body, operand, b, map);
  b.clone(*def, map);
  return map.lookup(value);
}

/// Rows and columns of what lives in registers; empty for other types.
inline llvm::ArrayRef<int64_t> registerShape(mlir::Type type) {
  if (auto frag = mlir::dyn_cast<tile::FragType>(type))
    return frag.getShape();
  if (auto flight = mlir::dyn_cast<tile::FlightType>(type))
    return flight.getShape();
  return {};
}

} // namespace flash

#endif // FLASH_TRANSFORMS_TILEQUERIES_H
