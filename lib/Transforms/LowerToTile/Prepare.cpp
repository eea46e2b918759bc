//===- Prepare.cpp - the kernel that schedules sequences ------------------===//
//
// A tile of work is one sequence: it finds its place among all by what these have to do, and writes
// its own entries of the schedule. So nobody waits for anybody, and no order of writes matters.
//
//===----------------------------------------------------------------------===//
#include "Kernel.h"
#include "flash/Conversion/IrInt.h"
#include "flash/Schedule/WorkOrder.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace flash;

namespace {
class PrepareBuilder {
public:
  PrepareBuilder(Kernel &kernel, AttentionOp op)
      : k(kernel), b(kernel.b), op(op), plan(op.getPlanAttr()) {}

  void build() {
    auto qType = cast<ShapedType>(op.getQ().getType()),
         kType = cast<ShapedType>(op.getK().getType());
    M = *plan.getInt("tile", 0), N = *plan.getInt("tile", 1);
    keyBytes = (qType.getShape().back() + cast<ShapedType>(op.getV().getType()).getShape().back()) *
               qType.getElementTypeBitWidth() / 8;
    Value q = k.argument("q", qType),
          keys = k.argument("k", kType, true, static_cast<bool>(op.getPageTable()));
    const Tables queries = k.queryTables(op), cached = k.keyTables(op);
    table = k.table("schedule", op.getSchedule());
    maxSplits = k.argument("max_splits", b.getIndexType());
    sms = k.argument("sms", b.getIndexType());
    auto headsOf = [&](Value x) {
      return toInt(k.dim(x, cast<MemRefType>(x.getType()).getRank() - 2));
    };
    // Without heads there is no work, but their ratio is computed all the same.
    IrInt kvHeads = max(headsOf(keys), int64_t(1));
    heads = headsOf(q).get(), group = floorDiv(headsOf(q), kvHeads).get();
    if (plan.getFlag("pack_gqa").value_or(false)) {
      packed = std::max<int64_t>(
          qType.getShape().take_back(2).front() / kType.getShape().take_back(2).front(), 1);
      heads = kvHeads.get(), group = k.index(1);
    }
    qv = k.view(q, qType.getShape().back(), packed, false, queries);
    kv = k.view(keys, kType.getShape().back(), 1, false, cached);
    batch = op.getCuSeqlensQ() ? (toInt(k.dim(queries.cuSeqlens, 0)) - 1).get() : k.dim(q, 0);
    k.forTiles(k.index(1), 1, k.index(1), batch,
               [&](Value, Value, Value bi) { buildSequence(toInt(bi)); });
    k.finish();
  }

private:
  struct Tiles {
    IrInt m, n;
    IrInt work() const { return m * n; }
  };
  Tiles tilesOf(IrInt sequence) {
    auto length = [&](Value view) {
      return toInt(tile::LengthOp::create(b, b.getIndexType(), view, sequence.get()));
    };
    IrInt lenK = length(kv);
    // Under a window a tile of queries needs no more keys than it spans.
    const schedule::Mask mask = op.getMask().mask();
    if (mask.kind == schedule::MaskKind::local && mask.left >= 0 && mask.right >= 0)
      lenK = min(lenK, mask.left + mask.right + 1 + M);
    return {ceilDiv(length(qv), M), ceilDiv(lenK, N)};
  }

  SmallVector<Value> total(unsigned values, function_ref<SmallVector<Value>(IrInt)> body) {
    auto op = tile::TotalOp::create(b, SmallVector<Type>(values, b.getIndexType()), batch);
    OpBuilder::InsertionGuard guard(b);
    Block *block = b.createBlock(&op.getBody(), {}, b.getIndexType(), b.getLoc());
    tile::YieldOp::create(b, body(toInt(block->getArgument(0))));
    return op.getResults();
  }

  void buildSequence(IrInt sequence) {
    const Tiles mine = tilesOf(sequence);
    SmallVector<Value> pairs =
        total(1, [&](IrInt i) -> SmallVector<Value> { return {tilesOf(i).work().get()}; });
    IrInt share = schedule::keyShare(toInt(pairs[0]), toInt(heads), toInt(sms));
    auto tilesOfAll = [&](const Tiles &x) {
      return x.m * toInt(heads) * schedule::splitsOfSequence(x.n, share, toInt(maxSplits));
    };
    SmallVector<Value> before = total(2, [&](IrInt i) -> SmallVector<Value> {
      const Tiles other = tilesOf(i);
      IrInt isFirst = schedule::comesFirst(other.work(), i, mine.work(), sequence);
      return {isFirst.get(), (isFirst * tilesOfAll(other)).get()};
    });
    IrInt place = toInt(before[0]), start = toInt(before[1]);
    write(schedule::startsRow, place, start);
    write(schedule::sequenceRow, place, sequence);
    write(schedule::splitsRow, sequence,
          schedule::splitsOfSequence(mine.n, share, toInt(maxSplits)));
    write(schedule::sectionRow, sequence,
          schedule::sectionOfSequence(mine.n, N * keyBytes, toInt(group), toInt(heads)));
    Value isLast = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, (place + 1).get(), batch);
    auto branch = scf::IfOp::create(b, isLast, /*withElseRegion=*/false);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.thenBlock());
    write(schedule::startsRow, toInt(batch), start + tilesOfAll(mine));
  }

  void write(schedule::ScheduleRow row, IrInt column, IrInt value) {
    Value narrow = arith::IndexCastOp::create(b, b.getI32Type(), value.get());
    memref::StoreOp::create(b, narrow, table, ValueRange{k.index(row), column.get()});
  }
  IrInt toInt(Value value) { return IrInt(b, value); }

  Kernel &k;
  ImplicitLocOpBuilder &b;
  AttentionOp op;
  PlanAttr plan;
  int64_t M = 0, N = 0, keyBytes = 0, packed = 1;
  Value table, maxSplits, sms, heads, group, batch, qv, kv;
};
} // namespace

void flash::buildPrepare(Kernel &kernel, AttentionOp op) { PrepareBuilder(kernel, op).build(); }
