//===- Structure.cpp - buffers, control flow and the work loop ------------===//
#include "Loops.h"
#include "flash/Conversion/PackedWork.h"
#include "flash/Schedule/BlockRange.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace flash;
using namespace flash::loops;
using namespace flash::tile;

int64_t loops::lanesOf(int64_t n) {
  int64_t lanes = 16;
  while (n % lanes)
    lanes /= 2;
  return lanes;
}

//===----------------------------------------------------------------------===//
// Small words
//===----------------------------------------------------------------------===//

Value Lowering::index(int64_t value) { return arith::ConstantIndexOp::create(b, value); }
Value Lowering::real(Type type, float value) {
  Attribute attr = b.getF32FloatAttr(value);
  if (auto vector = dyn_cast<VectorType>(type))
    attr = DenseElementsAttr::get(vector, attr);
  return arith::ConstantOp::create(b, cast<TypedAttr>(attr));
}
Value Lowering::splat(Value scalar, int64_t lanes) {
  return vector::BroadcastOp::create(b, VectorType::get({lanes}, scalar.getType()), scalar);
}
Value Lowering::rowValue(Value buffer, Value row) {
  return memref::LoadOp::create(b, buffer, ValueRange{row, index(0)});
}
void Lowering::loop(Value from, Value to, int64_t step, function_ref<void(Value)> body) {
  auto op = scf::ForOp::create(b, from, to, index(step));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(op.getBody());
  body(op.getInductionVar());
}
void Lowering::loop(int64_t size, int64_t step, function_ref<void(Value)> body) {
  loop(index(0), index(size), step, body);
}
void Lowering::elementwise(Value buffer, function_ref<Value(Value, Value, int64_t)> body) {
  ArrayRef<int64_t> shape = cast<MemRefType>(buffer.getType()).getShape();
  int64_t lanes = lanesOf(shape[1]);
  loop(shape[0], 1, [&](Value row) {
    loop(shape[1], lanes, [&](Value col) {
      vector::StoreOp::create(b, body(row, col, lanes), buffer, ValueRange{row, col});
    });
  });
}
void Lowering::fillBuffer(Value buffer, float value) {
  elementwise(buffer, [&](Value, Value, int64_t lanes) { return real(vectorOf(lanes), value); });
}
void Lowering::copy(Value from, Value to) {
  elementwise(to, [&](Value row, Value col, int64_t lanes) {
    return vector::LoadOp::create(b, vectorOf(lanes), from, ValueRange{row, col}).getResult();
  });
}

//===----------------------------------------------------------------------===//
// Buffers
//===----------------------------------------------------------------------===//

Value Lowering::newBuffer(int64_t rows, int64_t cols) {
  auto type = MemRefType::get({rows, cols}, b.getF32Type());
  auto *found = llvm::find_if(spare, [&](Value buffer) { return buffer.getType() == type; });
  Value buffer;
  if (found != spare.end()) {
    buffer = *found;
    spare.erase(found);
  } else {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(&target.front());
    buffer = memref::AllocOp::create(b, type, b.getI64IntegerAttr(64));
    allocated.push_back(buffer);
  }
  scopes.back().push_back(buffer);
  return buffer;
}

bool Lowering::dies(OpOperand &use) {
  return use.get().hasOneUse() && use.get().getParentBlock() == use.getOwner()->getBlock();
}

/// The buffer of `result`: one of an operand in `reusable` that dies, or a new one.
Value Lowering::bufferFor(Value result, ValueRange reusable) {
  ArrayRef<int64_t> shape = isa<FlightType>(result.getType())
                                ? cast<FlightType>(result.getType()).getShape()
                                : cast<FragType>(result.getType()).getShape();
  for (OpOperand &use : result.getDefiningOp()->getOpOperands()) {
    if (!llvm::is_contained(reusable, use.get()) || !dies(use))
      continue;
    Value buffer = at(use.get());
    if (cast<MemRefType>(buffer.getType()).getShape() == shape) {
      map.map(result, buffer);
      return buffer;
    }
  }
  Value buffer = newBuffer(shape[0], shape[1]);
  map.map(result, buffer);
  return buffer;
}

/// The buffer in which a loop carries `result`, holding `init`.
Value Lowering::carry(OpOperand &init, Value result) {
  if (dies(init)) {
    map.map(result, at(init.get()));
    return at(init.get());
  }
  ArrayRef<int64_t> shape = cast<FragType>(result.getType()).getShape();
  Value buffer = newBuffer(shape[0], shape[1]);
  copy(at(init.get()), buffer);
  map.map(result, buffer);
  return buffer;
}

