//===- Backward.cpp - the plainest right kernel of gradients --------------===//
//
// A tile of work is a tile of keys of a KV head: dK and dV are carried over the query blocks of all
// heads that read it, dQ is added up in global memory (Gradients.h). Where registers hold only one
// of dK and dV, dV has a kernel of its own.
//
//===----------------------------------------------------------------------===//
#include "Gradients.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace flash;

namespace {
class BackwardBuilder : Gradients {
public:
  /// What a kernel computes: dK and with it dQ, dV, or both.
  struct Makes {
    bool dk = true, dv = true;
  };
  BackwardBuilder(Kernel &kernel, AttentionBackwardOp op, Makes makes)
      : Gradients(kernel, op), makes(makes) {}
  void build();

private:
  void buildTile(ValueRange at);
  SmallVector<Value> buildBlock(Value kt, Value vt, Value bi, Value h, Value n, Value j, Value it,
                                ValueRange carried);
  SmallVector<Value> buildBlockOfDv(Value kt, Value bi, Value h, Value j, Value it,
                                    ValueRange carried);
  Value turnOf(Value row, Value n);
  /// V, if it follows the queries of the tile's first block, which are multiplied by K meanwhile.
  void fillV(Value it) {
    if (!lateV)
      return;
    auto [batch, head, ordinal, first] = tileOfKeys;
    Value isFirst = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, it, first);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(scf::IfOp::create(b, isFirst, /*withElseRegion=*/false).thenBlock());
    tile::FillOp::create(b, vv, batch, head, key0, vr, ordinal);
  }
  Value masked(Value s, Value row) {
    return tile::MaskOp::create(b, s.getType(), s, key0, row, lenQ, lenK, op.getMask(),
                                /*group=*/1, /*trans=*/true);
  }
  /// P, of masked scores.
  Value weights(Value seen, Value lse2) {
    Value toLog2 = mulf(scores->softmaxScale, k.f32(log2e));
    return k.map({seen, lse2}, N, M, [&](ImplicitLocOpBuilder &b, ValueRange x) -> Value {
      Value shift = arith::NegFOp::create(b, x[1]);
      return math::Exp2Op::create(b, math::FmaOp::create(b, x[0], toLog2, shift));
    });
  }
  Value readRow(Value tile) { return tile::ReadOp::create(b, k.frag(1, M, b.getF32Type()), tile); }
  Value product(Value a, bool transA, Value bTile, bool transB, int64_t rows, int64_t cols,
                Value acc = {}) {
    auto flight = tile::FlightType::get(b.getContext(), {rows, cols}, b.getF32Type());
    return tile::MmaOp::create(b, flight, a, bTile, acc, transB, transA);
  }
  Value await(Value flight) {
    auto type = cast<tile::FlightType>(flight.getType());
    return tile::MmaWaitOp::create(
        b, k.frag(type.getShape()[0], type.getShape()[1], b.getF32Type()), flight);
  }

  const Makes makes;
  bool raggedK = false;   ///< sequences differ in their keys
  bool descends = false;  ///< tiles go from the last to the first
  bool beside = false;    ///< products run beside other work, of consumers
  bool shares = false;    ///< warps have parts of P's rows, which products need whole
  bool lateV = false;     ///< V is fetched behind the first block's queries
  bool alternate = false; ///< Q and dO share two slots
  Tables keys;
  std::optional<Scores> scores;
  struct {
    Value batch, head, ordinal, firstBlock;
  } tileOfKeys;
  Value headsPerKv, q, key0, lenQ, lenK;
  Value qv, kv, vv, dov, lv, ev, sumv, dkv, dvv;
  Value qr, kr, vr, dor, lr, er, pr, dsr;
};

