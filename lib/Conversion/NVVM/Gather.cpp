//===- Gather.cpp - rows to shared memory by cp.async ---------------------===//
//
// Eight neighbouring threads copy the 128 bytes of a row's panel:
//
//   piece c of row r in panel p goes to   p * rows * 128 + r * 128 + (c ^ r % 8) * 16
//
// which is the 128-byte swizzle that matrix descriptors read.
//
//===----------------------------------------------------------------------===//
#include "Gather.h"
#include "flash/Conversion/IrInt.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include <utility>

using namespace mlir;

namespace flash::nvvm {

/// `bytes` from `from`, `fromOffset` bytes on, to `to`, likewise; or zeros where `size` is 0,
/// which reads nothing; where `predicate` (or null) does not hold, nothing is done. Constant
/// distances stand in the text: in registers they would be kept over loops.
static void copyPiece(ImplicitLocOpBuilder &b, Value to, int64_t toOffset, Value from,
                      int64_t fromOffset, Value size, int64_t bytes = 16, Value predicate = {}) {
  // Pieces of less than 16 bytes go by way of the first cache (PTX ISA, "cp.async").
  std::string text = std::string(predicate ? "@$3 " : "") + "cp.async." +
                     std::string(bytes == 16 ? "cg" : "ca") + ".shared.global [$0+" +
                     std::to_string(toOffset) + "], [$1+" + std::to_string(fromOffset) + "], " +
                     std::to_string(bytes) + ", $2;";
  SmallVector<Value> operands{to, from, size};
  if (predicate)
    operands.push_back(predicate);
  LLVM::InlineAsmOp::create(b, LLVM::LLVMVoidType::get(b.getContext()), operands, text,
                            predicate ? "r,l,r,b,~{memory}" : "r,l,r,~{memory}",
                            /*has_side_effects=*/true,
                            /*is_align_stack=*/false, LLVM::tailcallkind::TailCallKind::None,
                            LLVM::AsmDialectAttr::get(b.getContext(), LLVM::AsmDialect::AD_ATT),
                            ArrayAttr());
}

/// Of gradients the condition becomes a predicate of copies. Their heads follow one another: zeros
/// for no block would be under way to the slot that the next head's first block is copied to, and
/// nothing orders two copies (PTX ISA, "cp.async"). A branch would part copies and products, which
/// run beside each other.
static Value takePredicate(const Kernel &kernel, Value &condition) {
  return kernel.gradients ? std::exchange(condition, {}) : Value();
}

void emitGather(ImplicitLocOpBuilder &b, Kernel &kernel, tile::FillOp op, tile::FillOp::Adaptor in,
                Value offset, Value thread, int64_t threads, Value condition) {
  constexpr int64_t pieceBytes = 16, pieces = panelRowBytes / pieceBytes;
  constexpr int64_t pieceCols = panelCols / pieces, elementBytes = panelRowBytes / panelCols;
  const int64_t rowsAtOnce = threads / pieces;
  Value predicate = takePredicate(kernel, condition);
  tile::ViewOp view = viewOf(op.getView());
  tile::RingType type = op.getRing().getType();
  int64_t rows = type.getShape()[1], cols = view.getView().getType().getShape()[0];
  IrInt piece = remainder(IrInt(b, toIndex(b, thread)), pieces);
  IrInt row = floorDiv(IrInt(b, toIndex(b, thread)), pieces);
  Value swizzled =
      arith::XOrIOp::create(b, toI32(b, piece.get()), toI32(b, remainder(row, pieces).get()));
  // rowsAtOnce is a multiple of 8: a thread's rows have one swizzle.
  Value to = LLVM::PtrToIntOp::create(b, b.getI32Type(), kernel.shared(b, offset));
  to = arith::AddIOp::create(b, to, toI32(b, (row * panelRowBytes).get()));
  to = arith::AddIOp::create(b, to, arith::MulIOp::create(b, swizzled, i32(b, pieceBytes)));

  IrInt global = row + IrInt(b, in.getRow()), length(b, kernel.length(b, view, in.getBatch()));
  IrInt left = length - global;
  if (condition) // else no row is left
    left = IrInt(
        b, arith::SelectOp::create(b, condition, left.get(), arith::ConstantIndexOp::create(b, 0)));
  // Rows that do not lie at one distance are looked up one by one; those past the end, which are
  // not read, as the last one, for their pages need not be in the table; where no row counts, as
  // the last one that is skipped.
  const bool isEven = view.getGroup() == 1 && !view.getPageTable();
  IrInt least = constant(row, 0);
  if (view.getLeftpad() && view.getPageTable())
    least = least - IrInt(b, kernel.entry(b, view.getLeftpad(), in.getBatch()));
  auto address = [&](int64_t first) {
    IrInt at = global + first;
    if (!isEven)
      at = max(min(at, length - 1), least);
    return kernel.address(b, view, in.getBatch(), in.getHead(), at.get(),
                          (piece * pieceCols).get());
  };
  Value from = address(0), next;
  if (isEven) {
    // Opaque, or the distance is kept over loops, where the parameter costs nothing.
    Value stride = opaque(b, kernel.rowStride(view));
    next = arith::MulIOp::create(b, stride,
                                 arith::ConstantOp::create(b, b.getI64IntegerAttr(rowsAtOnce)));
  }
  for (int64_t first = 0; first < rows; first += rowsAtOnce) {
    if (first)
      from = isEven ? LLVM::GEPOp::create(b, from.getType(), type.getElementType(), from,
                                          ValueRange{next})
                          .getResult()
                    : address(first);
    OpBuilder::InsertionGuard guard(b);
    if (first + rowsAtOnce > rows) // more threads than rows are left
      b.setInsertionPointToStart(
          scf::IfOp::create(b, lessThan(row + first, rows).get()).thenBlock());
    Value isRow = lessThan(constant(row, first), left).get();
    for (int64_t panel = 0; panel < panelsOf(type.getShape()[2]); ++panel) {
      Value isInside = isRow;
      if ((panel + 1) * panelCols > cols)
        isInside = arith::AndIOp::create(
            b, isRow, lessThan(piece * pieceCols + panel * panelCols, cols).get());
      Value size = arith::SelectOp::create(b, isInside, i32(b, pieceBytes), i32(b, 0));
      copyPiece(b, to, (panel * rows + first) * panelRowBytes, from,
                panel * panelCols * elementBytes, size, pieceBytes, predicate);
    }
  }
}

void emitGatherRow(ImplicitLocOpBuilder &b, Kernel &kernel, tile::FillOp op,
                   tile::FillOp::Adaptor in, Value offset, Value thread, int64_t threads,
                   Value condition) {
  constexpr int64_t bytes = sizeof(float);
  const Value predicate = takePredicate(kernel, condition);
  tile::ViewOp view = viewOf(op.getView());
  const int64_t cols = op.getRing().getType().getShape()[2];
  IrInt mine(b, toIndex(b, thread)), length(b, kernel.length(b, view, in.getBatch()));
  Value to = LLVM::PtrToIntOp::create(b, b.getI32Type(), kernel.shared(b, offset));
  to = arith::AddIOp::create(b, to, toI32(b, (mine * bytes).get()));
  for (int64_t first = 0; first < cols; first += threads) {
    OpBuilder::InsertionGuard guard(b);
    Value copies = predicate;
    if (first + threads > cols) {
      Value inside = lessThan(mine + first, cols).get();
      if (kernel.gradients)
        copies = copies ? arith::AndIOp::create(b, copies, inside) : inside;
      else
        b.setInsertionPointToStart(scf::IfOp::create(b, inside).thenBlock());
    }
    IrInt row = mine + (IrInt(b, in.getRow()) + first);
    Value from = kernel.address(b, view, in.getBatch(), in.getHead(), row.get(), Value());
    Value isRow = lessThan(row, length).get();
    if (condition) // else there is no row, maybe one below 0
      isRow = arith::AndIOp::create(b, isRow, condition);
    Value size = arith::SelectOp::create(b, isRow, i32(b, bytes), i32(b, 0));
    copyPiece(b, to, first * bytes, from, 0, size, bytes, copies);
  }
}

} // namespace flash::nvvm
