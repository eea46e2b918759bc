//===- Sm80.cpp - cp.async, ldmatrix and mma.sync -------------------------===//
//
// One program: all warps copy, wait and multiply. Of an ordinal
//
//   fill   every thread starts its share of the copy, one commit group
//   wait   every thread waits for its own share, then all warps meet: the tile is there, and every
//          warp is past what stands before the wait
// release  nothing; a fill into the slot stands behind a later wait, or lets the warps meet itself
//
// A product is done when its instructions are: a flight is the value. Tiles are byte addresses in
// shared memory.
//
//===----------------------------------------------------------------------===//
#include "CopyGroups.h"
#include "Gather.h"
#include "Ldmatrix.h"
#include "TileEmitter.h"
#include "flash/Conversion/IrInt.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;

namespace flash::nvvm {
namespace {

class Sm80Emitter : public TileEmitter {
public:
  explicit Sm80Emitter(Kernel &kernel) : TileEmitter(kernel) {}

  std::string whyNotBuilt(Operation *op) const override;
  void prologue(B &b) override;
  void epilogue(B &) override {}
  Value warpGroup(B &b) override { return arith::ShRUIOp::create(b, threadId(b), i32(b, 7)); }
  int64_t warpsPerGroup() const override { return schedule::warpgroupWarps; }
  void enterRole(B &, tile::RoleAttr) override {}
  void awaitTurn(B &, Value) override {}
  void giveTurn(B &, Value) override {}
  Value isCopier(B &b) override { return arith::ConstantOp::create(b, b.getBoolAttr(true)); }
  Value isFirstOfInstance(B &b) override { return isCopier(b); }
  Value anyOfInstance(B &b, Value predicate) override {
    return anyAtBarrier(b, predicate, i32(b, 0), kernel.threads);
  }

  void fill(B &b, tile::FillOp op, tile::FillOp::Adaptor in) override;
  Value wait(B &b, tile::WaitOp op, Value it) override;
  void release(B &, tile::RingOp, Value) override {}
  Value takesForCluster(B &b) override { return isCopier(b); }
  Value publish(B &, tile::RingOp, Value, Value ordinal) override { return ordinal; }
  Value follow(B &b, tile::RingOp, Value) override { return i32(b, 0); }
  Value tileOf(B &b, tile::RingOp ring, Value it) override {
    Value base = LLVM::PtrToIntOp::create(b, b.getI32Type(), kernel.shared(b, i32(b, 0)));
    return arith::AddIOp::create(b, base, slotOffset(b, ring, it));
  }
  Value read(B &b, tile::ReadOp op, Value tile) override {
    if (const int64_t parts = kernel.rowParts(); op.getTile().getType().getShape()[0] == 1) {
      Value thread = kernel.anew(b);
      return readRow(b, op.getTile().getType().getShape()[1], tile,
                     parts > 1 ? firstColumnOfWarp(b, kernel, kernel.scoreRows, thread) : Value(),
                     parts, thread);
    }
    return readTile(b, kernel, op.getTile().getType(), tile);
  }
  Value slice(B &b, tile::SliceOp op, tile::SliceOp::Adaptor in) override {
    return arith::AddIOp::create(b, in.getTile(), sliceOffset(b, op, in, 1));
  }
  void write(B &b, tile::WriteOp op, tile::WriteOp::Adaptor in) override;
  void storeStaged(B &, tile::StoreOp, tile::StoreOp::Adaptor) override {}
  Value mma(B &b, tile::MmaOp op, tile::MmaOp::Adaptor in) override;
  Value mmaWait(B &, Value flight, unsigned) override { return flight; }

private:
  /// Byte of the slot within shared memory.
  Value slotOffset(B &b, tile::RingOp ring, Value it) {
    const int64_t stages = ring.getType().getShape()[0];
    Value first = i32(b, *ring.getOffset());
    if (stages == 1)
      return first;
    Value slot = toI32(b, remainder(IrInt(b, it), stages).get());
    Value offset = arith::MulIOp::create(b, slot, i32(b, slotBytes(ring.getType())));
    return arith::AddIOp::create(b, offset, first);
  }

