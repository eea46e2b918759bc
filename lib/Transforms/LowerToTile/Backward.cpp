//===- Backward.cpp - the plainest right kernels of gradients -------------===//
//
//   prepare   for each query tile             delta = rowsum(dO * O); lse in log2; dQ's sum and turns cleared
//   main      for each key tile of a KV head  K, V tiles
//               for each query head that reads it
//                 for each query block, from the last
//                   S = K Q^T; mask; P = exp2(S - lse); dV += P dO
//                   dS = P (V dO^T - delta); dK += dS Q; dQ's sum += dS^T K
//             dK, dV
//   finish    for each query tile             dQ from its sum
//   sink      for each head                   dsink = -sum exp2(sink - lse) delta
//
// Scores are transposed, rows are keys: so P and dS are left operands as they come, and the statistics of
// queries are rows of one. What prepare writes lies in whole tiles, so that rows past a sequence are there, and 0.
//
//===----------------------------------------------------------------------===//
#include "Kernel.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include <cmath>

using namespace mlir;
using namespace flash;

namespace {
/// What the kernels of one op share: its sizes, and what they write for each other.
class Gradients {
public:
  Gradients(Kernel &kernel, AttentionBackwardOp op) : k(kernel), b(kernel.b), op(op), plan(op.getPlanAttr()) {
    auto sizeOf = [](Value x) { return cast<ShapedType>(x.getType()).getShape().back(); };
    headSize = sizeOf(op.getQ()), headSizeV = sizeOf(op.getV());
    const auto target = op.getTarget() ? op.getTarget()->target() : schedule::Target::cpu;
    const schedule::HeadTile head = schedule::headTileOf(target, headSize, headSizeV);
    M = *plan.getInt("tile", 0), N = *plan.getInt("tile", 1), D = head.d, Dv = head.dv;
    element = cast<ShapedType>(op.getQ().getType()).getElementType();
    zero = k.f32(0);
  }

  void prepare();
  void main();
  void finish();
  void sink();

private:
  using Body = function_ref<Value(ImplicitLocOpBuilder &, ValueRange)>;

  Value add(Value x, Value y) { return arith::AddIOp::create(b, x, y); }
  Value sub(Value x, Value y) { return arith::SubIOp::create(b, x, y); }
  Value mul(Value x, Value y) { return arith::MulIOp::create(b, x, y); }

  Value argument(StringRef name, Value operand) { return k.argument(name, operand.getType()); }
  Value statistic(StringRef name, Value like) { return k.argument(name, like.getType(), /*keepLast=*/false); }
  /// The f32 sum of dQ, as wide as tiles are.
  Value sumOfDq() {
    SmallVector<int64_t> sizes(cast<ShapedType>(op.getQ().getType()).getShape());
    sizes.back() = D;
    return k.argument("dq_sum", MemRefType::get(sizes, b.getF32Type()));
  }
  void askForQueries() {
    queries = {.cuSeqlens = k.table("cu_seqlens_q", op.getCuSeqlensQ()),
               .seqused = k.table("seqused_q", op.getSequsedQ())};
  }
  void askForTurns() {
    if (plan.getFlag("ordered").value_or(false))
      turns = k.table("turns", MemRefType::get({ShapedType::kDynamic}, b.getI32Type()));
  }
  Value padded(Value memref, int64_t cols) { return k.view(memref, cols, 1, false, queries, M); }
  /// The turns of query tile `m` of a head stand behind those of the tiles before it.
  Value placeOf(Value q, Value bi, Value h, Value m) {
    Value before = queries.cuSeqlens
                       ? add(arith::DivUIOp::create(b, entry(queries.cuSeqlens, bi), k.index(M)), bi)
                       : mul(bi, arith::CeilDivUIOp::create(b, k.dim(q, 1), k.index(M)));
    return add(mul(add(before, m), headsOf(q)), h);
  }
  Value entry(Value table, Value i) {
    return arith::IndexCastOp::create(b, b.getIndexType(), memref::LoadOp::create(b, table, i));
  }
  Value headsOf(Value x) { return k.dim(x, cast<MemRefType>(x.getType()).getRank() - 2); }
  /// Tiles of the rows of q, over its heads.
  void forQueryTiles(Value q, function_ref<void(Value, Value, Value)> body) {
    Value cu = queries.cuSeqlens;
    Value batch = cu ? sub(k.dim(cu, 0), k.index(1)) : k.dim(q, 0);
    k.forTiles(k.dim(q, cu ? 0 : 1), M, headsOf(q), batch, body, cu);
  }
  Value load(Value view, int64_t rows, int64_t cols, Value bi, Value h, Value row) {
    Type type = cast<tile::ViewType>(view.getType()).getElementType();
    return tile::LoadOp::create(b, k.frag(rows, cols, type), view, bi, h, row);
  }

