//===- Sums.cpp - sums over threads, and over blocks ----------------------===//
//
// Of rows, in a kernel that multiplies nothing: what eight neighbouring threads of a row have is
// joined by shuffles, the eights of a row too where a warp has them all, else through shared
// memory: one by one either way. In global memory: other blocks add to the same rows, in any order
// or each in its turn.
//
// A turn is passed on when what was added can be seen: by a release in one thread, behind a barrier
// of all that added. The next awaits it by an acquire in one thread, in front of a barrier of all
// that will add. So each sum is before the next in causality order, and in coherence order (PTX
// ISA, "Memory consistency model": barriers synchronize, and causality is transitive).
//
// Nobody waits for ever. A block waits for blocks of smaller ordinals alone, those that have the
// key tiles before its own in the order of the sum; blocks are started in the order of their
// ordinals, also where there are more than the machine holds at once, and a sequence's key tiles,
// packed or not, have ordinals in the order of its sums. So of those that are not done the block of
// the smallest ordinal runs, and it waits for none: all before it have passed all their turns on.
//
//===----------------------------------------------------------------------===//
#include "Fragments.h"
#include "Ldmatrix.h"
#include "flash/Conversion/IrInt.h"
#include "flash/Schedule/Splits.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace flash::nvvm {

using B = ImplicitLocOpBuilder;

// Of a product. In memory lanes follow one another: each with its values of a cell, where these are
// added at once, else once for each value, so that an instruction of a warp takes whole lines.
constexpr int64_t cellRows = 16, cellCols = 8, cellValues = 4;
constexpr int64_t cellBytes = cellRows * cellCols * sizeof(float);

int64_t Fragments::inCell(int64_t value) const {
  return kernel.addsFours() ? value : value * schedule::warpThreads;
}

static int64_t bytesOf(Value value) {
  auto type = ::llvm::cast<VectorType>(value.getType());
  return type.getNumElements() * type.getElementTypeBitWidth() / 8;
}

Value Fragments::sum(B &b, tile::SumOp op, Value value) {
  constexpr int64_t joined = 8; // threads: a row's are a multiple of it, but of a column
  ArrayRef<int64_t> shape = op.getValue().getType().getShape();
  const bool isColumn = shape[1] == 1, isAll = op.getResult().getType().getShape()[0] != shape[0];
  Type f32 = b.getF32Type();
  Value mine;
  for (int64_t i = 0; i < cast<VectorType>(value.getType()).getNumElements(); ++i) {
    Value one = LLVM::ExtractElementOp::create(b, value, i32(b, i));
    mine = mine ? arith::AddFOp::create(b, mine, one).getResult() : one;
  }
  IrInt thread(b, toIndex(b, threadId(b)));
  if (isColumn && !isAll)
    return value;
  if (isAll) { // of a column one value a row, which all of its threads have
    auto [row, col] = dealt(b, op.getValue().getType());
    Value counts = arith::AndIOp::create(b, lessThan(IrInt(b, row), shape[0]).get(),
                                         lessThan(IrInt(b, col), isColumn ? 1 : shape[1]).get());
    mine = arith::SelectOp::create(b, counts, mine,
                                   arith::ConstantOp::create(b, b.getF32FloatAttr(0)));
  }
  for (int64_t mask = 1; mask < joined; mask *= 2)
    mine = arith::AddFOp::create(b, mine, shuffleXor(b, mine, mask));
  Value sum;
  auto addEight = [&](Value eight) {
    sum = sum ? arith::AddFOp::create(b, sum, eight).getResult() : eight;
  };
  auto column = [&]() -> Value {
    return LLVM::InsertElementOp::create(b, LLVM::PoisonOp::create(b, VectorType::get({1}, f32)),
                                         sum, i32(b, 0));
  };
  // Where columns (Rx1) are dealt as wider rows are, others want the sum than those who have it.
  if (const int64_t aRow = shape[1] / schedule::combineColumns;
      !isAll && shape[1] == kernel.columns && schedule::warpThreads % aRow == 0) {
    Value first = arith::AndIOp::create(b, laneId(b), i32(b, schedule::warpThreads - aRow));
    for (int64_t lane = 0; lane < aRow; lane += joined)
      addEight(NVVM::ShflOp::create(b, f32, i32(b, -1), mine,
                                    arith::AddIOp::create(b, first, i32(b, lane)), i32(b, 31),
                                    NVVM::ShflKind::idx, UnitAttr()));
    return column();
  }
  auto place = [&](IrInt eight) { return kernel.shared(b, toI32(b, (eight * 4).get())); };
  NVVM::Barrier0Op::create(b); // who still reads the sums before
  {
    OpBuilder::InsertionGuard guard(b);
    Value isFirst = lessThan(remainder(thread, joined), 1).get();
    b.setInsertionPointToStart(scf::IfOp::create(b, isFirst).thenBlock());
    LLVM::StoreOp::create(b, mine, place(floorDiv(thread, joined)));
  }
  NVVM::Barrier0Op::create(b);
  IrInt first = constant(thread, 0);
  int64_t eights = kernel.threads / joined;
  if (!isAll) {
    auto [row, col] = dealt(b, op.getResult().getType());
    eights = shape[1] / schedule::combineColumns / joined;
    first = min(IrInt(b, row), shape[0] - 1) * eights;
  }
  for (int64_t i = 0; i < eights; ++i)
    addEight(LLVM::LoadOp::create(b, f32, place(first + i)));
  return column();
}

