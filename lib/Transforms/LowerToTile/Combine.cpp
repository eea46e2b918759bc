//===- Combine.cpp - the kernel that joins partial results ----------------===//
//
// The parts of a row are joined a few at a time, as blocks of keys are: each has one logit, its
// lse, and one value, its o. A part that saw no key has lse -inf, hence weight 0, and so has one
// that is not there; the sink is a part without a value. With `aside` in the plan so many groups
// of threads have every aside-th part each, and what they have is joined at last; the order is
// always the same.
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

/// o = sum of exp(lse - m) * o and l = sum of exp(lse - m) over some parts; of one part m is its
/// lse, and l, which is 1 then, null.
struct State {
  Value o, m, l;
};

class CombineBuilder {
public:
  CombineBuilder(Kernel &kernel, CombineOp op) : k(kernel), b(kernel.b), op(op) {}

  void build() {
    auto oType = cast<ShapedType>(op.getOPartial().getType());
    M = *op.getPlanAttr().getInt("tile", 0), partsAtOnce = *op.getPlanAttr().getInt("tile", 1);
    aside = op.getPlanAttr().getInt("aside").value_or(1), partsAtOnce /= aside;
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
    const int64_t rows = aside * M; // of the fragments that parts are read into
    Value zero = k.f32(0), minusInf = k.f32(-INFINITY);
    SmallVector<Value> inits{k.splat(zero, rows, Dv), k.splat(minusInf, rows, 1),
                             k.splat(zero, rows, 1)};
    auto loop = scf::ForOp::create(b, k.index(0), splits, k.index(aside * partsAtOnce), inits);
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToEnd(loop.getBody());
      SmallVector<State> parts;
      for (int64_t i = 0; i < partsAtOnce; ++i)
        parts.push_back(load(
            bi, h, arith::AddIOp::create(b, loop.getInductionVar(), k.index(i * aside)), row0));
      ValueRange carried = loop.getRegionIterArgs();
      parts.insert(parts.begin(), State{carried[0], carried[1], carried[2]});
      State next = join(parts, rows);
      scf::YieldOp::create(b, ValueRange{next.o, next.m, next.l});
    }
    SmallVector<State> all{{loop.getResult(0), loop.getResult(1), loop.getResult(2)}};
    if (aside > 1) {
      SmallVector<Type> types;
      for (int64_t cols : {Dv, int64_t(1), int64_t(1)})
        types.append(aside, k.frag(M, cols, b.getF32Type()));
      auto apart = tile::SplitRowsOp::create(b, types, ValueRange(loop.getResults()));
      all.clear();
      for (int64_t i = 0; i < aside; ++i)
        all.push_back(
            {apart.getResult(i), apart.getResult(aside + i), apart.getResult(2 * aside + i)});
    }
    if (sink) {
      Value logit = memref::LoadOp::create(b, sink, h);
      all.push_back({k.splat(zero, M, Dv), k.splat(logit, M, 1), Value()});
    }
    store(join(all, M), bi, h, row0);
  }

  /// As many parts as the plan has aside, from `number` on.
  State load(Value bi, Value h, Value number, Value row0) {
    Value left;
    if (aside * partsAtOnce > 1)
      left = arith::SubIOp::create(b, splits, number);
    Value part = arith::AddIOp::create(b, arith::MulIOp::create(b, h, most), number);
    auto read = [&](Value view, int64_t cols) -> Value {
      return tile::LoadOp::create(b, k.frag(aside * M, cols, b.getF32Type()), view, bi, part, row0,
                                  left, aside);
    };
    Value lse = read(lpv, 1);
    return {read(opv, Dv), lse, Value()};
  }

  /// All of them together, in this order.
  State join(ArrayRef<State> states, int64_t rows) {
    if (states.size() == 1)
      return states.front();
    Value m = states.front().m;
    for (const State &state : states.drop_front())
      m = k.map({m, state.m}, rows, 1, [](ImplicitLocOpBuilder &b, ValueRange x) -> Value {
        return arith::MaxNumFOp::create(b, x[0], x[1]); // NaN comes in by its weight
      });
    auto scaled = [](ImplicitLocOpBuilder &b, ValueRange x) -> Value {
      return arith::MulFOp::create(b, x[0], x[1]);
    };
    auto sum = [](ImplicitLocOpBuilder &b, ValueRange x) -> Value {
      return arith::AddFOp::create(b, x[0], x[1]);
    };
    // What a part without a key holds does not count, not even NaN.
    auto weighted = [](ImplicitLocOpBuilder &b, ValueRange x) -> Value {
      auto zero = arith::ConstantOp::create(b, b.getF32FloatAttr(0));
      Value none = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, x[1], zero);
      return arith::SelectOp::create(b, none, zero, arith::MulFOp::create(b, x[0], x[1]));
    };
    Value l, o;
    for (const State &state : states) {
      Value w = weight(state.m, m, rows);
      Value ownL = state.l ? k.map({state.l, w}, rows, 1, scaled) : w;
      Value ownO = k.map({state.o, w}, rows, Dv, state.l ? scaled : weighted);
      l = l ? k.map({l, ownL}, rows, 1, sum) : ownL;
      o = o ? k.map({o, ownO}, rows, Dv, sum) : ownO;
    }
    return {o, m, l};
  }

  /// exp(lse - m); 0 for lse = -inf, also where m is -inf too, and 1 where both are inf, as a sink
  /// may be.
  Value weight(Value lse, Value m, int64_t rows) {
    return k.map({lse, m}, rows, 1, [](ImplicitLocOpBuilder &b, ValueRange x) -> Value {
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
  int64_t M = 0, Dv = 0;
  int64_t partsAtOnce = 1, aside = 1; ///< of a thread, and of threads apart
  Value sink, sequences, most, splits, opv, lpv, ov, lv;
};
} // namespace

void flash::buildCombine(Kernel &kernel, CombineOp op) { CombineBuilder(kernel, op).build(); }