  void buildTile(ValueRange at);
  SmallVector<Value> buildBlock(Value kt, Value vt, Value bi, Value h, Value n, Value j, Value it, ValueRange carried);
  Value turnOf(Value row, Value n);
  Value product(Value a, bool transA, Value bTile, bool transB, int64_t rows, int64_t cols, Value acc = {}) {
    auto flight = tile::FlightType::get(b.getContext(), {rows, cols}, b.getF32Type());
    return tile::MmaOp::create(b, flight, a, bTile, acc, transB, transA);
  }
  Value await(Value flight) {
    auto type = cast<tile::FlightType>(flight.getType());
    return tile::MmaWaitOp::create(b, k.frag(type.getShape()[0], type.getShape()[1], b.getF32Type()), flight);
  }

  Kernel &k;
  ImplicitLocOpBuilder &b;
  AttentionBackwardOp op;
  PlanAttr plan;
  Type element;
  int64_t M = 0, N = 0, D = 0, Dv = 0, headSize = 0, headSizeV = 0;
  bool raggedK = false, descends = false; ///< sequences differ in their keys; tiles go from the last to the first
  Tables queries, keys;
  std::optional<Scores> scores;
  Value zero, turns, headsPerKv, q, keyTiles;
  Value qv, kv, vv, dov, lv, ev, sumv, dkv, dvv;
  Value qr, kr, vr, dor, lr, er, dsr;
  Value key0, lenQ, lenK;
};

void Gradients::prepare() {
  Value o = argument("o", op.getO()), dO = argument("do", op.getDO()), lse = statistic("lse", op.getLse());
  Value lse2 = statistic("lse_log2", op.getLse()), delta = statistic("delta", op.getLse()), sum = sumOfDq();
  askForQueries();
  askForTurns();
  Value ov = k.view(o, headSizeV, 1, false, queries), dov = k.view(dO, headSizeV, 1, false, queries);
  Value lv = k.view(lse, 1, 1, false, queries), l2v = padded(lse2, 1), ev = padded(delta, 1), sumv = padded(sum, D);
  forQueryTiles(o, [&](Value m, Value h, Value bi) {
    Value row = mul(m, k.index(M));
    Value rows = k.map({load(ov, M, Dv, bi, h, row), load(dov, M, Dv, bi, h, row)}, M, Dv,
                       [&](ImplicitLocOpBuilder &b, ValueRange x) -> Value {
                         auto wide = [&](Value v) -> Value {
                           return element.isF32() ? v : arith::ExtFOp::create(b, b.getF32Type(), v).getResult();
                         };
                         return arith::MulFOp::create(b, wide(x[0]), wide(x[1]));
                       });
    Value d = tile::SumOp::create(b, k.frag(M, 1, b.getF32Type()), rows);
    tile::StoreOp::create(b, d, ev, bi, h, row);
    // A row without a key has p = exp2(masked - 0) = 0.
    Value l = k.map(load(lv, M, 1, bi, h, row), M, 1, [](ImplicitLocOpBuilder &b, ValueRange x) -> Value {
      auto constant = [&](float value) { return arith::ConstantOp::create(b, b.getF32FloatAttr(value)); };
      Value none = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, x[0], constant(-INFINITY));
      return arith::SelectOp::create(b, none, constant(0), arith::MulFOp::create(b, x[0], constant(log2e)));
    });
    tile::StoreOp::create(b, l, l2v, bi, h, row);
    tile::StoreOp::create(b, k.splat(zero, M, D), sumv, bi, h, row);
    if (turns)
      memref::StoreOp::create(b, arith::ConstantOp::create(b, b.getI32IntegerAttr(0)), turns, placeOf(o, bi, h, m));
  });
  k.finish();
}

