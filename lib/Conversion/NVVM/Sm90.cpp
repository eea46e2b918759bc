//===- Sm90.cpp - TMA, mbarriers and wgmma --------------------------------===//
//
// A ring slot has two mbarriers. Ordinal `it` uses slot it % stages in generation g = it / stages:
//
//   copier     wait empty (parity of g - 1), arrive full + expect bytes, TMA -> full
//   consumers  wait full (parity of g), products, one lane a warp arrives -> empty
//
// In a cluster each block's copier multicasts its share of the rows to all, and one lane a warp
// for each block arrives at that block's empty: so a slot whose own empty has completed is free in
// all blocks. The bytes of another block's share may come before this block's copier expects them:
// full cannot complete without its arrival, and a phase's count of bytes may be negative for a
// while (PTX ISA, "mbarrier, tracking of asynchronous operations").
//
// A plan with transfer = "gather" copies by 128 threads instead of one, each of which arrives at
// full when its own pieces have landed.
//
// A fresh barrier counts as having completed the generation before its first, so the first wait on
// empty passes (PTX ISA, "mbarrier phase"). Tiles are addresses in units of 16 bytes, as matrix
// descriptors have them.
//
//===----------------------------------------------------------------------===//
#include "CopyGroups.h"
#include "Fragments.h"
#include "Gather.h"
#include "Ldmatrix.h"
#include "TileEmitter.h"
#include "Wgmma.h"
#include "flash/Conversion/IrInt.h"
#include "flash/Schedule/Layout.h"
#include "flash/Schedule/Plan.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace flash::nvvm {
namespace {

constexpr int64_t kTileUnit = 16;      // bytes
constexpr int64_t kRowsPerGroup = 64;  // of one wgmma
constexpr int64_t kMaxCols = 256;      // of one wgmma
constexpr int64_t kMaxBoxRows = 256;   // of one TMA box
constexpr int64_t kSwizzleRows = 8;    // of a panel, after which its pattern repeats
constexpr int64_t kTicks = 10'000'000; // a wait's suspend hint, ns

class Sm90Emitter : public TileEmitter {
public:
  explicit Sm90Emitter(Kernel &kernel) : TileEmitter(kernel) {
    auto plan = kernel.func->getAttrOfType<PlanAttr>("flash.plan");
    gathers = plan && plan.getText("transfer") ==
                          StringRef(schedule::transferName(schedule::Transfer::gather));
  }

  std::string whyNotBuilt(Operation *op) const override;
  void prologue(B &b) override;
  void epilogue(B &b) override {
    SmallPtrSet<Operation *, 2> awaited;
    kernel.func.walk([&](tile::StoreOp op) {
      if (Operation *work = outermostLoop(op); op.getRing() && awaited.insert(work).second) {
        OpBuilder::InsertionGuard guard(b);
        b.setInsertionPointAfter(work);
        awaitReads(b, 0);
      }
    });
    if (kernel.cluster > 1)
      awaitCluster(b, /*aligned=*/false); // the threads of a warp come one by one
  }
  Value takesForCluster(B &b) override {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::eq, clusterRank(b), i32(b, 0));
  }
  Value warpGroup(B &b) override {
    // From lane 0, so that ptxas knows it to be uniform and may branch and build descriptors on it.
    return broadcastLane0(b, arith::ShRUIOp::create(b, threadId(b), i32(b, 7)));
  }
  int64_t warpsPerGroup() const override { return schedule::warpgroupWarps; }
  void enterRole(B &b, tile::RoleAttr role) override;
  Value isCopier(B &b) override;
  Value isFirstOfInstance(B &b) override {
    Value thread =
        arith::RemUIOp::create(b, threadId(b), i32(b, kernel.warps * schedule::warpThreads));
    return arith::CmpIOp::create(b, arith::CmpIPredicate::eq, thread, i32(b, 0));
  }
  Value anyOfInstance(B &b, Value predicate) override;

