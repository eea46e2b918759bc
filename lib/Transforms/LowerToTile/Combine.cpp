//===- Combine.cpp - the kernel that joins partial results ----------------===//
//
// The parts of a row are joined a few at a time, as blocks of keys are: each has one logit, its
// lse, and one value, its o. A part that saw no key has lse -inf, hence weight 0; the sink is a
// part without a value. Where parts are too few for the last step, it reads the last one again,
// with weight 0.
//
//===----------------------------------------------------------------------===//
#include "Kernel.h"
#include "flash/Schedule/WorkOrder.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include <cmath>

using namespace mlir;
using namespace flash;

namespace {
constexpr float log2e = 1.44269504088896340736f;

struct State {
  Value o, m, l;
};
struct Part {
  Value lse, o;
};

class CombineBuilder {
public:
  CombineBuilder(Kernel &kernel, CombineOp op) : k(kernel), b(kernel.b), op(op) {}

  void build() {
    auto oType = cast<ShapedType>(op.getOPartial().getType());
    M = *op.getPlanAttr().getInt("tile", 0), partsAtOnce = *op.getPlanAttr().getInt("tile", 1);
    Dv = oType.getShape().back();
    Value oPartial = k.argument("o_partial", oType);
    Value lsePartial = k.argument("lse_partial", op.getLsePartial().getType(), /*keepLast=*/false);
    Value o = k.argument("o", op.getOutputType()), lse;
    if (ShapedType type = op.getLseType())
      lse = k.argument("lse", type, /*keepLast=*/false);
    if (op.getSink())
      sink = k.argument("sink", op.getSink().getType(), /*keepLast=*/false);
    const Tables rows = k.queryTables(op);
    Value longest = k.table("max_seqlen_q", op.getMaxSeqlenQ());
    sequences = k.table("schedule", op.getSchedule());
    opv = k.view(oPartial, Dv, 1, true, rows);
    lpv = k.view(lsePartial, 1, 1, true, rows);
    ov = k.view(o, Dv, 1, false, rows);
    if (lse)
      lv = k.view(lse, 1, 1, false, rows);
    most = splits = k.dim(oPartial, 0);
    Value batch = longest ? arith::SubIOp::create(b, k.dim(rows.cuSeqlens, 0), k.index(1))
                          : Value(k.dim(o, 0));
    k.forTiles(longest ? longest : k.dim(o, 1), M, k.dim(o, longest ? 1 : 2), batch,
               [&](Value m, Value h, Value bi) { buildTile(m, h, bi); });
    k.finish();
  }

private:
  void buildTile(Value m, Value h, Value bi) {
    Value row0 = arith::MulIOp::create(b, m, k.index(M));
    // No part where the sequence has no row: there is none to read then.
    if (sequences || op.getCuSeqlensQ() || op.getSequsedQ()) {
      Value own = most;
      if (sequences)
        own = arith::IndexCastOp::create(
            b, b.getIndexType(),
            memref::LoadOp::create(b, sequences, ValueRange{k.index(schedule::splitsRow), bi}));
      Value rows = tile::LengthOp::create(b, b.getIndexType(), ov, bi);
      Value isRow = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, row0, rows);
      splits = arith::SelectOp::create(b, isRow, own, k.index(0));
    }
    Value zero = k.f32(0), minusInf = k.f32(-INFINITY);
    SmallVector<Value> inits{k.splat(zero, M, Dv), k.splat(minusInf, M, 1), k.splat(zero, M, 1)};
    auto loop = scf::ForOp::create(b, k.index(0), splits, k.index(partsAtOnce), inits);
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToEnd(loop.getBody());
      SmallVector<Part> parts;
      for (int64_t i = 0; i < partsAtOnce; ++i)
        parts.push_back(
            load(bi, h, arith::AddIOp::create(b, loop.getInductionVar(), k.index(i)), row0));
      ValueRange carried = loop.getRegionIterArgs();
      State next = join({carried[0], carried[1], carried[2]}, parts);
      scf::YieldOp::create(b, ValueRange{next.o, next.m, next.l});
    }
    State all{loop.getResult(0), loop.getResult(1), loop.getResult(2)};
    if (sink) {
      Value logit = memref::LoadOp::create(b, sink, h);
      all = join(all, Part{k.splat(logit, M, 1), k.splat(zero, M, Dv)});
    }
    store(all, bi, h, row0);
  }

  Part load(Value bi, Value h, Value number, Value row0) {
    Value at = number, none;
    if (partsAtOnce > 1) {
      at = arith::MinUIOp::create(b, number, arith::SubIOp::create(b, splits, k.index(1)));
      Value isPart = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, number, splits);
      none = arith::SelectOp::create(b, isPart, k.f32(0), k.f32(-INFINITY));
    }
    Value part = arith::AddIOp::create(b, arith::MulIOp::create(b, h, most), at);
    Value lse = tile::LoadOp::create(b, k.frag(M, 1, b.getF32Type()), lpv, bi, part, row0);
    Value o = tile::LoadOp::create(b, k.frag(M, Dv, b.getF32Type()), opv, bi, part, row0);
    if (none)
      lse = k.map(lse, M, 1, [&](ImplicitLocOpBuilder &b, ValueRange x) -> Value {
        return arith::AddFOp::create(b, x[0], none);
      });
    return {lse, o};
  }

  /// `state` and more parts.
  State join(State state, ArrayRef<Part> parts) {
    Value m = state.m;
    for (const Part &part : parts)
      m = k.map({m, part.lse}, M, 1, [](ImplicitLocOpBuilder &b, ValueRange x) -> Value {
        return arith::MaximumFOp::create(b, x[0], x[1]);
      });
    Value alpha = weight(state.m, m), l = state.l, o = state.o;
    auto scaled = [](ImplicitLocOpBuilder &b, ValueRange x) -> Value {
      return arith::MulFOp::create(b, x[0], x[1]);
    };
    auto sum = [](ImplicitLocOpBuilder &b, ValueRange x) -> Value {
      return arith::AddFOp::create(b, x[0], x[1]);
    };
    // x0 + x1 * x2; what a part without a key holds does not count, not even NaN.
    auto mix = [](ImplicitLocOpBuilder &b, ValueRange x) -> Value {
      auto zero = arith::ConstantOp::create(b, b.getF32FloatAttr(0));
      Value none = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, x[2], zero);
      Value part = arith::SelectOp::create(b, none, zero, arith::MulFOp::create(b, x[1], x[2]));
      return arith::AddFOp::create(b, x[0], part);
    };
    l = k.map({l, alpha}, M, 1, scaled), o = k.map({o, alpha}, M, Dv, scaled);
    for (const Part &part : parts) {
      Value w = weight(part.lse, m);
      l = k.map({l, w}, M, 1, sum), o = k.map({o, part.o, w}, M, Dv, mix);
    }
    return {o, m, l};
  }

  /// exp(lse - m); 0 for lse = -inf, also where m is -inf too, and 1 where both are inf, as a sink
  /// may be.
  Value weight(Value lse, Value m) {
    return k.map({lse, m}, M, 1, [](ImplicitLocOpBuilder &b, ValueRange x) -> Value {
      auto constant = [&](float value) {
        return arith::ConstantOp::create(b, b.getF32FloatAttr(value));
      };
      Value none = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, x[0], constant(-INFINITY));
      Value power = math::Exp2Op::create(
          b, arith::MulFOp::create(b, arith::SubFOp::create(b, x[0], x[1]), constant(log2e)));
      Value most = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, x[0], x[1]);
      power = arith::SelectOp::create(b, most, constant(1), power);
      return arith::SelectOp::create(b, none, constant(0), power);
    });
  }

  void store(State all, Value bi, Value h, Value row0) {
    auto zero = [](ImplicitLocOpBuilder &b) {
      return arith::ConstantOp::create(b, b.getF32FloatAttr(0));
    };
    Value o = k.map({all.o, all.l}, M, Dv, [&](ImplicitLocOpBuilder &b, ValueRange x) -> Value {
      Value empty = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, x[1], zero(b));
      return arith::SelectOp::create(b, empty, zero(b), arith::DivFOp::create(b, x[0], x[1]));
    });
    Type element = op.getOutputType().getElementType();
    if (!element.isF32())
      o = tile::CastOp::create(b, k.frag(M, Dv, element), o);
    tile::StoreOp::create(b, o, ov, bi, h, row0);
    if (!lv)
      return;
    Value lse = k.map({all.m, all.l}, M, 1, [&](ImplicitLocOpBuilder &b, ValueRange x) -> Value {
      return arith::AddFOp::create(b, x[0], math::LogOp::create(b, x[1])); // -inf where m is: log 0
    });
    tile::StoreOp::create(b, lse, lv, bi, h, row0);
  }

  Kernel &k;
  ImplicitLocOpBuilder &b;
  CombineOp op;
  int64_t M = 0, Dv = 0, partsAtOnce = 1;
  Value sink, sequences, most, splits, opv, lpv, ov, lv;
};
} // namespace

void flash::buildCombine(Kernel &kernel, CombineOp op) { CombineBuilder(kernel, op).build(); }