/// All threads write what they have; each then reads the same columns of all rows that its own row
/// stands for.
SmallVector<Value> Fragments::splitRows(B &b, tile::SplitRowsOp op, ValueRange values) {
  const int64_t parts = op.parts();
  Value thread = toIndex(b, threadId(b));
  NVVM::Barrier0Op::create(b); // who still reads what was passed before
  SmallVector<IrInt> starts;
  IrInt start = constant(IrInt(b, thread), 0);
  auto place = [&](IrInt start, Value value, IrInt thread) {
    return kernel.shared(b, toI32(b, (start + thread * bytesOf(value)).get()));
  };
  for (Value value : values) {
    starts.push_back(start);
    LLVM::StoreOp::create(b, value, place(start, value, IrInt(b, thread)), bytesOf(value));
    start = start + kernel.threads * bytesOf(value);
  }
  NVVM::Barrier0Op::create(b);
  SmallVector<Value> results;
  for (auto [from, value, type] : llvm::zip(starts, values, op.getValues().getTypes())) {
    auto shape = ::llvm::cast<tile::FragType>(type).getShape();
    const int64_t rows = shape[0] / parts,
                  aRow = (shape[1] == 1 ? kernel.columns : shape[1]) / schedule::combineColumns;
    IrInt first = remainder(IrInt(b, thread), rows * aRow);
    for (int64_t part = 0; part < parts; ++part)
      results.push_back(LLVM::LoadOp::create(
          b, value.getType(), place(from, value, first + part * rows * aRow), bytesOf(value)));
  }
  return results;
}

static Value inlineAsm(B &b, Type result, ValueRange operands, StringRef text,
                       StringRef constraints) {
  auto op = LLVM::InlineAsmOp::create(
      b, result, operands, text, constraints, /*has_side_effects=*/true,
      /*is_align_stack=*/false, LLVM::tailcallkind::TailCallKind::None,
      LLVM::AsmDialectAttr::get(b.getContext(), LLVM::AsmDialect::AD_ATT), ArrayAttr());
  return op.getNumResults() ? op.getResult(0) : Value();
}

/// All look until `agree` says that none looks on: in step, for barriers stand in no divergent code
/// (PTX ISA, "barrier").
static void awaitTurn(B &b, Value place, Value turn, function_ref<Value(Value)> agree) {
  OpBuilder::InsertionGuard guard(b);
  Value wanted = toI32(b, turn);
  auto loop = scf::WhileOp::create(b, TypeRange(), ValueRange());
  b.createBlock(&loop.getBefore());
  Value seen =
      inlineAsm(b, b.getI32Type(), place, "ld.acquire.gpu.global.b32 $0, [$1];", "=r,l,~{memory}");
  Value isOther = arith::CmpIOp::create(b, arith::CmpIPredicate::ne, seen, wanted);
  scf::ConditionOp::create(b, agree(isOther), ValueRange());
  b.createBlock(&loop.getAfter());
  scf::YieldOp::create(b);
}

/// In the one thread of `thread` 0.
static void passTurn(B &b, Value place, Value thread) {
  Value isFirst = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, thread, i32(b, 0));
  inlineAsm(b, LLVM::LLVMVoidType::get(b.getContext()), ValueRange{place, i32(b, 1), isFirst},
            "@$2 red.release.gpu.global.add.u32 [$0], $1;", "l,r,b,~{memory}");
}

