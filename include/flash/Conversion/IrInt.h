//===- IrInt.h - planning formulas as IR ------------------------*- C++ -*-===//
//
// The integer of flash/Schedule/Int.h over `index` values: a formula of the planner, called with
// IrInt arguments, emits itself as arith ops. Constants fold on the way.
//
//===----------------------------------------------------------------------===//
#ifndef FLASH_CONVERSION_IRINT_H
#define FLASH_CONVERSION_IRINT_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace flash {

class IrBool {
public:
  explicit IrBool(mlir::Value value) : value(value) {}
  mlir::Value get() const { return value; }

private:
  mlir::Value value;
};

class IrInt {
public:
  IrInt(mlir::ImplicitLocOpBuilder &builder, mlir::Value value) : builder(&builder), value(value) {}
  IrInt(mlir::ImplicitLocOpBuilder &builder, int64_t constant)
      : builder(&builder),
        value(mlir::arith::ConstantIndexOp::create(builder, constant).getResult()) {}

  mlir::Value get() const { return value; }

  friend IrInt constant(IrInt like, int64_t value) { return IrInt(*like.builder, value); }

  friend IrInt operator+(IrInt a, IrInt b) { return a.fold<mlir::arith::AddIOp>(b); }
  friend IrInt operator-(IrInt a, IrInt b) { return a.fold<mlir::arith::SubIOp>(b); }
  friend IrInt operator*(IrInt a, IrInt b) { return a.fold<mlir::arith::MulIOp>(b); }
  friend IrInt operator+(IrInt a, int64_t b) { return a + constant(a, b); }
  friend IrInt operator-(IrInt a, int64_t b) { return a - constant(a, b); }
  friend IrInt operator*(IrInt a, int64_t b) { return a * constant(a, b); }

  // By contract numerators are never negative and divisors never below 1.
  friend IrInt floorDiv(IrInt a, IrInt b) { return a.fold<mlir::arith::DivUIOp>(b); }
  friend IrInt ceilDiv(IrInt a, IrInt b) { return floorDiv(a + (b - 1), b); }
  friend IrInt remainder(IrInt a, IrInt b) { return a.fold<mlir::arith::RemUIOp>(b); }
  friend IrInt floorDiv(IrInt a, int64_t b) { return floorDiv(a, constant(a, b)); }
  friend IrInt ceilDiv(IrInt a, int64_t b) { return floorDiv(a + (b - 1), b); }
  friend IrInt remainder(IrInt a, int64_t b) { return remainder(a, constant(a, b)); }

  friend IrInt min(IrInt a, IrInt b) { return a.fold<mlir::arith::MinSIOp>(b); }
  friend IrInt max(IrInt a, IrInt b) { return a.fold<mlir::arith::MaxSIOp>(b); }
  friend IrInt min(IrInt a, int64_t b) { return min(a, constant(a, b)); }
  friend IrInt max(IrInt a, int64_t b) { return max(a, constant(a, b)); }

  friend IrBool lessThan(IrInt a, IrInt b) {
    return IrBool(a.builder->createOrFold<mlir::arith::CmpIOp>(mlir::arith::CmpIPredicate::slt,
                                                               a.value, b.value));
  }
  friend IrBool lessThan(IrInt a, int64_t b) { return lessThan(a, constant(a, b)); }
  friend IrInt select(IrBool condition, IrInt a, IrInt b) {
    return IrInt(*a.builder,
                 a.builder->createOrFold<mlir::arith::SelectOp>(condition.get(), a.value, b.value));
  }

private:
  template <class Op> IrInt fold(IrInt other) const {
    return IrInt(*builder, builder->createOrFold<Op>(value, other.value));
  }

  mlir::ImplicitLocOpBuilder *builder;
  mlir::Value value;
};

} // namespace flash

#endif // FLASH_CONVERSION_IRINT_H