  void fill(B &b, tile::FillOp op, tile::FillOp::Adaptor in) override;
  void awaitTurn(B &b, Value id) override {
    NVVM::BarrierOp::create(b, Type(), id,
                            i32(b, 2 * schedule::warpgroupWarps * schedule::warpThreads),
                            NVVM::BarrierReductionAttr(), Value());
  }
  void giveTurn(B &b, Value id) override {
    NVVM::BarrierArriveOp::create(b, id,
                                  i32(b, 2 * schedule::warpgroupWarps * schedule::warpThreads));
  }
  Value wait(B &b, tile::WaitOp op, Value it) override;
  Value tileOf(B &b, tile::RingOp ring, Value it) override {
    return address(b, ring, slotOf(b, ring, it));
  }
  Value read(B &b, tile::ReadOp op, Value tile) override;
  void release(B &b, tile::RingOp ring, Value it) override;
  Value publish(B &b, tile::RingOp ring, Value it, Value ordinal) override;
  Value follow(B &b, tile::RingOp ring, Value it) override;
  void write(B &b, tile::WriteOp op, tile::WriteOp::Adaptor in) override;
  Value slice(B &b, tile::SliceOp op, tile::SliceOp::Adaptor in) override;
  void storeStaged(B &b, tile::StoreOp op, tile::StoreOp::Adaptor in) override;
  /// Else ptxas may take the loop over tiles for one whose lanes run apart, and then moves a
  /// descriptor to uniform registers for each product: measured 0 to 1.4 % at head sizes 192 and
  /// 128, 0.5 % in the mean. Parts in f32 have not shown it.
  void stored(B &b, tile::StoreOp op) override {
    tile::FragType type = op.getValue().getType();
    if (kernel.hasRoles && !op.getSum() && type.getShape()[1] > 1 && !type.getElementType().isF32())
      NVVM::SyncWarpOp::create(b, i32(b, -1));
  }
  Value mma(B &b, tile::MmaOp op, tile::MmaOp::Adaptor in) override;
  Value mmaWait(B &b, Value flight, unsigned pending) override {
    return waitWgmma(b, flight, pending);
  }

private:
  struct Slot {
    Value number, parity; // i32
  };
  Slot slotOf(B &b, tile::RingOp ring, Value it) {
    int64_t stages = ring.getType().getShape()[0];
    IrInt ordinal(b, it);
    return {toI32(b, remainder(ordinal, stages).get()),
            toI32(b, remainder(floorDiv(ordinal, stages), 2).get())};
  }
  /// The slot's full or empty barrier.
  Value barrier(B &b, tile::RingOp ring, Value slot, bool isEmpty) {
    int64_t first =
        *ring.getBarriers() + (isEmpty ? ring.getType().getShape()[0] * schedule::barrierBytes : 0);
    Value offset = arith::MulIOp::create(b, slot, i32(b, schedule::barrierBytes));
    return kernel.shared(b, arith::AddIOp::create(b, offset, i32(b, first)));
  }
  void await(B &b, Value barrier, Value parity) {
    NVVM::MBarrierTryWaitParityOp::create(b, barrier, parity, i32(b, kTicks));
  }
  static LLVM::InlineAsmOp asmOp(B &b, Type type, ValueRange operands, StringRef text,
                                 StringRef constraints, bool hasEffects = true) {
    return LLVM::InlineAsmOp::create(
        b, type, operands, text, constraints, hasEffects, /*is_align_stack=*/false,
        LLVM::tailcallkind::TailCallKind::None,
        LLVM::AsmDialectAttr::get(b.getContext(), LLVM::AsmDialect::AD_ATT), ArrayAttr());
  }
  void asmText(B &b, ValueRange operands, StringRef text, StringRef constraints) {
    asmOp(b, LLVM::LLVMVoidType::get(b.getContext()), operands, text, constraints);
  }
  /// A cache policy (PTX ISA, "createpolicy") for lines that the L2 cache gives up before others.
  static Value evictFirst(B &b) {
    return asmOp(b, b.getI64Type(), {}, "createpolicy.fractional.L2::evict_first.b64 $0, 1.0;",
                 "=l", /*hasEffects=*/false)
        .getRes();
  }
  /// One arrival, and so many bytes to come.
  void expect(B &b, Value full, int64_t bytes) {
    NVVM::MBarrierArriveExpectTxOp::create(b, Type(), full, i32(b, bytes), NVVM::MemScopeKind::CTA,
                                           /*relaxed=*/false, Value());
  }
  /// One arrival at a barrier, where `isOne` (or unset) says so. Predicated, not branched around:
  /// no divergence next to the products.
  void arrive(B &b, Value barrier, Value isOne = {}) {
    if (isOne)
      asmText(b, {barrier, isOne}, "@$1 mbarrier.arrive.shared::cta.b64 _, [$0];", "r,b,~{memory}");
    else
      asmText(b, barrier, "mbarrier.arrive.shared::cta.b64 _, [$0];", "r,~{memory}");
  }
  /// The same at the barrier of block `rank` of the cluster. A reader has written nothing that the
  /// other block might read: the scope of the cluster would cost a fence an arrival for nothing.
  void arriveAt(B &b, Value barrier, Value rank, Value isOne) {
    asmText(b, {barrier, isOne, rank},
            "{\n\t.reg .b32 remote;\n\tmapa.shared::cluster.u32 remote, $0, $2;\n\t"
            "@$1 mbarrier.arrive.shared::cluster.b64 _, [remote];\n\t}",
            "r,b,r,~{memory}");
  }
  /// Rows that one block copies of a tile: its share.
  static int64_t boxRows(tile::RingOp ring) {
    return ring.getType().getShape()[1] / static_cast<int64_t>(ring.getCluster());
  }
  /// Whether it holds rows of f32, copied as they lie.
  static bool holdsRows(tile::RingOp ring) {
    return !holdsOrdinals(ring) && ring.getType().getShape()[1] == 1;
  }
  /// Whether lanes read what is in a slot, a row of floats that came with its tile: then each
  /// releases it. One lane for its warp would need a bar.warp.sync, which ptxas leaves out where
  /// lanes run in step, and racecheck does not see.
  static bool isReadByLanes(tile::RingOp ring) {
    return holdsRows(ring) || llvm::any_of(ring->getUsers(), llvm::IsaPred<tile::RingOp>);
  }
  static bool holdsOrdinals(tile::RingOp ring) {
    return !isa<FloatType>(ring.getType().getElementType());
  }
  Value clusterRank(B &b) { return NVVM::ClusterId::create(b, b.getI32Type()); }
  /// All threads of the cluster come here before any goes on.
  void awaitCluster(B &b, bool aligned) {
    UnitAttr attr = aligned ? b.getUnitAttr() : UnitAttr();
    NVVM::ClusterArriveOp::create(b, attr);
    NVVM::ClusterWaitOp::create(b, attr);
  }
  /// Where an ordinal of work stands.
  Value ordinalAt(B &b, tile::RingOp ring, Value slot) {
    Value offset = arith::MulIOp::create(b, slot, i32(b, schedule::ordinalBytes));
    return kernel.shared(b, arith::AddIOp::create(b, offset, i32(b, *ring.getOffset())));
  }
  /// What a matrix descriptor has of an address: in a cluster the bits above name the block (PTX
  /// ISA, "Matrix Descriptor Format"), and would run into the strides.
  Value described(B &b, Value tile) {
    const int64_t addressBits = (int64_t(1) << 18) - 1;
    return kernel.cluster == 1 ? tile
                               : arith::AndIOp::create(b, tile, i32(b, addressBits / kTileUnit));
  }
  /// The slot's address, in tile units.
  Value address(B &b, tile::RingOp ring, const Slot &slot);
  /// Byte of the slot within shared memory.
  Value slotOffset(B &b, tile::RingOp ring, Value slot) {
    Value offset = arith::MulIOp::create(b, slot, i32(b, slotBytes(ring.getType())));
    return arith::AddIOp::create(b, offset, i32(b, *ring.getOffset()));
  }