/// A consumer and the warp that keeps its turns meet at two named barriers, behind those of the
/// block and of the consumers: one lets the consumer add, at the other it has added. `consumer`
/// counts from 0, i32.
static void meetKeeper(B &b, const Kernel &kernel, Value consumer, bool hasAdded, bool waits) {
  const int64_t threads = (kernel.warps + 1) * schedule::warpThreads,
                first = 1 + (1 + hasAdded) * kernel.consumers;
  Value id = arith::AddIOp::create(b, consumer, i32(b, first));
  if (waits)
    NVVM::BarrierOp::create(b, Type(), id, i32(b, threads), NVVM::BarrierReductionAttr(), Value());
  else
    NVVM::BarrierArriveOp::create(b, id, i32(b, threads));
}

void Fragments::keepTurn(B &b, tile::KeepTurnOp op, tile::KeepTurnOp::Adaptor in) {
  Value place = kernel.element(b, op.getTurns(), in.getPlace());
  Value consumer = arith::SubIOp::create(
      b, warpId(b), i32(b, schedule::warpgroupWarps - kernel.consumers)); // the last of the group
  awaitTurn(b, place, in.getTurn(), [&](Value isOther) -> Value {
    Value others = arith::ExtUIOp::create(b, b.getI32Type(), isOther);
    return arith::CmpIOp::create(b, arith::CmpIPredicate::ne, broadcastLane0(b, others), i32(b, 0));
  });
  meetKeeper(b, kernel, consumer, /*hasAdded=*/false, /*waits=*/false);
  meetKeeper(b, kernel, consumer, /*hasAdded=*/true, /*waits=*/true);
  passTurn(b, place, laneId(b));
}

/// Whether eight columns from `col` on are the sum's, which is as wide as the heads are; null: all
/// of its fragments are, for tiles are no wider.
static Value isOfSum(B &b, const Kernel &kernel, tile::ViewOp view, IrInt col) {
  const int64_t cols = view.getView().getType().getShape()[0];
  bool isWider = false; // the tile that its product is of
  func::FuncOp(kernel.func).walk([&](tile::RingOp ring) {
    isWider |= ring.getName() == "k" && ring.getType().getShape()[2] > cols;
  });
  return isWider ? lessThan(col, cols).get() : Value();
}

/// `text` of as many operands, where `isWanted` (or null: always) says so.
static void where(B &b, Value isWanted, SmallVector<Value> operands, const std::string &text,
                  const std::string &constraints) {
  const std::string guard = isWanted ? "@$" + std::to_string(operands.size()) + " " : "";
  if (isWanted)
    operands.push_back(isWanted);
  inlineAsm(b, LLVM::LLVMVoidType::get(b.getContext()), operands, guard + text,
            constraints + (isWanted ? ",b" : "") + ",~{memory}");
}

/// In one lane, always the same: groups of copies are a thread's own.
static void inFirstLane(B &b, ValueRange operands, StringRef text, StringRef constraints,
                        Value isWanted = {}) {
  SmallVector<Value> all(operands);
  all.push_back(arith::CmpIOp::create(b, arith::CmpIPredicate::eq, laneId(b), i32(b, 0)));
  if (isWanted)
    all.back() = arith::AndIOp::create(b, all.back(), isWanted);
  inlineAsm(b, LLVM::LLVMVoidType::get(b.getContext()), all,
            ("@$" + Twine(operands.size()) + " " + text).str(),
            (constraints + "b,~{memory}").str());
}

void Fragments::addRows(B &b, tile::StoreOp op, tile::StoreOp::Adaptor in) {
  constexpr int64_t side = Ldmatrix::side;
  tile::ViewOp view = viewOf(op.getView());
  ArrayRef<int64_t> shape = op.getValue().getType().getShape();
  const auto grid = kernel.gridOf(shape[0]);
  const int64_t slots = 2 * groupsOf(shape[0]), cells = shape[1] / grid.cols / cellCols;
  // Anew, or where this thread's cells lie would be kept over loops.
  Value thread = freshThreadId(b), firstRow = firstRowOfWarp(b, kernel, shape[0], thread);
  Value lane = arith::AndIOp::create(b, thread, i32(b, schedule::warpThreads - 1));
  firstRow = arith::AddIOp::create(b, firstRow, arith::ShRUIOp::create(b, lane, i32(b, 2)));
  Value col = arith::ShLIOp::create(b, arith::AndIOp::create(b, lane, i32(b, 3)), i32(b, 1));
  col = arith::AddIOp::create(b, col, firstColumnOfWarp(b, kernel, shape[0], thread));
  if (in.getCol())
    col = arith::AddIOp::create(b, col, toI32(b, in.getCol()));
  IrInt row = IrInt(b, in.getRow()) + IrInt(b, toIndex(b, firstRow)),
        length(b, kernel.length(b, view, in.getBatch()));
  for (int64_t slot = 0; slot < slots; ++slot) {
    IrInt at = row + (slot / 2 * side + slot % 2 * cellCols);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(scf::IfOp::create(b, lessThan(at, length).get()).thenBlock());
    Value base = kernel.address(b, view, in.getBatch(), in.getHead(), at.get(), toIndex(b, col));
    for (int64_t cell = 0; cell < cells; ++cell) {
      const int64_t first = cell / 2 * grid.cols * side + cell % 2 * cellCols;
      Value isThere = isOfSum(b, kernel, view, IrInt(b, toIndex(b, col)) + first);
      for (int64_t i = 0; i < 2; ++i) {
        Value one = LLVM::ExtractElementOp::create(
            b, in.getValue(), i32(b, (slot / 2 * cells + cell) * 4 + slot % 2 * 2 + i));
        where(b, isThere, {base, one},
              "red.relaxed.gpu.global.add.f32 [$0+" + std::to_string((first + i) * 4) + "], $1;",
              "l,f");
      }
    }
  }
}