void Gradients::main() {
  q = argument("q", op.getQ());
  Value kk = argument("k", op.getK()), v = argument("v", op.getV()), dO = argument("do", op.getDO());
  Value lse2 = statistic("lse_log2", op.getLse()), delta = statistic("delta", op.getLse()), sum = sumOfDq();
  SmallVector<ShapedType> types = op.getGradientTypes();
  Value dk = k.argument("dk", types[1]), dv = k.argument("dv", types[2]);
  askForQueries();
  keys = {.cuSeqlens = k.table("cu_seqlens_k", op.getCuSeqlensK()),
          .seqused = k.table("seqused_k", op.getSequsedK())};
  raggedK = keys.cuSeqlens || keys.seqused;
  askForTurns();
  scores.emplace(k, op);
  StringRef order = plan.getText("order").value_or("single");
  descends = schedule::descends(*schedule::parseOrder(order));
  Value section = order == "single" ? Value() : k.argument("section", b.getIndexType());
  headsPerKv = k.ratioOf(q, kk);
  Value batch = keys.cuSeqlens ? sub(k.dim(keys.cuSeqlens, 0), k.index(1)) : k.dim(kk, 0);
  Value packed, tiles;
  if (order == "varlen_dynamic") {
    packed = keys.cuSeqlens;
    tiles = k.packedTiles(k.dim(kk, 0), N, batch);
  } else {
    tiles = arith::CeilDivUIOp::create(b, k.dim(kk, keys.cuSeqlens ? 0 : 1), k.index(N));
  }

  qv = k.view(q, headSize, 1, false, queries), dov = k.view(dO, headSizeV, 1, false, queries);
  lv = padded(lse2, 1), ev = padded(delta, 1), sumv = padded(sum, D);
  kv = k.view(kk, headSize, 1, false, keys), vv = k.view(v, headSizeV, 1, false, keys);
  dkv = k.view(dk, headSize, 1, false, keys), dvv = k.view(dv, headSizeV, 1, false, keys);
  kr = k.ring("k", N, D, element), vr = k.ring("v", N, Dv, element);
  qr = k.ring("q", M, D, element), dor = k.ring("do", M, Dv, element);
  lr = k.ring("lse", 1, M, b.getF32Type()), er = k.ring("delta", 1, M, b.getF32Type());
  dsr = k.ring("ds", N, M, element);
  SmallVector<Value> inits{k.index(0), k.index(0)}; // tiles and query blocks done so far
  SmallVector<Type> carried(2, b.getIndexType());
  auto work = tile::ForWorkOp::create(b, carried, b.getStringAttr(order), tiles, headsOf(kk), batch, k.index(1), section,
                                      packed, /*ring=*/Value(), inits, /*takes=*/UnitAttr(),
                                      packed ? b.getI64IntegerAttr(N) : IntegerAttr(), b.getI64IntegerAttr(1));
  Block *body = b.createBlock(&work.getBody());
  body->addArguments(SmallVector<Type>(6, b.getIndexType()), SmallVector<Location>(6, b.getLoc()));
  buildTile(body->getArguments());
  k.finish();
}

