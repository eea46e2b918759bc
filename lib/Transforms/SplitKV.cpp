//===- SplitKV.cpp - attention over parts of the keys, and their join -----===//
//
//   o, lse = attention(q, k, v, sink)    ->    op, lp = attention(q, k, v)   partial, f32
//                                              o, lse = combine(op, lp, sink)
//
// The sink joins the denominator once, hence in the combine.
//
//===----------------------------------------------------------------------===//
#include "flash/Passes.h"
#include "flash/Planning.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace flash {
#define GEN_PASS_DEF_FLASHSPLITKV
#include "flash/Passes.h.inc"
} // namespace flash

using namespace mlir;
using namespace flash;

namespace {
void split(AttentionOp op, int64_t splits, schedule::Join join) {
  ImplicitLocOpBuilder builder(op.getLoc(), op);
  ArrayRef<int64_t> o = op.getOutputType().getShape();
  // Packed sequences have their total instead of batch and length.
  const bool packed = static_cast<bool>(op.getCuSeqlensQ());
  const SmallVector<unsigned> dimsOfO = packed ? SmallVector<unsigned>{0, 1, 2}
                                               : SmallVector<unsigned>{0, 1, 2, 3},
                              dimsOfLse = packed ? SmallVector<unsigned>{1, 0}
                                                 : SmallVector<unsigned>{0, 2, 1};
  SmallVector<Type> types; // of the parts of o and lse, over tensors
  SmallVector<Value> outs; // over memrefs
  SmallVector<Value> sizes(o.size());
  for (unsigned dim = 0; dim < o.size(); ++dim)
    if (!op.getOuts().empty() && ShapedType::isDynamic(o[dim]))
      sizes[dim] = memref::DimOp::create(builder, op.getOuts().front(), dim);
  for (ArrayRef<unsigned> dims : {ArrayRef(dimsOfO), ArrayRef(dimsOfLse)}) {
    SmallVector<int64_t> shape{splits};
    SmallVector<Value> dynamic;
    for (unsigned dim : dims) {
      shape.push_back(o[dim]);
      if (ShapedType::isDynamic(o[dim]))
        dynamic.push_back(sizes[dim]);
    }
    if (op.getOuts().empty())
      types.push_back(RankedTensorType::get(shape, builder.getF32Type()));
    else
      outs.push_back(
          memref::AllocOp::create(builder, MemRefType::get(shape, builder.getF32Type()), dynamic));
  }
  auto parts = AttentionOp::create(
      builder, types, op.getQ(), op.getK(), op.getV(), /*sink=*/Value(), op.getScale(),
      op.getSoftcap(), op.getCuSeqlensQ(), op.getMaxSeqlenQ(), op.getCuSeqlensK(), op.getSequsedQ(),
      op.getSequsedK(), op.getAppended(), op.getPageTable(), op.getKvBatchIdx(), op.getLeftpadK(),
      /*schedule=*/Value(), outs, op.getMaskAttr(), op.getTargetAttr(), op.getPlanAttr());
  parts->setDiscardableAttrs(op->getDiscardableAttrDictionary());
  ValueRange inputs = outs.empty() ? ValueRange(parts.getResults()) : ValueRange(outs);
  PlanAttr plan =
      combinePlan({}, *op.getTarget(), o.back(), *op.getPlan()->getInt("tile", 0), join);
  auto joined = CombineOp::create(builder, op.getResultTypes(), inputs[0], inputs[1], op.getSink(),
                                  op.getCuSeqlensQ(), op.getMaxSeqlenQ(), op.getSequsedQ(),
                                  /*schedule=*/Value(), op.getOuts(), op.getTargetAttr(), plan);
  for (Value buffer : outs)
    memref::DeallocOp::create(builder, buffer);
  op->replaceAllUsesWith(joined);
  op->erase();
}

struct SplitKV : flash::impl::FlashSplitKVBase<SplitKV> {
  void runOnOperation() override {
    SmallVector<AttentionOp> ops;
    getOperation()->walk([&](AttentionOp op) { ops.push_back(op); });
    for (AttentionOp op : ops) {
      if (failed(isTiled(op)))
        return signalPassFailure();
      FailureOr<schedule::Plan> plan = planOf(op);
      if (failed(plan))
        return signalPassFailure();
      if (op.isPartial() && op.getOutputType().isDynamicDim(0))
        continue; // the caller knows how many
      auto splits = IntegerAttr::get(IntegerType::get(op.getContext(), 64), plan->splits);
      op.setPlanAttr(filled(op.getPlanAttr(), "splits", splits, plan->reasons.splits));
      if (!op.isPartial() && plan->splits > 1)
        split(op, plan->splits, plan->join);
    }
  }
};
} // namespace
