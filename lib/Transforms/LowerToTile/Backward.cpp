//===- Backward.cpp - the plainest right kernel of gradients --------------===//
//
// A tile of work is a tile of keys of a KV head: dK and dV are carried over the query blocks of all
// heads that read it, dQ is added up in global memory (Gradients.h).
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
  BackwardBuilder(Kernel &kernel, AttentionBackwardOp op) : Gradients(kernel, op) {}
  void build();

private:
  void buildTile(ValueRange at);
  SmallVector<Value> buildBlock(Value kt, Value vt, Value bi, Value h, Value n, Value j, Value it,
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
  /// Columns of dK, dV or dQ that the tile of work has: `first` is none where it has all.
  struct Columns {
    Value first;
    int64_t size;
  };
  SmallVector<Columns> columnsOf(int64_t all) {
    SmallVector<Columns> columns;
    for (schedule::ColumnPiece piece : schedule::columnPieces(all, columnParts()))
      columns.push_back({part ? add(k.index(piece.first), mul(part, k.index(piece.step))) : Value(),
                         piece.columns});
    return columns;
  }
  /// The other half.
  Columns othersOf(Columns half) { return {sub(k.index(half.size), half.first), half.size}; }
  Value sliced(Value tile, Columns columns) {
    if (!columns.first)
      return tile;
    const int64_t rows = cast<tile::TileType>(tile.getType()).getShape()[0];
    return tile::SliceOp::create(b,
                                 tile::TileType::get(b.getContext(), {rows, columns.size}, element),
                                 tile, columns.first, /*row=*/Value());
  }
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

  bool raggedK = false;  ///< sequences differ in their keys
  bool descends = false; ///< tiles go from the last to the first
  bool beside = false;   ///< products run beside other work, of consumers
  bool shares = false;   ///< warps have parts of P's rows, which products need whole
  bool lateV = false;    ///< V is fetched behind the first block's queries
  bool apart = false;    ///< Q and dO come in the columns that a block owns, and the others
  Tables keys;
  std::optional<Scores> scores;
  struct {
    Value batch, head, ordinal, firstBlock;
  } tileOfKeys;
  Value part; ///< of the columns, where blocks divide them
  SmallVector<Columns> dkColumns, dvColumns, dqColumns;
  Value headsPerKv, q, key0, lenQ, lenK;
  Value qv, kv, vv, dov, lv, ev, sumv, dkv, dvv;
  Value qr, kr, vr, dor, lr, er, pr, dsr;
  Value qRest, doRest; ///< where what others own has rings of its own
};

void BackwardBuilder::build() {
  q = argument("q", op.getQ());
  Value kk = argument("k", op.getK()), v = argument("v", op.getV()),
        dO = argument("do", op.getDO());
  Value lse2 = statistic("lse_log2", op.getLse()), delta = statistic("delta", op.getLse()),
        sum = sumOfDq();
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
  lv = padded(lse2, 1), ev = padded(delta, 1), sumv = inCells(sum);
  kv = k.view(kk, headSize, 1, false, keys), vv = k.view(v, headSizeV, 1, false, keys);
  dkv = k.view(dk, headSize, 1, false, keys), dvv = k.view(dv, headSizeV, 1, false, keys);
  kr = k.ring("k", N, D, element), vr = k.ring("v", N, Dv, element);
  beside = plan.getInt("consumers").has_value();
  apart = plan.getFlag("apart").value_or(false);
  const int64_t parts = apart ? columnParts() : 1;
  qr = k.ring("q", M, D / parts, element), dor = k.ring("do", M, Dv / parts, element);
  if (apart)
    qRest = k.ring("q_rest", M, D / parts, element),
    doRest = k.ring("do_rest", M, Dv / parts, element);
  Value firstOfQ = apart ? qRest : qr;
  lr = k.ring("lse", 1, M, b.getF32Type(), beside ? firstOfQ : Value());
  er = k.ring("delta", 1, M, b.getF32Type(), beside ? dor : Value());
  const auto by = schedule::parseSplitBy(plan.getText("split_by").value_or("rows"));
  shares = schedule::sharesKeys(plan.getInt("warps").value_or(0), N, *by);
  if (shares)
    pr = k.ring("p", N, M, element);
  dsr = k.ring("ds", N, M, element);
  SmallVector<Value> inits{k.index(0), k.index(0)}; // tiles and query blocks done so far
  SmallVector<Type> carried(2, b.getIndexType());
  auto work = tile::ForWorkOp::create(
      b, carried, b.getStringAttr(order), tiles,
      columnParts() > 1 ? mul(headsOf(kk), k.index(columnParts())) : headsOf(kk), batch, k.index(1),
      section, packed,
      /*schedule=*/Value(), /*ring=*/Value(), inits, /*takes=*/UnitAttr(),
      packed ? b.getI64IntegerAttr(N) : IntegerAttr(), b.getI64IntegerAttr(1));
  Block *body = b.createBlock(&work.getBody());
  body->addArguments(SmallVector<Type>(6, b.getIndexType()), SmallVector<Location>(6, b.getLoc()));
  buildTile(body->getArguments());
  k.finish();
}