void Gradients::buildTile(ValueRange at) {
  Value n = at[0], h = at[1], bi = at[2], t = at[4], done = at[5];
  key0 = mul(n, k.index(N));
  lenQ = tile::LengthOp::create(b, b.getIndexType(), qv, bi);
  lenK = tile::LengthOp::create(b, b.getIndexType(), kv, bi);
  if (raggedK) { // a tile may lie past the end of its sequence: no query needs it
    Value inside = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, key0, lenK);
    lenQ = arith::SelectOp::create(b, inside, lenQ, k.index(0));
  }
  Value end = arith::CeilDivUIOp::create(b, lenQ, k.index(M));
  SmallVector<Value> sums{k.splat(zero, N, D), k.splat(zero, N, Dv), done};
  tile::FillOp::create(b, kv, bi, h, key0, kr, t);
  tile::FillOp::create(b, vv, bi, h, key0, vr, t);
  Value kt = k.wait(kr, t), vt = k.wait(vr, t);
  auto heads = scf::ForOp::create(b, k.index(0), headsPerKv, k.index(1), sums);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToEnd(heads.getBody());
    Value head = add(mul(h, headsPerKv), heads.getInductionVar());
    ValueRange before = heads.getRegionIterArgs();
    auto loop = scf::ForOp::create(b, k.index(0), end, k.index(1), before.take_front(2));
    loop->setAttr("flash_tile.run", b.getStringAttr("all"));
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToEnd(loop.getBody());
      Value i = loop.getInductionVar(), j = sub(sub(end, k.index(1)), i);
      scf::YieldOp::create(b, buildBlock(kt, vt, bi, head, n, j, add(before[2], i), loop.getRegionIterArgs()));
    }
    scf::YieldOp::create(b, ValueRange{loop.getResult(0), loop.getResult(1), add(before[2], end)});
  }
  tile::ReleaseOp::create(b, kr, t);
  tile::ReleaseOp::create(b, vr, t);
  Value dk = k.map(heads.getResult(0), N, D, [&](ImplicitLocOpBuilder &b, ValueRange x) -> Value {
    return arith::MulFOp::create(b, x[0], scores->scale);
  });
  tile::StoreOp::create(b, k.cast(dk, element), dkv, bi, h, key0);
  tile::StoreOp::create(b, k.cast(heads.getResult(1), element), dvv, bi, h, key0);
  tile::YieldOp::create(b, ValueRange{add(t, k.index(1)), heads.getResult(2)});
}

SmallVector<Value> Gradients::buildBlock(Value kt, Value vt, Value bi, Value h, Value n, Value j, Value it,
                                         ValueRange carried) {
  Value row = mul(j, k.index(M));
  auto fill = [&](Value view, Value ring) { tile::FillOp::create(b, view, bi, h, row, ring, it); };
  fill(qv, qr), fill(lv, lr), fill(dov, dor), fill(ev, er);
  auto read = [&](Value ring) -> Value {
    return tile::ReadOp::create(b, k.frag(1, M, b.getF32Type()), k.wait(ring, it));
  };
  Value qt = k.wait(qr, it), sf = product(kt, false, qt, true, N, M);
  Value dot = k.wait(dor, it), dpf = product(vt, false, dot, true, N, M);
  Value lse2 = read(lr), s = scores->capped(await(sf), N, M);
  Value seen = tile::MaskOp::create(b, s.getType(), s, key0, row, lenQ, lenK, op.getMask(), /*group=*/1, /*trans=*/true);
  Value toLog2 = arith::MulFOp::create(b, scores->softmaxScale, k.f32(log2e));
  Value p = k.map({seen, lse2}, N, M, [&](ImplicitLocOpBuilder &b, ValueRange x) -> Value {
    return math::Exp2Op::create(b, arith::SubFOp::create(b, arith::MulFOp::create(b, x[0], toLog2), x[1]));
  });
  tile::ReleaseOp::create(b, lr, it);
  Value dvf = product(k.cast(p, element), false, dot, false, N, Dv, carried[1]);
  Value delta = read(er), dp = await(dpf);
  SmallVector<Value> inputs{p, dp, delta};
  if (scores->softcap) // c tanh(x) has the slope 1 - tanh(x)^2
    inputs.push_back(s);
  Value ds = k.map(inputs, N, M, [&](ImplicitLocOpBuilder &b, ValueRange x) -> Value {
    Value product = arith::MulFOp::create(b, x[0], arith::SubFOp::create(b, x[1], x[2]));
    if (!scores->softcap)
      return product;
    Value one = arith::ConstantOp::create(b, b.getF32FloatAttr(1));
    Value t = arith::DivFOp::create(b, x[3], scores->softcap);
    Value slope = arith::SubFOp::create(b, one, arith::MulFOp::create(b, t, t));
    return arith::MulFOp::create(b, product, slope);
  });
  tile::ReleaseOp::create(b, er, it);
  ds = k.cast(ds, element);
  tile::WriteOp::create(b, ds, dsr, it, Value());
  Value dkf = product(ds, false, qt, false, N, D, carried[0]);
  Value dqf = product(k.wait(dsr, it), true, kt, false, M, D);
  Value dv = await(dvf);
  tile::ReleaseOp::create(b, dor, it);
  Value dk = await(dkf);
  tile::ReleaseOp::create(b, qr, it);
  Value dq = await(dqf);
  tile::ReleaseOp::create(b, dsr, it);
  Value place = turns ? placeOf(q, bi, h, j) : Value(), turn = turns ? turnOf(row, n) : Value();
  tile::StoreOp::create(b, dq, sumv, bi, h, row, /*col=*/Value(), /*ring=*/Value(), /*it=*/Value(), turns, place,
                        turn, /*sum=*/b.getUnitAttr());
  return {dk, dv};
}

