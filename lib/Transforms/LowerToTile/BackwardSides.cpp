//===- BackwardSides.cpp - before and after the kernel of gradients -------===//
#include "Gradients.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include <cmath>

using namespace mlir;
using namespace flash;

namespace {
class SideBuilder : Gradients {
public:
  SideBuilder(Kernel &kernel, AttentionBackwardOp op) : Gradients(kernel, op) {}
  void prepare();
  void finish();
  void sink();

private:
  /// Groups of R rows of q, over its heads, and what is done `first` for each tile; `q` is laid out
  /// as q is. A thread loads what it has of up to `most` groups before it waits for the first.
  ///
  /// The main kernel goes from the first head to the last, so these go back: the first is still in
  /// the L2 cache when it begins, the last when it has ended. Both together: causal gradients at
  /// lengths of 512 take 1.4 % less at head sizes 64 and 128, 0.7 % less at 256.
  void forQueryTiles(Value q, int64_t most, function_ref<void(ArrayRef<Value>, Value, Value)> body,
                     function_ref<void(Value, Value, Value)> first = {}) {
    Value cu = queries.cuSeqlens;
    Value batch = cu ? sub(k.dim(cu, 0), k.index(1)) : k.dim(q, 0), heads = headsOf(q);
    int64_t groups = M / R;
    while (groups > 1 && (groups > most || M / R % groups))
      --groups;
    k.forTiles(
        k.dim(q, cu ? 0 : 1), M, heads, batch,
        [&](Value m, Value h, Value bi) {
          if (!cu) {
            h = sub(sub(heads, k.index(1)), h);
            bi = sub(sub(batch, k.index(1)), bi);
          }
          Value row = mul(m, k.index(M));
          if (first)
            first(m, h, bi);
          auto rowsFrom = [&](Value row) {
            SmallVector<Value> rows{row};
            for (int64_t i = 1; i < groups; ++i)
              rows.push_back(add(row, k.index(i * R)));
            body(rows, h, bi);
          };
          if (groups * R == M)
            return rowsFrom(row);
          auto rows = scf::ForOp::create(b, k.index(0), k.index(M), k.index(groups * R));
          OpBuilder::InsertionGuard guard(b);
          b.setInsertionPointToStart(rows.getBody());
          rowsFrom(add(row, rows.getInductionVar()));
        },
        cu);
  }
  /// A logit as a power of two, which f32 may not hold: that of a sink, or an lse with one.
  Value asPower(Value logit) {
    return arith::MinimumFOp::create(b, mulf(logit, k.f32(log2e)),
                                     k.f32(std::numeric_limits<float>::max()));
  }
  Value load(Value view, int64_t rows, int64_t cols, Value bi, Value h, Value row) {
    Type type = cast<tile::ViewType>(view.getType()).getElementType();
    return tile::LoadOp::create(b, k.frag(rows, cols, type), view, bi, h, row);
  }
};

void SideBuilder::prepare() {
  Value o = argument("o", op.getO()), dO = argument("do", op.getDO()),
        lse = statistic("lse", op.getLse());
  Value lse2 = statistic("lse_log2", op.getLse()), delta = statistic("delta", op.getLse()),
        sum = sumOfDq();
  askForQueries();
  askForTurns();
  Value ov = k.view(o, headSizeV, 1, false, queries),
        dov = k.view(dO, headSizeV, 1, false, queries);
  Value lv = k.view(lse, 1, 1, false, queries), l2v = padded(lse2, 1), ev = padded(delta, 1),
        sumv = padded(sum, headSize);
  auto prepareRows = [&](ArrayRef<Value> rows, Value h, Value bi) {
    struct Loaded {
      Value o, dO, lse;
    };
    auto loaded = llvm::map_to_vector(rows, [&](Value row) -> Loaded {
      return {load(ov, R, Dv, bi, h, row), load(dov, R, Dv, bi, h, row),
              load(lv, R, 1, bi, h, row)};
    });
    for (auto [row, own] : llvm::zip_equal(rows, loaded)) {
      Value products =
          k.map({own.o, own.dO}, R, Dv, [&](ImplicitLocOpBuilder &b, ValueRange x) -> Value {
            auto wide = [&](Value v) -> Value {
              return element.isF32() ? v : arith::ExtFOp::create(b, b.getF32Type(), v).getResult();
            };
            return mulf(wide(x[0]), wide(x[1]));
          });
      Value d = tile::SumOp::create(b, k.frag(R, 1, b.getF32Type()), products);
      tile::StoreOp::create(b, d, ev, bi, h, row);
      // A row without a key has p = exp2(masked - 0) = 0: its lse is -inf, or a sink, which may lie
      // as low as what is masked.
      Value l = k.map(own.lse, R, 1, [&](ImplicitLocOpBuilder &b, ValueRange x) -> Value {
        const float belowScores = -0x1p28f;
        Value none = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, x[0], k.f32(belowScores));
        return arith::SelectOp::create(b, none, k.f32(0), asPower(x[0]));
      });
      tile::StoreOp::create(b, l, l2v, bi, h, row);
      tile::StoreOp::create(b, k.splat(zero, R, D), sumv, bi, h, row);
    }
  };
  // Four measured up to 1 us slower, eight 20 to 120 us.
  forQueryTiles(o, /*most=*/2, prepareRows, [&](Value m, Value h, Value bi) {
    if (!turns)
      return;
    const int64_t consumers =
        plan.getInt("consumers").value_or(1) * static_cast<int64_t>(piecesOfDq().size());
    Value first = mul(placeOf(o, bi, h, m), k.index(consumers));
    for (int64_t w = 0; w < consumers; ++w)
      memref::StoreOp::create(b, arith::ConstantOp::create(b, b.getI32IntegerAttr(0)), turns,
                              add(first, k.index(w)));
  });
  k.finish();
}