void Fragments::addCells(B &b, tile::StoreOp op, tile::StoreOp::Adaptor in) {
  tile::ViewOp view = viewOf(op.getView());
  ArrayRef<int64_t> shape = op.getValue().getType().getShape();
  const auto grid = kernel.gridOf(shape[0]);
  const int64_t cells = shape[1] / grid.cols / cellCols;
  // Anew, or where this thread's cells lie would be kept over loops.
  Value thread = freshThreadId(b), firstRow = firstRowOfWarp(b, kernel, shape[0], thread);
  Value lane = arith::AndIOp::create(b, thread, i32(b, schedule::warpThreads - 1));
  IrInt row = IrInt(b, in.getRow()) + IrInt(b, toIndex(b, firstRow)),
        col(b, toIndex(b, firstColumnOfWarp(b, kernel, shape[0], thread)));
  if (in.getCol())
    col = col + IrInt(b, in.getCol());
  auto placeOf = [&](int64_t group, IrInt within) {
    return kernel.address(b, view, in.getBatch(), in.getHead(), (row + group * cellRows).get(),
                          (col * cellRows + within).get());
  };
  // A warp's cells lie in a slot as they do in memory, group by group.
  const int64_t groupBytes = cells * cellBytes;
  Value slot, mine;
  if (op.getRing()) {
    tile::RingOp ring = ringOf(op.getRing());
    slot = arith::MulIOp::create(b, toI32(b, in.getIt()), i32(b, slotBytes(ring.getType())));
    slot = arith::AddIOp::create(b, slot,
                                 arith::MulIOp::create(b, firstRow, i32(b, groupBytes / cellRows)));
    slot = LLVM::PtrToIntOp::create(
        b, b.getI32Type(),
        kernel.shared(b, arith::AddIOp::create(b, slot, i32(b, *ring.getOffset()))));
    mine = arith::AddIOp::create(
        b, slot, arith::MulIOp::create(b, lane, i32(b, cellBytes / schedule::warpThreads)));
    // What was staged before must have been read.
    inFirstLane(b, {}, "cp.async.bulk.wait_group.read 0;", "");
    NVVM::SyncWarpOp::create(b, i32(b, -1));
  }
  const int64_t atOnce = kernel.addsFours() ? cellValues : 1;
  for (int64_t group = 0; group < groupsOf(shape[0]); ++group) {
    Value base = slot ? mine : placeOf(group, IrInt(b, toIndex(b, lane)) * atOnce);
    for (int64_t cell = 0; cell < cells; ++cell) {
      const int64_t number = cell / 2 * grid.cols * 2 + cell % 2,
                    at = number * cellBytes + (slot ? group * groupBytes : 0);
      Value isThere = slot ? Value() : isOfSum(b, kernel, view, col + number * cellCols);
      for (int64_t i = 0; i < cellValues; i += atOnce) {
        SmallVector<Value> operands{base};
        for (int64_t j = i; j < i + atOnce; ++j)
          operands.push_back(LLVM::ExtractElementOp::create(
              b, in.getValue(), i32(b, (group * cells + cell) * cellValues + j)));
        const std::string place = std::to_string(at + inCell(i) * sizeof(float));
        if (atOnce == 1)
          where(b, isThere, operands, "red.relaxed.gpu.global.add.f32 [$0+" + place + "], $1;",
                "l,f");
        else
          where(b, isThere, operands,
                (slot ? "st.shared.v4.f32 [$0+" : "red.relaxed.gpu.global.add.v4.f32 [$0+") +
                    place + "], {$1, $2, $3, $4};",
                slot ? "r,f,f,f,f" : "l,f,f,f,f");
      }
    }
  }
  if (!slot)
    return;
  // Written through the generic proxy, read by the copy engine (PTX ISA, "Async proxy").
  fenceProxies(b);
  NVVM::SyncWarpOp::create(b, i32(b, -1));
  Value isThere = isOfSum(b, kernel, view, col), bytes;
  if (isThere) {
    IrInt left = constant(col, view.getView().getType().getShape()[0]) - col;
    bytes = toI32(b, min(left * (cellBytes / cellCols), groupBytes).get());
  }
  for (int64_t group = 0; group < groupsOf(shape[0]); ++group) {
    SmallVector<Value> operands{placeOf(group, constant(row, 0)), slot};
    if (bytes)
      operands.push_back(bytes);
    inFirstLane(b, operands,
                "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [$0], [$1+" +
                    std::to_string(group * groupBytes) + "], " +
                    (bytes ? "$2" : std::to_string(groupBytes)) + ";",
                bytes ? "l,r,r," : "l,r,", isThere);
  }
  inFirstLane(b, {}, "cp.async.bulk.commit_group;", "");
}

