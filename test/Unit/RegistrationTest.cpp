//===- RegistrationTest.cpp - what a tool gets from the registration ------===//
#include "flash/Registration.h"
#include "mlir/IR/MLIRContext.h"
#include "gtest/gtest.h"

TEST(Registration, LoadsBothDialects) {
  mlir::DialectRegistry registry;
  flash::registerDialects(registry);
  flash::registerTranslations(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  EXPECT_NE(context.getOrLoadDialect("flash"), nullptr);
  EXPECT_NE(context.getOrLoadDialect("flash_tile"), nullptr);
}