void BackwardBuilder::build() {
  q = argument("q", op.getQ());
  Value kk = argument("k", op.getK()), v = makes.dk ? argument("v", op.getV()) : Value(),
        dO = argument("do", op.getDO()), lse2 = statistic("lse_log2", op.getLse()),
        delta = makes.dk ? statistic("delta", op.getLse()) : Value(),
        sum = makes.dk ? sumOfDq() : Value();
  SmallVector<ShapedType> types = op.getGradientTypes();
  Value dk = makes.dk ? k.argument("dk", types[1]) : Value(),
        dv = makes.dv ? k.argument("dv", types[2]) : Value();
  askForQueries();
  keys = {.cuSeqlens = k.table("cu_seqlens_k", op.getCuSeqlensK()),
          .seqused = k.table("seqused_k", op.getSequsedK())};
  raggedK = keys.cuSeqlens || keys.seqused;
  if (makes.dk)
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
  lv = padded(lse2, 1), kv = k.view(kk, headSize, 1, false, keys);
  beside = plan.getInt("consumers").has_value();
  alternate = makes.dk && plan.getFlag("alternate").value_or(false);
  const int64_t slots = alternate ? schedule::alternatingSlots : 1;
  kr = k.ring("k", N, D, element);
  if (makes.dk) {
    ev = padded(delta, 1), sumv = inCells(sum);
    vv = k.view(v, headSizeV, 1, false, keys), dkv = k.view(dk, headSize, 1, false, keys);
    vr = k.ring("v", N, Dv, element);
  }
  if (makes.dv)
    dvv = k.view(dv, headSizeV, 1, false, keys);
  qr = k.ring("q", M, D, element, /*with=*/{}, slots);
  dor = alternate ? qr : k.ring("do", M, Dv, element);
  lr = k.ring("lse", 1, M, b.getF32Type(), beside ? qr : Value(), slots);
  if (makes.dk) {
    er = alternate ? lr : k.ring("delta", 1, M, b.getF32Type(), beside ? dor : Value());
    const auto by = schedule::parseSplitBy(plan.getText("split_by").value_or("rows"));
    shares = schedule::sharesKeys(plan.getInt("warps").value_or(0), N, *by);
    if (shares)
      pr = k.ring("p", N, M, element);
    dsr = k.ring("ds", N, M, element);
  }
  SmallVector<Value> inits{k.index(0), k.index(0)}; // tiles and query blocks done so far
  SmallVector<Type> carried(2, b.getIndexType());
  auto work = tile::ForWorkOp::create(
      b, carried, b.getStringAttr(order), tiles, headsOf(kk), batch, k.index(1), section, packed,
      /*schedule=*/Value(), /*ring=*/Value(), inits, /*takes=*/UnitAttr(),
      packed ? b.getI64IntegerAttr(N) : IntegerAttr(), b.getI64IntegerAttr(1));
  Block *body = b.createBlock(&work.getBody());
  body->addArguments(SmallVector<Type>(6, b.getIndexType()), SmallVector<Location>(6, b.getLoc()));
  buildTile(body->getArguments());
  k.finish();
}