  /// Rows of a page, -1 if unknown; and of what is copied at once, of `rows`.
  static int64_t pageOf(tile::ViewOp view) {
    auto type = cast<MemRefType>(view.getSource().getType());
    return type.isDynamicDim(view.rowDim()) ? -1 : type.getDimSize(view.rowDim());
  }
  static int64_t pieceRows(tile::ViewOp view, int64_t rows) {
    return view.getPageTable() ? std::min(rows, pageOf(view)) : rows;
  }
  void copyBoxes(B &b, tile::FillOp op, Value head, Kernel::Place place, int64_t rows, Value offset,
                 Value full);
  void copyRow(B &b, tile::FillOp::Adaptor in, tile::ViewOp view, tile::RingOp ring, Value offset,
               Value full);
  void copyByTables(B &b, tile::FillOp op, tile::FillOp::Adaptor in, tile::RingOp ring,
                    Value offset, Value full);

  /// Blocks until all but the last `pending` groups of stores that this thread started have read
  /// shared memory.
  void awaitReads(B &b, int64_t pending) {
    NVVM::CpAsyncBulkWaitGroupOp::create(b, static_cast<uint32_t>(pending), b.getUnitAttr());
  }
  /// Shared memory must be there until it has been read: behind all work, in its programs alone,
  /// for whom that costs no register.
  Operation *outermostLoop(Operation *op) const {
    Operation *outermost = op;
    for (op = op->getParentOp(); op != kernel.func; op = op->getParentOp())
      if (isa<LoopLikeOpInterface>(op))
        outermost = op;
    return outermost;
  }
  /// Runs `body` in one thread of the warp, always the same.
  void elected(B &b, llvm::function_ref<void()> body) {
    Value isElected = NVVM::ElectSyncOp::create(b, b.getI1Type(), Value());
    auto branch = scf::IfOp::create(b, isElected);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.thenBlock());
    body();
  }
  /// Rows of O that a warp stores by itself.
  int64_t storedRows(tile::StoreOp store) const {
    return store.getValue().getType().getShape()[0] / kernel.warps;
  }

  bool gathers; ///< copies by cp.async instead of TMA
  /// Rings whose tiles must be zero past their rows in use: of second products.
  SmallPtrSet<Operation *, 4> zeroed;
};

/// Whether the ring's keeper has been filled before the fill, or waited for before the wait.
template <class Op> static bool isKept(Op op) {
  tile::RingOp ring = ringOf(op.getRing());
  return !ring.getWith() || llvm::any_of(ring.getWith().getUsers(), [&](Operation *user) {
    auto other = dyn_cast<Op>(user);
    return other && other->getBlock() == op->getBlock() && other.getIt() == op.getIt() &&
           other->isBeforeInBlock(op);
  });
}

std::string Sm90Emitter::whyNotBuilt(Operation *op) const {
  if (auto roles = dyn_cast<tile::RolesOp>(op)) {
    int64_t before = 0; // warps
    for (auto role : roles.getRoles().getAsRange<tile::RoleAttr>()) {
      const bool copies = llvm::is_contained(role.getUnits(), tile::Unit::copy),
                 keeps = llvm::is_contained(role.getUnits(), tile::Unit::turn);
      const int64_t sharing = before % schedule::warpgroupWarps; // a group with those before
      before += role.getInstances() * role.getWarps();
      // Keepers are the last warps of the group that copies, one for each consumer.
      const bool fits =
          keeps ? sharing && role.getWarps() == 1 && before == schedule::warpgroupWarps
                : !sharing && (role.getWarps() == schedule::warpgroupWarps ||
                               (copies && !gathers &&
                                role.getWarps() + kernel.keepers == schedule::warpgroupWarps));
      if (!fits)
        return "a role of " + std::to_string(role.getWarps()) + " warps";
      if (copies && role.getUnits().size() == 1 && role.getInstances() > 1)
        return "a role that copies several times";
    }
  } else if (auto fill = dyn_cast<tile::FillOp>(op); fill && !isKept(fill)) {
    return "filling a ring that is with another before that";
  } else if (auto wait = dyn_cast<tile::WaitOp>(op); wait && !isKept(wait)) {
    return "waiting for a ring that is with another before that";
  } else if (auto fill = dyn_cast<tile::FillOp>(op); fill && holdsRows(ringOf(fill.getRing()))) {
    const int64_t cols = fill.getRing().getType().getShape()[2];
    // Whole rows then, which lie at multiples of 16 bytes (PTX ISA, "cp.async.bulk").
    if (gathers || viewOf(fill.getView()).getPadded() % cols || cols % 4)
      return "copying " + std::to_string(cols) + " values that may lie anywhere";
  } else if (fill && !gathers) {
    tile::ViewOp view = viewOf(fill.getView());
    const int64_t rows = boxRows(ringOf(fill.getRing())), heads = view.getGroup();
    if (rows % heads)
      return "copying tiles of " + std::to_string(rows) + " rows that hold " +
             std::to_string(heads) + " heads of a query by tma";
    const int64_t page = pageOf(view), piece = pieceRows(view, rows);
    if (view.getPageTable() &&
        (page < 0 || page % piece || rows % piece || piece % kSwizzleRows || view.getLeftpad()))
      return "copying " + std::to_string(rows) + " rows of pages by tma";
  } else if (auto ring = dyn_cast<tile::RingOp>(op)) {
    if (ring.getType().getShape()[1] > kMaxBoxRows)
      return "a tile of more than " + std::to_string(kMaxBoxRows) + " rows";
    if (ring.getCluster() > 1 && !holdsOrdinals(ring) &&
        (gathers || ring.getType().getShape()[1] % (ring.getCluster() * kSwizzleRows)))
      return "a ring of " + std::to_string(ring.getType().getShape()[1]) + " rows that " +
             std::to_string(ring.getCluster()) + " blocks fill";
  } else if (auto read = dyn_cast<tile::ReadOp>(op)) {
    ArrayRef<int64_t> shape = read.getTile().getType().getShape();
    if (shape[0] != 1 && (shape[0] != schedule::warpRows * kernel.warps || shape[1] % 16))
      return "reading a tile of " + std::to_string(shape[0]) + " rows and " +
             std::to_string(shape[1]) + " columns in " + std::to_string(kernel.warps) + " warps";
  } else if (auto mma = dyn_cast<tile::MmaOp>(op)) {
    int64_t rows = mma.getResult().getType().getShape()[0],
            cols = mma.getResult().getType().getShape()[1];
    if (rows * schedule::warpgroupWarps != kRowsPerGroup * kernel.warps)
      return "a product of " + std::to_string(rows) + " rows in " + std::to_string(kernel.warps) +
             " warps";
    if (cols > kMaxCols || cols % 8)
      return "a product of " + std::to_string(cols) + " columns";
    if (mma.getTransA() && kernel.warps > schedule::warpgroupWarps)
      return "a product of a transposed tile by several warpgroups";
  } else if (auto write = dyn_cast<tile::WriteOp>(op)) {
    ArrayRef<int64_t> shape = write.getValue().getType().getShape();
    if (shape[0] != schedule::warpRows * kernel.warps || shape[1] % Ldmatrix::side ||
        write.getValue().getType().getElementType().isF32())
      return "writing a fragment of " + std::to_string(shape[0]) + " rows and " +
             std::to_string(shape[1]) + " columns in " + std::to_string(kernel.warps) + " warps";
  } else if (auto slice = dyn_cast<tile::SliceOp>(op)) {
    ArrayRef<int64_t> part = slice.getResult().getType().getShape(),
                      all = slice.getTile().getType().getShape();
    if ((part[1] != all[1] && part[1] % panelCols && panelCols % part[1]) || part[0] % kSwizzleRows)
      return "a slice of " + std::to_string(part[0]) + " rows and " + std::to_string(part[1]) +
             " columns";
  } else if (auto store = dyn_cast<tile::StoreOp>(op); store && store.getTurns()) {
    return "adding in turn";
  } else if (auto store = dyn_cast<tile::StoreOp>(op); store && store.getRing()) {
    tile::ViewOp view = viewOf(store.getView());
    ArrayRef<int64_t> shape = store.getValue().getType().getShape();
    if (view.isColumn() || view.getPartial() || view.getPageTable() || view.getGroup() > 1)
      return "storing via shared memory where no tensor map knows the rows";
    if (shape[0] != schedule::warpRows * kernel.warps || shape[1] % Ldmatrix::side)
      return "storing a fragment of " + std::to_string(shape[0]) + " rows and " +
             std::to_string(shape[1]) + " columns via shared memory in " +
             std::to_string(kernel.warps) + " warps";
    const int64_t cols = ringOf(store.getRing()).getType().getShape()[2];
    if (cols != shape[1] && cols % panelCols)
      return "storing " + std::to_string(cols) + " of " + std::to_string(shape[1]) +
             " columns at once";
  } else if (auto work = dyn_cast<tile::ForWorkOp>(op)) {
    auto roles = dyn_cast<tile::RolesOp>(work->getParentOp());
    auto role =
        roles ? cast<tile::RoleAttr>(roles.getRoles()[work->getParentRegion()->getRegionNumber()])
              : tile::RoleAttr();
    const bool copies = role && llvm::equal(role.getUnits(), ArrayRef{tile::Unit::copy});
    if (static_cast<int64_t>(work.getCluster()) != kernel.cluster ||
        (work.getRing() &&
         static_cast<int64_t>(ringOf(work.getRing()).getCluster()) != kernel.cluster))
      return "a cluster for some of its loops";
    if (kernel.cluster > 1 && !kernel.hasRoles)
      return "a cluster without roles";
    if (work.getRing() && (copies != work.getTakes() || gathers))
      return "taking tiles elsewhere than in the one thread that starts copies";
  }
  return TileEmitter::whyNotBuilt(op);
}

