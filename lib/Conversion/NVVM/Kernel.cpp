//===- Kernel.cpp - parameters and small values of a kernel ---------------===//
#include "Kernel.h"
#include "flash/Conversion/IrInt.h"
#include "flash/Schedule/Layout.h"
#include "flash/Schedule/Splits.h"
#include "flash/Schedule/WorkOrder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;

namespace flash::nvvm {

static constexpr StringLiteral kSharedName = "flash_shared", kCountersName = schedule::countersName;
static constexpr unsigned noArgument = ~0u; // of a parameter that comes from the launcher alone
static constexpr int64_t counterWords = 8;  // a sector of the L2 cache, where atomics happen

//===----------------------------------------------------------------------===//
// Small values
//===----------------------------------------------------------------------===//

Value i32(ImplicitLocOpBuilder &b, int64_t value) {
  return arith::ConstantOp::create(b, b.getI32IntegerAttr(static_cast<int32_t>(value)));
}
Value toI32(ImplicitLocOpBuilder &b, Value index) {
  return b.createOrFold<arith::IndexCastOp>(b.getI32Type(), index);
}
Value toIndex(ImplicitLocOpBuilder &b, Value value) {
  return b.createOrFold<arith::IndexCastOp>(b.getIndexType(), value);
}
Value threadId(ImplicitLocOpBuilder &b) { return NVVM::ThreadIdXOp::create(b, b.getI32Type()); }
Value freshThreadId(ImplicitLocOpBuilder &b) {
  return LLVM::InlineAsmOp::create(
             b, b.getI32Type(), ValueRange{}, "mov.u32 $0, %tid.x;", "=r",
             /*has_side_effects=*/true, /*is_align_stack=*/false,
             LLVM::tailcallkind::TailCallKind::None,
             LLVM::AsmDialectAttr::get(b.getContext(), LLVM::AsmDialect::AD_ATT), ArrayAttr())
      .getRes();
}
Value opaque(ImplicitLocOpBuilder &b, Value value) {
  const bool wide = value.getType().isInteger(64);
  return LLVM::InlineAsmOp::create(
             b, value.getType(), value, wide ? "mov.b64 $0, $1;" : "mov.b32 $0, $1;",
             wide ? "=l,l" : "=r,r", /*has_side_effects=*/true, /*is_align_stack=*/false,
             LLVM::tailcallkind::TailCallKind::None,
             LLVM::AsmDialectAttr::get(b.getContext(), LLVM::AsmDialect::AD_ATT), ArrayAttr())
      .getRes();
}
Value laneOf(ImplicitLocOpBuilder &b, Value thread) {
  return arith::AndIOp::create(b, thread ? thread : threadId(b), i32(b, 31));
}
Value laneId(ImplicitLocOpBuilder &b) { return laneOf(b, Value()); }

static Value shuffle(ImplicitLocOpBuilder &b, Value value, int64_t lane, NVVM::ShflKind kind) {
  auto one = [&](Value x) -> Value {
    return NVVM::ShflOp::create(b, x.getType(), i32(b, -1), x, i32(b, lane), i32(b, 31), kind,
                                UnitAttr());
  };
  auto type = dyn_cast<VectorType>(value.getType());
  if (!type)
    return one(value);
  Value result = LLVM::PoisonOp::create(b, type);
  for (int64_t i = 0; i < type.getNumElements(); ++i) {
    Value at = i32(b, i);
    result = LLVM::InsertElementOp::create(b, result,
                                           one(LLVM::ExtractElementOp::create(b, value, at)), at);
  }
  return result;
}
Value shuffleXor(ImplicitLocOpBuilder &b, Value value, int64_t mask) {
  return shuffle(b, value, mask, NVVM::ShflKind::bfly);
}
void fenceProxies(ImplicitLocOpBuilder &b) {
  NVVM::FenceProxyOp::create(
      b, NVVM::ProxyKind::async_shared,
      NVVM::SharedSpaceAttr::get(b.getContext(), NVVM::SharedSpace::shared_cta));
}

Value broadcastLane0(ImplicitLocOpBuilder &b, Value value) {
  return shuffle(b, value, 0, NVVM::ShflKind::idx);
}

Value warpId(ImplicitLocOpBuilder &b) {
  Value warp = arith::DivUIOp::create(b, threadId(b), i32(b, schedule::warpThreads));
  return broadcastLane0(b, warp);
}

Value anyAtBarrier(ImplicitLocOpBuilder &b, Value predicate, Value id, int64_t threads) {
  Value any = LLVM::InlineAsmOp::create(
                  b, b.getI32Type(), ValueRange{predicate, id, i32(b, threads)},
                  "{\n\t.reg .pred any;\n\tbarrier.cta.red.or.pred.aligned any, $2, $3, $1;\n\t"
                  "selp.b32 $0, 1, 0, any;\n\t}",
                  "=r,b,r,r,~{memory}", /*has_side_effects=*/true, /*is_align_stack=*/false,
                  LLVM::tailcallkind::TailCallKind::None,
                  LLVM::AsmDialectAttr::get(b.getContext(), LLVM::AsmDialect::AD_ATT), ArrayAttr())
                  .getRes();
  return arith::CmpIOp::create(b, arith::CmpIPredicate::ne, any, i32(b, 0));
}

tile::ViewOp viewOf(Value value) { return value.getDefiningOp<tile::ViewOp>(); }
tile::RingOp ringOf(Value value) { return value.getDefiningOp<tile::RingOp>(); }
int64_t panelsOf(int64_t cols) { return (cols + panelCols - 1) / panelCols; }
int64_t slotBytes(tile::RingType type) {
  if (type.getShape()[1] == 1)
    return schedule::rowBytes(type.getShape()[2]);
  return schedule::tileBytes(type.getShape()[1], type.getShape()[2],
                             type.getElementType().getIntOrFloatBitWidth() / 8);
}
int64_t panelRows(Value tile) {
  while (auto slice = tile.getDefiningOp<tile::SliceOp>())
    tile = slice.getTile();
  return cast<tile::TileType>(tile.getType()).getShape()[0];
}
Value sliceOffset(ImplicitLocOpBuilder &b, tile::SliceOp op, tile::SliceOp::Adaptor in,
                  int64_t unit) {
  const int64_t row = panelRowBytes / unit, panel = panelRows(op.getTile()) * row;
  IrInt offset = floorDiv(IrInt(b, in.getCol()), panelCols) * panel;
  if (tile::TileType part = op.getResult().getType(); part.getShape()[1] % panelCols) {
    // Within the rows of a panel: the swizzle is of addresses, and goes on from there.
    const int64_t cell = part.getElementType().getIntOrFloatBitWidth() / 8;
    offset = offset + floorDiv(remainder(IrInt(b, in.getCol()), panelCols) * cell, unit);
  }
  if (in.getRow())
    offset = offset + IrInt(b, in.getRow()) * row;
  return toI32(b, offset.get());
}

//===----------------------------------------------------------------------===//
// The kernel
//===----------------------------------------------------------------------===//

/// One error for each thing that keeps the function from being a kernel.
static LogicalResult checkFunction(func::FuncOp func) {
  bool ok = true;
  auto refuse = [&](Operation *op, const Twine &sentence) {
    ok = false;
    op->emitError(sentence);
  };
  if (func.isExternal() || !llvm::hasSingleElement(func.getBody()))
    refuse(func, "kernel needs a body of one block");
  if (func.getNumResults())
    refuse(func, "kernel needs no results, writes to its arguments");
  for (Type type : func.getArgumentTypes())
    if (!isa<MemRefType>(type) && !type.isIndex() && !type.isF32())
      refuse(func, "kernel takes memrefs, f32 and index, not an argument of another type");
  return success(ok);
}

FailureOr<Kernel> Kernel::create(func::FuncOp func) {
  if (failed(checkFunction(func)))
    return failure();
  Kernel kernel;
  kernel.func = func;
  auto number = [&](StringRef name, int64_t &value) {
    auto attr = func->getAttrOfType<IntegerAttr>(name);
    if (attr)
      value = attr.getInt();
    return attr != nullptr;
  };
  if (!number("flash.threads", kernel.threads) || !number("flash.shared_bytes", kernel.sharedBytes))
    return func.emitError("kernel needs flash.threads and flash.shared_bytes; run "
                          "flash-tile-assign first");
  if (kernel.threads <= 0 || kernel.threads % 32 || kernel.threads > 1024)
    return func.emitError("kernel needs whole warps of at most 1024 threads, has ")
           << kernel.threads;
  number("flash.columns", kernel.columns);
  if (kernel.columns % schedule::combineColumns)
    return func.emitError("kernel needs rows of a multiple of ")
           << schedule::combineColumns << " columns, has " << kernel.columns;
  kernel.hasRoles = false;
  kernel.cluster = 1;
  func.walk([&](tile::ForWorkOp work) {
    kernel.cluster = std::max<int64_t>(kernel.cluster, work.getCluster());
  });
  kernel.warps = kernel.threads / 32;
  kernel.oldArguments = func.getNumArguments();
  if (failed(kernel.check()))
    return failure();
  func.walk([&](tile::MapOp map) {
    const int64_t rows = map.getResult().getType().getShape()[0];
    if (!kernel.columns && rows > 1 && llvm::any_of(map.getInputs().getTypes(), [](Type type) {
          return cast<tile::FragType>(type).getShape()[0] == 1;
        }))
      kernel.scoreRows = rows;
  });
  return kernel;
}

Value Kernel::anew(ImplicitLocOpBuilder &b) const {
  auto plan = func->getAttrOfType<PlanAttr>("flash.plan");
  const bool ordered = plan && plan.getFlag("ordered").value_or(false);
  return inStep && (scoreRows > 2 * schedule::warpRows || (scoreRows && ordered)) ? freshThreadId(b)
                                                                                  : Value();
}

LogicalResult Kernel::check() {
  bool ok = true;
  auto refuse = [&](Operation *op) {
    ok = false;
    return op->emitError();
  };
  func.walk([&](tile::RolesOp roles) {
    hasRoles = true;
    int64_t all = 0, multiplying = 0;
    for (auto role : roles.getRoles().getAsRange<tile::RoleAttr>()) {
      all += role.getInstances() * role.getWarps();
      if (llvm::is_contained(role.getUnits(), tile::Unit::turn))
        keepers += role.getInstances();
      if (!llvm::is_contained(role.getUnits(), tile::Unit::tensor))
        continue;
      if (multiplying && multiplying != role.getWarps())
        refuse(roles) << "roles that multiply need equal warps, have " << multiplying << " and "
                      << role.getWarps();
      warps = multiplying = role.getWarps();
      consumers += role.getInstances();
    }
    if (all * 32 != threads)
      refuse(roles) << "roles need " << all * 32 << " threads, the kernel has " << threads;
  });
  gradients = sumsGradients(func);
  // Sums of gradients without roles have no warpgroups: any machine's warps can do that.
  inStep = !schedule::machineOf(func->getAttrOfType<TargetAttr>("flash.target").target()).roles ||
           (!hasRoles && gradients);
  if (auto plan = func->getAttrOfType<PlanAttr>("flash.plan"); plan && inStep && gradients)
    leastRows =
        schedule::leastRows(*schedule::parseSplitBy(plan.getText("split_by").value_or("rows")));
  Block *entry = &func.getBody().front();
  auto isArgument = [&](Value value) {
    auto argument = dyn_cast<BlockArgument>(value);
    return argument && argument.getOwner() == entry;
  };
  func.walk([&](Operation *op) {
    for (Value operand : op->getOperands()) {
      bool isView = isa<tile::ViewType>(operand.getType());
      if ((isView && !viewOf(operand)) ||
          (isa<tile::RingType>(operand.getType()) && !ringOf(operand)))
        refuse(op) << "needs its " << (isView ? "view" : "ring") << " defined in the kernel";
      if (!isa<MemRefType>(operand.getType()))
        continue;
      auto dim = dyn_cast<memref::DimOp>(op);
      auto type = cast<MemRefType>(operand.getType());
      const bool sink = isa<memref::LoadOp>(op) && type.getRank() == 1 &&
                        type.getElementType().isF32(),
                 table = isa<memref::LoadOp, memref::StoreOp>(op) && type.getRank() <= 2 &&
                         type.getElementType().isInteger(32);
      if (!isArgument(operand) || (!isa<tile::ViewOp, tile::ForWorkOp, tile::FinalizeOp,
                                        tile::RotateOp, tile::StoreOp, tile::KeepTurnOp>(op) &&
                                   !sink && !table && !(dim && dim.getConstantIndex())))
        refuse(op)
            << "memrefs are the kernel's arguments, for views, sinks, schedules and constant "
               "dims only";
    }
    auto ring = dyn_cast<tile::RingOp>(op);
    if (ring && (!ring.getOffset() ||
                 (!inStep && !ring.isStaging() && !ring.getWith() && !ring.getBarriers())))
      refuse(ring) << "ring needs offset and barriers; run flash-tile-assign first";
    auto turn = dyn_cast<tile::InTurnOp>(op);
    if (turn && turn->getParentOfType<tile::RolesOp>() && !turn.getBarriers())
      refuse(turn) << "in_turn needs barriers; run flash-tile-assign first";
  });
  return success(ok);
}

Value Kernel::parameter(StringRef kind, Value arg, int64_t detail, Type type, int64_t group) {
  unsigned number = arg ? cast<BlockArgument>(arg).getArgNumber() : noArgument;
  for (const Parameter &p : parameters)
    if (p.kind == kind && p.arg == number && p.detail == detail && p.group == group)
      return p.value;
  Value value = func.getBody().front().addArgument(type, func.getLoc());
  parameters.push_back({kind, number, detail, group, value});
  return value;
}
Value Kernel::tensorMap(tile::ViewOp view, int64_t rows) {
  auto type = LLVM::LLVMPointerType::get(func.getContext());
  size_t before = parameters.size();
  Value map = parameter("tensor_map", view.getSource(), rows, type, view.getGroup());
  if (parameters.size() > before)
    maps.push_back(map);
  return map;
}
Value Kernel::pointer(Value memref) {
  auto type = LLVM::LLVMPointerType::get(func.getContext(),
                                         static_cast<unsigned>(NVVM::NVVMMemorySpace::Global));
  return parameter("pointer", memref, 0, type);
}
Value Kernel::size(Value memref, unsigned dim) {
  return parameter("size", memref, dim, IntegerType::get(func.getContext(), 32));
}
Value Kernel::stride(Value memref, unsigned dim) {
  return parameter("stride", memref, dim, IntegerType::get(func.getContext(), 64));
}

Value Kernel::counterNumber() {
  return parameter("counter", Value(), 0, IntegerType::get(func.getContext(), 32));
}
static LLVM::LLVMArrayType countersType(MLIRContext *context) {
  auto i32 = IntegerType::get(context, 32);
  return LLVM::LLVMArrayType::get(LLVM::LLVMArrayType::get(i32, counterWords),
                                  schedule::workCounters + 1);
}
Value Kernel::counter(ImplicitLocOpBuilder &b) {
  auto type = LLVM::LLVMPointerType::get(b.getContext(),
                                         static_cast<unsigned>(NVVM::NVVMMemorySpace::Global));
  Value all = LLVM::AddressOfOp::create(b, type, kCountersName);
  // Opaque, or the address is made before the loop over tiles and kept in two registers.
  return LLVM::GEPOp::create(b, type, countersType(b.getContext()), all,
                             ArrayRef<LLVM::GEPArg>{0, opaque(b, counterNumber()), 0});
}

void Kernel::bindScalars(RewriterBase &rewriter) {
  Block &entry = func.getBody().front();
  ImplicitLocOpBuilder b(func.getLoc(), rewriter);
  b.setInsertionPointToStart(&entry);
  for (unsigned i = 0; i < oldArguments; ++i) {
    BlockArgument arg = entry.getArgument(i);
    if (isa<FloatType>(arg.getType()))
      rewriter.replaceAllUsesWith(arg, parameter("scalar", arg, 0, arg.getType()));
    else if (arg.getType().isIndex())
      rewriter.replaceAllUsesWith(arg, toIndex(b, parameter("index", arg, 0, b.getI32Type())));
  }
  func.walk([&](memref::DimOp dim) {
    auto type = cast<MemRefType>(dim.getSource().getType());
    auto at = dim.getConstantIndex();
    if (!at || !isa<BlockArgument>(dim.getSource()))
      return;
    b.setInsertionPoint(dim);
    if (!type.isDynamicDim(*at))
      rewriter.replaceOp(dim, arith::ConstantIndexOp::create(b, type.getDimSize(*at)));
    else
      rewriter.replaceOp(dim, toIndex(b, size(dim.getSource(), *at)));
  });
}

Value Kernel::element(ImplicitLocOpBuilder &b, Value table, Value row, Value col) {
  Value offset = arith::IndexCastOp::create(b, b.getI64Type(), row);
  if (col) {
    offset = arith::MulIOp::create(b, offset, stride(table, 0));
    offset = arith::AddIOp::create(b, offset, arith::IndexCastOp::create(b, b.getI64Type(), col));
  }
  Value base = pointer(table);
  return LLVM::GEPOp::create(b, base.getType(), b.getI32Type(), base, ValueRange{offset});
}
Value Kernel::entry(ImplicitLocOpBuilder &b, Value table, Value row, Value col) {
  return toIndex(b, LLVM::LoadOp::create(b, b.getI32Type(), element(b, table, row, col)));
}

/// The sequence whose rows stand for those of `batch`.
static Value sequenceOf(ImplicitLocOpBuilder &b, Kernel &kernel, tile::ViewOp view, Value batch) {
  return view.getBatchIdx() ? kernel.entry(b, view.getBatchIdx(), batch) : batch;
}

Value Kernel::length(ImplicitLocOpBuilder &b, tile::ViewOp view, Value batch) {
  IrInt rows(b, batch);
  if (Value used = view.getSeqused()) {
    rows = IrInt(b, entry(b, used, batch));
    if (view.getAppended())
      rows = rows + IrInt(b, view.getAppended());
  } else if (Value starts = view.getCuSeqlens()) {
    IrInt sequence(b, sequenceOf(b, *this, view, batch));
    rows = IrInt(b, entry(b, starts, (sequence + 1).get())) -
           IrInt(b, entry(b, starts, sequence.get()));
  } else {
    rows = IrInt(b, toIndex(b, size(view.getSource(), view.rowDim())));
  }
  if (view.getLeftpad())
    rows = rows - IrInt(b, entry(b, view.getLeftpad(), batch));
  if (view.hasTables())
    rows = max(rows, int64_t(0));
  if (int64_t padded = view.getPadded(); padded > 1)
    rows = ceilDiv(rows, padded) * padded;
  return (rows * view.getGroup()).get();
}

Kernel::Place Kernel::place(ImplicitLocOpBuilder &b, tile::ViewOp view, Value batch, Value row) {
  if (view.getLeftpad())
    row = (IrInt(b, row) + IrInt(b, entry(b, view.getLeftpad(), batch))).get();
  Value sequence = sequenceOf(b, *this, view, batch);
  if (Value pages = view.getPageTable()) {
    Value memref = view.getSource();
    auto type = cast<MemRefType>(memref.getType());
    IrInt slots(
        b, type.isDynamicDim(view.rowDim())
               ? toIndex(b, size(memref, view.rowDim()))
               : arith::ConstantIndexOp::create(b, type.getDimSize(view.rowDim())).getResult());
    return {entry(b, pages, sequence, floorDiv(IrInt(b, row), slots).get()),
            remainder(IrInt(b, row), slots).get()};
  }
  if (view.getCuSeqlens()) {
    IrInt start(b, entry(b, view.getCuSeqlens(), sequence));
    if (int64_t padded = view.getPadded(); padded > 1)
      start = schedule::packedStart(start, IrInt(b, sequence), /*group=*/1, padded) * padded;
    row = (IrInt(b, row) + start).get();
  }
  return {view.hasBatch() ? sequence : Value(), row};
}

std::optional<std::pair<Value, Value>> Kernel::headAndSplit(Value both) {
  auto sum = both.getDefiningOp<arith::AddIOp>();
  auto product = sum ? sum.getLhs().getDefiningOp<arith::MulIOp>() : arith::MulIOp();
  auto splits = product ? product.getRhs().getDefiningOp<arith::IndexCastOp>() : nullptr;
  if (!splits)
    return std::nullopt;
  for (const Parameter &p : parameters) {
    auto name = p.kind == "size" && p.detail == 0 && p.value == splits.getIn()
                    ? func.getArgAttrOfType<StringAttr>(p.arg, "flash.arg")
                    : StringAttr();
    if (name && name.getValue().ends_with("_partial"))
      return std::pair(product.getLhs(), sum.getRhs());
  }
  return std::nullopt;
}

Value Kernel::address(ImplicitLocOpBuilder &b, tile::ViewOp view, Value batch, Value head,
                      Value row, Value col, Value part) {
  const unsigned rowDim = view.rowDim(), headDim = view.isColumn() ? rowDim - 1 : rowDim + 1;
  Value memref = view.getSource(), offset;
  // Tensors may pass 2^31 elements: 64 bits from here on.
  auto add = [&](Value index, unsigned dim) {
    Value wide = arith::IndexCastOp::create(b, b.getI64Type(), index);
    wide = arith::MulIOp::create(b, wide, stride(memref, dim));
    offset = offset ? Value(arith::AddIOp::create(b, offset, wide)) : wide;
  };
  if (view.getPartial()) { // heads times splits
    Value split;
    if (auto parts = headAndSplit(head)) {
      std::tie(head, split) = *parts;
    } else {
      IrInt both(b, head), splits(b, toIndex(b, size(memref, 0)));
      split = remainder(both, splits).get();
      head = floorDiv(both, splits).get();
    }
    add(part ? (IrInt(b, split) + IrInt(b, part)).get() : split, 0);
  }
  if (int64_t group = view.getGroup(); group > 1) { // the heads of a query are neighbouring rows
    IrInt packed(b, row);
    head = (IrInt(b, head) * group + remainder(packed, group)).get();
    row = floorDiv(packed, group).get();
  }
  Place where = place(b, view, batch, row);
  if (where.batch)
    add(where.batch, view.getPartial());
  if (!view.isBare())
    add(head, headDim);
  add(where.row, rowDim);
  if (col)
    offset = arith::AddIOp::create(b, offset, arith::IndexCastOp::create(b, b.getI64Type(), col));
  Value base = pointer(memref);
  return LLVM::GEPOp::create(b, base.getType(), view.getView().getType().getElementType(), base,
                             ValueRange{offset});
}

Value Kernel::logit(ImplicitLocOpBuilder &b, Value sink, Value head) {
  Value offset = arith::IndexCastOp::create(b, b.getI64Type(), head);
  offset = arith::MulIOp::create(b, offset, stride(sink, 0));
  Value base = pointer(sink);
  Value at = LLVM::GEPOp::create(b, base.getType(), b.getF32Type(), base, ValueRange{offset});
  return LLVM::LoadOp::create(b, b.getF32Type(), at);
}

Value Kernel::shared(ImplicitLocOpBuilder &b, Value offset) {
  auto type = LLVM::LLVMPointerType::get(b.getContext(),
                                         static_cast<unsigned>(NVVM::NVVMMemorySpace::Shared));
  Value base = LLVM::AddressOfOp::create(b, type, kSharedName);
  return LLVM::GEPOp::create(b, type, b.getI8Type(), base, ValueRange{offset});
}

LLVM::LLVMFuncOp Kernel::finish() {
  ImplicitLocOpBuilder b(func.getLoc(), func);
  auto module = func->getParentOfType<ModuleOp>();
  if (!module.lookupSymbol(kSharedName)) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(module.getBody());
    // 1024: what the 128-byte swizzle repeats after.
    LLVM::GlobalOp::create(b, LLVM::LLVMArrayType::get(b.getI8Type(), 0), /*isConstant=*/false,
                           LLVM::Linkage::External, kSharedName, Attribute(), /*alignment=*/1024,
                           static_cast<unsigned>(NVVM::NVVMMemorySpace::Shared));
  }

