//===- Gradients.h - what the kernels of gradients share --------*- C++ -*-===//
//
//   prepare   for each query tile             delta = rowsum(dO * O); lse in log2; dQ's sum and
//   turns cleared main      for each key tile of a KV head  K, V tiles
//               for each query head that reads it
//                 for each query block, from the last
//                   S = K Q^T; mask; P = exp2(S - lse); dV += P dO
//                   dS = P (V dO^T - delta); dK += dS Q; dQ's sum += dS^T K
//             dK, dV
//             (dV in a kernel of its own before it, where plans say `own_dv`)
//   finish    for each query tile             dQ from its sum
//   sink      for each head                   dsink = -sum exp2(sink - lse) delta
//
// Scores are transposed, rows are keys: so P and dS are left operands as they come, and the
// statistics of queries are rows of one. What prepare writes lies in whole tiles, so that rows past
// a sequence are there, and 0.
//
//===----------------------------------------------------------------------===//
#ifndef FLASH_TRANSFORMS_LOWERTOTILE_GRADIENTS_H
#define FLASH_TRANSFORMS_LOWERTOTILE_GRADIENTS_H

#include "Kernel.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

namespace flash {

/// The sizes of an op's tiles, and the arguments that several of its kernels ask for.
class Gradients {
protected:
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;

  Gradients(Kernel &kernel, AttentionBackwardOp op)
      : k(kernel), b(kernel.b), op(op), plan(op.getPlanAttr()) {
    auto sizeOf = [](Value x) {
      return mlir::cast<mlir::ShapedType>(x.getType()).getShape().back();
    };
    headSize = sizeOf(op.getQ()), headSizeV = sizeOf(op.getV());
    target = op.getTarget() ? op.getTarget()->target() : schedule::Target::cpu;
    const schedule::HeadTile head = schedule::headTileOf(target, headSize, headSizeV);
    M = *plan.getInt("tile", 0), R = M, N = *plan.getInt("tile", 1), D = head.d, Dv = head.dv;
    if (target != schedule::Target::cpu)
      R = schedule::sideRows(M, std::max(D, Dv));
    element = mlir::cast<mlir::ShapedType>(op.getQ().getType()).getElementType();
    zero = k.f32(0);
  }

  Value add(Value x, Value y) { return mlir::arith::AddIOp::create(b, x, y); }
  Value sub(Value x, Value y) { return mlir::arith::SubIOp::create(b, x, y); }
  Value mul(Value x, Value y) { return mlir::arith::MulIOp::create(b, x, y); }
  Value mulf(Value x, Value y) { return mlir::arith::MulFOp::create(b, x, y); }

  Value argument(llvm::StringRef name, Value operand) {
    return k.argument(name, operand.getType());
  }
  Value statistic(llvm::StringRef name, Value like) {
    return k.argument(name, like.getType(), /*keepLast=*/false);
  }
  /// The f32 sum of dQ, as wide as the heads are: tiles may be wider.
  Value sumOfDq() {
    llvm::SmallVector<int64_t> sizes(mlir::cast<mlir::ShapedType>(op.getQ().getType()).getShape());
    sizes.back() = headSize;
    return k.argument("dq_sum", mlir::MemRefType::get(sizes, b.getF32Type()));
  }
  void askForQueries() { queries = k.queryTables(op); }
  /// Each has turns of its own.
  std::vector<int64_t> piecesOfDq() const {
    return schedule::piecesOfDq(D, plan.getInt("warps").value_or(0), hasOwnDv(op));
  }
  void askForTurns() {
    if (plan.getFlag("ordered").value_or(false))
      turns = k.table("turns", mlir::MemRefType::get({mlir::ShapedType::kDynamic}, b.getI32Type()));
  }
  Value padded(Value memref, int64_t cols, bool cells = false) {
    return k.view(memref, cols, 1, false, queries, M, cells);
  }
  /// The sum of dQ as blocks add to it; of zeros any order is right. Four warps of sm_86 spill for
  /// it unless in turn.
  Value inCells(Value sum) {
    return padded(sum, headSize,
                  target != schedule::Target::cpu &&
                      (N > 32 || D <= 128 || plan.getFlag("ordered").value_or(false)));
  }
  /// The turns of query tile `m` of a head stand behind those of the tiles before it; `q` is laid
  /// out as q is.
  Value placeOf(Value q, Value bi, Value h, Value m) {
    Value cu = queries.cuSeqlens;
    Value before = cu ? add(mlir::arith::DivUIOp::create(b, entry(cu, bi), k.index(M)), bi)
                      : mul(bi, mlir::arith::CeilDivUIOp::create(b, k.dim(q, 1), k.index(M)));
    return add(mul(add(before, m), headsOf(q)), h);
  }
  Value entry(Value table, Value i) {
    Value element = mlir::memref::LoadOp::create(b, table, i);
    return mlir::arith::IndexCastOp::create(b, b.getIndexType(), element);
  }
  Value headsOf(Value x) {
    return k.dim(x, mlir::cast<mlir::MemRefType>(x.getType()).getRank() - 2);
  }

  Kernel &k;
  mlir::ImplicitLocOpBuilder &b;
  AttentionBackwardOp op;
  PlanAttr plan;
  schedule::Target target;
  mlir::Type element;
  int64_t M = 0, N = 0, R = 0, D = 0, Dv = 0, headSize = 0, headSizeV = 0;
  Tables queries;
  Value zero, turns;
};

} // namespace flash

#endif // FLASH_TRANSFORMS_LOWERTOTILE_GRADIENTS_H