void Sm90Emitter::prologue(B &b) {
  if (kernel.func.getBody().getOps<tile::RingOp>().empty())
    return;
  kernel.func.walk([&](tile::MmaOp op) {
    Value tile = op.getB();
    while (auto slice = tile.getDefiningOp<tile::SliceOp>())
      tile = slice.getTile();
    // In gradients dP is multiplied by P as well, which is 0 where a key does not count.
    if (auto wait = tile.getDefiningOp<tile::WaitOp>();
        wait && (!op.getTransB() || kernel.gradients))
      zeroed.insert(ringOf(wait.getRing()));
    for (tile = op.getA(); auto slice = tile.getDefiningOp<tile::SliceOp>();)
      tile = slice.getTile();
    if (auto wait = tile.getDefiningOp<tile::WaitOp>(); wait && !op.getTransA() && kernel.gradients)
      zeroed.insert(ringOf(wait.getRing()));
  });
  auto only = [&](int64_t thread) {
    Value is = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, threadId(b), i32(b, thread));
    return scf::IfOp::create(b, is);
  };
  auto isFirst = only(0);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(isFirst.thenBlock());
    kernel.func.walk([&](tile::FillOp op) {
      if (!gathers && !holdsRows(ringOf(op.getRing())))
        kernel.tensorMap(viewOf(op.getView()),
                         pieceRows(viewOf(op.getView()), boxRows(ringOf(op.getRing()))));
    });
    kernel.func.walk([&](tile::StoreOp op) {
      if (!op.getRing() || op.getSum())
        return;
      kernel.tensorMap(viewOf(op.getView()), storedRows(op));
      if (viewOf(op.getView()).hasTables())
        kernel.tensorMap(viewOf(op.getView()), 1);
    });
    for (Value map : kernel.tensorMaps())
      NVVM::PrefetchOp::create(b, NVVM::PrefetchCacheLevelAttr(), NVVM::CacheEvictionPriorityAttr(),
                               map, Value(), /*tensormap=*/true);
    if (kernel.startsLate) {
      b.setInsertionPointAfter(isFirst);
      b.setInsertionPointToStart(only(kernel.threads - 1).thenBlock());
    }
    kernel.func.walk([&](tile::RingOp ring) {
      if (ring.isStaging() || ring.getWith())
        return;
      for (int64_t s = 0; s < ring.getType().getShape()[0]; ++s) {
        // One arrival a fill and thread (bytes are counted apart), one a warp that writes or
        // releases, or a lane that does, of all blocks that share the ring. Ordinals are released
        // by the other blocks' copiers too.
        int64_t releases = ring.getReleases() * kernel.warps * ring.getCluster() *
                               (isReadByLanes(ring) ? schedule::warpThreads : 1) +
                           (holdsOrdinals(ring) ? ring.getCluster() - 1 : 0);
        NVVM::MBarrierInitOp::create(b, barrier(b, ring, i32(b, s), false),
                                     i32(b, ring.getWriters() * (isWritten(ring) ? kernel.warps
                                                                 : gathers       ? gatherThreads
                                                                                 : 1)),
                                     Value());
        NVVM::MBarrierInitOp::create(b, barrier(b, ring, i32(b, s), true), i32(b, releases),
                                     Value());
      }
    });
    // The async proxy must see the barriers too (PTX ISA, fence.mbarrier_init).
    NVVM::FenceMbarrierInitOp::create(b);
  }
  if (kernel.cluster > 1)
    awaitCluster(b, /*aligned=*/true);
  else if (!kernel.startsLate)
    NVVM::Barrier0Op::create(b);
}

