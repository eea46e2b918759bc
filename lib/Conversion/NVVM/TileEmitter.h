//===- TileEmitter.h - the seam between the tile level and a GPU *- C++ -*-===//
//
// What differs between GPUs: how a tile comes to shared memory, how one waits for it, and the
// matrix product. All else (masking, softmax, rescaling, stores, work orders) is shared, because
// the accumulators of mma.sync and wgmma give a warp the same cells.
//
// Values: fragment and flight -> vector (Fragments.h), tile -> an i32 that only the emitter reads.
//
//===----------------------------------------------------------------------===//
#ifndef FLASH_CONVERSION_NVVM_TILEEMITTER_H
#define FLASH_CONVERSION_NVVM_TILEEMITTER_H

#include "Kernel.h"
#include "flash/Tile.h"
#include <memory>
#include <string>

namespace flash::nvvm {

class TileEmitter {
public:
  using B = mlir::ImplicitLocOpBuilder;
  explicit TileEmitter(Kernel &kernel) : kernel(kernel) {}
  virtual ~TileEmitter() = default;

  /// Emits a located error for everything of the kernel that the machine has no code for.
  mlir::LogicalResult check();

  // Structure
  /// At the entry: barriers, and what the rings need.
  virtual void prologue(B &b) = 0;
  /// At the end, in all threads.
  virtual void epilogue(B &b) = 0;
  /// The warp's number among groups of `warps` that are scheduled together; uniform, i32.
  virtual mlir::Value warpGroup(B &b) = 0;
  virtual int64_t warpsPerGroup() const = 0;
  /// At the start of a role.
  virtual void enterRole(B &b, tile::RoleAttr role) = 0;
  /// In every thread of an instance: blocks at named barrier `id` (i32) until the instance before
  /// gives the turn there.
  virtual void awaitTurn(B &b, mlir::Value id) = 0;
  virtual void giveTurn(B &b, mlir::Value id) = 0;
  /// True in the threads of a block or a copying role that start copies.
  virtual mlir::Value isCopier(B &b) = 0;
  /// True in the thread that starts the copies of an instance that computes besides.
  virtual mlir::Value isFirstOfInstance(B &b) = 0;
  /// Whether `predicate` (i1) holds in any thread of the instance; the same answer in all of them.
  virtual mlir::Value anyOfInstance(B &b, mlir::Value predicate) = 0;

  // Rings; ordinals of type index
  /// Waits for a free slot and starts the copy; in the copier.
  virtual void fill(B &b, tile::FillOp op, tile::FillOp::Adaptor in) = 0;
  virtual mlir::Value wait(B &b, tile::WaitOp op, mlir::Value it) = 0;
  virtual void release(B &b, tile::RingOp ring, mlir::Value it) = 0;
  /// True in the block of a cluster that takes tiles for all.
  virtual mlir::Value takesForCluster(B &b) = 0;
  /// Ordinals of work (i32) from one role to the others, through a ring of i32; in a cluster from
  /// the block that takes, `ordinal` being its own. Gives that of the executing block.
  virtual mlir::Value publish(B &b, tile::RingOp ring, mlir::Value it, mlir::Value ordinal) = 0;
  virtual mlir::Value follow(B &b, tile::RingOp ring, mlir::Value it) = 0;
  /// The `again`-awaited tile.
  virtual mlir::Value tileOf(B &b, tile::RingOp ring, mlir::Value it) = 0;
  /// The cells of `tile` in this thread; all threads of a warp have theirs when it is done.
  virtual mlir::Value read(B &b, tile::ReadOp op, mlir::Value tile) = 0;
  /// The cells of a fragment into the slot; all threads may still read what it held.
  virtual void write(B &, tile::WriteOp, tile::WriteOp::Adaptor) {}
  virtual mlir::Value slice(B &b, tile::SliceOp op, tile::SliceOp::Adaptor in) = 0;
  /// Stores via the op's ring, beside what follows.
  virtual void storeStaged(B &b, tile::StoreOp op, tile::StoreOp::Adaptor in) = 0;
  /// Behind a store from registers, whose lanes part where rows end.
  virtual void stored(B &, tile::StoreOp) {}

  // Products
  virtual mlir::Value mma(B &b, tile::MmaOp op, tile::MmaOp::Adaptor in) = 0;
  /// The value once all but the last `pending` products are done.
  virtual mlir::Value mmaWait(B &b, mlir::Value flight, unsigned pending) = 0;

protected:
  /// What of `op` there is no code for, or nothing. A machine adds its own limits.
  virtual std::string whyNotBuilt(mlir::Operation *op) const;

  Kernel &kernel;
};

std::unique_ptr<TileEmitter> makeSm90Emitter(Kernel &kernel);
std::unique_ptr<TileEmitter> makeSm80Emitter(Kernel &kernel); ///< sm_80, sm_86, sm_89

} // namespace flash::nvvm

#endif // FLASH_CONVERSION_NVVM_TILEEMITTER_H
