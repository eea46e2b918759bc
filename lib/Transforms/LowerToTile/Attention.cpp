//===- Attention.cpp - the plainest right kernel of an attention ----------===//
//
//   for each tile of work                     Q tile once
//     for each key block, from the last       K, V tiles; S = Q K^T; mask; p, m, l, alpha;
//                                             O = alpha O + P V
//     O / l and lse
//
//===----------------------------------------------------------------------===//
#include "Kernel.h"
#include "flash/Schedule/Plan.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include <cmath>

using namespace mlir;
using namespace flash;

namespace {
class AttentionBuilder {
public:
  AttentionBuilder(Kernel &kernel, AttentionOp op)
      : k(kernel), b(kernel.b), op(op), plan(op.getPlanAttr()), mask(op.getMask()) {}

  void build() {
    declare();
    SmallVector<Value> inits{k.index(0), k.index(0)}; // tiles and key blocks done so far
    SmallVector<Type> carried(2, b.getIndexType());
    StringRef order = plan.getText("order").value_or("single");
    auto work = tile::ForWorkOp::create(
        b, carried, b.getStringAttr(order), tiles, heads, batch, splits, section, packed, sequences,
        /*ring=*/Value(), inits, /*takes=*/UnitAttr(),
        packed ? b.getI64IntegerAttr(M) : IntegerAttr(), b.getI64IntegerAttr(group));
    Block *body = b.createBlock(&work.getBody());
    body->addArguments(SmallVector<Type>(6, b.getIndexType()),
                       SmallVector<Location>(6, b.getLoc()));
    buildTile(body->getArguments());
    k.finish();
  }

private:
  Value add(Value x, Value y) { return arith::AddIOp::create(b, x, y); }
  Value sub(Value x, Value y) { return arith::SubIOp::create(b, x, y); }
  Value mul(Value x, Value y) { return arith::MulIOp::create(b, x, y); }

  void declare() {
    auto qType = cast<ShapedType>(op.getQ().getType()),
         vType = cast<ShapedType>(op.getV().getType());
    element = qType.getElementType();
    partial = op.isPartial();
    int64_t headSize = qType.getShape().back(), headSizeV = vType.getShape().back();
    schedule::Target target = op.getTarget() ? op.getTarget()->target() : schedule::Target::cpu;
    schedule::HeadTile head = schedule::headTileOf(target, headSize, headSizeV);
    M = *plan.getInt("tile", 0), N = *plan.getInt("tile", 1), D = head.d, Dv = head.dv;

    bool turned = op.getQ().getDefiningOp<memref::AllocOp>() != nullptr; // by an append before
    const bool pages = static_cast<bool>(op.getPageTable());
    Value q = k.argument(turned ? "q_turned" : "q", qType),
          kk = k.argument("k", op.getK().getType(), true, pages),
          v = k.argument("v", vType, true, pages);
    Value o = k.argument(partial ? "o_partial" : "o", op.getOutputType());
    Value lse;
    if (ShapedType type = op.getLseType())
      lse = k.argument(partial ? "lse_partial" : "lse", type, /*keepLast=*/false);
    if (op.getSink())
      sink = k.argument("sink", op.getSink().getType(), /*keepLast=*/false);
    const Tables queries = k.queryTables(op), keys = k.keyTables(op);
    Value longest = k.table("max_seqlen_q", op.getMaxSeqlenQ());
    sequences = k.table("schedule", op.getSchedule());
    raggedQ = queries.cuSeqlens || queries.seqused;
    scores.emplace(k, op);
    StringRef order = plan.getText("order").value_or("single");
    if (order != "single" && order != "static" && !sequences)
      section = k.argument("section", b.getIndexType());

    batch = longest ? sub(k.dim(queries.cuSeqlens, 0), k.index(1)) : k.dim(q, 0);
    Value queryHeads = k.dim(q, qType.getRank() - 2), kvHeads = k.dim(kk, vType.getRank() - 2),
          ratio = k.ratioOf(q, kk);
    Value rows = longest ? longest : k.dim(q, 1);
    group = 1;
    heads = queryHeads;
    if (plan.getFlag("pack_gqa").value_or(false)) {
      group = packedGroup();
      heads = kvHeads;
      rows = mul(rows, k.index(group));
    } else {
      headsPerKv = ratio;
    }
    tiles = arith::CeilDivUIOp::create(b, rows, k.index(M));
    if (longest && !sequences &&
        schedule::parseOrder(order) == schedule::WorkOrder::varlenDynamic) {
      packed = queries.cuSeqlens; // the tiles of all sequences together
      tiles = k.packedTiles(mul(k.dim(q, 0), k.index(group)), M, batch);
    }
    splits = partial ? k.dim(o, 0) : k.index(1);

    qv = k.view(q, headSize, group, false, queries);
    kv = k.view(kk, headSize, 1, false, keys);
    vv = k.view(v, headSizeV, 1, false, keys);
    if (plan.getFlag("read_once").value_or(false))
      for (Value view : {kv, vv})
        view.getDefiningOp<tile::ViewOp>().setOnce(true);
    ov = k.view(o, headSizeV, group, partial, queries);
    if (lse)
      lv = k.view(lse, 1, group, partial, queries);
    qr = k.ring("q", M, D, element);
    kr = k.ring("k", N, D, element);
    vr = k.ring("v", N, Dv, element);
    zero = k.f32(0);
    minusInf = k.f32(-INFINITY);
  }

  /// Query heads of a KV head; static, since it shapes the tile's rows.
  int64_t packedGroup() {
    auto heads = [](Value x) {
      return mlir::cast<ShapedType>(x.getType()).getShape().take_back(2).front();
    };
    return std::max<int64_t>(heads(op.getQ()) / heads(op.getK()), 1); // no heads, no work
  }