void Sm90Emitter::enterRole(B &b, tile::RoleAttr role) {
  const int64_t launched =
      schedule::launchedRegisters(schedule::machineOf(schedule::Target::sm90), kernel.threads) /
      kernel.threads;
  if (role.getRegisters() == launched)
    return;
  NVVM::SetMaxRegisterOp::create(b, static_cast<uint32_t>(role.getRegisters()),
                                 role.getRegisters() < launched
                                     ? NVVM::SetMaxRegisterAction::decrease
                                     : NVVM::SetMaxRegisterAction::increase);
}

Value Sm90Emitter::isCopier(B &b) {
  if (gathers && kernel.hasRoles) // its one warpgroup
    return arith::ConstantOp::create(b, b.getBoolAttr(true));
  if (gathers)
    return arith::CmpIOp::create(b, arith::CmpIPredicate::ult, threadId(b), i32(b, gatherThreads));
  if (!kernel.hasRoles)
    return arith::CmpIOp::create(b, arith::CmpIPredicate::eq, threadId(b), i32(b, 0));
  Value warp =
      broadcastLane0(b, arith::AndIOp::create(b, arith::ShRUIOp::create(b, threadId(b), i32(b, 5)),
                                              i32(b, schedule::warpgroupWarps - 1)));
  Value isFirst = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, warp, i32(b, 0));
  auto inWarp = scf::IfOp::create(b, b.getI1Type(), isFirst, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(inWarp.thenBlock());
  scf::YieldOp::create(b, NVVM::ElectSyncOp::create(b, b.getI1Type(), Value()).getResult());
  b.setInsertionPointToStart(inWarp.elseBlock());
  Value no = arith::ConstantOp::create(b, b.getBoolAttr(false));
  scf::YieldOp::create(b, no);
  return inWarp.getResult(0);
}

Value Sm90Emitter::anyOfInstance(B &b, Value predicate) {
  // Consumer i owns named barrier 1 + i, its warpgroup's number.
  Value id = kernel.hasRoles ? warpGroup(b) : i32(b, 0);
  return anyAtBarrier(b, predicate, id, kernel.warps * schedule::warpThreads);
}

void Sm90Emitter::fill(B &b, tile::FillOp op, tile::FillOp::Adaptor in) {
  tile::RingOp ring = ringOf(op.getRing());
  tile::RingType type = ring.getType();
  int64_t rows = type.getShape()[1];
  Slot slot = slotOf(b, ring, in.getIt());
  tile::ViewOp view = viewOf(op.getView());
  if (ring.getWith()) // the other's fill has waited for its slot, and expects these bytes too
    return copyRow(b, in, view, ring, slotOffset(b, ring, slot.number),
                   barrier(b, ringOf(ring.getWith()), slot.number, false));
  await(b, barrier(b, ring, slot.number, true), arith::XOrIOp::create(b, slot.parity, i32(b, 1)));
  Value full = barrier(b, ring, slot.number, false);
  if (gathers) {
    Value thread = arith::AndIOp::create(b, threadId(b), i32(b, gatherThreads - 1));
    emitGather(b, kernel, op, in, slotOffset(b, ring, slot.number), thread, gatherThreads);
    NVVM::CpAsyncMBarrierArriveOp::create(b, full, /*noinc=*/true);
    return;
  }
  int64_t bytes = slotBytes(type);
  for (Operation *user : ring->getUsers())
    if (auto along = dyn_cast<tile::RingOp>(user))
      bytes += slotBytes(along.getType());
  expect(b, full, bytes);
  Value offset = slotOffset(b, ring, slot.number);
  if (holdsRows(ring))
    return copyRow(b, in, view, ring, offset, full);
  if (view.hasTables())
    return copyByTables(b, op, in, ring, offset, full);
  const int64_t cluster = ring.getCluster(), share = boxRows(ring);
  if (cluster == 1)
    return copyBoxes(b, op, in.getHead(),
                     {in.getBatch(),
                      floorDiv(IrInt(b, in.getRow()), static_cast<int64_t>(view.getGroup())).get()},
                     rows, offset, full);
  Value map = kernel.tensorMap(view, share);
  Value row = toI32(b, in.getRow()), head = toI32(b, in.getHead()), batch = toI32(b, in.getBatch());
  Value first = arith::MulIOp::create(b, clusterRank(b), i32(b, share));
  row = arith::AddIOp::create(b, row, first);
  offset = arith::AddIOp::create(b, offset, arith::MulIOp::create(b, first, i32(b, panelRowBytes)));
  Value everyone = arith::ConstantOp::create(b, b.getI16IntegerAttr((1 << cluster) - 1));
  for (int64_t panel = 0; panel < panelsOf(type.getShape()[2]); ++panel) {
    // In every block at the address that it has here. As text: the op's generic addresses cost
    // the copier registers.
    Value at =
        kernel.shared(b, arith::AddIOp::create(b, offset, i32(b, panel * rows * panelRowBytes)));
    asmText(b, {at, map, i32(b, panel * panelCols), row, head, batch, full, everyone},
            "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
            ".multicast::cluster [$0], [$1, {$2, $3, $4, $5}], [$6], $7;",
            "r,l,r,r,r,r,r,h,~{memory}");
  }
}

