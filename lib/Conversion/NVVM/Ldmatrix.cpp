//===- Ldmatrix.cpp - fragments from and to swizzled tiles ----------------===//
#include "Ldmatrix.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;

namespace flash::nvvm {

static constexpr int64_t matrixSide = 8, chunkBytes = 16;

Ldmatrix::Ldmatrix(B &b, Value tile, int64_t rows, Order order, Value row, Value thread,
                   Value column)
    : rows(rows) {
  Value lane = laneOf(b, thread);
  Value within = arith::AndIOp::create(b, lane, i32(b, matrixSide - 1));
  Value bit3 = arith::AndIOp::create(b, arith::ShRUIOp::create(b, lane, i32(b, 3)), i32(b, 1));
  Value bit4 = arith::ShRUIOp::create(b, lane, i32(b, 4));
  Value rowHalf = order == rowsFirst ? bit3 : bit4, chunk = order == rowsFirst ? bit4 : bit3;
  Value mine =
      arith::AddIOp::create(b, within, arith::MulIOp::create(b, rowHalf, i32(b, matrixSide)));
  if (row)
    mine = arith::AddIOp::create(b, mine, row);
  chunk = arith::XOrIOp::create(b, chunk, within);
  if (column) {
    Value inPanel = arith::AndIOp::create(b, column, i32(b, panelCols - 1));
    chunk = arith::XOrIOp::create(b, chunk, arith::DivUIOp::create(b, inPanel, i32(b, matrixSide)));
    Value panel = arith::DivUIOp::create(b, column, i32(b, panelCols));
    tile = arith::AddIOp::create(b, tile,
                                 arith::MulIOp::create(b, panel, i32(b, rows * panelRowBytes)));
  }
  first = arith::AddIOp::create(b, tile, arith::MulIOp::create(b, mine, i32(b, panelRowBytes)));
  first = arith::AddIOp::create(b, first, arith::MulIOp::create(b, chunk, i32(b, chunkBytes)));
}

/// `instruction` on the block at (row, column), whose address is written as `[]` there; `first` is
/// operand `operand` of the asm.
static LLVM::InlineAsmOp access(ImplicitLocOpBuilder &b, Type result, ValueRange operands,
                                StringRef operand, StringRef instruction, StringRef constraints,
                                int64_t rows, int64_t row, int64_t column) {
  // The bits of a chunk's number stand alone in the address, rows being 128 bytes. They are put in
  // here: of all chunks kept over loops, registers would run out.
  const int64_t chunk = column % panelCols / matrixSide * chunkBytes;
  const int64_t offset = (column / panelCols * rows + row) * panelRowBytes;
  auto [before, after] = instruction.split("[]");
  std::string text = before.str() + "[" + (chunk ? "at" : operand.str()) + "+" +
                     std::to_string(offset) + "]" + after.str();
  if (chunk)
    text = "{\n\t.reg .b32 at;\n\txor.b32 at, " + operand.str() + ", " + std::to_string(chunk) +
           ";\n\t" + text + "\n\t}";
  return LLVM::InlineAsmOp::create(
      b, result, operands, text, constraints,
      /*has_side_effects=*/true, /*is_align_stack=*/false, LLVM::tailcallkind::TailCallKind::None,
      LLVM::AsmDialectAttr::get(b.getContext(), LLVM::AsmDialect::AD_ATT), ArrayAttr());
}

void Ldmatrix::store(B &b, ArrayRef<Value> words, int64_t row, int64_t column) const {
  SmallVector<Value> operands{first};
  llvm::append_range(operands, words);
  access(b, LLVM::LLVMVoidType::get(b.getContext()), operands, "$0",
         "stmatrix.sync.aligned.m8n8.x4.shared.b16 [], {$1, $2, $3, $4};", "r,r,r,r,r,~{memory}",
         rows, row, column);
}

SmallVector<Value, 4> Ldmatrix::load(B &b, int64_t row, int64_t column, bool transposed) const {
  auto four =
      LLVM::LLVMStructType::getLiteral(b.getContext(), SmallVector<Type>(4, b.getI32Type()));
  const char *text = transposed
                         ? "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {$0, $1, $2, $3}, [];"
                         : "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0, $1, $2, $3}, [];";
  Value loaded =
      access(b, four, ValueRange{first}, "$4", text, "=r,=r,=r,=r,r,~{memory}", rows, row, column)
          .getRes();
  SmallVector<Value, 4> words;
  for (int64_t i = 0; i < 4; ++i)
    words.push_back(LLVM::ExtractValueOp::create(b, loaded, i));
  return words;
}

Value firstRowOfWarp(ImplicitLocOpBuilder &b, Kernel &kernel, int64_t rows, Value thread) {
  Value warp = arith::ShRUIOp::create(b, thread ? thread : threadId(b), i32(b, 5));
  const int64_t sharing = kernel.gridOf(rows).rows;
  if (sharing * schedule::warpThreads != kernel.threads)
    warp = arith::RemUIOp::create(b, warp, i32(b, sharing));
  return arith::MulIOp::create(b, warp, i32(b, rows / sharing));
}

Value firstColumnOfWarp(ImplicitLocOpBuilder &b, Kernel &kernel, int64_t rows, Value thread) {
  const auto grid = kernel.gridOf(rows);
  if (grid.cols == 1)
    return i32(b, 0);
  Value warp = arith::ShRUIOp::create(b, thread ? thread : threadId(b), i32(b, 5));
  Value number = arith::DivUIOp::create(b, warp, i32(b, grid.rows));
  if (kernel.warps * schedule::warpThreads != kernel.threads)
    number = arith::RemUIOp::create(b, number, i32(b, grid.cols));
  return arith::MulIOp::create(b, number, i32(b, Ldmatrix::side));
}

/// The eight rows of a matrix lie in different banks here too.
void writeTile(ImplicitLocOpBuilder &b, Kernel &kernel, tile::TileType type, Value address,
               Value cells, Value thread) {
  const int64_t rows = type.getShape()[0], cols = type.getShape()[1];
  const auto grid = kernel.gridOf(rows);
  const int64_t mine = rows / grid.rows;
  Value lane = laneOf(b, thread), within = arith::ShRUIOp::create(b, lane, i32(b, 2));
  Value row = arith::AddIOp::create(b, firstRowOfWarp(b, kernel, rows, thread), within);
  auto add = [&](Value to, Value what, int64_t times) -> Value {
    return arith::AddIOp::create(b, to, arith::MulIOp::create(b, what, i32(b, times)));
  };
  Value chunk = within;
  if (grid.cols > 1) // in the first panel, and none of the bits of the cells' columns
    chunk = arith::XOrIOp::create(
        b, chunk,
        arith::DivUIOp::create(b, firstColumnOfWarp(b, kernel, rows, thread), i32(b, matrixSide)));
  Value first = add(add(address, row, panelRowBytes), chunk, chunkBytes);
  first = add(first, arith::AndIOp::create(b, lane, i32(b, 3)), 4);
  int64_t at = 0;
  for (int64_t r = 0; r < mine; r += Ldmatrix::side)
    for (int64_t c = 0; c < cols / grid.cols / matrixSide; ++c)
      for (int64_t half = 0; half < 2; ++half) {
        Value word = LLVM::ExtractElementOp::create(b, cells, i32(b, at++));
        access(b, LLVM::LLVMVoidType::get(b.getContext()), ValueRange{first, word}, "$0",
               "st.shared.b32 [], $1;", "r,r,~{memory}", rows, r + half * matrixSide,
               columnOfCell(c, grid.cols));
      }
}

Value readTile(ImplicitLocOpBuilder &b, Kernel &kernel, tile::TileType type, Value address) {
  const int64_t rows = type.getShape()[0], cols = type.getShape()[1];
  Ldmatrix matrices(b, address, rows, Ldmatrix::rowsFirst, firstRowOfWarp(b, kernel, rows));
  const int64_t mine = rows / kernel.warps, words = mine * cols / schedule::warpThreads / 2;
  Value cells = LLVM::PoisonOp::create(b, VectorType::get({words}, b.getI32Type()));
  int64_t at = 0;
  for (int64_t row = 0; row < mine; row += Ldmatrix::side)
    for (int64_t col = 0; col < cols; col += Ldmatrix::side)
      for (Value word : matrices.load(b, row, col))
        cells = LLVM::InsertElementOp::create(b, cells, word, i32(b, at++));
  return cells;
}

Value readRow(ImplicitLocOpBuilder &b, int64_t cols, Value tile, Value firstColumn, int64_t parts,
              Value thread) {
  constexpr int64_t cellCols = 8;
  Value lane = arith::AndIOp::create(b, laneOf(b, thread), i32(b, 3));
  Value first =
      arith::AddIOp::create(b, tile, arith::MulIOp::create(b, lane, i32(b, 2 * sizeof(float))));
  if (firstColumn)
    first = arith::AddIOp::create(b, first,
                                  arith::MulIOp::create(b, firstColumn, i32(b, sizeof(float))));
  auto type = LLVM::LLVMPointerType::get(b.getContext(),
                                         static_cast<unsigned>(NVVM::NVVMMemorySpace::Shared));
  auto pair = VectorType::get({2}, b.getF32Type());
  Value base = LLVM::IntToPtrOp::create(b, type, first);
  Value row = LLVM::PoisonOp::create(b, VectorType::get({cols / 4 / parts}, b.getF32Type()));
  for (int64_t c = 0; c < cols / cellCols / parts; ++c) {
    Value at =
        LLVM::GEPOp::create(b, type, b.getF32Type(), base,
                            ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(columnOfCell(c, parts))});
    Value two = LLVM::LoadOp::create(b, pair, at, /*alignment=*/2 * sizeof(float));
    for (int64_t i = 0; i < 2; ++i)
      row = LLVM::InsertElementOp::create(b, row, LLVM::ExtractElementOp::create(b, two, i32(b, i)),
                                          i32(b, 2 * c + i));
  }
  return row;
}

} // namespace flash::nvvm