  void buildTile(ValueRange at) {
    Value m = at[0], h = at[1], bi = at[2], s = at[3], t = at[4], n = at[5];
    row0 = mul(m, k.index(M));
    Value hk = headsPerKv ? Value(arith::DivUIOp::create(b, h, headsPerKv)) : h;
    lenQ = tile::LengthOp::create(b, b.getIndexType(), qv, bi);
    Value rows = lenQ;
    if (group > 1)
      lenQ = arith::DivUIOp::create(b, lenQ, k.index(group));
    lenK = tile::LengthOp::create(b, b.getIndexType(), kv, bi);
    if (raggedQ) { // a tile may lie past the end of its sequence: it needs no keys
      Value inside = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, row0, rows);
      lenK = arith::SelectOp::create(b, inside, lenK, k.index(0));
    }
    SmallVector<Value> inits{k.splat(zero, M, Dv), k.splat(minusInf, M, 1), k.splat(zero, M, 1)};
    tile::FillOp::create(b, qv, bi, h, row0, qr, t);
    Value q = k.wait(qr, t);

    Value end, blocks;
    if (partial) { // this split's share of all blocks
      SmallVector<Type> counts(5, b.getIndexType());
      auto dense = MaskAttr::get(b.getContext(), schedule::Mask{});
      Value own = splits;
      if (sequences) { // the sequence's own number comes with the split's
        Value field = k.index(schedule::splitField);
        own = arith::DivUIOp::create(b, s, field), s = arith::RemUIOp::create(b, s, field);
      }
      auto range =
          tile::BlockRangeOp::create(b, counts, row0, lenQ, lenK, s, own, M, N, dense, group);
      end = range.getEnd();
      blocks = add(range.getRight(), range.getInner());
    } else {
      end = blocks = arith::CeilDivUIOp::create(b, lenK, k.index(N));
    }
    auto loop = scf::ForOp::create(b, k.index(0), blocks, k.index(1), inits);
    loop->setAttr("flash_tile.run", b.getStringAttr("all"));
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToEnd(loop.getBody());
      Value i = loop.getInductionVar();
      Value col = mul(sub(sub(end, k.index(1)), i), k.index(N));
      scf::YieldOp::create(b, buildBlock(q, bi, hk, col, add(n, i), loop.getRegionIterArgs()));
    }
    tile::ReleaseOp::create(b, qr, t);
    store(loop.getResults(), bi, h, s);
    tile::YieldOp::create(b, ValueRange{add(t, k.index(1)), add(n, blocks)});
  }

  SmallVector<Value> buildBlock(Value q, Value bi, Value hk, Value col, Value it,
                                ValueRange carried) {
    Type f32 = b.getF32Type();
    auto flight = [&](int64_t rows, int64_t cols) {
      return tile::FlightType::get(b.getContext(), {rows, cols}, f32);
    };
    tile::FillOp::create(b, kv, bi, hk, col, kr, it);
    tile::FillOp::create(b, vv, bi, hk, col, vr, it);
    Value kt = k.wait(kr, it);
    Value sf = tile::MmaOp::create(b, flight(M, N), q, kt, Value(), /*trans_b=*/true);
    Value s = tile::MmaWaitOp::create(b, k.frag(M, N, f32), sf);
    tile::ReleaseOp::create(b, kr, it);
    s = scores->capped(s, M, N);
    s = tile::MaskOp::create(b, s.getType(), s, row0, col, lenQ, lenK, mask, group);
    Type row = carried[1].getType();
    auto step =
        tile::SoftmaxStepOp::create(b, s.getType(), row, row, row, tile::SoftmaxMode::online, s,
                                    carried[1], carried[2], scores->softmaxScale);
    Value o = tile::RescaleOp::create(b, carried[0].getType(), carried[0], step.getAlpha());
    Value p = k.cast(step.getP(), element);
    Value vt = k.wait(vr, it);
    Value of = tile::MmaOp::create(b, flight(M, Dv), p, vt, o, /*trans_b=*/false);
    o = tile::MmaWaitOp::create(b, k.frag(M, Dv, f32), of);
    tile::ReleaseOp::create(b, vr, it);
    return {o, step.getMNext(), step.getLNext()};
  }

  void store(ValueRange carried, Value bi, Value h, Value s) {
    bool joins = sink && !partial;
    auto final = tile::FinalizeOp::create(b, carried[0].getType(), carried[1].getType(), carried[0],
                                          carried[1], carried[2], scores->softmaxScale,
                                          joins ? sink : Value(), joins ? h : Value(),
                                          joins ? row0 : Value(), group);
    Value o = final.getResult();
    if (partial) // a view of partials counts heads times splits
      h = add(mul(h, splits), s);
    else
      o = k.cast(o, element);
    tile::StoreOp::create(b, o, ov, bi, h, row0);
    if (lv)
      tile::StoreOp::create(b, final.getLse(), lv, bi, h, row0);
  }

  Kernel &k;
  ImplicitLocOpBuilder &b;
  AttentionOp op;
  PlanAttr plan;
  MaskAttr mask;
  Type element;
  bool partial = false, raggedQ = false; ///< sequences differ in their number of queries
  int64_t M = 0, N = 0, D = 0, Dv = 0, group = 1;
  std::optional<Scores> scores;
  Value sink, section;
  Value packed, sequences, batch, heads, headsPerKv, tiles, splits, zero, minusInf;
  Value qv, kv, vv, ov, lv, qr, kr, vr;
  Value row0, lenQ, lenK;
};
} // namespace

void flash::buildAttention(Kernel &kernel, AttentionOp op) { AttentionBuilder(kernel, op).build(); }
