//===- Loops.h - tile ops as loops over buffers -----------------*- C++ -*-===//
//
// One Lowering makes one function: a whole kernel, or one role instance of it.
//
//   frag, flight   memref<RxCxf32>, a buffer allocated at the function's entry
//   ring           memref<SxRxCxf32>
//   tile           a view of one slot
//   view           the memref it was made from
//
// Elements of 16 bits are held as f32 and rounded where the tile level rounds (cast): each f16 and
// bf16 is an f32, so a product reads plain f32 whatever the kernel's type.
//
// A buffer holds one live value. An op takes over the buffer of an operand that dies in it; that is
// an operand of one use, defined in the op's own block.
//
//===----------------------------------------------------------------------===//
#ifndef FLASH_LIB_CONVERSION_LOOPS_H
#define FLASH_LIB_CONVERSION_LOOPS_H

#include "flash/Conversion/IrInt.h"
#include "flash/Tile.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"
#include <limits>

namespace flash::loops {

enum class Clock { eager, late };

/// Elements of the vectors that walk `n` contiguous ones: the largest power of two up to 16 that
/// divides n.
int64_t lanesOf(int64_t n);

/// What a slot of a ring of ordinals holds while none is handed on: past every tile.
inline constexpr int32_t noTile = std::numeric_limits<int32_t>::max();

/// Turns as the runtime's functions take them: any vector of i32.
inline mlir::MemRefType turnsType(mlir::MLIRContext *context) {
  const int64_t any = mlir::ShapedType::kDynamic;
  return mlir::MemRefType::get({any}, mlir::IntegerType::get(context, 32),
                               mlir::StridedLayoutAttr::get(context, any, {any}));
}

/// What a kernel's ring is called outside its functions: the buffer that its programs share and, on
/// the late clock, the record of fills whose copy is still to be done.
struct SharedRing {
  tile::RingOp op;
  int64_t number;
  mlir::memref::GlobalOp slots, pending; ///< null in straight, eager code
  mlir::memref::GlobalOp counter; ///< of a ring that hands on tiles: what they are taken from
};

class Lowering {
public:
  /// Lowers `kernel` into the empty function `target`: all of it, or with `roles` what instance
  /// `instance` of region `role` executes. With `baton` ring ops call the runtime.
  Lowering(mlir::func::FuncOp kernel, mlir::func::FuncOp target,
           const llvm::MapVector<mlir::Value, SharedRing> &rings, Clock clock, bool baton)
      : kernel(kernel), target(target), rings(rings), clock(clock), baton(baton),
        b(kernel.getLoc(), kernel.getContext()) {}
  mlir::LogicalResult run(tile::RolesOp roles = {}, unsigned role = 0, int64_t instance = 0);

private:
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;

  // Structure.cpp
  mlir::LogicalResult lower(mlir::Block &block);
  mlir::LogicalResult lower(mlir::Operation &op);
  mlir::LogicalResult lower(mlir::scf::ForOp op);
  mlir::LogicalResult lower(mlir::scf::IfOp op);
  mlir::LogicalResult lower(tile::ForWorkOp op);
  mlir::LogicalResult lower(tile::InTurnOp op);
  mlir::LogicalResult lower(tile::TotalOp op);
  void lower(tile::BlockRangeOp op);
  Value newBuffer(int64_t rows, int64_t cols);
  Value bufferFor(Value result, ValueRange reusable);
  bool dies(mlir::OpOperand &use);
  Value carry(mlir::OpOperand &init, Value result);
  llvm::SmallVector<Value> yieldInto(ValueRange yielded, llvm::ArrayRef<Value> buffers);
  void copy(Value from, Value to);
  void fillBuffer(Value buffer, float value);