  DenseMap<Operation *, Value> conditions; ///< of fills that had a branch of their own
  DenseMap<Operation *, unsigned> pending; ///< groups that a wait leaves
  DenseSet<Operation *> meets;             ///< fills and writes before which the warps meet
  /// Whether what copies of K and V share of a thread's place is more than registers keep: rows
  /// are looked up beside an output that fills half of them.
  bool isTight = false;
};

std::string Sm80Emitter::whyNotBuilt(Operation *op) const {
  if (auto roles = dyn_cast<tile::RolesOp>(op)) {
    if (roles.getRoles().size() > 1) // instances of one share copies and meet at all waits
      return "a block of several roles";
  }
  if (auto read = dyn_cast<tile::ReadOp>(op)) {
    ArrayRef<int64_t> shape = read.getTile().getType().getShape();
    if (shape[0] != 1 && shape[1] % Ldmatrix::side)
      return "reading a tile of other than a multiple of 16 columns";
  } else if (auto mma = dyn_cast<tile::MmaOp>(op)) {
    ArrayRef<int64_t> b = mma.getB().getType().getShape();
    if (b[0] % Ldmatrix::side || b[1] % Ldmatrix::side)
      return "a product of other than multiples of 16 columns";
    ArrayRef<int64_t> shape = mma.getResult().getType().getShape();
    const auto grid = kernel.gridOf(shape[0]);
    const int64_t groups = shape[0] / Ldmatrix::side / grid.rows;
    // Numbers of 16-column blocks are put together of bits.
    const bool shares = mma.getTransA() || grid.cols > 1;
    if (shares && (!llvm::isPowerOf2_64(groups) || !llvm::isPowerOf2_64(grid.cols) || groups > 4 ||
                   grid.cols > 4 || shape[1] % (Ldmatrix::side * grid.cols)))
      return "a product of " + std::to_string(shape[0]) + " columns of a tile by " +
             std::to_string(kernel.warps) + " warps";
    if (grid.cols > 1 && isa<tile::FragType>(mma.getA().getType()))
      return "a product of rows that several warps have parts of";
  } else if (auto write = dyn_cast<tile::WriteOp>(op)) {
    if (write.getRow() || write.getValue().getType().getElementType().isF32())
      return "writing other than a whole tile of 16-bit elements";
  } else if (auto store = dyn_cast<tile::StoreOp>(op)) {
    if (store.getRing())
      return "storing via shared memory";
  } else if (auto work = dyn_cast<tile::ForWorkOp>(op)) {
    if (work.getCluster() > 1)
      return "a cluster of blocks";
    if (work.getRing())
      return "taking tiles from a counter";
  }
  return TileEmitter::whyNotBuilt(op);
}

void Sm80Emitter::prologue(B &) {
  // All of this before anything is converted: it follows loops and ordinals.
  conditions = liftGuards(kernel.func);
  kernel.func.walk([&](tile::WaitOp wait) { pending[wait] = pendingAt(wait); });
  if (kernel.gradients)
    kernel.func.walk([&](tile::WaitOp wait) {
      if (isCovered(wait, pending))
        wait.setAgain(true);
    });
  constexpr int64_t tight = 128; // columns of K and of an output
  bool isOther = false;
  kernel.func.walk([&](tile::ViewOp view) {
    if (view.getPageTable() || view.getLeftpad())
      (view.getView().getType().getShape()[0] == tight ? isTight : isOther) = true;
  });
  isTight &= !isOther;
  kernel.func.walk([&](tile::FillOp fill) {
    if (!isBehindWait(fill, fill.getRing()))
      meets.insert(fill);
  });
  kernel.func.walk([&](tile::WriteOp write) {
    if (!isBehindWait(write, write.getRing()))
      meets.insert(write);
  });
}

void Sm80Emitter::fill(B &b, tile::FillOp op, tile::FillOp::Adaptor in) {
  if (meets.contains(op))
    NVVM::Barrier0Op::create(b);
  auto gather = op.getRing().getType().getShape()[1] == 1 ? emitGatherRow : emitGather;
  Value thread = kernel.anew(b);
  tile::RingOp ring = ringOf(op.getRing());
  if (isTight && ring.getName() == "v")
    thread = freshThreadId(b);
  gather(b, kernel, op, in, slotOffset(b, ring, in.getIt()), thread ? thread : threadId(b),
         kernel.threads, conditions.lookup(op));
  NVVM::CpAsyncCommitGroupOp::create(b);
}

Value Sm80Emitter::wait(B &b, tile::WaitOp op, Value it) {
  if (!isWritten(op.getRing()))
    NVVM::CpAsyncWaitGroupOp::create(b, pending.lookup(op));
  NVVM::Barrier0Op::create(b);
  return tileOf(b, ringOf(op.getRing()), it);
}

void Sm80Emitter::write(B &b, tile::WriteOp op, tile::WriteOp::Adaptor in) {
  if (meets.contains(op))
    NVVM::Barrier0Op::create(b);
  tile::RingOp ring = ringOf(op.getRing());
  auto type = tile::TileType::get(b.getContext(), ring.getType().getShape().drop_front(),
                                  ring.getType().getElementType());
  writeTile(b, kernel, type, tileOf(b, ring, in.getIt()), in.getValue(), kernel.anew(b));
}

/// Each 16 x 16 block of B serves all of the warp's rows: two products of 16 x 8 per 16 rows.
Value Sm80Emitter::mma(B &b, tile::MmaOp op, tile::MmaOp::Adaptor in) {
  constexpr int64_t side = Ldmatrix::side, accumulators = 4, wordsOfA = 4;
  tile::TileType typeB = op.getB().getType();
  tile::FlightType type = op.getResult().getType();
  Type element = typeB.getElementType();
  const bool trans = op.getTransB();
  const int64_t rows = type.getShape()[0], cols = type.getShape()[1];
  const int64_t k = typeB.getShape()[trans ? 1 : 0];
  const auto grid = kernel.gridOf(rows);
  const int64_t mine = cols / grid.cols; // columns
  const int64_t groups = rows / (side * grid.rows), perGroup = mine / 2;

  SmallVector<Value> cells(groups * perGroup);
  if (Value acc = in.getAcc())
    for (auto [i, cell] : llvm::enumerate(cells))
      cell = LLVM::ExtractElementOp::create(b, acc, i32(b, i));
  else
    std::fill(cells.begin(), cells.end(),
              arith::ConstantOp::create(b, b.getF32FloatAttr(0)).getResult());

  const Value thread = kernel.anew(b);
  std::optional<Ldmatrix> tileA;
  if (op.getTransA())
    tileA.emplace(b, in.getA(), k, Ldmatrix::columnsFirst, Value(), thread,
                  firstRowOfWarp(b, kernel, rows, thread));
  else if (isa<tile::TileType>(op.getA().getType()))
    tileA.emplace(b, in.getA(), rows, Ldmatrix::rowsFirst, firstRowOfWarp(b, kernel, rows, thread),
                  thread);
  const Value firstColumn = grid.cols == 1 ? Value() : firstColumnOfWarp(b, kernel, rows, thread);
  Ldmatrix tileB(b, in.getB(), typeB.getShape()[0],
                 trans ? Ldmatrix::columnsFirst : Ldmatrix::rowsFirst,
                 trans ? firstColumn : Value(), thread, trans ? Value() : firstColumn);

  // bf16 comes in i32, f16 in pairs.
  auto pairOf = [&](Value word) -> Value {
    if (element.isBF16())
      return word;
    return LLVM::BitcastOp::create(b, VectorType::get({2}, element), word);
  };
  const auto ptxType = element.isBF16() ? NVVM::MMATypes::bf16 : NVVM::MMATypes::f16;
  auto f32x4 =
      LLVM::LLVMStructType::getLiteral(b.getContext(), SmallVector<Type>(4, b.getF32Type()));
  for (int64_t step = 0; step < k; step += side) {
    SmallVector<SmallVector<Value>> a(groups);
    for (int64_t g = 0; g < groups; ++g)
      for (int64_t i = 0; i < wordsOfA; ++i) {
        if (tileA && i == 0)
          llvm::append_range(a[g], op.getTransA() ? tileA->load(b, step, g * side, true)
                                                  : tileA->load(b, g * side, step));
        else if (!tileA)
          a[g].push_back(LLVM::ExtractElementOp::create(
              b, in.getA(), i32(b, (g * k + step) / side * wordsOfA + i)));
      }
    for (auto &words : a)
      for (Value &word : words)
        word = pairOf(word);
    for (int64_t col = 0; col < mine; col += side) {
      auto words = trans ? tileB.load(b, col * grid.cols, step)
                         : tileB.load(b, step, col * grid.cols, /*transposed=*/true);
      for (int64_t g = 0; g < groups; ++g)
        for (int64_t half = 0; half < 2; ++half) {
          MutableArrayRef<Value> c =
              MutableArrayRef(cells).slice(g * perGroup + col / 2 + half * accumulators, 4);
          SmallVector<Value> pair{pairOf(words[2 * half]), pairOf(words[2 * half + 1])};
          Value product = NVVM::MmaOp::create(
              b, f32x4, a[g], pair, c, ArrayRef<int64_t>{16, 8, 16}, std::nullopt, std::nullopt,
              std::array{ptxType, ptxType}, std::array{NVVM::MMALayout::row, NVVM::MMALayout::col});
          for (int64_t i = 0; i < accumulators; ++i)
            c[i] = LLVM::ExtractValueOp::create(b, product, i);
        }
    }
  }
  Value result = LLVM::PoisonOp::create(
      b, VectorType::get({static_cast<int64_t>(cells.size())}, b.getF32Type()));
  for (auto [i, cell] : llvm::enumerate(cells))
    result = LLVM::InsertElementOp::create(b, result, cell, i32(b, i));
  return result;
}

} // namespace

std::unique_ptr<TileEmitter> makeSm80Emitter(Kernel &kernel) {
  return std::make_unique<Sm80Emitter>(kernel);
}

} // namespace flash::nvvm
