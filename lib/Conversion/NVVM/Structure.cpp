//===- Structure.cpp - work, roles and ranges as scf ----------------------===//
//
// What touches no fragment: it needs no type conversion and goes first. Formulas come from
// flash/Schedule, evaluated on IrInt.
//
//===----------------------------------------------------------------------===//
#include "Structure.h"
#include "flash/Conversion/IrInt.h"
#include "flash/Conversion/PackedWork.h"
#include "flash/Schedule/BlockRange.h"
#include "flash/Schedule/WorkOrder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace flash::nvvm {

using B = ImplicitLocOpBuilder;

static void expandRange(IRRewriter &rewriter, tile::BlockRangeOp op) {
  B b(op.getLoc(), rewriter);
  auto in = [&](Value value) { return IrInt(b, value); };
  const schedule::Mask mask = op.getMask().mask();
  IrInt row0 = in(op.getRow0()), lenQ = in(op.getLenQ()), lenK = in(op.getLenK());
  auto runs = op.getQueries()
                  ? schedule::queryRuns(mask, row0, op.getRows(), op.getBlock(), lenQ, lenK)
                  : schedule::keyRuns<IrInt>(mask, row0, op.getRows(), op.getBlock(), lenQ, lenK,
                                             op.getGroup(), in(op.getSplit()), in(op.getSplits()),
                                             op.getEveryRow());
  rewriter.replaceOp(op, ValueRange{runs.end.get(), runs.right.get(), runs.inner.get(),
                                    runs.left.get(), runs.sink.get()});
}

static schedule::WorkShape<IrInt> shapeOf(B &b, tile::ForWorkOp op) {
  IrInt heads(b, op.getHeads()), batch(b, op.getBatch());
  if (op.getPacked()) // its tiles are counted through
    batch = IrInt(b, int64_t(1));
  IrInt section = op.getSection() ? IrInt(b, op.getSection()) : heads * batch;
  return {IrInt(b, op.getMTiles()), heads,   batch,
          IrInt(b, op.getSplits()), section, static_cast<int64_t>(op.getCluster())};
}

static IrInt scheduled(B &b, tile::ForWorkOp op, Kernel &kernel, schedule::ScheduleRow row,
                       IrInt column) {
  return IrInt(b, kernel.entry(b, op.getSchedule(), IrInt(b, row).get(), column.get()));
}

/// How many tiles there are.
static Value tilesOf(B &b, tile::ForWorkOp op, Kernel &kernel) {
  if (op.getSchedule())
    return scheduled(b, op, kernel, schedule::startsRow, IrInt(b, op.getBatch())).get();
  return schedule::tilesOf(shapeOf(b, op)).get();
}

/// The tile of an ordinal.
static schedule::Work<IrInt> workAt(B &b, tile::ForWorkOp op, Kernel &kernel, IrInt t) {
  if (op.getSchedule())
    return scheduledWorkAt(b, t, IrInt(b, op.getHeads()), IrInt(b, op.getBatch()),
                           [&](schedule::ScheduleRow row, IrInt column) {
                             return scheduled(b, op, kernel, row, column);
                           });
  if (op.getPacked())
    return packedWorkAt(
        b, t, shapeOf(b, op), IrInt(b, op.getBatch()), op.getGroup(), *op.getTile(),
        [&](IrInt sequence) { return IrInt(b, kernel.entry(b, op.getPacked(), sequence.get())); });
  return schedule::workAt(*schedule::parseOrder(op.getOrder()), t, shapeOf(b, op));
}

/// Moves the work's body to the end of `body`, as the tile of `ordinal`; gives its yield.
static tile::YieldOp moveBody(B &b, IRRewriter &rewriter, tile::ForWorkOp op, Kernel &kernel,
                              Block *body, Value ordinal, ValueRange carried) {
  auto work = workAt(b, op, kernel, IrInt(b, ordinal));
  SmallVector<Value> arguments{work.m.get(), work.head.get(), work.batch.get(), work.split.get()};
  llvm::append_range(arguments, carried);
  auto yield = cast<tile::YieldOp>(op.getBody().front().getTerminator());
  rewriter.mergeBlocks(&op.getBody().front(), body, arguments);
  rewriter.setInsertionPoint(yield);
  return yield;
}

