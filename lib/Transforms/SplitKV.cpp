//===- SplitKV.cpp - attention over parts of the keys, and their join -----===//
//
//   o, lse = attention(q, k, v, sink)    ->    op, lp = attention(q, k, v)   partial, f32
//                                              o, lse = combine(op, lp, sink)
//
// The sink joins the denominator once, hence in the combine.
//
//===----------------------------------------------------------------------===//
#include "Planning.h"
#include "flash/Passes.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace flash {
#define GEN_PASS_DEF_FLASHSPLITKV
#include "flash/Passes.h.inc"
} // namespace flash

using namespace mlir;
using namespace flash;

namespace {
/// A buffer for parts of the batch x length x heads x columns that `o` has; `order` picks its
/// dimensions.
Value allocParts(ImplicitLocOpBuilder &builder, ArrayRef<int64_t> shape, Value o,
                 ArrayRef<int64_t> order) {
  SmallVector<Value> sizes;
  for (auto [size, dim] : llvm::zip_equal(shape.drop_front(), order))
    if (ShapedType::isDynamic(size))
      sizes.push_back(memref::DimOp::create(builder, o, dim));
  return memref::AllocOp::create(builder, MemRefType::get(shape, builder.getF32Type()), sizes);
}

void split(AttentionOp op, int64_t splits) {
  ImplicitLocOpBuilder builder(op.getLoc(), op);
  ArrayRef<int64_t> o = op.getOutputType().getShape();
  SmallVector<int64_t> oShape{splits, o[0], o[1], o[2], o[3]}, lseShape{splits, o[0], o[2], o[1]};
  SmallVector<Type> types;
  SmallVector<Value> outs;
  if (op.getOuts().empty()) {
    for (ArrayRef<int64_t> shape : {ArrayRef(oShape), ArrayRef(lseShape)})
      types.push_back(RankedTensorType::get(shape, builder.getF32Type()));
  } else {
    Value out = op.getOuts().front();
    outs = {allocParts(builder, oShape, out, {0, 1, 2, 3}),
            allocParts(builder, lseShape, out, {0, 2, 1})};
  }
  auto parts = AttentionOp::create(builder, types, op.getQ(), op.getK(), op.getV(),
                                   /*sink=*/Value(), op.getScale(), op.getSoftcap(), outs,
                                   op.getMaskAttr(), op.getTargetAttr(), op.getPlanAttr());
  parts->setDiscardableAttrs(op->getDiscardableAttrDictionary());
  ValueRange inputs = outs.empty() ? ValueRange(parts.getResults()) : ValueRange(outs);
  PlanAttr plan = filled({}, "tile", pairOf(builder, *op.getPlan()->getInt("tile", 0), 1));
  auto join = CombineOp::create(builder, op.getResultTypes(), inputs[0], inputs[1], op.getSink(),
                                op.getOuts(), op.getTargetAttr(), plan);
  for (Value buffer : outs)
    memref::DeallocOp::create(builder, buffer);
  op->replaceAllUsesWith(join);
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
        split(op, plan->splits);
    }
  }
};
} // namespace
