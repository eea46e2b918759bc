//===- Pipelines.cpp - the passes in order --------------------------------===//
#include "flash/Pipelines.h"
#include "flash/Passes.h"
#include "flash/Registration.h"
#include "flash/Tile.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Transforms/Passes.h"

namespace flash {
#define GEN_PASS_REGISTRATION
#include "flash/Passes.h.inc"
} // namespace flash

using namespace mlir;

void flash::buildFlashToTile(OpPassManager &pm, const PipelineOptions &options) {
  pm.addPass(createFlashLowerToTile());
  if (options.skipBlocks)
    pm.addPass(createFlashTileSkipBlocks());
  if (options.pipelineLoads)
    pm.addPass(createFlashTilePipelineLoads());
  if (options.splitRoles)
    pm.addPass(createFlashTileSplitRoles());
  if (options.overlapSoftmax)
    pm.addPass(createFlashTileOverlapSoftmax());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  pm.addPass(createFlashTileAssign());
}

void flash::registerPasses() {
  registerFlashSelectTiles();
  registerFlashSplitKV();
  registerFlashOrderWork();
  registerConvertFlashTileToNVVM();
  registerConvertFlashTileToLoops();
  registerFlashLowerToTile();
  registerFlashTileSkipBlocks();
  registerFlashTilePipelineLoads();
  registerFlashTileSplitRoles();
  registerFlashTileOverlapSoftmax();
  registerFlashTileAssign();
}