  // Moving.cpp
  void lower(tile::ViewOp op);
  void lower(tile::LengthOp op);
  void lower(tile::RingOp op);
  void lower(tile::FillOp op);
  void lower(tile::WriteOp op);
  void lower(tile::WaitOp op);
  void lower(tile::ReleaseOp op);
  void lower(tile::SliceOp op);
  void lower(tile::ReadOp op);
  void lower(tile::LoadOp op);
  void lower(tile::StoreOp op);
  void moveOut(tile::StoreOp op, Value from, int64_t begin, int64_t width);
  Value entry(Value table, ValueRange place);
  Value sequenceOf(tile::ViewOp view, Value batch);
  Value lengthOf(tile::ViewOp view, Value batch);
  llvm::SmallVector<Value> rowOf(tile::ViewOp view, Value batch, Value head, Value row);
  void moveIn(tile::ViewOp view, Value batch, Value head, Value row, Value to);
  Value slotOf(tile::RingOp ring, Value ordinal);
  Value tileOf(tile::RingOp ring, Value slot);
  Value take(tile::ForWorkOp op, Value tiles);
  void publish(tile::ForWorkOp op, Value it, Value next);
  Value follow(tile::ForWorkOp op, Value it);
  void callTurn(llvm::StringRef verb, tile::StoreOp op);
  Value callBaton(llvm::StringRef verb, tile::RingOp ring, Value ordinal, bool answers = false);

  // Multiply.cpp
  void lower(tile::MmaOp op);
  void lower(tile::MmaWaitOp op);
  void multiply(tile::MmaOp op);
  Value turned(Value tile);

  // Fragments.cpp
  void lower(tile::SplatOp op);
  void lower(tile::CastOp op);
  mlir::LogicalResult lower(tile::MapOp op);
  void lower(tile::SumOp op);
  void lower(tile::SplitRowsOp op);
  void lower(tile::MaskOp op);
  void lower(tile::SoftmaxStepOp op);
  void lower(tile::RescaleOp op);
  void lower(tile::OverflowedOp op);
  void lower(tile::FinalizeOp op);
  void lower(tile::RotateOp op);
  Value exp2(Value x);
  Value across(Value vector, llvm::function_ref<Value(Value, Value)> join);

  // Small words
  Value index(int64_t value);
  Value real(mlir::Type type, float value);
  Value splat(Value scalar, int64_t lanes);
  Value rowValue(Value buffer, Value row);
  IrInt toInt(Value value) { return IrInt(b, value); }
  Value at(Value original) { return map.lookup(original); }
  mlir::VectorType vectorOf(int64_t lanes) {
    return mlir::VectorType::get({lanes}, b.getF32Type());
  }
  void loop(Value from, Value to, int64_t step, llvm::function_ref<void(Value)> body);
  void loop(int64_t size, int64_t step, llvm::function_ref<void(Value)> body);
  void elementwise(Value buffer,
                   llvm::function_ref<Value(Value row, Value col, int64_t lanes)> body);

  /// The block whose ops `op` belongs to: that of the in_turn around it, if there is one.
  static mlir::Block *blockOf(mlir::Operation *op) {
    auto turn = llvm::dyn_cast<tile::InTurnOp>(op->getParentOp());
    return turn ? turn->getBlock() : op->getBlock();
  }

  mlir::func::FuncOp kernel, target;
  const llvm::MapVector<Value, SharedRing> &rings;
  Clock clock;
  bool baton;
  int64_t instance = 0, instances = 1; ///< of the role that is lowered
  mlir::ImplicitLocOpBuilder b;
  mlir::IRMapping map;

  llvm::SmallVector<Value> allocated;                        ///< freed at the function's end
  llvm::SmallVector<llvm::SmallVector<Value>> scopes = {{}}; ///< buffers taken in each open block
  llvm::SmallVector<Value> spare;                            ///< of blocks that are done
  llvm::SmallVector<tile::MmaOp> inFlight;                   ///< late clock: issued, not computed
};

} // namespace flash::loops

#endif // FLASH_LIB_CONVERSION_LOOPS_H
