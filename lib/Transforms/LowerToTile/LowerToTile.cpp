//===- LowerToTile.cpp - flash-lower-to-tile: one kernel a flash op -------===//
#include "../KernelRuns.h"
#include "Kernel.h"
#include "flash/Passes.h"
#include "flash/Planning.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/Support/Regex.h"

namespace flash {
#define GEN_PASS_DEF_FLASHLOWERTOTILE
#include "flash/Passes.h.inc"
} // namespace flash

using namespace mlir;
using namespace flash;

namespace {
struct LowerToTile : flash::impl::FlashLowerToTileBase<LowerToTile> {
  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    if (failed(standWhereTheyAreFound()))
      return signalPassFailure();
    for (auto func : llvm::make_early_inc_range(getOperation().getOps<func::FuncOp>())) {
      SmallVector<AttentionOp> attentions(func.getOps<AttentionOp>());
      SmallVector<CombineOp> combines(func.getOps<CombineOp>());
      SmallVector<AppendOp> appends(func.getOps<AppendOp>());
      SmallVector<AttentionBackwardOp> backwards(func.getOps<AttentionBackwardOp>());
      const bool forwards = !attentions.empty() || !combines.empty() || !appends.empty();
      if (!forwards && backwards.empty())
        continue;
      if (backwards.size() > 1 || (forwards && !backwards.empty())) {
        func.emitOpError("expected one attention_backward alone in a function that becomes "
                         "kernels; give each a function "
                         "of its own");
        return signalPassFailure();
      }
      if (failed(becomesKernels(func, attentions, combines, appends)) ||
          failed(backwards.empty() ? lower(func, attentions, combines, appends, symbols)
                                   : lower(func, backwards.front(), symbols)))
        return signalPassFailure();
    }
  }

  static bool isOurs(Operation *op) {
    return isa_and_nonnull<AttentionOp, AttentionBackwardOp, CombineOp, AppendOp>(op);
  }

  /// An op elsewhere would be left behind without a word.
  LogicalResult standWhereTheyAreFound() {
    WalkResult result = getOperation()->walk([&](Operation *op) -> WalkResult {
      Operation *around = op->getParentOp();
      if (!isOurs(op) || (isa<func::FuncOp>(around) && around->getParentOp() == getOperation()))
        return success();
      return op->emitOpError("expected a flash op directly in a function of the outermost module, "
                             "between them is a ")
             << (isa<func::FuncOp>(around) ? around->getParentOp() : around)->getName()
             << "; move it to a function of its own there";
    });
    return failure(result.wasInterrupted());
  }

  /// A kernel computes one op; a function that computes more has no kernel.
  LogicalResult becomesKernels(func::FuncOp func, ArrayRef<AttentionOp> attentions,
                               ArrayRef<CombineOp> combines, ArrayRef<AppendOp> appends) {
    if (attentions.size() > 1 || combines.size() > 1 || appends.size() > 1)
      return func.emitOpError(
          "expected one attention (and the combine of its parts) in a function that becomes a "
          "kernel; give each attention a function of its own");
    // PTX's identifiers.
    if (!llvm::Regex("^([A-Za-z]|[_$][A-Za-z0-9_$])[A-Za-z0-9_$]*$").match(func.getName()))
      return func.emitOpError("expected a kernel's name to be letters, digits, _ and $, with no "
                              "digit first and no _ or $ alone; rename the function");
    if (auto uses = SymbolTable::getSymbolUses(func, getOperation()); uses && !uses->empty())
      return uses->begin()->getUser()->emitOpError("uses ")
             << func.getName() << ", which becomes a kernel with other arguments; move it to "
             << "another module";
    for (Operation &op : func.getOps())
      if (!isa<AttentionOp, AttentionBackwardOp, CombineOp, AppendOp, func::ReturnOp,
               memref::AllocOp, memref::DeallocOp, memref::DimOp, tensor::DimOp>(op) &&
          !op.hasTrait<OpTrait::ConstantLike>())
        return op.emitOpError("stands beside an attention in a function that becomes a kernel; "
                              "move it to its caller");
    for (auto end : func.getOps<func::ReturnOp>())
      for (auto [index, value] : llvm::enumerate(end.getOperands())) {
        if (const auto first = llvm::find(end.getOperands(), value).getIndex(); first != index)
          return end.emitOpError(
                     "expected a function that becomes a kernel to return a value once, "
                     "operand ")
                 << index << " is operand " << first << " again; leave it to the caller";
        if (!isOurs(value.getDefiningOp()) && llvm::none_of(value.getUsers(), [&](Operation *op) {
              return isOurs(op) && hasEffect<MemoryEffects::Write>(op, value);
            }))
          return end.emitOpError("expected a function that becomes a kernel to return only "
                                 "what its flash op computes, operand ")
                 << index << " is something else; leave it to the caller";
      }
    return success();
  }