/// Starts the copy of a row of values, which is contiguous in a padded view. Lanes have read the
/// row that was there, and their arrivals put no order between that and the copy (PTX ISA, "Async
/// proxy"): unfenced, and ahead of its tile's copy, it gave wrong sums where products held reads
/// up.
void Sm90Emitter::copyRow(B &b, tile::FillOp::Adaptor in, tile::ViewOp view, tile::RingOp ring,
                          Value offset, Value full) {
  Value from = kernel.address(b, view, in.getBatch(), in.getHead(), in.getRow(), Value());
  fenceProxies(b);
  asmText(b,
          {kernel.shared(b, offset), from,
           i32(b, ring.getType().getShape()[2] * static_cast<int64_t>(sizeof(float))), full},
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3];",
          "r,l,r,r,~{memory}");
}

/// Starts the copy of one box a panel: `rows` of the view's memref from (batch, row) on. A row that
/// does not exist, such as `nowhere`, gives zeros.
void Sm90Emitter::copyBoxes(B &b, tile::FillOp op, Value head, Kernel::Place place, int64_t rows,
                            Value offset, Value full) {
  tile::ViewOp view = viewOf(op.getView());
  tile::RingType type = op.getRing().getType();
  Value map = kernel.tensorMap(view, rows);
  Value batch = place.batch ? toI32(b, place.batch) : i32(b, 0);
  Value policy = view.getOnce() ? evictFirst(b) : Value();
  for (int64_t panel = 0; panel < panelsOf(type.getShape()[2]); ++panel) {
    Value at = kernel.shared(
        b, arith::AddIOp::create(b, offset, i32(b, panel * type.getShape()[1] * panelRowBytes)));
    // Dimensions d, head of the query in a group, s, h, b. The whole box counts, also where it
    // lies outside the tensor.
    SmallVector<Value> coordinates{i32(b, panel * panelCols)};
    if (view.getGroup() > 1)
      coordinates.push_back(i32(b, 0));
    coordinates.append({toI32(b, place.row), toI32(b, head), batch});
    NVVM::CpAsyncBulkTensorGlobalToSharedClusterOp::create(
        b, at, map, coordinates, full, ValueRange(), Value(), policy, NVVM::TMALoadMode::TILE,
        /*isCTAOnly=*/true, NVVM::CTAGroupKindAttr(), Value());
  }
}

/// The same tile row by row of tables. What lies behind a sequence's end is another's, or nobody's:
/// scores of it are masked, but in a second product 0 * NaN is NaN, so that its operand gets zeros
/// there. Boxes of 8 rows then, and single rows of the one that straddles the end.
void Sm90Emitter::copyByTables(B &b, tile::FillOp op, tile::FillOp::Adaptor in, tile::RingOp ring,
                               Value offset, Value full) {
  tile::ViewOp view = viewOf(op.getView());
  const int64_t rows = ring.getType().getShape()[1], piece = pieceRows(view, rows),
                group = view.getGroup();
  IrInt first(b, in.getRow()), length(b, kernel.length(b, view, in.getBatch()));
  auto placeOf = [&](IrInt row) {
    // A page is looked up for rows in use only; those behind them copy the last one again.
    if (view.getPageTable())
      row = max(min(row, length - 1), int64_t(0));
    return kernel.place(b, view, in.getBatch(), floorDiv(row, group).get());
  };
  auto byteOf = [&](IrInt row) -> Value {
    return arith::AddIOp::create(b, offset, toI32(b, (row * panelRowBytes).get()));
  };
  auto copyAll = [&] {
    for (int64_t at = 0; at < rows; at += piece)
      copyBoxes(b, op, in.getHead(), placeOf(first + at), piece, byteOf(constant(first, at)), full);
  };
  if (!zeroed.contains(ring))
    return copyAll();
  IrInt left = length - first;
  auto isRagged = scf::IfOp::create(b, lessThan(left, rows).get(), /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(isRagged.elseBlock());
  copyAll();
  b.setInsertionPointToStart(isRagged.thenBlock());
  auto loopTo = [&](int64_t end, int64_t step) {
    auto loop = scf::ForOp::create(b, arith::ConstantIndexOp::create(b, 0),
                                   arith::ConstantIndexOp::create(b, end),
                                   arith::ConstantIndexOp::create(b, step));
    b.setInsertionPointToStart(loop.getBody());
    return IrInt(b, loop.getInductionVar());
  };
  auto orNowhere = [&](IrBool isThere, Kernel::Place place) -> Kernel::Place {
    IrInt nowhere(b, int64_t(-kSwizzleRows));
    return {place.batch, select(isThere, IrInt(b, place.row), nowhere).get()};
  };
  IrInt at = loopTo(rows, kSwizzleRows);
  Kernel::Place place = placeOf(first + at);
  Value isWhole =
      arith::XOrIOp::create(b, lessThan(at, left).get(), lessThan(left, at + kSwizzleRows).get());
  auto whole = scf::IfOp::create(b, isWhole, /*withElseRegion=*/true);
  b.setInsertionPointToStart(whole.thenBlock());
  copyBoxes(b, op, in.getHead(), orNowhere(lessThan(at, left), place), kSwizzleRows, byteOf(at),
            full);
  b.setInsertionPointToStart(whole.elseBlock());
  IrInt one = loopTo(kSwizzleRows, 1);
  place.row = (IrInt(b, place.row) + one).get();
  copyBoxes(b, op, in.getHead(), orNowhere(lessThan(at + one, left), place), 1, byteOf(at + one),
            full);
}

Value Sm90Emitter::wait(B &b, tile::WaitOp op, Value it) {
  tile::RingOp ring = ringOf(op.getRing());
  Slot slot = slotOf(b, ring, it);
  if (!ring.getWith())
    await(b, barrier(b, ring, slot.number, false), slot.parity);
  if (gathers) // written through the generic proxy, read by wgmma (PTX ISA, "Async proxy")
    fenceProxies(b);
  return address(b, ring, slot);
}

Value Sm90Emitter::address(B &b, tile::RingOp ring, const Slot &slot) {
  // In units from the start: a multiplication less than shifting the byte offset.
  Value base = LLVM::PtrToIntOp::create(b, b.getI32Type(), kernel.shared(b, i32(b, 0)));
  base = arith::ShRUIOp::create(b, base, i32(b, 4));
  Value tile = arith::MulIOp::create(b, slot.number, i32(b, slotBytes(ring.getType()) / kTileUnit));
  tile = arith::AddIOp::create(b, tile, i32(b, *ring.getOffset() / kTileUnit));
  return arith::AddIOp::create(b, base, tile);
}

void Sm90Emitter::release(B &b, tile::RingOp ring, Value it) {
  if (ring.getWith())
    return;
  Slot slot = slotOf(b, ring, it);
  Value empty = barrier(b, ring, slot.number, true);
  if (isReadByLanes(ring))
    return arrive(b, empty);
  Value lane = laneId(b);
  // Ordinals are handed on by the first block alone; else lane r arrives at block r's.
  const int64_t arrivals = holdsOrdinals(ring) ? 1 : ring.getCluster();
  Value isOne = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, lane, i32(b, arrivals));
  if (ring.getCluster() == 1)
    arrive(b, empty, isOne);
  else
    arriveAt(b, empty, arith::RemUIOp::create(b, lane, i32(b, ring.getCluster())), isOne);
}