void Fragments::storeSum(B &b, tile::StoreOp op, tile::StoreOp::Adaptor in) {
  Value turn = op.getTurns() ? kernel.element(b, op.getTurns(), in.getPlace()) : Value();
  Value consumer;
  if (turn) {
    awaitTurn(b, turn, in.getTurn(),
              [&](Value isOther) { return anyAtBarrier(b, isOther, i32(b, 0), kernel.threads); });
  } else if (op.getKept()) {
    Value group =
        arith::DivUIOp::create(b, freshThreadId(b), i32(b, kernel.warps * schedule::warpThreads));
    consumer = arith::SubIOp::create(b, group, i32(b, 1));
    meetKeeper(b, kernel, consumer, /*hasAdded=*/false, /*waits=*/true);
  }
  if (viewOf(op.getView()).getCells())
    addCells(b, op, in);
  else
    addRows(b, op, in);
  if (turn) {
    NVVM::Barrier0Op::create(b);
    passTurn(b, turn, threadId(b));
  } else if (consumer) {
    meetKeeper(b, kernel, consumer, /*hasAdded=*/true, /*waits=*/false);
  }
}

Value Fragments::loadSum(B &b, tile::LoadOp op, tile::LoadOp::Adaptor in) {
  constexpr int64_t pair = 2; // what a lane has of a row
  const bool addsFours = kernel.addsFours();
  const int64_t ofLane = addsFours ? cellValues : 1;
  auto [dealtRow, dealtCol] = dealt(b, op.getResult().getType());
  IrInt row = IrInt(b, in.getRow()) + IrInt(b, dealtRow), col(b, dealtCol);
  const int64_t cols = viewOf(op.getView()).getView().getType().getShape()[0];
  if (cols < op.getResult().getType().getShape()[1]) // the others are not stored
    col = min(col, cols - schedule::combineColumns);
  IrInt inRows = remainder(row, cellRows),
        lane = remainder(inRows, cellRows / 2) * 4 + floorDiv(remainder(col, cellCols), pair);
  IrInt first = floorDiv(col, cellCols) * (cellCols * cellRows) + lane * ofLane +
                floorDiv(inRows, cellRows / 2) * inCell(pair);
  Value base = kernel.address(b, viewOf(op.getView()), in.getBatch(), in.getHead(),
                              (row - inRows).get(), first.get());
  Type f32 = b.getF32Type();
  Value all = LLVM::PoisonOp::create(b, typeOf(op.getResult().getType().getShape(), f32));
  // Neighbours in memory: of a lane, or the same value of two lanes.
  for (int64_t i = 0; i < schedule::combineColumns / pair; ++i) {
    const int64_t at = addsFours ? i * cellValues : inCell(i);
    Value place = LLVM::GEPOp::create(b, base.getType(), f32, base,
                                      ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(at)});
    Value some = LLVM::LoadOp::create(b, VectorType::get({pair}, f32), place,
                                      /*alignment=*/pair * sizeof(float));
    for (int64_t j = 0; j < pair; ++j)
      all =
          LLVM::InsertElementOp::create(b, all, LLVM::ExtractElementOp::create(b, some, i32(b, j)),
                                        i32(b, addsFours ? i * pair + j : j * pair + i));
  }
  return all;
}

} // namespace flash::nvvm