void BackwardBuilder::buildTile(ValueRange at) {
  Value n = at[0], h = at[1], bi = at[2], t = at[4], done = at[5];
  if (const int64_t parts = columnParts(); parts > 1) { // the inner index
    part = arith::RemUIOp::create(b, h, k.index(parts));
    h = arith::DivUIOp::create(b, h, k.index(parts));
  }
  dkColumns = columnsOf(D), dvColumns = columnsOf(Dv), dqColumns = columnsOf(D);
  if (const int64_t parts = partsOfDq(); parts > 1) { // of a block
    dqColumns.clear();
    for (int64_t i = 0; i < parts; ++i)
      dqColumns.push_back({k.index(i * (D / parts)), D / parts});
  }
  key0 = mul(n, k.index(N));
  lenQ = tile::LengthOp::create(b, b.getIndexType(), qv, bi);
  lenK = tile::LengthOp::create(b, b.getIndexType(), kv, bi);
  if (raggedK) { // a tile may lie past the end of its sequence: no query needs it
    Value inside = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, key0, lenK);
    lenQ = arith::SelectOp::create(b, inside, lenQ, k.index(0));
  }
  Value end = arith::CeilDivUIOp::create(b, lenQ, k.index(M));
  SmallVector<Value> sums;
  for (auto *columns : {&dkColumns, &dvColumns})
    for (Columns some : *columns)
      sums.push_back(k.splat(zero, N, some.size));
  const size_t fragments = sums.size();
  sums.push_back(done);
  tile::FillOp::create(b, kv, bi, h, key0, kr, t);
  tileOfKeys = {bi, h, t, done};
  lateV = beside && plan.getFlag("late_v").value_or(false);
  if (!lateV)
    tile::FillOp::create(b, vv, bi, h, key0, vr, t);
  Value kt = k.wait(kr, t), vt = lateV ? Value() : k.wait(vr, t);
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
      scf::YieldOp::create(
          b, buildBlock(kt, vt, bi, head, n, j, add(before.back(), i), loop.getRegionIterArgs()));
    }
    SmallVector<Value> after(loop.getResults());
    after.push_back(add(before.back(), end));
    scf::YieldOp::create(b, after);
  }
  if (lateV) { // there may be no block
    fillV(heads.getResult(fragments));
    k.wait(vr, t);
  }
  tile::ReleaseOp::create(b, kr, t);
  tile::ReleaseOp::create(b, vr, t);
  auto store = [&](Value value, Value view, Columns columns) {
    tile::StoreOp::create(b, k.cast(value, element), view, bi, h, key0, columns.first,
                          /*ring=*/Value(), /*it=*/Value(), /*turns=*/Value(), /*place=*/Value(),
                          /*turn=*/Value(), /*sum=*/UnitAttr(), /*kept=*/UnitAttr());
  };
  size_t next = 0;
  for (Columns columns : dkColumns)
    store(k.map(heads.getResult(next++), N, columns.size,
                [&](ImplicitLocOpBuilder &b, ValueRange x) -> Value {
                  return mulf(x[0], scores->scale);
                }),
          dkv, columns);
  for (Columns columns : dvColumns)
    store(heads.getResult(next++), dvv, columns);
  tile::YieldOp::create(b, ValueRange{add(t, k.index(1)), heads.getResult(fragments)});
}

