//===- TileToNVVM.cpp - convert-flash-tile-to-nvvm ------------------------===//
//
// A kernel becomes an llvm.func. Structure goes first (Structure.h), then every tile op by itself:
// fragments as vectors of a thread's cells (Fragments.h), the rest by the machine's emitter
// (TileEmitter.h). scf and arith stay for upstream's conversions.
//
//===----------------------------------------------------------------------===//
#include "Fragments.h"
#include "Structure.h"
#include "flash/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/SCF/Transforms/Patterns.h"
#include "mlir/Transforms/DialectConversion.h"

namespace flash {
#define GEN_PASS_DEF_CONVERTFLASHTILETONVVM
#include "flash/Passes.h.inc"
} // namespace flash

using namespace mlir;
using namespace flash;
using namespace flash::nvvm;

namespace {

using B = ImplicitLocOpBuilder;

/// What the patterns share.
struct Machine {
  Kernel &kernel;
  TileEmitter &emitter;
  Fragments fragments;
};

/// Converts `Op` by a function (Machine, builder, op, converted operands) -> values.
template <class Op> class Convert : public OpConversionPattern<Op> {
public:
  using Adaptor = typename OpConversionPattern<Op>::OpAdaptor;
  using Emit = SmallVector<Value> (*)(Machine &, B &, Op, Adaptor);
  Convert(const TypeConverter &types, MLIRContext *context, Machine &machine, Emit emit)
      : OpConversionPattern<Op>(types, context), machine(machine), emit(emit) {}

  LogicalResult matchAndRewrite(Op op, Adaptor in,
                                ConversionPatternRewriter &rewriter) const override {
    B b(op.getLoc(), rewriter);
    SmallVector<Value> values = emit(machine, b, op, in);
    if (values.empty())
      rewriter.eraseOp(op);
    else
      rewriter.replaceOp(op, values);
    return success();
  }

private:
  Machine &machine;
  Emit emit;
};

class ConvertMap : public OpConversionPattern<tile::MapOp> {
public:
  ConvertMap(const TypeConverter &types, MLIRContext *context, Machine &machine)
      : OpConversionPattern(types, context), machine(machine) {}
  LogicalResult matchAndRewrite(tile::MapOp op, OpAdaptor in,
                                ConversionPatternRewriter &rewriter) const override {
    B b(op.getLoc(), rewriter);
    rewriter.replaceOp(op, machine.fragments.map(b, op, in.getInputs(), [&](Value value) {
      return rewriter.getRemappedValue(value);
    }));
    return success();
  }

private:
  Machine &machine;
};

/// Marks, while roles are taken apart, the fills of a role that computes besides.
constexpr StringLiteral besideProducts = "flash_tile.beside_products";

void markFills(func::FuncOp func) {
  func.walk([](tile::RolesOp roles) {
    for (auto [attr, body] : llvm::zip(roles.getRoles(), roles.getBodies()))
      if (::llvm::cast<tile::RoleAttr>(attr).getUnits().size() > 1)
        body.walk([](tile::FillOp fill) {
          fill->setAttr(besideProducts, UnitAttr::get(fill.getContext()));
        });
  });
}

/// Products issued behind the awaited one and before the wait may stay in flight; without a common
/// block nothing is known of them.
unsigned pendingAfter(tile::MmaWaitOp wait) {
  auto mma = wait.getFlight().getDefiningOp<tile::MmaOp>();
  if (!mma || mma->getBlock() != wait->getBlock())
    return 0;
  unsigned pending = 0;
  for (Operation *op = mma->getNextNode(); op != wait; op = op->getNextNode()) {
    pending += isa<tile::MmaOp>(op);
    if (op->getNumRegions() &&
        op->walk([](tile::MmaOp) { return WalkResult::interrupt(); }).wasInterrupted())
      return 0;
  }
  return pending;
}

void addPatterns(RewritePatternSet &patterns, const TypeConverter &types, Machine &machine,
                 const DenseMap<Operation *, unsigned> &pending) {
  auto add = [&]<class Op>(SmallVector<Value> (*emit)(Machine &, B &, Op, typename Op::Adaptor)) {
    patterns.add<Convert<Op>>(types, patterns.getContext(), machine, emit);
  };
  using Values = SmallVector<Value>;
  // Rings
  add(+[](Machine &m, B &b, tile::FillOp op, tile::FillOp::Adaptor in) -> Values {
    bool computes = op->hasAttr(besideProducts);
    if (m.kernel.hasRoles && !computes) { // the whole role runs in one thread
      m.emitter.fill(b, op, in);
      return {};
    }
    auto alone =
        scf::IfOp::create(b, computes ? m.emitter.isFirstOfInstance(b) : m.emitter.isCopier(b));
    b.setInsertionPointToStart(alone.thenBlock());
    m.emitter.fill(b, op, in);
    return {};
  });
  add(+[](Machine &m, B &b, tile::WaitOp op, tile::WaitOp::Adaptor in) -> Values {
    tile::RingOp ring = ringOf(op.getRing());
    return {op.getAgain() ? m.emitter.tileOf(b, ring, in.getIt())
                          : m.emitter.wait(b, op, in.getIt())};
  });
  add(+[](Machine &m, B &b, tile::ReleaseOp op, tile::ReleaseOp::Adaptor in) -> Values {
    m.emitter.release(b, ringOf(op.getRing()), in.getIt());
    return {};
  });
  add(+[](Machine &m, B &b, tile::SliceOp op, tile::SliceOp::Adaptor in) -> Values {
    return {m.emitter.slice(b, op, in)};
  });
  add(+[](Machine &m, B &b, tile::ReadOp op, tile::ReadOp::Adaptor in) -> Values {
    return {m.emitter.read(b, op, in.getTile())};
  });
  add(+[](Machine &m, B &b, tile::WriteOp op, tile::WriteOp::Adaptor in) -> Values {
    m.emitter.write(b, op, in);
    return {};
  });
  // Products
  add(+[](Machine &m, B &b, tile::MmaOp op, tile::MmaOp::Adaptor in) -> Values {
    return {m.emitter.mma(b, op, in)};
  });
  // Fragments
  add(+[](Machine &m, B &b, tile::SplatOp op, tile::SplatOp::Adaptor in) -> Values {
    tile::FragType type = op.getResult().getType();
    return {m.fragments.splat(b, m.fragments.typeOf(type.getShape(), type.getElementType()),
                              in.getValue())};
  });
  add(+[](Machine &m, B &b, tile::CastOp op, tile::CastOp::Adaptor in) -> Values {
    return {m.fragments.cast(b, op, in.getValue())};
  });
  add(+[](Machine &m, B &b, tile::MaskOp op, tile::MaskOp::Adaptor in) -> Values {
    return {m.fragments.mask(b, op, in)};
  });
  add(+[](Machine &m, B &b, tile::SoftmaxStepOp, tile::SoftmaxStepOp::Adaptor in) -> Values {
    Fragments::Step step = m.fragments.softmaxStep(b, in);
    return {step.p, step.m, step.l, step.alpha};
  });
  add(+[](Machine &m, B &b, tile::SumOp op, tile::SumOp::Adaptor in) -> Values {
    return {m.fragments.sum(b, op, in.getValue())};
  });
  add(+[](Machine &m, B &b, tile::SplitRowsOp op, tile::SplitRowsOp::Adaptor in) -> Values {
    return m.fragments.splitRows(b, op, in.getValues());
  });
  add(+[](Machine &m, B &b, tile::RescaleOp op, tile::RescaleOp::Adaptor in) -> Values {
    return {op.getRare() ? m.fragments.rescaleRarely(b, in.getO(), in.getAlpha())
                         : m.fragments.rescale(b, in.getO(), in.getAlpha())};
  });
  add(+[](Machine &m, B &b, tile::OverflowedOp, tile::OverflowedOp::Adaptor in) -> Values {
    return {m.emitter.anyOfInstance(b, m.fragments.hasOverflow(b, in.getValue()))};
  });
  add(+[](Machine &m, B &b, tile::FinalizeOp op, tile::FinalizeOp::Adaptor in) -> Values {
    Fragments::Final result = m.fragments.finalize(b, op, in);
    return {result.o, result.lse};
  });
  add(+[](Machine &m, B &b, tile::RotateOp op, tile::RotateOp::Adaptor in) -> Values {
    return {m.fragments.rotate(b, op, in)};
  });
  add(+[](Machine &m, B &b, tile::LoadOp op, tile::LoadOp::Adaptor in) -> Values {
    return {m.fragments.load(b, op, in)};
  });
  add(+[](Machine &m, B &b, tile::StoreOp op, tile::StoreOp::Adaptor in) -> Values {
    if (op.getRing() && !op.getSum()) {
      m.emitter.storeStaged(b, op, in);
    } else {
      m.fragments.store(b, op, in);
      m.emitter.stored(b, op);
    }
    return {};
  });
  add(+[](Machine &m, B &b, tile::KeepTurnOp op, tile::KeepTurnOp::Adaptor in) -> Values {
    m.fragments.keepTurn(b, op, in);
    return {};
  });
  patterns.add<ConvertMap>(types, patterns.getContext(), machine);

  struct ConvertMmaWait : OpConversionPattern<tile::MmaWaitOp> {
    ConvertMmaWait(const TypeConverter &types, MLIRContext *context, Machine &machine,
                   const DenseMap<Operation *, unsigned> &pending)
        : OpConversionPattern(types, context), machine(machine), pending(pending) {}
    LogicalResult matchAndRewrite(tile::MmaWaitOp op, OpAdaptor in,
                                  ConversionPatternRewriter &rewriter) const override {
      B b(op.getLoc(), rewriter);
      rewriter.replaceOp(op, machine.emitter.mmaWait(b, in.getFlight(), pending.lookup(op)));
      return success();
    }
    Machine &machine;
    const DenseMap<Operation *, unsigned> &pending;
  };
  patterns.add<ConvertMmaWait>(types, patterns.getContext(), machine, pending);
}

/// Whether each block has one tile of the partial results of split keys, which come by the copy
/// engine: what takes so little time that the ends of the kernel count.
bool hasOnePart(Kernel &kernel) {
  auto plan = kernel.func->getAttrOfType<PlanAttr>("flash.plan");
  const bool isOne = plan && plan.getFlag("persistent") == false && !plan.getText("transfer");
  bool isPart = false, isLooped = false;
  kernel.func.walk([&](Operation *op) {
    if (auto view = dyn_cast<tile::ViewOp>(op))
      isPart |= view.getPartial();
    else if (auto work = dyn_cast<tile::ForWorkOp>(op))
      isLooped |= !work->use_empty();
  });
  return isOne && isPart && !isLooped && kernel.hasRoles && !kernel.inStep && kernel.cluster == 1;
}

/// The copier meets the others once it knows its tile: one of those sets the barriers up meanwhile
/// (`startsLate`), 0.25 us sooner on decodes of 15 to 80. ptxas would sink what the tile follows
/// from below the barrier, so the barrier's number, 0, is written as if it followed from it too.
/// Threads that copy nothing exit, and do not hold the barrier up (PTX ISA, "exit").
void meetLate(B &b, func::FuncOp func) {
  OpBuilder::InsertionGuard guard(b);
  auto fills = [](Operation *op) {
    return op->walk([](tile::FillOp) { return WalkResult::interrupt(); }).wasInterrupted();
  };
  func.walk([&](tile::ForWorkOp work) {
    if (!fills(work)) {
      b.setInsertionPoint(work);
      NVVM::Barrier0Op::create(b);
      return;
    }
    Block &body = work.getBody().front();
    Operation *first = &*llvm::find_if(body, [&](Operation &op) { return fills(&op); });
    b.setInsertionPoint(first);
    Value known = arith::OrIOp::create(b, toI32(b, body.getArgument(1)), // head and batch
                                       toI32(b, body.getArgument(2)));
    for (auto range : body.getOps<tile::BlockRangeOp>())
      known = arith::OrIOp::create(b, known, toI32(b, range.getEnd()));
    LLVM::CallIntrinsicOp::create(b, b.getStringAttr("llvm.nvvm.barrier.cta.sync.all"),
                                  ValueRange{arith::ShRUIOp::create(b, known, i32(b, 31))});
  });
}

/// Lets the kernel that joins parts in when a block has multiplied all of its only one: it starts
/// up beside the rest, 0.2 us sooner on decodes of 15 to 80. Let in while blocks still load, it
/// measured up to 1 us slower.
void admitFollower(B &b, func::FuncOp func) {
  OpBuilder::InsertionGuard guard(b);
  func.walk([&](tile::FinalizeOp result) {
    b.setInsertionPoint(result);
    NVVM::GriddepcontrolOp::create(b, NVVM::GridDepActionKind::launch_dependents);
  });
}

/// Waits for the kernel that this one follows, as late as possible: before the loop, or whatever it
/// is in the work on a tile, that first loads.
void awaitLeader(B &b, func::FuncOp func) {
  OpBuilder::InsertionGuard guard(b);
  const bool loads =
      func.walk([](tile::LoadOp) { return WalkResult::interrupt(); }).wasInterrupted();
  func.walk([&](Operation *op) {
    if (!loads || !isa<tile::LoadOp, LLVM::LoadOp>(op)) // of parts, or of a schedule
      return WalkResult::advance();
    Operation *at = op;
    while (at->getParentOp() != func && at->getParentOp()->getParentOp() != func)
      at = at->getParentOp();
    b.setInsertionPoint(at);
    return WalkResult::interrupt();
  });
  NVVM::GriddepcontrolOp::create(b, NVVM::GridDepActionKind::wait);
}

class ConvertFlashTileToNVVM
    : public flash::impl::ConvertFlashTileToNVVMBase<ConvertFlashTileToNVVM> {
public:
  void runOnOperation() override {
    SmallVector<func::FuncOp> kernels;
    for (auto func : getOperation().getOps<func::FuncOp>())
      if (func->hasAttr("flash.kernel"))
        kernels.push_back(func);
    for (func::FuncOp func : kernels)
      if (failed(convert(func)))
        return signalPassFailure();
  }

private:
  LogicalResult convert(func::FuncOp func) {
    auto target = func->getAttrOfType<TargetAttr>("flash.target");
    if (!target || target.target() == schedule::Target::cpu)
      return func.emitError("no code for ")
             << (target ? target.getName() : StringRef("a kernel without flash.target"))
             << ": convert-flash-tile-to-nvvm knows GPUs, sm_80 to sm_90a";
    FailureOr<Kernel> kernel = Kernel::create(func);
    if (failed(kernel))
      return failure();
    std::unique_ptr<TileEmitter> emitter =
        kernel->inStep ? makeSm80Emitter(*kernel) : makeSm90Emitter(*kernel);
    if (failed(emitter->check()) || failed(Fragments(*kernel).check()))
      return failure();
    expandTurns(*kernel, *emitter);
    DenseMap<Operation *, unsigned> pending;
    func.walk([&](tile::MmaWaitOp wait) { pending[wait] = pendingAfter(wait); });
    markFills(func);
    if (hasOnePart(*kernel)) {
      B b(func.getLoc(), func);
      kernel->startsLate = true;
      meetLate(b, func);
      admitFollower(b, func);
    }
    if (failed(expandStructure(*kernel, *emitter)))
      return failure();
    {
      B b(func.getLoc(), func);
      b.setInsertionPointToStart(&func.getBody().front());
      emitter->prologue(b);
      if (func->hasAttr("flash.follows")) // may begin before the kernel that it follows has ended
        awaitLeader(b, func);
      b.setInsertionPoint(func.getBody().front().getTerminator());
      emitter->epilogue(b);
    }

    Machine machine{*kernel, *emitter, Fragments(*kernel)};
    TypeConverter types;
    types.addConversion([](Type type) { return type; });
    types.addConversion([&](tile::FragType type) -> Type {
      return machine.fragments.typeOf(type.getShape(), type.getElementType());
    });
    types.addConversion([&](tile::FlightType type) -> Type {
      return machine.fragments.typeOf(type.getShape(), type.getElementType());
    });
    types.addConversion(
        [](tile::TileType type) -> Type { return IntegerType::get(type.getContext(), 32); });

    RewritePatternSet patterns(&getContext());
    addPatterns(patterns, types, machine, pending);
    ConversionTarget legal(getContext());
    legal.markUnknownOpDynamicallyLegal([](Operation *) { return true; });
    legal.addIllegalDialect<tile::TileDialect>();
    legal.addLegalOp<tile::ViewOp, tile::RingOp>(); // read by their users, erased below
    scf::populateSCFStructuralTypeConversionsAndLegality(types, patterns, legal);
    if (failed(applyPartialConversion(func, legal, std::move(patterns))))
      return failure();
    SmallVector<Operation *> declarations;
    func.walk([&](Operation *op) {
      if (isa<tile::ViewOp, tile::RingOp>(op))
        declarations.push_back(op);
    });
    for (Operation *op : llvm::reverse(declarations)) // rings with others first
      op->erase();
    kernel->finish();
    return success();
  }
};

} // namespace