/// What the counter held. Asked for when all of a tile is fetched, which others still compute: who
/// asked when it begins would be a tile ahead, and long tiles that are taken in advance leave
/// blocks idle at the end. The last of all tiles (of clusters, which take theirs at once) wraps it
/// to 0.
static Value take(B &b, tile::ForWorkOp op, Value tiles, Kernel &kernel, TileEmitter &emitter) {
  auto add = [&]() -> Value {
    Value last = toI32(b, floorDiv(IrInt(b, tiles), op.getCluster()).get());
    return LLVM::AtomicRMWOp::create(b, LLVM::AtomicBinOp::uinc_wrap, kernel.counter(b),
                                     arith::SubIOp::create(b, last, i32(b, 1)),
                                     LLVM::AtomicOrdering::monotonic, "device");
  };
  if (op.getCluster() == 1)
    return add();
  auto branch = scf::IfOp::create(b, b.getI32Type(), emitter.takesForCluster(b),
                                  /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  Value held = arith::MulIOp::create(b, add(), i32(b, op.getCluster()));
  scf::YieldOp::create(b, held);
  b.setInsertionPointToStart(branch.elseBlock());
  Value nothing = i32(b, 0);
  scf::YieldOp::create(b, nothing);
  return branch.getResult(0);
}

/// Block i of n begins with ordinal i; whoever takes asks a counter for each further one.
static void expandTaking(IRRewriter &rewriter, tile::ForWorkOp op, Kernel &kernel,
                         TileEmitter &emitter) {
  B b(op.getLoc(), rewriter);
  Value first = toIndex(b, NVVM::BlockIdXOp::create(b, b.getI32Type()));
  Value step = toIndex(b, NVVM::GridDimXOp::create(b, b.getI32Type()));
  Value tiles = tilesOf(b, op, kernel);
  SmallVector<Value> inits{first, arith::ConstantIndexOp::create(b, 0)}; // and ordinals handed on
  llvm::append_range(inits, op.getInits());
  SmallVector<Type> types(ValueRange(inits).getTypes());
  auto loop = scf::WhileOp::create(b, types, inits);
  SmallVector<Location> locations(types.size(), op.getLoc());
  Block *before = b.createBlock(&loop.getBefore(), {}, types, locations);
  Value more = arith::CmpIOp::create(b, arith::CmpIPredicate::slt, before->getArgument(0), tiles);
  scf::ConditionOp::create(b, more, before->getArguments());

  Block *body = b.createBlock(&loop.getAfter(), {}, types, locations);
  Value t = body->getArgument(0), n = body->getArgument(1);
  auto yield = moveBody(b, rewriter, op, kernel, body, t, body->getArguments().drop_front(2));
  b.setInsertionPoint(yield);
  Value next;
  if (op.getTakes()) {
    next = take(b, op, tiles, kernel, emitter);
    Value isNone = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, kernel.counterNumber(),
                                         i32(b, schedule::workCounters));
    next = arith::SelectOp::create(b, isNone, toI32(b, t), next);
    next = arith::AddIOp::create(b, next, toI32(b, step));
    next = emitter.publish(b, ringOf(op.getRing()), n, next);
  } else {
    next = emitter.follow(b, ringOf(op.getRing()), n);
  }
  SmallVector<Value> values{toIndex(b, next), (IrInt(b, n) + 1).get()};
  llvm::append_range(values, yield.getValues());
  rewriter.replaceOpWithNewOp<scf::YieldOp>(yield, values);
  rewriter.replaceOp(op, loop.getResults().drop_front(2));
}

/// Block i of n takes the ordinals i, i + n, ... of the order; `isOne`: there are n.
static void expandWork(IRRewriter &rewriter, tile::ForWorkOp op, Kernel &kernel, bool isOne) {
  B b(op.getLoc(), rewriter);
  Value first = toIndex(b, NVVM::BlockIdXOp::create(b, b.getI32Type()));
  if (isOne && op->use_empty()) {
    Value isTile =
        arith::CmpIOp::create(b, arith::CmpIPredicate::slt, first, tilesOf(b, op, kernel));
    Block *body = scf::IfOp::create(b, isTile).thenBlock();
    rewriter.eraseOp(body->getTerminator());
    b.setInsertionPointToEnd(body);
    auto yield = moveBody(b, rewriter, op, kernel, body, first, op.getInits());
    rewriter.replaceOpWithNewOp<scf::YieldOp>(yield);
    rewriter.eraseOp(op);
    return;
  }
  Value step = toIndex(b, NVVM::GridDimXOp::create(b, b.getI32Type()));
  auto loop = scf::ForOp::create(b, first, tilesOf(b, op, kernel), step, op.getInits());
  Block *body = loop.getBody();
  if (op.getInits().empty())
    rewriter.eraseOp(body->getTerminator());
  b.setInsertionPointToEnd(body);
  auto yield =
      moveBody(b, rewriter, op, kernel, body, loop.getInductionVar(), loop.getRegionIterArgs());
  rewriter.replaceOpWithNewOp<scf::YieldOp>(yield, yield.getValues());
  rewriter.replaceOp(op, loop.getResults());
}