/// Copies yielded fragments into `buffers`, in order; returns the other yielded values.
SmallVector<Value> Lowering::yieldInto(ValueRange yielded, ArrayRef<Value> buffers) {
  SmallVector<Value> others, from;
  for (Value value : yielded)
    (isa<FragType>(value.getType()) ? from : others).push_back(at(value));
  for (auto [source, to] : llvm::zip(from, buffers)) // all are read before any is written
    if (source != to && llvm::is_contained(buffers, source)) {
      ArrayRef<int64_t> shape = cast<MemRefType>(source.getType()).getShape();
      Value aside = newBuffer(shape[0], shape[1]);
      copy(source, aside);
      source = aside;
    }
  for (auto [source, to] : llvm::zip(from, buffers))
    if (source != to)
      copy(source, to);
  return others;
}

//===----------------------------------------------------------------------===//
// Control flow
//===----------------------------------------------------------------------===//

LogicalResult Lowering::run(RolesOp roles, unsigned role, int64_t instance) {
  Block *entry = target.addEntryBlock();
  b.setInsertionPointToStart(entry);
  map.map(kernel.getArguments(), entry->getArguments().drop_back(2));
  for (Operation &op : kernel.front().without_terminator()) {
    if (&op != roles.getOperation()) {
      if (failed(lower(op)))
        return failure();
      continue;
    }
    Block &body = roles.getBodies()[role].front();
    map.map(body.getArgument(0), index(instance));
    this->instance = instance;
    instances = cast<RoleAttr>(roles.getRoles()[role]).getInstances();
    if (failed(lower(body)))
      return failure();
  }
  for (Value buffer : allocated)
    memref::DeallocOp::create(b, buffer);
  func::ReturnOp::create(b);
  return success();
}

LogicalResult Lowering::lower(Block &block) {
  for (Operation &op : block.without_terminator())
    if (failed(lower(op)))
      return failure();
  llvm::erase_if(inFlight, [&](MmaOp mma) { return blockOf(mma) == &block; });
  return success();
}

LogicalResult Lowering::lower(Operation &op) {
  b.setLoc(op.getLoc());
  return TypeSwitch<Operation *, LogicalResult>(&op)
      .Case<scf::ForOp, scf::IfOp, ForWorkOp, InTurnOp, MapOp, TotalOp>(
          [&](auto op) { return lower(op); })
      .Case<BlockRangeOp, ViewOp, LengthOp, RingOp, FillOp, WriteOp, WaitOp, ReleaseOp, SliceOp,
            ReadOp, LoadOp, StoreOp, MmaOp, MmaWaitOp, SplatOp, CastOp, SumOp, SplitRowsOp, MaskOp,
            SoftmaxStepOp, RescaleOp, OverflowedOp, FinalizeOp, RotateOp>([&](auto op) {
        lower(op);
        return success();
      })
      .Default([&](Operation *op) -> LogicalResult {
        WalkResult strange = op->walk([](Operation *inner) {
          bool ours = isa_and_present<TileDialect>(inner->getDialect());
          for (Type type : llvm::concat<Type>(SmallVector<Type>(inner->getOperandTypes()),
                                              SmallVector<Type>(inner->getResultTypes())))
            ours |= isa<TileDialect>(type.getDialect());
          return ours ? WalkResult::interrupt() : WalkResult::advance();
        });
        if (strange.wasInterrupted())
          return op->emitOpError("has no meaning as loops around tile ops or their values; use "
                                 "scf.for and scf.if");
        b.clone(*op, map);
        return success();
      });
}

LogicalResult Lowering::lower(scf::ForOp op) {
  SmallVector<Value> buffers, inits;
  for (auto [init, argument, result] :
       llvm::zip(op.getInitArgsMutable(), op.getRegionIterArgs(), op.getResults()))
    if (isa<FragType>(result.getType()))
      map.map(argument, buffers.emplace_back(carry(init, result)));
    else
      inits.push_back(at(init.get()));
  auto made = scf::ForOp::create(b, at(op.getLowerBound()), at(op.getUpperBound()),
                                 at(op.getStep()), inits);
  made.setUnsignedCmp(op.getUnsignedCmp());
  map.map(op.getInductionVar(), made.getInductionVar());
  unsigned next = 0;
  for (auto [argument, result] : llvm::zip(op.getRegionIterArgs(), op.getResults()))
    if (!isa<FragType>(result.getType())) {
      map.map(argument, made.getRegionIterArg(next));
      map.map(result, made.getResult(next++));
    }
  OpBuilder::InsertionGuard guard(b);
  if (inits.empty())
    made.getBody()->getTerminator()->erase();
  b.setInsertionPointToStart(made.getBody());
  scopes.emplace_back();
  if (failed(lower(*op.getBody())))
    return failure();
  SmallVector<Value> others = yieldInto(op.getBody()->getTerminator()->getOperands(), buffers);
  scf::YieldOp::create(b, others);
  spare.append(scopes.pop_back_val());
  return success();
}