void BackwardBuilder::buildTile(ValueRange at) {
  Value n = at[0], h = at[1], bi = at[2], t = at[4], done = at[5];
  key0 = mul(n, k.index(N));
  lenQ = tile::LengthOp::create(b, b.getIndexType(), qv, bi);
  lenK = tile::LengthOp::create(b, b.getIndexType(), kv, bi);
  if (raggedK) { // a tile may lie past the end of its sequence: no query needs it
    Value inside = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, key0, lenK);
    lenQ = arith::SelectOp::create(b, inside, lenQ, k.index(0));
  }
  Value end = arith::CeilDivUIOp::create(b, lenQ, k.index(M));
  SmallVector<Value> sums;
  if (makes.dk)
    sums.push_back(k.splat(zero, N, D));
  if (makes.dv)
    sums.push_back(k.splat(zero, N, Dv));
  sums.push_back(done);
  tile::FillOp::create(b, kv, bi, h, key0, kr, t);
  tileOfKeys = {bi, h, t, done};
  lateV = makes.dk && beside && plan.getFlag("late_v").value_or(false);
  const bool earlyV = makes.dk && !lateV;
  if (earlyV)
    tile::FillOp::create(b, vv, bi, h, key0, vr, t);
  Value kt = k.wait(kr, t), vt = earlyV ? k.wait(vr, t) : Value();
  auto heads = scf::ForOp::create(b, k.index(0), headsPerKv, k.index(1), sums);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToEnd(heads.getBody());
    Value head = add(mul(h, headsPerKv), heads.getInductionVar());
    ValueRange before = heads.getRegionIterArgs();
    auto loop = scf::ForOp::create(b, k.index(0), end, k.index(1), before.drop_back());
    loop->setAttr("flash_tile.run", b.getStringAttr("all"));
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToEnd(loop.getBody());
      // Where the last keys add first, their first queries are nobody else's: so all tiles of a
      // head that run at once go on beside each other, each as many queries behind as it has keys
      // more.
      const bool ascends = turns && descends;
      Value i = loop.getInductionVar(),
            j = ascends ? add(k.index(0), i) : sub(sub(end, k.index(1)), i);
      Value it = add(before.back(), i);
      ValueRange carried = loop.getRegionIterArgs();
      scf::YieldOp::create(b, makes.dk ? buildBlock(kt, vt, bi, head, n, j, it, carried)
                                       : buildBlockOfDv(kt, bi, head, j, it, carried));
    }
    SmallVector<Value> after(loop.getResults());
    after.push_back(add(before.back(), end));
    scf::YieldOp::create(b, after);
  }
  if (lateV) { // there may be no block
    fillV(heads.getResults().back());
    k.wait(vr, t);
  }
  tile::ReleaseOp::create(b, kr, t);
  if (makes.dk)
    tile::ReleaseOp::create(b, vr, t);
  auto store = [&](Value value, Value view) {
    tile::StoreOp::create(b, k.cast(value, element), view, bi, h, key0, /*col=*/Value(),
                          /*ring=*/Value(), /*it=*/Value(), /*turns=*/Value(), /*place=*/Value(),
                          /*turn=*/Value(), /*sum=*/UnitAttr(), /*kept=*/UnitAttr());
  };
  if (makes.dk)
    store(k.map(heads.getResult(0), N, D,
                [&](ImplicitLocOpBuilder &b, ValueRange x) -> Value {
                  return mulf(x[0], scores->scale);
                }),
          dkv);
  if (makes.dv)
    store(heads.getResult(makes.dk), dvv);
  tile::YieldOp::create(b, ValueRange{add(t, k.index(1)), heads.getResults().back()});
}