  bool counts = llvm::any_of(parameters, [](const Parameter &p) { return p.kind == "counter"; });
  if (counts && !module.lookupSymbol(kCountersName)) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(module.getBody());
    LLVM::LLVMArrayType type = countersType(b.getContext());
    // External, for whoever asks the driver where it is.
    auto global = LLVM::GlobalOp::create(b, type, /*isConstant=*/false, LLVM::Linkage::External,
                                         kCountersName, Attribute(),
                                         /*alignment=*/counterWords * schedule::ordinalBytes,
                                         static_cast<unsigned>(NVVM::NVVMMemorySpace::Global));
    b.createBlock(&global.getInitializerRegion());
    LLVM::ReturnOp::create(b, LLVM::ZeroOp::create(b, type).getResult());
  }

  SmallVector<Type> types;
  SmallVector<Attribute> descriptions;
  SmallVector<DictionaryAttr> argAttrs;
  for (const Parameter &p : parameters) {
    types.push_back(p.value.getType());
    NamedAttrList description, attrs;
    description.set("kind", b.getStringAttr(p.kind));
    if (p.arg != noArgument) {
      auto name = func.getArgAttrOfType<StringAttr>(p.arg, "flash.arg");
      description.set("arg", name ? name : b.getStringAttr("arg" + Twine(p.arg)));
    }
    if (p.kind == "tensor_map") {
      description.set("rows", b.getI64IntegerAttr(p.detail));
      if (p.group > 1)
        description.set("group", b.getI64IntegerAttr(p.group));
      attrs.set("llvm.byval",
                TypeAttr::get(LLVM::LLVMArrayType::get(b.getI64Type(), 16))); // a CUtensorMap
      attrs.set("llvm.align", b.getI64IntegerAttr(64));
      attrs.set(NVVM::NVVMDialect::getGridConstantAttrName(), b.getUnitAttr());
    }
    if (p.kind == "size" || p.kind == "stride")
      description.set("dim", b.getI64IntegerAttr(p.detail));
    descriptions.push_back(description.getDictionary(b.getContext()));
    argAttrs.push_back(attrs.getDictionary(b.getContext()));
  }

  auto type = LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(b.getContext()), types);
  auto kernel = LLVM::LLVMFuncOp::create(b, func.getSymName(), type);
  for (NamedAttribute attr : func->getDiscardableAttrs())
    kernel->setDiscardableAttr(attr.getName(), attr.getValue());
  kernel->setAttr("flash.params", b.getArrayAttr(descriptions));
  kernel->setAttr(NVVM::NVVMDialect::getKernelFuncAttrName(), b.getUnitAttr());
  // setmaxnreg is ignored without a bound on the threads (PTX ISA, setmaxnreg).
  kernel->setAttr(NVVM::NVVMDialect::getMaxntidAttrName(),
                  b.getDenseI32ArrayAttr({static_cast<int32_t>(threads), 1, 1}));
  auto plan = func->getAttrOfType<PlanAttr>("flash.plan");
  if (!hasRoles && plan && plan.getInt("warps") && plan.getInt("registers", 1))
    kernel->setAttr(NVVM::NVVMDialect::getMaxnregAttrName(),
                    b.getI32IntegerAttr(static_cast<int32_t>(*plan.getInt("registers", 1))));
  else
    kernel->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(), b.getI32IntegerAttr(1));
  if (cluster > 1) {
    kernel->setAttr(NVVM::NVVMDialect::getClusterDimAttrName(),
                    b.getDenseI32ArrayAttr({static_cast<int32_t>(cluster), 1, 1}));
    kernel->setAttr("flash.cluster", b.getI64IntegerAttr(cluster));
  }
  kernel.setDenormalFpMathF32("preserve-sign");

  kernel.getBody().takeBody(func.getBody());
  Block &entry = kernel.getBody().front();
  entry.eraseArguments(0, oldArguments);
  for (auto [i, attrs] : llvm::enumerate(argAttrs))
    kernel.setArgAttrs(i, attrs);
  kernel.walk([&](func::ReturnOp ret) {
    OpBuilder at(ret);
    LLVM::ReturnOp::create(at, ret.getLoc(), ValueRange());
    ret.erase();
  });
  func.erase();
  return kernel;
}

} // namespace flash::nvvm