  static FailureOr<Kernel> makeKernel(func::FuncOp func, const std::string &name, Operation *op,
                                      bool ofDv = false) {
    auto plan = op->getAttrOfType<PlanAttr>("plan");
    if (!plan || !plan.getInt("tile", 0))
      return op->emitOpError("expected a plan with a tile; run flash-select-tiles before");
    if (ofDv)
      plan = plan.with("stages", Builder(op->getContext()).getI64IntegerAttr(schedule::stagesOfDv));
    return Kernel(func, name, op, plan);
  }

  static bool kernelsOverlap(std::optional<TargetAttr> target) {
    return target && schedule::machineOf(target->target()).kernelsOverlap;
  }

  /// Gradients take three kernels, one more where dV has its own, and where there is a sink.
  LogicalResult lower(func::FuncOp func, AttentionBackwardOp op, SymbolTable &symbols) {
    std::string name = func.getName().str();
    symbols.remove(func);
    struct Part {
      const char *suffix;
      void (*build)(Kernel &, AttentionBackwardOp);
      bool isThere = true;
    };
    const Part parts[] = {{"_prepare", buildBackwardPrepare},
                          {"_dv", buildBackwardDv, hasOwnDv(op)},
                          {"", buildBackward},
                          {"_finish", buildBackwardFinish},
                          {"_sink", buildBackwardSink, bool(op.getSink())}};
    for (const Part &part : parts) {
      if (!part.isThere)
        continue;
      auto kernel = makeKernel(func, name + part.suffix, op, part.build == buildBackwardDv);
      if (failed(kernel))
        return failure();
      if (*part.suffix)
        kernel->func->setAttr(sourceName,
                              kernel->b.getStringAttr(op->getName().stripDialect() + part.suffix));
      if (&part != parts && kernelsOverlap(op.getTarget()))
        kernel->func->setAttr("flash.follows", kernel->b.getUnitAttr());
      part.build(*kernel, op);
    }
    func.erase();
    return success();
  }

  LogicalResult lower(func::FuncOp func, ArrayRef<AttentionOp> attentions,
                      ArrayRef<CombineOp> combines, ArrayRef<AppendOp> appends,
                      SymbolTable &symbols) {
    std::string name = func.getName().str();
    symbols.remove(func); // frees the name; the function itself goes once its kernels stand
    auto kernelFor = [&](Operation *op, StringRef suffix) {
      return makeKernel(func, name + suffix.str(), op);
    };
    for (AppendOp op : appends) { // first: the attention reads what it writes
      auto kernel = kernelFor(op, attentions.empty() ? "" : "_append");
      if (failed(kernel))
        return failure();
      buildAppend(*kernel, op);
    }
    for (AttentionOp op : attentions) {
      auto kernel = kernelFor(op, "");
      if (failed(kernel))
        return failure();
      auto heads = [](Value v) {
        return cast<ShapedType>(v.getType()).getShape().take_back(2).front();
      };
      if (op.getPlanAttr().getFlag("pack_gqa").value_or(false) &&
          (ShapedType::isDynamic(heads(op.getQ())) || ShapedType::isDynamic(heads(op.getK())) ||
           heads(op.getK()) == 0))
        return op.emitOpError("expected q's and k's heads to be known when compiling, as pack_gqa "
                              "makes rows of them");
      if (op.getSchedule()) {
        Builder builder(op.getContext());
        Kernel prepare(func, name + "_prepare", op, filled({}, "tile", pairOf(builder, 1, 1)));
        prepare.func->setAttr(sourceName, builder.getStringAttr("prepare"));
        if (kernelsOverlap(op.getTarget()))
          kernel->func->setAttr("flash.follows", builder.getUnitAttr());
        buildPrepare(prepare, op);
        prepare.func->moveBefore(kernel->func);
      }
      buildAttention(*kernel, op);
    }
    for (CombineOp op : combines) {
      auto kernel = kernelFor(op, attentions.empty() ? "" : "_combine");
      if (failed(kernel))
        return failure();
      if (!attentions.empty() && kernelsOverlap(op.getTarget()))
        kernel->func->setAttr("flash.follows", kernel->b.getUnitAttr());
      buildCombine(*kernel, op);
    }
    func.erase();
    return success();
  }
};
} // namespace