Value Sm90Emitter::publish(B &b, tile::RingOp ring, Value it, Value ordinal) {
  Slot slot = slotOf(b, ring, it);
  Value empty = barrier(b, ring, slot.number, true), full = barrier(b, ring, slot.number, false),
        place = ordinalAt(b, ring, slot.number);
  auto handOn = [&] {
    await(b, empty, arith::XOrIOp::create(b, slot.parity, i32(b, 1)));
    // To the other blocks asynchronously: the copier there has full expect the bytes.
    for (int64_t rank = 1; rank < static_cast<int64_t>(ring.getCluster()); ++rank)
      asmText(b, {place, arith::AddIOp::create(b, ordinal, i32(b, rank)), full, i32(b, rank)},
              "{\n\t.reg .b32 place, full;\n\tmapa.shared::cluster.u32 place, $0, $3;\n\t"
              "mapa.shared::cluster.u32 full, $2, $3;\n\t"
              "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [place], $1, [full];\n\t}",
              "r,r,r,r,~{memory}");
    LLVM::StoreOp::create(b, ordinal, place, /*alignment=*/0, /*isVolatile=*/true);
    arrive(b, full); // releases the store
    return ordinal;
  };
  if (ring.getCluster() == 1)
    return handOn();
  auto branch = scf::IfOp::create(b, b.getI32Type(), takesForCluster(b), /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  scf::YieldOp::create(b, handOn());
  b.setInsertionPointToStart(branch.elseBlock());
  expect(b, full, schedule::ordinalBytes);
  await(b, full, slot.parity);
  Value got = LLVM::LoadOp::create(b, b.getI32Type(), place, /*alignment=*/0, /*isVolatile=*/true);
  Value yes = arith::ConstantOp::create(b, b.getBoolAttr(true));
  arriveAt(b, empty, i32(b, 0), yes);
  scf::YieldOp::create(b, got);
  return branch.getResult(0);
}

Value Sm90Emitter::follow(B &b, tile::RingOp ring, Value it) {
  Slot slot = slotOf(b, ring, it);
  await(b, barrier(b, ring, slot.number, false), slot.parity);
  Value isOne = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, laneId(b), i32(b, 0));
  // Lane 0 reads, which also releases: others might read after that.
  Value ordinal =
      asmOp(b, b.getI32Type(), {ordinalAt(b, ring, slot.number), isOne},
            "mov.b32 $0, 0;\n\t@$2 ld.volatile.shared.b32 $0, [$1];", "=&r,r,b,~{memory}")
          .getRes();
  ordinal = broadcastLane0(b, ordinal);
  release(b, ring, it);
  return ordinal;
}

Value Sm90Emitter::read(B &b, tile::ReadOp op, Value tile) {
  tile::TileType type = op.getTile().getType();
  Value address = arith::MulIOp::create(b, tile, i32(b, kTileUnit));
  Value cells = type.getShape()[0] == 1 ? readRow(b, type.getShape()[1], address)
                                        : readTile(b, kernel, type, address);
  // One lane releases the tile for all; of a row each does, and it is read as late.
  if (type.getShape()[0] != 1) {
    fenceProxies(b);
    NVVM::SyncWarpOp::create(b, i32(b, -1));
  }
  return cells;
}

/// A warp arrives when its rows are written, and seen by the products' proxy (PTX ISA, "Async
/// proxy").
void Sm90Emitter::write(B &b, tile::WriteOp op, tile::WriteOp::Adaptor in) {
  tile::RingOp ring = ringOf(op.getRing());
  Slot slot = slotOf(b, ring, in.getIt());
  await(b, barrier(b, ring, slot.number, true), arith::XOrIOp::create(b, slot.parity, i32(b, 1)));
  ArrayRef<int64_t> shape = op.getValue().getType().getShape();
  Value row = firstRowOfWarp(b, kernel, shape[0]);
  if (in.getRow())
    row = arith::AddIOp::create(b, row, toI32(b, in.getRow()));
  Value tile = LLVM::PtrToIntOp::create(b, b.getI32Type(),
                                        kernel.shared(b, slotOffset(b, ring, slot.number)));
  Ldmatrix matrices(b, tile, ring.getType().getShape()[1], Ldmatrix::rowsFirst, row);
  for (int64_t c = 0; c < shape[1]; c += Ldmatrix::side) {
    SmallVector<Value, 4> words; // of two cells
    for (int64_t i = 0; i < 4; ++i)
      words.push_back(LLVM::ExtractElementOp::create(b, in.getValue(), i32(b, c / 4 + i)));
    matrices.store(b, words, 0, c);
  }
  fenceProxies(b);
  NVVM::SyncWarpOp::create(b, i32(b, -1));
  arrive(b, barrier(b, ring, slot.number, false),
         arith::CmpIOp::create(b, arith::CmpIPredicate::eq, laneId(b), i32(b, 0)));
}