SmallVector<Value> BackwardBuilder::buildBlock(Value kt, Value vt, Value bi, Value h, Value n,
                                               Value j, Value it, ValueRange carried) {
  Value row = mul(j, k.index(M));
  auto fill = [&](Value view, Value ring, Value col = {}) {
    tile::FillOp::create(b, view, bi, h, row, ring, it, col);
  };
  const Columns ownOfQ = dkColumns.front(), ownOfDo = dvColumns.front();
  const Columns restOfQ = apart ? othersOf(ownOfQ) : Columns(),
                restOfDo = apart ? othersOf(ownOfDo) : Columns();
  if (apart) { // in the order in which slots become free
    fill(lv, lr), fill(qv, qRest, restOfQ.first), fill(dov, doRest, restOfDo.first);
    fill(qv, qr, ownOfQ.first), fillV(it), fill(ev, er), fill(dov, dor, ownOfDo.first);
  } else if (beside) { // statistics first: they come with their tiles
    fill(lv, lr), fill(qv, qr), fillV(it), fill(ev, er), fill(dov, dor);
  } else { // so that a wait for dO is one for delta
    fill(qv, qr), fill(lv, lr), fill(ev, er), fill(dov, dor);
  }
  auto read = [&](Value tile) -> Value {
    return tile::ReadOp::create(b, k.frag(1, M, b.getF32Type()), tile);
  };
  // Products leave reads of shared memory no turn: statistics are read ahead of them where they can
  // be kept beside them; a cap's slopes take that room.
  const bool ahead = beside && !scores->softcap &&
                     schedule::keepsStatistics(M, D / columnParts(), Dv / columnParts(),
                                               plan.getInt("registers", 1).value_or(0));
  // Scores begin with the columns that others own, which are there early.
  Value qt = k.wait(apart ? qRest : qr, it), lse2 = ahead ? read(k.wait(lr, it)) : Value();
  Value sf = product(apart ? sliced(kt, restOfQ) : kt, false, qt, true, N, M);
  if (apart)
    qt = k.wait(qr, it), sf = product(sliced(kt, ownOfQ), false, qt, true, N, M, sf);
  if (lateV)
    vt = k.wait(vr, tileOfKeys.ordinal);
  Value dot = k.wait(apart ? doRest : dor, it);
  Value dpf = product(apart ? sliced(vt, restOfDo) : vt, false, dot, true, N, M);
  if (apart)
    dot = k.wait(dor, it), dpf = product(sliced(vt, ownOfDo), false, dot, true, N, M, dpf);
  Value lt = ahead ? Value() : k.wait(lr, it), s = scores->capped(await(sf), N, M);
  if (apart && ahead)
    tile::ReleaseOp::create(b, qRest, it);
  Value seen = tile::MaskOp::create(b, s.getType(), s, key0, row, lenQ, lenK, op.getMask(),
                                    /*group=*/1, /*trans=*/true);
  Value toLog2 = mulf(scores->softmaxScale, k.f32(log2e));
  if (!ahead)
    lse2 = read(lt);
  Value p = k.map({seen, lse2}, N, M, [&](ImplicitLocOpBuilder &b, ValueRange x) -> Value {
    Value shift = arith::NegFOp::create(b, x[1]);
    return math::Exp2Op::create(b, math::FmaOp::create(b, x[0], toLog2, shift));
  });
  tile::ReleaseOp::create(b, lr, it);
  if (apart && !ahead) // the lse came with it
    tile::ReleaseOp::create(b, qRest, it);
  // What dP - delta is multiplied by. Under a cap P is narrowed first: both in full would fill the
  // registers. So they would where dV is multiplied beside dP.
  Value narrow, weight = p;
  if (apart || scores->softcap)
    narrow = k.cast(p, element);
  if (apart)
    weight = narrow;
  if (scores->softcap) { // c tanh(x) has the slope 1 - tanh(x)^2
    weight = k.map({p, s}, N, M, [&](ImplicitLocOpBuilder &b, ValueRange x) -> Value {
      Value one = arith::ConstantOp::create(b, b.getF32FloatAttr(1));
      Value t = arith::DivFOp::create(b, x[1], scores->softcap);
      return mulf(x[0], arith::SubFOp::create(b, one, mulf(t, t)));
    });
  }
  using Values = SmallVector<Value>;
  /// Of `columns` each to its sum, all in flight.
  auto addTo = [&](ValueRange sums, ArrayRef<Columns> columns, Value a, Value tile) {
    Values flights;
    for (auto [sum, some] : llvm::zip_equal(sums, columns))
      flights.push_back(
          product(a, false, apart ? tile : sliced(tile, some), false, N, some.size, sum));
    return flights;
  };
  auto awaitAll = [&](ValueRange flights) {
    return llvm::map_to_vector(flights, [&](Value flight) { return await(flight); });
  };
  auto multiplyDv = [&] {
    return addTo(carried.drop_front(dkColumns.size()), dvColumns,
                 narrow ? narrow : k.cast(p, element), dot);
  };
  const bool dkFirst = plan.getInt("stages").value_or(1) == 1 || (!beside && !shares),
             dkLast = !dkFirst && !beside; // in step dQ is added up beside dK
  // Behind another block's dQ, which is added up while dV and dK are multiplied.
  const bool late = !dkFirst && plan.getFlag("overlap").value_or(false);
  Values dvf;
  if (apart) // which also keeps the wait for dP behind the exponentials
    dvf = multiplyDv();
  // A boundary: ptxas moves a wait for products over exponentials alone, and they wait too.
  if (beside && plan.getFlag("late_dp").value_or(false))
    k.wait(dor, it);
  Value et = k.wait(er, it), delta = ahead ? read(et) : Value(), dp = await(dpf);
  if (!ahead)
    delta = read(et);
  if (apart)
    tile::ReleaseOp::create(b, doRest, it);
  Value ds = k.map({weight, dp, delta}, N, M, [&](ImplicitLocOpBuilder &b, ValueRange x) -> Value {
    Value p = x[0];
    if (!p.getType().isF32())
      p = arith::ExtFOp::create(b, b.getF32Type(), p);
    return mulf(p, arith::SubFOp::create(b, x[1], x[2]));
  });
  tile::ReleaseOp::create(b, er, it);
  if (shares)
    p = narrow ? narrow : k.cast(p, element);
  else if (!late && !apart)
    dvf = multiplyDv();
  ds = k.cast(ds, element);
  if (shares)
    tile::WriteOp::create(b, p, pr, it, Value());
  tile::WriteOp::create(b, ds, dsr, it, Value());
  if (shares) {
    dvf = addTo(carried.drop_front(dkColumns.size()), dvColumns, k.wait(pr, it), dot);
    ds = k.wait(dsr, it);
  }
  // There dQ goes first, and its sum leaves beside dK. But with one slot the next block waits for
  // its queries: dK first, and dQ beside their copy.
  Values dkf, dqf, dk;
  auto multiplyDk = [&] { dkf = addTo(carried.take_front(dkColumns.size()), dkColumns, ds, qt); };
  auto awaitDk = [&] {
    dk = awaitAll(dkf);
    tile::ReleaseOp::create(b, qr, it);
  };
  if (dkFirst)
    multiplyDk();
  Value dst = shares ? ds : k.wait(dsr, it);
  auto multiplyDq = [&](Columns columns) {
    return product(dst, true, sliced(kt, columns), false, M, columns.size);
  };
  // Parts of a block follow one another, or they would fill its registers.
  const bool oneByOne = partsOfDq() > 1;
  for (Columns columns : ArrayRef(dqColumns).take_front(oneByOne ? 1 : dqColumns.size()))
    dqf.push_back(multiplyDq(columns));
  if (late)
    dvf = multiplyDv();
  if (!dkFirst && !dkLast)
    multiplyDk();
  Values dv;
  auto awaitDv = [&] {
    dv = awaitAll(dvf);
    if (shares)
      tile::ReleaseOp::create(b, pr, it);
    tile::ReleaseOp::create(b, dor, it);
  };
  if (!late)
    awaitDv();
  if (dkFirst)
    awaitDk();
  Value place = turns ? placeOf(q, bi, h, j) : Value(), turn = turns ? turnOf(row, n) : Value();
  const int64_t own = static_cast<int64_t>(dqColumns.size());
  if (turns && sumsOfDq() > 1) // of each part in a row
    place = mul(place, k.index(sumsOfDq()));
  if (turns && part)
    place = add(place, mul(part, k.index(own)));
  for (auto [i, columns] : llvm::enumerate(dqColumns)) {
    Value dq = await(i < dqf.size() ? dqf[i] : multiplyDq(columns));
    if (static_cast<int64_t>(i) + 1 == own && !dkLast)
      tile::ReleaseOp::create(b, dsr, it);
    Value at = turns && own > 1 ? add(place, k.index(static_cast<int64_t>(i))) : place;
    tile::StoreOp::create(b, dq, sumv, bi, h, row, columns.first, /*ring=*/Value(),
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
  dk.append(dv);
  return dk;
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
  BackwardBuilder(kernel, op).build();
}