SmallVector<Value> BackwardBuilder::buildBlock(Value kt, Value vt, Value bi, Value h, Value n,
                                               Value j, Value it, ValueRange carried) {
  Value row = mul(j, k.index(M)), itQ = it, itDo = it;
  if (alternate) { // Q of the next block comes where dO of this one was, which is free first
    Value odd = arith::RemUIOp::create(b, it, k.index(2)), twice = mul(it, k.index(2));
    itQ = add(twice, odd), itDo = sub(add(twice, k.index(1)), odd);
  }
  auto fillQ = [&](Value view, Value ring) {
    tile::FillOp::create(b, view, bi, h, row, ring, itQ);
  };
  auto fillDo = [&](Value view, Value ring) {
    tile::FillOp::create(b, view, bi, h, row, ring, itDo);
  };
  fillQ(qv, qr), fillQ(lv, lr);
  if (beside) // statistics come with their tiles
    fillV(it), fillDo(dov, dor), fillDo(ev, er);
  else // a wait for dO is one for delta
    fillDo(ev, er), fillDo(dov, dor);
  // Products leave reads of shared memory no turn: statistics are read ahead of them where they can
  // be kept beside them; a cap's slopes take that room.
  const bool ahead =
      beside && !scores->softcap &&
      schedule::keepsStatistics(M, D, makes.dv ? Dv : 0, plan.getInt("registers", 1).value_or(0));
  Value qt = k.wait(qr, itQ), lse2 = ahead ? readRow(k.wait(lr, itQ)) : Value();
  Value sf = product(kt, false, qt, true, N, M);
  if (lateV)
    vt = k.wait(vr, tileOfKeys.ordinal);
  Value dot = k.wait(dor, itDo), dpf = product(vt, false, dot, true, N, M);
  Value lt = ahead ? Value() : k.wait(lr, itQ), s = scores->capped(await(sf), N, M);
  Value seen = masked(s, row);
  if (!ahead)
    lse2 = readRow(lt);
  Value p = weights(seen, lse2);
  tile::ReleaseOp::create(b, lr, itQ);
  // What dP - delta is multiplied by. Under a cap P is narrowed first: both in full would fill the
  // registers.
  Value narrow, weight = p;
  if (scores->softcap) { // c tanh(x) has the slope 1 - tanh(x)^2
    if (makes.dv)
      narrow = k.cast(p, element);
    weight = k.map({p, s}, N, M, [&](ImplicitLocOpBuilder &b, ValueRange x) -> Value {
      Value one = arith::ConstantOp::create(b, b.getF32FloatAttr(1));
      Value t = arith::DivFOp::create(b, x[1], scores->softcap);
      return mulf(x[0], arith::SubFOp::create(b, one, mulf(t, t)));
    });
  }
  auto addTo = [&](Value sum, Value a, Value tile, int64_t columns) {
    return product(a, false, tile, false, N, columns, sum);
  };
  auto multiplyDv = [&]() -> Value {
    return makes.dv ? addTo(carried[1], narrow ? narrow : k.cast(p, element), dot, Dv) : Value();
  };
  const bool dkFirst = plan.getInt("stages").value_or(1) == 1 || !makes.dv || (!beside && !shares),
             dkLast = !dkFirst && !beside; // in step dQ is added up beside dK
  // Behind another block's dQ, which is added up while dV and dK are multiplied.
  const bool late = !dkFirst && plan.getFlag("overlap").value_or(false);
  Value dvf;
  // A boundary: ptxas moves a wait for products over exponentials alone, and they wait too.
  if (beside && plan.getFlag("late_dp").value_or(false))
    k.wait(dor, itDo);
  Value et = k.wait(er, itDo), delta = ahead ? readRow(et) : Value(), dp = await(dpf);
  if (!ahead)
    delta = readRow(et);
  Value ds = k.map({weight, dp, delta}, N, M, [&](ImplicitLocOpBuilder &b, ValueRange x) -> Value {
    return mulf(x[0], arith::SubFOp::create(b, x[1], x[2]));
  });
  tile::ReleaseOp::create(b, er, itDo);
  if (!makes.dv)
    tile::ReleaseOp::create(b, dor, itDo);
  if (shares)
    p = narrow ? narrow : k.cast(p, element);
  else if (!late)
    dvf = multiplyDv();
  ds = k.cast(ds, element);
  if (shares)
    tile::WriteOp::create(b, p, pr, it, Value());
  tile::WriteOp::create(b, ds, dsr, it, Value());
  if (shares) {
    dvf = addTo(carried[1], k.wait(pr, it), dot, Dv);
    ds = k.wait(dsr, it);
  }
  // There dQ goes first, and its sum leaves beside dK. But with one slot the next block waits for
  // its queries: dK first, and dQ beside their copy. So where dK fills the registers beside dQ.
  Value dkf, dk, dv;
  auto multiplyDk = [&] { dkf = addTo(carried[0], ds, qt, D); };
  auto awaitDk = [&] {
    dk = await(dkf);
    tile::ReleaseOp::create(b, qr, itQ);
  };
  if (dkFirst)
    multiplyDk();
  Value dst = shares ? ds : k.wait(dsr, it);
  const std::vector<int64_t> pieces = piecesOfDq();
  SmallVector<Value> firstColumns; // of the pieces
  int64_t columns = 0;
  for (int64_t size : pieces) {
    firstColumns.push_back(pieces.size() > 1 ? k.index(columns) : Value());
    columns += size;
  }
  auto multiplyDq = [&](size_t i) {
    Value keys = kt;
    if (firstColumns[i])
      keys = tile::SliceOp::create(b, tile::TileType::get(b.getContext(), {N, pieces[i]}, element),
                                   kt, firstColumns[i],
                                   /*row=*/Value());
    return product(dst, true, keys, false, M, pieces[i]);
  };
  SmallVector<Value> dqf{multiplyDq(0)};
  if (late)
    dvf = multiplyDv();
  if (!dkFirst && !dkLast)
    multiplyDk();
  auto awaitDv = [&] {
    if (!makes.dv)
      return;
    dv = await(dvf);
    if (shares)
      tile::ReleaseOp::create(b, pr, it);
    tile::ReleaseOp::create(b, dor, itDo);
  };
  if (!late)
    awaitDv();
  if (dkFirst)
    awaitDk();
  // In step pieces follow one another, or they would fill the registers; consumers add them up a
  // block later.
  for (size_t i = 1; beside && i < pieces.size(); ++i)
    dqf.push_back(multiplyDq(i));
  Value place = turns ? placeOf(q, bi, h, j) : Value(), turn = turns ? turnOf(row, n) : Value();
  if (turns && pieces.size() > 1) // of each piece in a row
    place = mul(place, k.index(static_cast<int64_t>(pieces.size())));
  for (size_t i = 0; i < pieces.size(); ++i) {
    Value dq = await(i < dqf.size() ? dqf[i] : multiplyDq(i));
    if (i + 1 == pieces.size() && !dkLast)
      tile::ReleaseOp::create(b, dsr, it);
    Value at = turns && i ? add(place, k.index(static_cast<int64_t>(i))) : place;
    tile::StoreOp::create(b, dq, sumv, bi, h, row, firstColumns[i], /*ring=*/Value(),
                          /*it=*/Value(), turns, at, turn, /*sum=*/b.getUnitAttr(),
                          /*kept=*/UnitAttr());
  }
  if (late)
    awaitDv();
  if (dkLast)
    multiplyDk();
  if (!dkFirst)
    awaitDk();
  if (dkLast)
    tile::ReleaseOp::create(b, dsr, it);
  return makes.dv ? SmallVector<Value>{dk, dv} : SmallVector<Value>{dk};
}

