//===- Pipelines.cpp - the passes in order --------------------------------===//
#include "flash/Pipelines.h"
#include "flash/Passes.h"
#include "flash/Registration.h"
#include "flash/Tile.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/NVVMToLLVM/NVVMToLLVM.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

namespace flash {
#define GEN_PASS_REGISTRATION
#include "flash/Passes.h.inc"
} // namespace flash

using namespace mlir;
using namespace flash;

/// `fallback`: the target of ops where neither they nor the options name one.
static void addTilePasses(OpPassManager &pm, const PipelineOptions &options,
                          flash::schedule::Target fallback) {
  FlashSelectTilesOptions tiles;
  tiles.target = options.target.empty() ? std::string(flash::schedule::targetName(fallback))
                                        : options.target.getValue();
  pm.addPass(createFlashSelectTiles(tiles));
  auto optional = [&](bool isOn, std::unique_ptr<Pass> pass) {
    if (isOn)
      pm.addPass(std::move(pass));
  };
  optional(options.splitKV, createFlashSplitKV());
  optional(options.orderWork, createFlashOrderWork());
  pm.addPass(createFlashLowerToTile());
  optional(options.skipBlocks, createFlashTileSkipBlocks());
  optional(options.pipelineLoads, createFlashTilePipelineLoads());
  optional(options.splitRoles, createFlashTileSplitRoles());
  optional(options.multicast, createFlashTileMulticast());
  optional(options.exactCounts, createFlashTileExactCounts());
  optional(options.overlapSoftmax, createFlashTileOverlapSoftmax());
  optional(options.overlapSums, createFlashTileOverlapSums());
  optional(options.deferMax, createFlashTileDeferMax());
  optional(options.holdQ, createFlashTileHoldQ());
  optional(options.pingPong, createFlashTilePingPong());
  optional(options.stageStore, createFlashTileStageStore());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  pm.addPass(createFlashTileAssign());
}

void flash::buildFlashToTile(OpPassManager &pm, const PipelineOptions &options) {
  addTilePasses(pm, options, schedule::Target::cpu);
}

void flash::buildFlashToNVVM(OpPassManager &pm, const PipelineOptions &options) {
  addTilePasses(pm, options, schedule::Target::sm90);
  pm.addPass(createConvertFlashTileToNVVM());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  pm.addPass(arith::createArithExpandOpsPass());
  pm.addPass(createSCFToControlFlowPass());
  // 32 bits hold every count; addresses are 64-bit already.
  ArithToLLVMConversionPassOptions arith;
  arith.indexBitwidth = 32;
  pm.addPass(createArithToLLVMConversionPass(arith));
  ConvertControlFlowToLLVMPassOptions control;
  control.indexBitwidth = 32;
  pm.addPass(createConvertControlFlowToLLVMPass(control));
  pm.addPass(createConvertNVVMToLLVMPass());
  pm.addPass(createReconcileUnrealizedCastsPass());
}

void flash::buildFlashToCPU(OpPassManager &pm, const PipelineOptions &options) {
  addTilePasses(pm, options, schedule::Target::cpu);
  ConvertFlashTileToLoopsOptions loops;
  loops.clock = options.clock;
  pm.addPass(createConvertFlashTileToLoops(loops));
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
}

void flash::registerPasses() {
  registerFlashPasses();
  PassPipelineRegistration<PipelineOptions>(
      "flash-to-tile", "flash ops to kernels of tile ops, laid out and checked", buildFlashToTile);
  PassPipelineRegistration<PipelineOptions>(
      "flash-to-nvvm", "flash ops to kernels in the LLVM dialect for GPUs", buildFlashToNVVM);
  PassPipelineRegistration<PipelineOptions>("flash-to-cpu", "flash ops to loops that a worker runs",
                                            buildFlashToCPU);
}
