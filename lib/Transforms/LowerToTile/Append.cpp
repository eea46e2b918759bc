//===- Append.cpp - the kernel that writes new rows into a cache ----------===//
//
// A tile of work is some rows of one head: of k_new and v_new, where there is such a KV head, and
// of q, where it is turned.
//
//===----------------------------------------------------------------------===//
#include "Kernel.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace flash;

namespace {
class AppendBuilder {
public:
  AppendBuilder(Kernel &kernel, AppendOp op) : k(kernel), b(kernel.b), op(op) {}

  void build() {
    M = *op.getPlanAttr().getInt("tile", 0);
    auto size = [](Value x) { return cast<MemRefType>(x.getType()).getShape().back(); };
    const bool pages = static_cast<bool>(op.getPageTable());
    Value kNew = k.argument("k_new", op.getKNew().getType());
    Value vNew = k.argument("v_new", op.getVNew().getType());
    Value kCache = k.argument("k", op.getOuts()[0].getType(), true, pages);
    Value vCache = k.argument("v", op.getOuts()[1].getType(), true, pages);
    Value used = k.table("seqused_k", op.getSequsedK());
    // Row t of what is written stands behind `used` rows, and there are as many as new ones.
    const Tables behind{.seqused = used,
                        .appended = k.dim(kNew, 1),
                        .pageTable = k.table("page_table", op.getPageTable()),
                        .batchIdx = k.table("kv_batch_idx", op.getKvBatchIdx()),
                        .leftpad = used};
    const int64_t D = size(op.getKNew()), Dv = size(op.getVNew());
    usedView =
        k.view(kCache, D, 1, false,
               {.seqused = used, .pageTable = behind.pageTable, .batchIdx = behind.batchIdx});
    kFrom = k.view(kNew, D, 1, false), vFrom = k.view(vNew, Dv, 1, false);
    kTo = k.view(kCache, D, 1, false, behind), vTo = k.view(vCache, Dv, 1, false, behind);
    if (op.getCos()) {
      cos = k.argument("rotary_cos", op.getCos().getType());
      sin = k.argument("rotary_sin", op.getSin().getType());
    }
    Value rows = k.dim(kNew, 1), heads = kvHeads = k.dim(kNew, 2);
    if (op.getQ()) {
      Value q = k.argument("q", op.getQ().getType()),
            turned = k.argument("q_turned", op.getOuts()[2].getType());
      const Tables queries{.cuSeqlens = k.table("cu_seqlens_q", op.getCuSeqlensQ())};
      qFrom = k.view(q, D, 1, false, queries), qTo = k.view(turned, D, 1, false, queries);
      Value longest = k.table("max_seqlen_q", op.getMaxSeqlenQ());
      rows = arith::MaxUIOp::create(b, rows, longest ? longest : k.dim(q, 1));
      heads = arith::MaxUIOp::create(b, heads, k.dim(q, longest ? 1 : 2));
    }
    k.forTiles(rows, M, heads, k.dim(kNew, 0),
               [&](Value m, Value h, Value bi) { buildTile(m, h, bi); });
    k.finish();
  }

private:
  void buildTile(Value m, Value h, Value bi) {
    Value row0 = arith::MulIOp::create(b, m, k.index(M));
    Value old = tile::LengthOp::create(b, b.getIndexType(), usedView, bi);
    Value position = arith::AddIOp::create(b, old, row0);
    Value isKv = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, h, kvHeads);
    auto branch = scf::IfOp::create(b, isKv, /*withElseRegion=*/false);
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(branch.thenBlock());
      move(kFrom, kTo, bi, h, row0, position, /*fixed=*/false, cos);
      move(vFrom, vTo, bi, h, row0, position, /*fixed=*/false, Value());
    }
    if (qFrom)
      move(qFrom, qTo, bi, h, row0, op.getFixed() ? old : position, op.getFixed(), cos);
  }

  void move(Value from, Value to, Value bi, Value h, Value row0, Value position, bool fixed,
            Value cos) {
    auto view = cast<tile::ViewType>(from.getType());
    Type type = k.frag(M, view.getShape()[0], view.getElementType());
    Value x = tile::LoadOp::create(b, type, from, bi, h, row0);
    if (cos)
      x = tile::RotateOp::create(b, type, x, cos, sin, position, op.getInterleaved(), fixed);
    tile::StoreOp::create(b, x, to, bi, h, row0);
  }

  Kernel &k;
  ImplicitLocOpBuilder &b;
  AppendOp op;
  int64_t M = 0;
  Value cos, sin, kvHeads, usedView, kFrom, vFrom, qFrom, kTo, vTo, qTo;
};
} // namespace

void flash::buildAppend(Kernel &kernel, AppendOp op) { AppendBuilder(kernel, op).build(); }
