//===- Gather.cpp - rows to shared memory by cp.async ---------------------===//
//
// Eight neighbouring threads copy the 128 bytes of a row's panel, so that 16 rows move at a time:
//
//   piece c of row r in panel p goes to   p * rows * 128 + r * 128 + (c ^ r % 8) * 16
//
// which is the 128-byte swizzle that matrix descriptors read.
//
//===----------------------------------------------------------------------===//
#include "Gather.h"
#include "flash/Conversion/IrInt.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace flash::nvvm {

void emitGather(ImplicitLocOpBuilder &b, Kernel &kernel, tile::FillOp op, tile::FillOp::Adaptor in,
                Value offset, Value thread) {
  constexpr int64_t pieceBytes = 16, pieces = panelRowBytes / pieceBytes;
  constexpr int64_t rowsAtOnce = gatherThreads / pieces, pieceCols = panelCols / pieces;
  tile::ViewOp view = viewOf(op.getView());
  tile::RingType type = op.getRing().getType();
  int64_t rows = type.getShape()[1], cols = view.getView().getType().getShape()[0];
  IrInt piece = remainder(IrInt(b, toIndex(b, thread)), pieces);
  IrInt row = floorDiv(IrInt(b, toIndex(b, thread)), pieces);
  Value swizzled =
      arith::XOrIOp::create(b, toI32(b, piece.get()), toI32(b, remainder(row, pieces).get()));
  // rowsAtOnce is a multiple of 8: a thread's rows have one swizzle.
  Value first =
      arith::AddIOp::create(b, offset, arith::MulIOp::create(b, swizzled, i32(b, pieceBytes)));
  Value length = toIndex(b, kernel.length(b, view));

  Value zero = arith::ConstantIndexOp::create(b, 0), end = arith::ConstantIndexOp::create(b, rows);
  auto loop = scf::ForOp::create(b, zero, end, arith::ConstantIndexOp::create(b, rowsAtOnce));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  IrInt mine = IrInt(b, loop.getInductionVar()) + row, global = mine + IrInt(b, in.getRow());
  Value source =
      kernel.address(b, view, in.getBatch(), in.getHead(), global.get(), (piece * pieceCols).get());
  Value to = arith::AddIOp::create(b, first, toI32(b, (mine * panelRowBytes).get()));
  Value isRow = lessThan(global, IrInt(b, length)).get();
  for (int64_t panel = 0; panel < panelsOf(type.getShape()[2]); ++panel) {
    Value isInside = isRow;
    if ((panel + 1) * panelCols > cols)
      isInside = arith::AndIOp::create(b, isRow,
                                       lessThan(piece * pieceCols + panel * panelCols, cols).get());
    // A piece of size 0 reads nothing and writes zeros.
    Value size = arith::SelectOp::create(b, isInside, i32(b, pieceBytes), i32(b, 0));
    Value at = kernel.shared(b, arith::AddIOp::create(b, to, i32(b, panel * rows * panelRowBytes)));
    Value from =
        LLVM::GEPOp::create(b, source.getType(), type.getElementType(), source,
                            ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(panel * panelCols)});
    NVVM::CpAsyncOp::create(b, at, from, static_cast<uint32_t>(pieceBytes),
                            NVVM::LoadCacheModifierKind::CG, size);
  }
}

} // namespace flash::nvvm
