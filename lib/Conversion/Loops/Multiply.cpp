//===- Multiply.cpp - products of tiles -----------------------------------===//
//
// Each element is a sum of chains of fused multiply-adds, each over a stretch of the contraction,
// in its order, whatever the shapes around it: every way to cut a kernel into roles and runs gives
// the same bits. The stretches keep rounding errors small: a long chain rounds at the size of its
// sum.
//
//===----------------------------------------------------------------------===//
#include "Loops.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace flash;
using namespace flash::loops;
using namespace flash::tile;

void Lowering::lower(MmaOp op) {
  bufferFor(op.getResult(), op.getAcc() ? ValueRange{op.getAcc()} : ValueRange{});
  if (clock == Clock::eager)
    multiply(op);
  else
    inFlight.push_back(op);
}

void Lowering::lower(MmaWaitOp op) {
  MmaOp mma = mmaOf(op.getFlight());
  if (clock == Clock::late) {
    // All earlier ones of the block are done too; one from an outer block is computed here alone.
    if (blockOf(mma) == op->getBlock()) {
      while (!inFlight.empty() && llvm::is_contained(inFlight, mma)) {
        auto *first =
            llvm::find_if(inFlight, [&](MmaOp other) { return blockOf(other) == blockOf(mma); });
        multiply(*first);
        inFlight.erase(first);
      }
    } else {
      multiply(mma);
    }
  }
  Value result = bufferFor(op.getResult(), op.getFlight());
  if (result != at(op.getFlight()))
    copy(at(op.getFlight()), result);
}

/// A copy of `tile` with rows and columns exchanged, in squares that fit the registers.
Value Lowering::turned(Value tile) {
  ArrayRef<int64_t> shape = cast<MemRefType>(tile.getType()).getShape();
  Value to = newBuffer(shape[1], shape[0]);
  int64_t side = std::min({lanesOf(shape[0]), lanesOf(shape[1]), int64_t(8)});
  loop(shape[1], side, [&](Value k) {
    loop(shape[0], side, [&](Value j) {
      SmallVector<Value> rows;
      for (int64_t r = 0; r < side; ++r)
        rows.push_back(
            vector::LoadOp::create(b, vectorOf(side), tile, ValueRange{(toInt(j) + r).get(), k}));
      // Exchanges the off-diagonal quarters of ever larger squares.
      for (int64_t step = 1; step < side; step *= 2) {
        SmallVector<int64_t> upper, lower;
        for (int64_t lane = 0; lane < side; ++lane) {
          upper.push_back(lane & step ? side + lane - step : lane);
          lower.push_back(lane & step ? side + lane : lane + step);
        }
        for (int64_t r = 0; r < side; ++r)
          if (!(r & step)) {
            Value first = rows[r], second = rows[r + step];
            rows[r] = vector::ShuffleOp::create(b, first, second, upper);
            rows[r + step] = vector::ShuffleOp::create(b, first, second, lower);
          }
      }
      for (int64_t r = 0; r < side; ++r)
        vector::StoreOp::create(b, rows[r], to, ValueRange{(toInt(k) + r).get(), j});
    });
  });
  return to;
}

/// The part of a contraction over n that is summed from zero: its largest divisor up to 32.
static int64_t stretchOf(int64_t n) {
  int64_t stretch = std::min<int64_t>(n, 32);
  while (n % stretch)
    --stretch;
  return stretch;
}

/// acc + a * b into the result's buffer, in blocks of 4 rows x 16 columns that stay in registers.
void Lowering::multiply(MmaOp op) {
  Value a = at(op.getA()), right = at(op.getB()), to = at(op.getResult());
  ArrayRef<int64_t> shape = op.getResult().getType().getShape();
  if (op.getTransA())
    a = turned(a);
  int64_t contracted = cast<MemRefType>(a.getType()).getShape()[1];
  int64_t lanes = lanesOf(shape[1]), rows = std::min<int64_t>(lanesOf(shape[0]), 4);
  int64_t stretch = stretchOf(contracted);
  if (op.getAcc() && at(op.getAcc()) != to)
    copy(at(op.getAcc()), to);
  if (op.getTransB()) // columns of b are to be contiguous
    right = turned(right);
  auto rowAt = [&](Value i, int64_t r) { return (toInt(i) + r).get(); };
  VectorType vector = vectorOf(lanes);
  auto sumOver = [&](Value from, Value end, int64_t step, ValueRange init,
                     function_ref<SmallVector<Value>(Value, ValueRange)> body) -> ValueRange {
    auto made = scf::ForOp::create(b, from, end, index(step), init);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(made.getBody());
    scf::YieldOp::create(b, body(made.getInductionVar(), made.getRegionIterArgs()));
    return made.getResults();
  };
  loop(shape[1], lanes, [&](Value j) {
    loop(shape[0], rows, [&](Value i) {
      SmallVector<Value> acc, zeros(rows, real(vector, 0));
      for (int64_t r = 0; r < rows && op.getAcc(); ++r)
        acc.push_back(vector::LoadOp::create(b, vector, to, ValueRange{rowAt(i, r), j}));
      auto product = [&](Value k, ValueRange sums) {
        Value rowOfB = vector::LoadOp::create(b, vector, right, ValueRange{k, j});
        SmallVector<Value> next;
        for (int64_t r = 0; r < rows; ++r) {
          Value left = memref::LoadOp::create(b, a, ValueRange{rowAt(i, r), k});
          next.push_back(math::FmaOp::create(b, splat(left, lanes), rowOfB, sums[r]));
        }
        return next;
      };
      ValueRange sums =
          sumOver(index(0), index(contracted), stretch, acc.empty() ? zeros : acc,
                  [&](Value k0, ValueRange sums) {
                    Value end = (toInt(k0) + stretch).get();
                    SmallVector<Value> next;
                    for (auto [sum, part] : llvm::zip(sums, sumOver(k0, end, 1, zeros, product)))
                      next.push_back(arith::AddFOp::create(b, sum, part));
                    return next;
                  });
      for (int64_t r = 0; r < rows; ++r)
        vector::StoreOp::create(b, sums[r], to, ValueRange{rowAt(i, r), j});
    });
  });
}