/// Each warp for itself: lane i of it takes i, i + 32, ...
static void expandSum(IRRewriter &rewriter, tile::TotalOp op) {
  B b(op.getLoc(), rewriter);
  SmallVector<Value> inits(op.getNumResults(), arith::ConstantIndexOp::create(b, 0));
  Value lanes = arith::ConstantIndexOp::create(b, schedule::warpThreads);
  auto loop = scf::ForOp::create(b, toIndex(b, laneId(b)), op.getN(), lanes, inits);
  Block *body = loop.getBody();
  rewriter.mergeBlocks(&op.getBody().front(), body, body->getArgument(0));
  auto yield = cast<tile::YieldOp>(body->getTerminator());
  b.setInsertionPoint(yield);
  SmallVector<Value> sums;
  for (auto [sum, value] : llvm::zip(loop.getRegionIterArgs(), yield.getValues()))
    sums.push_back(arith::AddIOp::create(b, sum, value));
  rewriter.setInsertionPoint(yield);
  rewriter.replaceOpWithNewOp<scf::YieldOp>(yield, sums);
  b.setInsertionPointAfter(loop);
  sums.clear();
  for (Value sum : loop.getResults()) {
    Value all = toI32(b, sum);
    for (int64_t mask = schedule::warpThreads / 2; mask; mask /= 2)
      all = arith::AddIOp::create(b, all, shuffleXor(b, all, mask));
    sums.push_back(toIndex(b, all));
  }
  rewriter.replaceOp(op, sums);
}

/// An element of a table.
static void expandLoad(IRRewriter &rewriter, memref::LoadOp load, Kernel &kernel) {
  B b(load.getLoc(), rewriter);
  ValueRange at = load.getIndices();
  if (load.getType().isF32())
    rewriter.replaceOp(load, kernel.logit(b, load.getMemRef(), at.front()));
  else
    rewriter.replaceOp(
        load, toI32(b, kernel.entry(b, load.getMemRef(), at[0], at.size() > 1 ? at[1] : Value())));
}

/// One branch on the warp group; the last role takes the rest. Roles of fewer warps share a group
/// and its registers, which is entered once: setmaxnreg is an instruction of a whole warpgroup (PTX
/// ISA, "setmaxnreg").
static void expandRoles(IRRewriter &rewriter, tile::RolesOp op, TileEmitter &emitter) {
  B b(op.getLoc(), rewriter);
  Value group = emitter.warpGroup(b);
  const int64_t perGroup = emitter.warpsPerGroup();
  auto warpsOf = [](Attribute attr) {
    auto role = cast<tile::RoleAttr>(attr);
    return role.getInstances() * role.getWarps();
  };
  int64_t all = 0, first = 0;
  for (Attribute attr : op.getRoles())
    all += warpsOf(attr);
  Operation *rest = nullptr; // what the groups behind do
  for (auto [attr, region] : llvm::zip(op.getRoles(), op.getBodies())) {
    auto role = cast<tile::RoleAttr>(attr);
    const int64_t warps = warpsOf(attr), groups = schedule::ceilDiv(first + warps, perGroup);
    if (first % perGroup == 0) {
      if (rest)
        b.setInsertionPoint(rest);
      if (groups * perGroup < all) {
        Value isMine = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, group, i32(b, groups));
        auto branch = scf::IfOp::create(b, isMine, /*withElseRegion=*/true);
        rest = branch.elseBlock()->getTerminator();
        b.setInsertionPoint(branch.thenBlock()->getTerminator());
      }
      emitter.enterRole(b, role);
    }
    const bool shares = warps % perGroup;
    const int64_t step = shares ? role.getWarps() : role.getWarps() / perGroup;
    Value number = arith::SubIOp::create(b, shares ? warpId(b) : group,
                                         i32(b, shares ? first : first / perGroup));
    Operation *others = nullptr; // what the warps behind do
    if (shares && (first + warps) % perGroup) {
      Value isMine = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, number, i32(b, warps));
      auto branch = scf::IfOp::create(b, isMine, /*withElseRegion=*/true);
      others = branch.elseBlock()->getTerminator();
      b.setInsertionPoint(branch.thenBlock()->getTerminator());
    }
    if (step != 1)
      number = arith::DivUIOp::create(b, number, i32(b, step));
    Value instance = toIndex(b, number);
    Block *into = b.getInsertionBlock();
    Block::iterator at = b.getInsertionPoint();
    if (llvm::equal(role.getUnits(), ArrayRef{tile::Unit::copy})) {
      into = scf::IfOp::create(b, emitter.isCopier(b)).thenBlock();
      at = into->getTerminator()->getIterator();
    }
    Operation *yield = region.front().getTerminator();
    rewriter.inlineBlockBefore(&region.front(), into, at, instance);
    rewriter.eraseOp(yield);
    if (others)
      b.setInsertionPoint(others);
    first += warps;
  }
  rewriter.eraseOp(op);
}

