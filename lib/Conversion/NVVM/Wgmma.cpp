//===- Wgmma.cpp - the warpgroup product as inline PTX --------------------===//
//
// Matrix descriptor (PTX ISA, "Matrix Descriptor Format"; all in units of 16 bytes):
//
//   low word   address | leading byte offset << 16
//   high word  stride byte offset | swizzle 128B (1 << 30)
//
// K-major panels (Q, K): stride 1024 B between 8-row groups, the leading offset is ignored; a k
// step is 32 B within the 128-byte rows of a panel. MN-major panels (V): leading offset = one panel
// (the next 64 columns), stride 1024 B between 8-row groups; a k step of 16 rows is 2048 B. So is
// dS, as the transposed left operand of dQ.
//
//===----------------------------------------------------------------------===//
#include "Wgmma.h"
#include "Kernel.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;

namespace flash::nvvm {

using B = ImplicitLocOpBuilder;

static constexpr int64_t kStep = 16, unit = 16, swizzleRows = 8;
static constexpr int64_t kDescriptorHigh = 1 << 30 | swizzleRows * panelRowBytes / unit;

static SmallVector<Value> cellsOf(B &b, Value vector) {
  SmallVector<Value> cells;
  for (int64_t i = 0, n = cast<VectorType>(vector.getType()).getNumElements(); i < n; ++i)
    cells.push_back(LLVM::ExtractElementOp::create(b, vector, i32(b, i)));
  return cells;
}

/// asm volatile with `n` f32 results as a vector.
static Value accumulatorAsm(B &b, int64_t n, StringRef text, StringRef constraints,
                            ValueRange operands) {
  auto type =
      LLVM::LLVMStructType::getLiteral(b.getContext(), SmallVector<Type>(n, b.getF32Type()));
  Value all = LLVM::InlineAsmOp::create(
                  b, type, operands, text, constraints, /*has_side_effects=*/true,
                  /*is_align_stack=*/false, LLVM::tailcallkind::TailCallKind::None,
                  LLVM::AsmDialectAttr::get(b.getContext(), LLVM::AsmDialect::AD_ATT), ArrayAttr())
                  .getRes();
  Value result = LLVM::PoisonOp::create(b, VectorType::get({n}, b.getF32Type()));
  for (int64_t i = 0; i < n; ++i)
    result = LLVM::InsertElementOp::create(b, result, LLVM::ExtractValueOp::create(b, all, i),
                                           i32(b, i));
  return result;
}

static void outputs(llvm::raw_ostream &constraints, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    constraints << (i ? ",=f" : "=f");
}
static void tied(llvm::raw_ostream &constraints, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    constraints << ',' << i;
}
static void registers(llvm::raw_ostream &text, int64_t first, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    text << (i ? ", $" : "{$") << first + i;
  text << '}';
}

/// Low word's distance from the tile's address at k step `step`.
static int64_t kMajor(int64_t step, int64_t rows) {
  int64_t stepsPerPanel = panelCols / kStep, stepBytes = panelRowBytes / stepsPerPanel;
  int64_t bytes = step / stepsPerPanel * rows * panelRowBytes + step % stepsPerPanel * stepBytes;
  return bytes / unit | int64_t(1) << 16;
}
static int64_t mnMajor(int64_t step, int64_t rows) {
  int64_t panel = rows * panelRowBytes / unit;
  return step * kStep * panelRowBytes / unit | panel << 16;
}

Value issueWgmma(B &b, const Wgmma &product, Value a, Value bTile, Value acc) {
  int64_t n = product.cols / 2;
  std::string text, constraints;
  llvm::raw_string_ostream t(text), c(constraints);
  SmallVector<Value> operands;
  outputs(c, n);
  if (acc) {
    tied(c, n);
    operands = cellsOf(b, acc);
  }
  int64_t firstA = n + (acc ? n : 0);
  if (product.aInRegisters)
    operands.append(cellsOf(b, a));
  else
    operands.push_back(a);
  int64_t atB = n + static_cast<int64_t>(operands.size());
  operands.push_back(bTile);
  for (int64_t i = firstA; i <= atB; ++i)
    c << ",r";
  c << ",~{memory}";

  auto descriptor = [&](StringRef name, int64_t operand, int64_t offset) {
    t << "add.u32 lo, $" << operand << ", " << offset << ";\n\tmov.b64 " << name << ", {lo, "
      << "hi};\n\t";
  };
  StringRef element = product.element.isF16() ? "f16" : "bf16";
  t << "{\n\t.reg .b32 lo, hi;\n\t.reg .b64 da, db;\n\tmov.b32 hi, " << kDescriptorHigh
    << ";\n\twgmma.fence.sync.aligned;\n\t";
  for (int64_t step = 0; step < product.k / kStep; ++step) {
    if (!product.aInRegisters)
      descriptor("da", firstA,
                 product.aTransposed ? mnMajor(step, product.aRows) : kMajor(step, product.aRows));
    descriptor("db", atB,
               product.bTransposed ? kMajor(step, product.bRows) : mnMajor(step, product.bRows));
    t << "wgmma.mma_async.sync.aligned.m64n" << product.cols << "k16.f32." << element << '.'
      << element << ' ';
    registers(t, 0, n);
    t << ", ";
    if (product.aInRegisters)
      registers(t, firstA + 4 * step, 4);
    else
      t << "da";
    // scale-d, negate a and b, transpose a (only from shared memory) and b
    t << ", db, " << (acc || step ? 1 : 0) << ", 1, 1, "
      << (product.aInRegisters  ? ""
          : product.aTransposed ? "1, "
                                : "0, ")
      << (product.bTransposed ? 0 : 1) << ";\n\t";
  }
  t << "wgmma.commit_group.sync.aligned;\n\t}";
  return accumulatorAsm(b, n, text, constraints, operands);
}

Value waitWgmma(B &b, Value flight, unsigned pending) {
  int64_t n = cast<VectorType>(flight.getType()).getNumElements();
  std::string constraints;
  llvm::raw_string_ostream c(constraints);
  outputs(c, n);
  tied(c, n);
  c << ",~{memory}";
  return accumulatorAsm(b, n, ("wgmma.wait_group.sync.aligned " + Twine(pending) + ";").str(),
                        constraints, cellsOf(b, flight));
}

} // namespace flash::nvvm