LogicalResult Lowering::lower(scf::IfOp op) {
  SmallVector<Value> buffers, results;
  SmallVector<Type> types;
  for (Value result : op.getResults())
    if (auto frag = dyn_cast<FragType>(result.getType())) {
      buffers.push_back(newBuffer(frag.getShape()[0], frag.getShape()[1]));
      map.map(result, buffers.back());
    } else if (isa<TileDialect>(result.getType().getDialect())) {
      return op.emitOpError("may give fragments and numbers as loops, gives ") << result.getType();
    } else {
      results.push_back(result);
      types.push_back(result.getType());
    }
  bool hasElse = !op.getElseRegion().empty();
  auto made = scf::IfOp::create(b, types, at(op.getCondition()), /*addThenBlock=*/true,
                                /*addElseBlock=*/hasElse);
  for (auto [result, value] : llvm::zip(results, made.getResults()))
    map.map(result, value);
  for (auto [from, to] : llvm::zip(op->getRegions(), made->getRegions())) {
    if (from.empty())
      continue;
    OpBuilder::InsertionGuard guard(b);
    if (!to.front().empty())
      to.front().clear();
    b.setInsertionPointToStart(&to.front());
    scopes.emplace_back();
    if (failed(lower(from.front())))
      return failure();
    SmallVector<Value> others = yieldInto(from.front().getTerminator()->getOperands(), buffers);
    scf::YieldOp::create(b, others);
    spare.append(scopes.pop_back_val());
  }
  return success();
}

LogicalResult Lowering::lower(ForWorkOp op) {
  SmallVector<Value> buffers, inits;
  Block &body = op.getBody().front();
  auto carried = body.getArguments().drop_front(4);
  for (auto [init, argument, result] : llvm::zip(op.getInitsMutable(), carried, op.getResults()))
    if (isa<FragType>(result.getType()))
      map.map(argument, buffers.emplace_back(carry(init, result)));
    else
      inits.push_back(at(init.get()));
  IrInt zero = toInt(index(0));
  schedule::WorkShape<IrInt> shape{toInt(at(op.getMTiles())),
                                   toInt(at(op.getHeads())),
                                   toInt(at(op.getBatch())),
                                   toInt(at(op.getSplits())),
                                   op.getSection() ? toInt(at(op.getSection())) : zero + 1,
                                   static_cast<int64_t>(op.getCluster())};
  IrInt batch = shape.batch;
  if (op.getPacked()) // its tiles are counted through
    shape.batch = zero + 1;
  auto ends = target.getArguments().take_back(2); // worker, workers
  auto scheduled = [&](schedule::ScheduleRow row, IrInt column) {
    return toInt(entry(op.getSchedule(), {index(row), column.get()}));
  };
  Value tiles =
      (op.getSchedule() ? scheduled(schedule::startsRow, batch) : schedule::tilesOf(shape)).get();
  auto mapCarried = [&](ValueRange arguments, ValueRange results) {
    unsigned next = 0;
    for (auto [argument, result] : llvm::zip(carried, op.getResults()))
      if (!isa<FragType>(result.getType())) {
        map.map(argument, arguments[next]);
        map.map(result, results[next++]);
      }
  };
  auto tile = [&](Value ordinal) -> FailureOr<SmallVector<Value>> {
    scopes.emplace_back();
    auto work = op.getSchedule() ? scheduledWorkAt(b, toInt(ordinal), shape.heads, batch, scheduled)
                : op.getPacked()
                    ? packedWorkAt(b, toInt(ordinal), shape, batch, op.getGroup(), *op.getTile(),
                                   [&](IrInt i) { return toInt(entry(op.getPacked(), i.get())); })
                    : schedule::workAt(*schedule::parseOrder(op.getOrder()), toInt(ordinal), shape);
    IrInt coordinates[] = {work.m, work.head, work.batch, work.split};
    for (auto [argument, coordinate] : llvm::zip(body.getArguments(), coordinates))
      map.map(argument, coordinate.get());
    if (failed(lower(body)))
      return failure();
    SmallVector<Value> others = yieldInto(body.getTerminator()->getOperands(), buffers);
    spare.append(scopes.pop_back_val());
    return others;
  };
  OpBuilder::InsertionGuard guard(b);
  if (!op.getRing()) {
    auto made = scf::ForOp::create(b, ends[0], tiles, ends[1], inits);
    mapCarried(made.getRegionIterArgs(), made.getResults());
    if (inits.empty())
      made.getBody()->getTerminator()->erase();
    b.setInsertionPointToStart(made.getBody());
    FailureOr<SmallVector<Value>> others = tile(made.getInductionVar());
    if (succeeded(others))
      scf::YieldOp::create(b, *others);
    return others;
  }

  // Carried besides: the tile's ordinal, and how many have been handed on.
  inits.insert(inits.begin(), {ends[0], index(0)});
  SmallVector<Type> types(ValueRange(inits).getTypes());
  SmallVector<Location> locations(types.size(), op.getLoc());
  auto made = scf::WhileOp::create(b, types, inits);
  Block *before = b.createBlock(&made.getBefore(), {}, types, locations);
  scf::ConditionOp::create(b, lessThan(toInt(before->getArgument(0)), toInt(tiles)).get(),
                           before->getArguments());
  Block *after = b.createBlock(&made.getAfter(), {}, types, locations);
  Value t = after->getArgument(0), it = after->getArgument(1);
  mapCarried(after->getArguments().drop_front(2), made.getResults().drop_front(2));
  Value next = op.getTakes() ? (toInt(take(op, tiles)) + toInt(ends[1])).get() : Value();
  FailureOr<SmallVector<Value>> others = tile(t);
  if (failed(others))
    return failure();
  if (next)
    publish(op, it, next);
  else
    next = follow(op, it);
  others->insert(others->begin(), {next, (toInt(it) + 1).get()});
  scf::YieldOp::create(b, *others);
  return success();
}

