//===- IrIntTest.cpp - formulas as IR give what they give in C++ ----------===//
//
// Over constants the emitted ops fold, so that each result can be read off.
//
//===----------------------------------------------------------------------===//
#include "flash/Conversion/IrInt.h"
#include "Random.h"
#include "flash/Schedule/BlockRange.h"
#include "flash/Schedule/WorkOrder.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Matchers.h"

#include <gtest/gtest.h>

using namespace flash;
using namespace flash::schedule;

namespace {
class IrIntTest : public testing::Test {
protected:
  IrIntTest()
      : module(mlir::ModuleOp::create(mlir::UnknownLoc::get(&context))),
        builder(mlir::ImplicitLocOpBuilder::atBlockEnd(module->getLoc(), module->getBody())) {
    context.loadDialect<mlir::arith::ArithDialect>();
  }
  IrInt ir(int64_t value) { return IrInt(builder, value); }
  static int64_t read(IrInt value) {
    llvm::APInt constant;
    if (!mlir::matchPattern(value.get(), mlir::m_ConstantInt(&constant)))
      ADD_FAILURE() << "the formula does not fold";
    return constant.getSExtValue();
  }

  mlir::MLIRContext context{mlir::MLIRContext::Threading::DISABLED};
  mlir::OwningOpRef<mlir::ModuleOp> module;
  mlir::ImplicitLocOpBuilder builder;
  Random random{5};
};
} // namespace

TEST_F(IrIntTest, BlockRangesAndRowIntervals) {
  for (int round = 0; round < 400; ++round) {
    const Mask mask = canonical(random.mask(50), -1, -1);
    const int64_t lenQ = random.upTo(1, 60), lenK = random.upTo(0, 60);
    const int64_t rows = random.upTo(1, 16), block = random.upTo(1, 12), row = random.upTo(0, 70);
    const int64_t group = random.upTo(1, 3), splits = random.upTo(1, 4);
    const int64_t split = random.upTo(0, splits - 1);
    auto want = keyRuns(mask, row, rows, block, lenQ, lenK, group, split, splits);
    auto got =
        keyRuns(mask, ir(row), rows, block, ir(lenQ), ir(lenK), group, ir(split), ir(splits));
    EXPECT_EQ(read(got.end), want.end);
    EXPECT_EQ(read(got.right), want.right);
    EXPECT_EQ(read(got.inner), want.inner);
    EXPECT_EQ(read(got.left), want.left);
    EXPECT_EQ(read(got.sink), want.sink);
    auto wantRow = rowInterval(mask, row, lenQ, lenK);
    auto gotRow = rowInterval(mask, ir(row), ir(lenQ), ir(lenK));
    EXPECT_EQ(read(gotRow.lo), wantRow.lo);
    EXPECT_EQ(read(gotRow.hi), wantRow.hi);
    EXPECT_EQ(read(gotRow.sinkEnd), wantRow.sinkEnd);
  }
}

TEST_F(IrIntTest, WorkOrders) {
  for (WorkOrder order : allWorkOrders)
    for (int round = 0; round < 50; ++round) {
      const WorkShape<int64_t> shape{random.upTo(1, 5), random.upTo(1, 5), random.upTo(1, 3),
                                     random.upTo(1, 3), random.upTo(1, 8), random.upTo(1, 3)};
      const int64_t t = random.upTo(0, tilesOf(shape) - 1);
      const Work<int64_t> want = workAt(order, t, shape);
      const Work<IrInt> got =
          workAt(order, ir(t),
                 WorkShape<IrInt>{ir(shape.mTiles), ir(shape.heads), ir(shape.batch),
                                  ir(shape.splits), ir(shape.section), shape.cluster});
      EXPECT_EQ(read(got.m), want.m);
      EXPECT_EQ(read(got.head), want.head);
      EXPECT_EQ(read(got.batch), want.batch);
      EXPECT_EQ(read(got.split), want.split);
    }
}