SmallVector<Value> BackwardBuilder::buildBlockOfDv(Value kt, Value bi, Value h, Value j, Value it,
                                                   ValueRange carried) {
  Value row = mul(j, k.index(M));
  for (auto [view, ring] : {std::pair{qv, qr}, {lv, lr}, {dov, dor}})
    tile::FillOp::create(b, view, bi, h, row, ring, it);
  Value sf = product(kt, false, k.wait(qr, it), true, N, M);
  Value lse2 = readRow(k.wait(lr, it)), s = scores->capped(await(sf), N, M);
  Value p = k.cast(weights(masked(s, row), lse2), element);
  tile::ReleaseOp::create(b, lr, it);
  tile::ReleaseOp::create(b, qr, it);
  Value dv = await(product(p, false, k.wait(dor, it), false, N, Dv, carried[0]));
  tile::ReleaseOp::create(b, dor, it);
  return {dv};
}

/// How many key tiles add to the query block at `row` before tile n does. Here every tile does;
/// flash-tile-skip-blocks knows better.
Value BackwardBuilder::turnOf(Value row, Value n) {
  SmallVector<Type> counts(5, b.getIndexType());
  auto dense = MaskAttr::get(b.getContext(), schedule::Mask{});
  auto range =
      tile::BlockRangeOp::create(b, counts, row, lenQ, lenK, k.index(0), k.index(1), M, N, dense);
  Value window = add(add(range.getRight(), range.getInner()), range.getLeft());
  Value isSink = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, n, range.getSink());
  Value inWindow = add(range.getSink(), sub(n, sub(range.getEnd(), window)));
  Value turn = arith::SelectOp::create(b, isSink, n, inWindow);
  return descends ? sub(sub(add(range.getSink(), window), k.index(1)), turn) : turn;
}
} // namespace

void flash::buildBackward(Kernel &kernel, AttentionBackwardOp op) {
  BackwardBuilder(kernel, op, {.dv = !hasOwnDv(op)}).build();
}

void flash::buildBackwardDv(Kernel &kernel, AttentionBackwardOp op) {
  BackwardBuilder(kernel, op, {.dk = false}).build();
}