/// Each warp has its own rows of the slot and stores them by itself, so that no warp waits for
/// another. Where the slot is narrower than the fragment, panels take turns in it.
///
/// Where tables say which rows are a sequence's, a box would write its neighbour's too: a warp that
/// has rows past the end stores the others one by one.
void Sm90Emitter::storeStaged(B &b, tile::StoreOp op, tile::StoreOp::Adaptor in) {
  tile::RingOp ring = ringOf(op.getRing());
  tile::ViewOp view = viewOf(op.getView());
  Kernel::Place place{in.getBatch(), in.getRow()};
  if (view.hasTables())
    place = kernel.place(b, view, in.getBatch(), in.getRow());
  const int64_t rows = storedRows(op), cols = op.getValue().getType().getShape()[1];
  const int64_t slotRows = ring.getType().getShape()[1],
                slotPanels = panelsOf(ring.getType().getShape()[2]), panels = panelsOf(cols);
  const int64_t atOnce = slotPanels == panels ? panels : 1; // one group of stores
  const int64_t stored = std::min(panels, panelsOf(view.getView().getType().getShape()[0]));
  Value slot = toI32(b, remainder(IrInt(b, in.getIt()), ring.getType().getShape()[0]).get());
  Value thread = freshThreadId(b);
  Value first = firstRowOfWarp(b, kernel, slotRows, thread);
  Value offset = arith::AddIOp::create(b, slotOffset(b, ring, slot),
                                       arith::MulIOp::create(b, first, i32(b, panelRowBytes)));
  Value piece = LLVM::PtrToIntOp::create(b, b.getI32Type(), kernel.shared(b, offset));
  Ldmatrix matrices(b, piece, slotRows, Ldmatrix::rowsFirst, /*row=*/Value(), thread);
  Value row = arith::AddIOp::create(b, toI32(b, place.row), first);
  Value batch = place.batch ? toI32(b, place.batch) : i32(b, 0);
  Value col = in.getCol() ? toI32(b, in.getCol()) : i32(b, 0);
  for (int64_t panel = 0; panel < panels; panel += atOnce) {
    // Stores since the last one from this place: of this tile, or of the one before, whose last
    // panels need not have reached the slot's end.
    const int64_t since = atOnce == panels      ? 0
                          : panel >= slotPanels ? slotPanels - 1
                                                : panel + (panels - 1 - panel) % slotPanels;
    elected(b, [&] { awaitReads(b, since); });
    NVVM::SyncWarpOp::create(b, i32(b, -1));
    auto placeOf = [&](int64_t panel) { return panel % slotPanels * panelCols; };
    for (int64_t c = panel * panelCols; c < std::min((panel + atOnce) * panelCols, cols);
         c += Ldmatrix::side) {
      SmallVector<Value, 4> words; // of two cells
      for (int64_t i = 0; i < 4; ++i)
        words.push_back(LLVM::ExtractElementOp::create(b, in.getValue(), i32(b, c / 4 + i)));
      matrices.store(b, words, 0, placeOf(c / panelCols) + c % panelCols);
    }
    // Written through the generic proxy, read by the copy engine (PTX ISA, "Async proxy").
    fenceProxies(b);
    NVVM::SyncWarpOp::create(b, i32(b, -1));
    // `count` rows from row `at` of the warp's on.
    auto storeRows = [&](Value at, int64_t count) {
      Value map = kernel.tensorMap(view, count);
      Value start =
          arith::AddIOp::create(b, offset, arith::MulIOp::create(b, at, i32(b, panelRowBytes)));
      for (int64_t p = panel; p < std::min(panel + atOnce, stored); ++p) {
        Value from = arith::AddIOp::create(
            b, start, i32(b, placeOf(p) / panelCols * slotRows * panelRowBytes));
        SmallVector<Value> corner{arith::AddIOp::create(b, col, i32(b, p * panelCols)),
                                  arith::AddIOp::create(b, row, at), toI32(b, in.getHead()), batch};
        // Rows and columns outside are left alone.
        NVVM::CpAsyncBulkTensorSharedCTAToGlobalOp::create(
            b, map, kernel.shared(b, from), corner, Value(), NVVM::TMAStoreMode::TILE, Value());
      }
    };
    elected(b, [&] {
      if (!view.hasTables()) {
        storeRows(i32(b, 0), rows);
      } else {
        OpBuilder::InsertionGuard guard(b);
        IrInt left = IrInt(b, kernel.length(b, view, in.getBatch())) -
                     (IrInt(b, in.getRow()) + IrInt(b, toIndex(b, first)));
        auto ragged = scf::IfOp::create(b, lessThan(left, rows).get(), /*withElseRegion=*/true);
        b.setInsertionPointToStart(ragged.elseBlock());
        storeRows(i32(b, 0), rows);
        b.setInsertionPointToStart(ragged.thenBlock());
        auto loop = scf::ForOp::create(b, i32(b, 0), toI32(b, left.get()), i32(b, 1));
        b.setInsertionPointToStart(loop.getBody());
        storeRows(loop.getInductionVar(), 1);
      }
      NVVM::CpAsyncBulkCommitGroupOp::create(b);
    });
  }
}

Value Sm90Emitter::slice(B &b, tile::SliceOp op, tile::SliceOp::Adaptor in) {
  return arith::AddIOp::create(b, in.getTile(), sliceOffset(b, op, in, kTileUnit));
}

Value Sm90Emitter::mma(B &b, tile::MmaOp op, tile::MmaOp::Adaptor in) {
  auto tileB = op.getB().getType();
  const bool trans = op.getTransB();
  Wgmma product;
  product.element = tileB.getElementType();
  product.cols = op.getResult().getType().getShape()[1];
  product.k = tileB.getShape()[trans ? 1 : 0];
  product.bTransposed = trans;
  product.bRows = panelRows(op.getB());
  product.aInRegisters = isa<tile::FragType>(op.getA().getType());
  product.aTransposed = op.getTransA();
  product.aRows = 0;
  Value a = in.getA();
  if (!product.aInRegisters) {
    product.aRows = panelRows(op.getA());
    if (kernel.warps > schedule::warpgroupWarps) { // each warpgroup its own 64 rows
      Value offset =
          arith::MulIOp::create(b, warpGroup(b), i32(b, kRowsPerGroup * panelRowBytes / kTileUnit));
      a = arith::AddIOp::create(b, a, offset);
    }
    a = described(b, a);
  }
  return issueWgmma(b, product, a, described(b, in.getB()), in.getAcc());
}

} // namespace

std::unique_ptr<TileEmitter> makeSm90Emitter(Kernel &kernel) {
  return std::make_unique<Sm90Emitter>(kernel);
}

} // namespace flash::nvvm