/// How many key tiles add to the query block at `row` before tile n does. Here every tile does;
/// flash-tile-skip-blocks knows better.
Value Gradients::turnOf(Value row, Value n) {
  SmallVector<Type> counts(5, b.getIndexType());
  auto dense = MaskAttr::get(b.getContext(), schedule::Mask{});
  auto range = tile::BlockRangeOp::create(b, counts, row, lenQ, lenK, k.index(0), k.index(1), M, N, dense);
  Value window = add(add(range.getRight(), range.getInner()), range.getLeft());
  Value isSink = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, n, range.getSink());
  Value inWindow = add(range.getSink(), sub(n, sub(range.getEnd(), window)));
  Value turn = arith::SelectOp::create(b, isSink, n, inWindow);
  return descends ? sub(sub(add(range.getSink(), window), k.index(1)), turn) : turn;
}

void Gradients::finish() {
  Value sum = sumOfDq(), dq = k.argument("dq", op.getGradientTypes()[0]);
  askForQueries();
  scores.emplace(k, op);
  Value sumv = padded(sum, D), dqv = k.view(dq, headSize, 1, false, queries);
  forQueryTiles(dq, [&](Value m, Value h, Value bi) {
    Value row = mul(m, k.index(M));
    Value scaled = k.map(load(sumv, M, D, bi, h, row), M, D, [&](ImplicitLocOpBuilder &b, ValueRange x) -> Value {
      return arith::MulFOp::create(b, x[0], scores->scale);
    });
    tile::StoreOp::create(b, k.cast(scaled, element), dqv, bi, h, row);
  });
  k.finish();
}

void Gradients::sink() {
  Value sink = statistic("sink", op.getSink()), lse2 = statistic("lse_log2", op.getLse());
  Value delta = statistic("delta", op.getLse());
  Value dsink = k.argument("dsink", op.getGradientTypes()[3], /*keepLast=*/false);
  askForQueries();
  Value lv = padded(lse2, 1), ev = padded(delta, 1), dv = k.view(dsink, 1, 1, false);
  Value c0 = k.index(0), c1 = k.index(1);
  Value cu = queries.cuSeqlens, batch = cu ? sub(k.dim(cu, 0), c1) : k.dim(lse2, 0);
  k.forTiles(c1, 1, k.dim(sink, 0), c1, [&](Value, Value h, Value) {
    Value logit = arith::MulFOp::create(b, memref::LoadOp::create(b, sink, h), k.f32(log2e));
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
        Value sums = k.map({tiles.getRegionIterArg(0), load(lv, M, 1, bi, h, row), load(ev, M, 1, bi, h, row)}, M, 1,
                           [&](ImplicitLocOpBuilder &b, ValueRange x) -> Value {
                             // Only past a sequence, where delta is 0, is the sink above the lse.
                             Value zero = arith::ConstantOp::create(b, b.getF32FloatAttr(0));
                             Value power = arith::MinimumFOp::create(b, arith::SubFOp::create(b, logit, x[1]), zero);
                             Value p = math::Exp2Op::create(b, power);
                             return arith::SubFOp::create(b, x[0], arith::MulFOp::create(b, p, x[2]));
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

void flash::buildBackwardPrepare(Kernel &kernel, AttentionBackwardOp op) { Gradients(kernel, op).prepare(); }
void flash::buildBackward(Kernel &kernel, AttentionBackwardOp op) { Gradients(kernel, op).main(); }
void flash::buildBackwardFinish(Kernel &kernel, AttentionBackwardOp op) { Gradients(kernel, op).finish(); }
void flash::buildBackwardSink(Kernel &kernel, AttentionBackwardOp op) { Gradients(kernel, op).sink(); }