LogicalResult Lowering::lower(TotalOp op) {
  SmallVector<Value> inits(op.getNumResults(), index(0)), sums;
  auto made = scf::ForOp::create(b, index(0), at(op.getN()), index(1), inits);
  Block &body = op.getBody().front();
  map.map(body.getArgument(0), made.getInductionVar());
  map.map(op.getResults(), made.getResults());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(made.getBody());
  if (failed(lower(body)))
    return failure();
  for (auto [sum, value] : llvm::zip(made.getRegionIterArgs(), body.getTerminator()->getOperands()))
    sums.push_back(arith::AddIOp::create(b, sum, at(value)));
  scf::YieldOp::create(b, sums);
  return success();
}

/// The body where it stands; among several instances the baton keeps the order of turns.
LogicalResult Lowering::lower(InTurnOp op) {
  auto call = [&](StringRef verb) {
    if (baton && instances > 1)
      func::CallOp::create(b, ("flash_baton_" + verb).str(), TypeRange{},
                           ValueRange{index(instance), index(instances)});
  };
  call("enter");
  Block &body = op.getBody().front();
  for (Operation &inner : body.without_terminator())
    if (failed(lower(inner)))
      return failure();
  for (auto [result, value] : llvm::zip(op.getResults(), body.getTerminator()->getOperands()))
    map.map(result, at(value));
  call("leave");
  return success();
}

void Lowering::lower(BlockRangeOp op) {
  const schedule::Mask mask = op.getMask().mask();
  IrInt row0 = toInt(at(op.getRow0())), lenQ = toInt(at(op.getLenQ())),
        lenK = toInt(at(op.getLenK()));
  const int64_t rows = op.getRows(), block = op.getBlock();
  auto runs = op.getQueries() ? schedule::queryRuns(mask, row0, rows, block, lenQ, lenK)
                              : schedule::keyRuns(mask, row0, rows, block, lenQ, lenK,
                                                  op.getGroup(), toInt(at(op.getSplit())),
                                                  toInt(at(op.getSplits())), op.getEveryRow());
  IrInt counts[] = {runs.end, runs.right, runs.inner, runs.left, runs.sink};
  for (auto [result, count] : llvm::zip(op.getResults(), counts))
    map.map(result, count.get());
}