static void inlineTurn(IRRewriter &rewriter, tile::InTurnOp turn) {
  Operation *yield = turn.getBody().front().getTerminator();
  SmallVector<Value> flights(yield->getOperands());
  rewriter.eraseOp(yield);
  rewriter.inlineBlockBefore(&turn.getBody().front(), turn);
  rewriter.replaceOp(turn, flights);
}

/// The ring of barriers of a role: instance w waits at barrier `first` + w, and hands over to the
/// next by arriving at its barrier. What the last arrives at the start lets instance 0 in; what
/// instance 0 awaits at the end is the last turn given.
static void expandTurns(IRRewriter &rewriter, Region &program, int64_t instances,
                        ArrayRef<tile::InTurnOp> turns, TileEmitter &emitter) {
  B b(program.getLoc(), rewriter);
  Block &body = program.front();
  b.setInsertionPointToStart(&body);
  Value instance = toI32(b, body.getArgument(0)),
        first = i32(b, static_cast<int64_t>(*tile::InTurnOp(turns.front()).getBarriers()));
  auto is = [&](int64_t number) -> Value {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::eq, instance, i32(b, number));
  };
  Value own = arith::AddIOp::create(b, first, instance), isLast = is(instances - 1);
  Value next = arith::SelectOp::create(b, isLast, first, arith::AddIOp::create(b, own, i32(b, 1)));
  auto only = [&](Value condition, void (TileEmitter::*emit)(B &, Value)) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(scf::IfOp::create(b, condition).thenBlock());
    (emitter.*emit)(b, first);
  };
  only(isLast, &TileEmitter::giveTurn);
  for (tile::InTurnOp turn : turns) {
    b.setInsertionPoint(turn);
    emitter.awaitTurn(b, own);
    b.setInsertionPointAfter(turn);
    emitter.giveTurn(b, next);
    inlineTurn(rewriter, turn);
  }
  b.setInsertionPoint(body.getTerminator());
  only(is(0), &TileEmitter::awaitTurn);
}

void expandTurns(Kernel &kernel, TileEmitter &emitter) {
  IRRewriter rewriter(kernel.func.getContext());
  kernel.func.walk([&](tile::RolesOp roles) {
    for (auto [attr, program] : llvm::zip(roles.getRoles(), roles.getBodies())) {
      SmallVector<tile::InTurnOp> turns;
      program.walk([&](tile::InTurnOp turn) { turns.push_back(turn); });
      int64_t instances = cast<tile::RoleAttr>(attr).getInstances();
      if (!turns.empty() && instances > 1)
        expandTurns(rewriter, program, instances, turns, emitter);
    }
  });
  kernel.func.walk([&](tile::InTurnOp turn) { inlineTurn(rewriter, turn); }); // always its turn
}

LogicalResult expandStructure(Kernel &kernel, TileEmitter &emitter) {
  IRRewriter rewriter(kernel.func.getContext());
  auto plan = kernel.func->getAttrOfType<PlanAttr>("flash.plan");
  const bool isOne = plan && plan.getFlag("persistent") == false;
  // Innermost first: bodies move as they are.
  kernel.func.walk([&](Operation *op) {
    rewriter.setInsertionPoint(op);
    if (auto range = dyn_cast<tile::BlockRangeOp>(op)) {
      expandRange(rewriter, range);
    } else if (auto length = dyn_cast<tile::LengthOp>(op)) {
      B b(op->getLoc(), rewriter);
      rewriter.replaceOp(op, kernel.length(b, viewOf(length.getView()), length.getBatch()));
    } else if (auto load = dyn_cast<memref::LoadOp>(op)) {
      expandLoad(rewriter, load, kernel);
    } else if (auto store = dyn_cast<memref::StoreOp>(op)) { // all lanes the same value
      B b(op->getLoc(), rewriter);
      ValueRange at = store.getIndices();
      rewriter.replaceOpWithNewOp<LLVM::StoreOp>(
          store, store.getValue(),
          kernel.element(b, store.getMemRef(), at[0], at.size() > 1 ? at[1] : Value()));
    } else if (auto sum = dyn_cast<tile::TotalOp>(op)) {
      expandSum(rewriter, sum);
    } else if (auto work = dyn_cast<tile::ForWorkOp>(op)) {
      if (work.getRing())
        expandTaking(rewriter, work, kernel, emitter);
      else
        expandWork(rewriter, work, kernel, isOne);
    } else if (auto roles = dyn_cast<tile::RolesOp>(op)) {
      expandRoles(rewriter, roles, emitter);
    }
  });
  kernel.bindScalars(rewriter);
  return success();
}

} // namespace flash::nvvm