void SideBuilder::finish() {
  Value sum = sumOfDq(), dq = k.argument("dq", op.getGradientTypes()[0]);
  askForQueries();
  const Scores scores(k, op);
  Value sumv = inCells(sum), dqv = k.view(dq, headSize, 1, false, queries);
  // Four measured 1 to 3 us slower, two 1 to 6.
  forQueryTiles(dq, /*most=*/8, [&](ArrayRef<Value> rows, Value h, Value bi) {
    auto sums = llvm::map_to_vector(rows, [&](Value row) { return load(sumv, R, D, bi, h, row); });
    for (auto [row, own] : llvm::zip_equal(rows, sums)) {
      Value scaled = k.map(own, R, D, [&](ImplicitLocOpBuilder &b, ValueRange x) -> Value {
        return mulf(x[0], scores.scale);
      });
      tile::StoreOp::create(b, k.cast(scaled, element), dqv, bi, h, row);
    }
  });
  k.finish();
}

void SideBuilder::sink() {
  Value sink = statistic("sink", op.getSink()), lse2 = statistic("lse_log2", op.getLse());
  Value delta = statistic("delta", op.getLse());
  Value dsink = k.argument("dsink", op.getGradientTypes()[3], /*keepLast=*/false);
  askForQueries();
  Value lv = padded(lse2, 1), ev = padded(delta, 1), dv = k.view(dsink, 1, 1, false);
  Value c0 = k.index(0), c1 = k.index(1);
  Value cu = queries.cuSeqlens, batch = cu ? sub(k.dim(cu, 0), c1) : k.dim(lse2, 0);
  k.forTiles(c1, 1, k.dim(sink, 0), c1, [&](Value, Value h, Value) {
    Value logit = asPower(memref::LoadOp::create(b, sink, h));
    auto sequences = scf::ForOp::create(b, c0, batch, c1, k.splat(zero, M, 1));
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToEnd(sequences.getBody());
      Value bi = sequences.getInductionVar();
      Value rows = tile::LengthOp::create(b, b.getIndexType(), lv, bi);
      auto tiles = scf::ForOp::create(b, c0, rows, k.index(M), sequences.getRegionIterArgs());
      {
        OpBuilder::InsertionGuard guard(b);
        b.setInsertionPointToEnd(tiles.getBody());
        Value row = tiles.getInductionVar();
        Value sums = k.map(
            {tiles.getRegionIterArg(0), load(lv, M, 1, bi, h, row), load(ev, M, 1, bi, h, row)}, M,
            1, [&](ImplicitLocOpBuilder &b, ValueRange x) -> Value {
              // Only past a sequence, where delta is 0, is the sink above the lse.
              Value zero = arith::ConstantOp::create(b, b.getF32FloatAttr(0));
              Value power =
                  arith::MinimumFOp::create(b, arith::SubFOp::create(b, logit, x[1]), zero);
              Value p = math::Exp2Op::create(b, power);
              return arith::SubFOp::create(b, x[0], mulf(p, x[2]));
            });
        scf::YieldOp::create(b, sums);
      }
      scf::YieldOp::create(b, tiles.getResults());
    }
    Value all = tile::SumOp::create(b, k.frag(1, 1, b.getF32Type()), sequences.getResult(0));
    tile::StoreOp::create(b, all, dv, c0, c0, h);
  });
  k.finish();
}
} // namespace

void flash::buildBackwardPrepare(Kernel &kernel, AttentionBackwardOp op) {
  SideBuilder(kernel, op).prepare();
}
void flash::buildBackwardFinish(Kernel &kernel, AttentionBackwardOp op) {
  SideBuilder(kernel, op).finish();
}
void flash::buildBackwardSink(Kernel &kernel, AttentionBackwardOp op) {
  SideBuilder(kernel, op).sink();
}
