//===- Passes.td - from an attention op to a kernel, decision by decision -===//
#ifndef FLASH_PASSES_TD
#define FLASH_PASSES_TD

include "mlir/Pass/PassBase.td"

//===----------------------------------------------------------------------===//
// Planning: each pass fills the fields of #flash.plan that a hand left out
//===----------------------------------------------------------------------===//

def FlashSelectTiles : Pass<"flash-select-tiles"> {
  let summary = "Chooses tile, stages, roles and registers";
  let description = [{
    Expects `flash` ops with a target (or takes the option's; `cpu` if it is empty). Writes `tile`, `stages`, `consumers`
    (`warps` and `in_step` where a GPU has no roles), `registers`, `split_by`, `overlap`, `defer_max`, `pack_gqa`, what else
    the tile's row has on, and `transfer` (where K and V are gathered) into the plan, with reasons; a field that is already
    there is kept, and the plan as a whole is checked against the machine. On a cpu, only a hand asks for consumers. A mask with a bound
    that no row reaches becomes the mask without it. A second run changes nothing.

    ```mlir
    // before
    %o = flash.attention %q, %k, %v by <causal> : ...
    // after
    %o = flash.attention %q, %k, %v by <causal>
        {plan = #flash.plan<tile = [128, 128], stages = 2, ..., why = {...}>, target = #flash.target<"sm_90a">} : ...
    ```
  }];
  let options = [Option<"target", "target", "std::string", "", "target of ops that name none">];
  let dependentDialects = ["::flash::FlashDialect"]; // of the option's attribute
}
def FlashSplitKV : Pass<"flash-split-kv", "::mlir::ModuleOp"> {
  let summary = "Splits the keys over several tiles of work and joins the parts";
  let description = [{
    Expects a plan with tiles. Decides `splits`; above 1, the attention writes f32 partials and a `flash.combine` joins
    them and the sink. Changes numbers only by the rounding of the join. A second run changes nothing.

    ```mlir
    // before
    %o = flash.attention %q, %k, %v sink(%s : tensor<16xf32>) by <causal> {plan = #flash.plan<tile = [64, 64], splits = 3>, ...}
        : ... -> tensor<?x?x16x128xbf16>
    // after; over memrefs the parts are buffers
    %op, %lp = flash.attention %q, %k, %v by <causal> {plan = #flash.plan<tile = [64, 64], splits = 3>, ...}
        : ... -> tensor<3x?x?x16x128xf32>, tensor<3x?x16x?xf32>
    %o = flash.combine %op, %lp sink(%s : tensor<16xf32>) {plan = #flash.plan<tile = [64, 1]>, ...}
        : ... -> tensor<?x?x16x128xbf16>
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::memref::MemRefDialect"];
}
def FlashOrderWork : Pass<"flash-order-work"> {
  let summary = "Chooses the order in which blocks take tiles";
  let description = [{
    Expects a plan with tiles. Writes `order` and its reason; without this pass the order is `single`, the natural one.
    For a GPU it writes `stealing` too: blocks take tiles from a counter, or with a static stride.
    Changes no number, only when and where each is computed. A second run changes nothing.

    ```mlir
    // before
    %o = flash.attention %q, %k, %v by <causal> {plan = #flash.plan<tile = [64, 64]>, ...} : ...
    // after
    %o = flash.attention %q, %k, %v by <causal> {plan = #flash.plan<tile = [64, 64], order = "dynamic", why = {...}>, ...} : ...
    ```
  }];
}

//===----------------------------------------------------------------------===//
// The tile level
//===----------------------------------------------------------------------===//

def FlashLowerToTile : Pass<"flash-lower-to-tile", "::mlir::ModuleOp"> {
  let summary = "Makes one kernel of tile ops of each flash op: all blocks, every block masked, plain loads";
  let description = [{
    Expects functions that hold `flash` ops and nothing that computes besides, each with a plan that has a tile.
    A function becomes one kernel an op (`@f_append`, `@f`, `@f_combine`): a func.func with the attribute `flash.kernel` whose
    arguments are memrefs and scalars, each named by `flash.arg`: q, k, v, o, lse, sink, o_partial, lse_partial, scale,
    softcap, section; of sequences cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, page_table, kv_batch_idx, leftpad_k,
    max_seqlen_q, appended; of an append k_new, v_new, rotary_cos, rotary_sin, q_turned. The plainest right program; every later pass is optional but `flash-tile-assign`.

    `flash.attention_backward` becomes three kernels, one more where dV has its own (`@f_dv`) and one where there is a sink: `@f_prepare` (delta, lse in log2, dq_sum
    and turns cleared), `@f` (tiles of keys; dk, dv, and dq_sum added to), `@f_finish` (dq) and `@f_sink` (dsink). Their
    arguments are besides do, dq, dk, dv, dsink, and what they write for each other in whole tiles of queries: dq_sum
    (f32, as q), lse_log2 and delta (f32, as lse), and with `ordered` turns (i32, for each tile of queries and consumer,
    or part of dQ, one). Where `ordered` takes the last keys first, their queries are walked from the first on.
  }];
  let dependentDialects = ["::flash::tile::TileDialect", "::mlir::scf::SCFDialect", "::mlir::arith::ArithDialect",
                           "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect"];
}
def FlashTileSkipBlocks : Pass<"flash-tile-skip-blocks"> {
  let summary = "Visits only the blocks that the mask needs, and masks only those that it cuts";
  let description = [{
    Expects the one key loop of `flash-lower-to-tile` (`flash_tile.run = "all"`). Puts runs in its place: `right` (masked),
    `inner` (mask erased), `left`, `sink` (masked), as far as the mask can have them, bounded by
    `flash_tile.block_range`. Where the mask has no bound, `right` is the ragged end alone and says so
    (`flash_tile.at_most_one`). Changes no number: a skipped block has p = 0 and alpha = 1. Only where the keys are split,
    the needed ones are what is split: each part sees other keys than without, and results agree up to rounding.

    Of gradients blocks are queries, `left` are those of the diagonal, `right` may be several of ragged keys, and sink
    tokens have no run of their own. The turns of sums count the blocks that are left.
  }];
  let dependentDialects = ["::mlir::scf::SCFDialect", "::mlir::arith::ArithDialect"];
}
def FlashTilePipelineLoads : Pass<"flash-tile-pipeline-loads"> {
  let summary = "Starts the loads of a block while the one before is computed";
  let description = [{
    Expects fill and wait in one run (of gradients, read Q and lse for K, dO and delta for V). Gives the K and V rings the
    plan's `stages`, moves the fill of K one block ahead (across the seams of runs) and the first one before Q's; fills of
    gradients by a producer stay in the order of their use. With `in_step = true`, where the warps that compute copy too, a fill
    stands right behind the wait after which its slot is free, as many blocks ahead as there are stages. Changes no number.
  }];
  let dependentDialects = ["::mlir::scf::SCFDialect", "::mlir::arith::ArithDialect"];
}
def FlashTileSplitRoles : Pass<"flash-tile-split-roles"> {
  let summary = "Gives copies and products to programs of their own";
  let description = [{
    Expects one loop over the work that fills rings, and a plan with `consumers`; does nothing without. Clones the work
    for each role and erases what its units may not execute. By `split_by`, the consumers share the rows of a tile (each
    has a slot of Q of its own) or the columns of V and of the output (the first writes what all compute alike).
    Writes `releases` of shared rings. With `warps` instead, only columns are divided, and the consumers copy too. Where
    the plan says `stealing`, the producer takes tiles from a counter and hands them on through the ring "work". Where a
    GPU sums in an order (`ordered`), the producer leaves warps to a third role, each to keep a consumer's turns. What
    cannot be divided stays, with the reason in the plan. Changes no number.

    Before: `fill q[row] -> %qr[%t]  wait %qr[%t]  for i: fill K -> %kr[%it]  fill V -> %vr[%it]  wait %kr[%it]  mma ..`
    After:  `roles [producer, consumer]`, here by 2 consumers' rows of 64
            `{ fill q[row] -> %qr[2 * %t]  fill q[row + 64] -> %qr[2 * %t + 1]  for i: fill K -> %kr[%it]  fill V -> %vr[%it] },`
            `{ ^bb0(%w): wait %qr[2 * %t + %w]  for i: wait %kr[%it]  mma .. }`
  }];
  let dependentDialects = ["::mlir::scf::SCFDialect", "::mlir::arith::ArithDialect"];
}
def FlashTileOverlapSoftmax : Pass<"flash-tile-overlap-softmax"> {
  let summary = "Runs the next QK product beside this block's softmax and PV";
  let description = [{
    Expects runs of QK, softmax, PV and `overlap = true` in the plan; does nothing without. Peels the first block, turns
    each run so that QK of block i is issued before PV of block i - 1, and adds the last PV. In one program without
    roles the ring of V needs two stages. What is no such run stays, with the reason in the plan. Changes no number:
    the order of sums of a row stays. Where the plan says `early_wait = true`, K(i + 1) is awaited before PV(i - 1) is,
    if its fill does not hang on the release behind that.

    Before: `for i in 0 .. n: QK(i)  softmax(i)  rescale  PV(i)`
    After:  `if n > 0: QK(0)  softmax(0)  for i in 1 .. n: { QK(i)  PV(i - 1)  softmax(i)  rescale }  PV(n - 1)`
  }];
  let dependentDialects = ["::mlir::scf::SCFDialect", "::mlir::arith::ArithDialect"];
}
def FlashTileOverlapSums : Pass<"flash-tile-overlap-sums"> {
  let summary = "Multiplies a block's dQ beside the next block's softmax";
  let description = [{
    Expects the runs of the main kernel of gradients and `overlap = true` in the plan; does nothing without. The ring of dS gets
    two slots, and a block multiplies and adds up dQ of the block before; that of the last block stands behind the
    runs, and the first block multiplies its own dS and adds nothing. So consumers need not compute and multiply all at
    the same time. What is no such run stays, with the reason in the plan. Changes no number.

    Before: `for i in 0 .. n: S(i)  dP(i)  P  dS  dV  dQ(i)  dK`
    After:  `for i in 0 .. n: { S(i)  dP(i)  P  dS  dV  dQ(i - 1)  dK }  dQ(n - 1)`
  }];
  let dependentDialects = ["::mlir::scf::SCFDialect", "::mlir::arith::ArithDialect"];
}
def FlashTileMulticast : Pass<"flash-tile-multicast"> {
  let summary = "Lets two blocks share keys and values";
  let description = [{
    Expects roles and `multicast = true` in the plan; does nothing without. Blocks 2p and 2p + 1 take the m tiles 2q and
    2q + 1 of one head together; each fetches half of the rows of K and V for both. So both fill as often: the blocks of
    keys become those that the rows of both tiles need, and `flash-tile-exact-counts` hands back what a consumer's do not.
    Goes before that pass. What is no such kernel stays, with the reason in the plan. Changes no number.

    Before: `flash_tile.block_range by <causal> rows[%m * 128, 128] ...`
    After:  `flash_tile.block_range by <causal> rows[(%m - %m mod 2) * 128, 256] ...`, `for_work` and the rings of K, V
            and work with `cluster = 2`
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}
def FlashTileExactCounts : Pass<"flash-tile-exact-counts"> {
  let summary = "Lets each consumer compute only the blocks that its own rows need";
  let description = [{
    Expects roles that divide a tile's rows, and the runs of `flash-tile-skip-blocks` under a mask with a bound. Each consumer
    asks `block_range` for its own rows, gives back K and V of blocks before and behind those unread (wait, then
    release, in the order of the ring), and starts its runs where its own blocks start. Leaves alone, with the reason in
    the plan: masks with sink tokens, split keys, consumers that split V's columns. Plan field `exact_counts`. Changes no
    number: a block that no row of a consumer sees has p = 0 and alpha = 1.

    In gradients, under a causal mask, blocks are of queries and consumers divide the keys: of a block that sees none of its
    keys a consumer writes zeros as its part of dS, and multiplies its part of dQ.

    ```mlir
    // before, in a consumer of 64 of a tile's 128 rows, the ordinals being %n + %i
    %end, %right, %inner, ... = flash_tile.block_range by <causal> rows[%row, 128] ...
    scf.for %i = %c0 to %right ... {flash_tile.run = "right"}
    // after
    %e, %r, %in, ... = flash_tile.block_range by <causal> rows[%own, 64] ...
    %skip = min(%end - %e, %right + %inner)
    scf.for %i = %c0 to %skip { wait %kr[%n + %i]  release %kr[%n + %i]  wait %vr[%n + %i]  release %vr[%n + %i] }
    scf.for %i = %skip to %skip + %r ... {flash_tile.run = "right"}
    ```
  }];
  let dependentDialects = ["::mlir::scf::SCFDialect", "::mlir::arith::ArithDialect"];
}
def FlashTileDeferMax : Pass<"flash-tile-defer-max"> {
  let summary = "Measures the exponents of unmasked blocks against the maximum of the blocks before them";
  let description = [{
    Expects runs of key blocks with an unmasked one, behind blocks that show every row a key (`every_row` of `block_range`
    sees to it). The unmasked run needs no row maximum then: its softmax steps become `deferred`, its rescales `rare`.
    What overflows all the same (a jump of more than 2^127 within a block) is redone exactly: each instance whose sums are not
    finite computes its own rows again, with the plain online softmax, from blocks it fetches into a ring of its own
    ("exact"), so that no other instance learns of it. Does nothing unless the plan says `defer_max = true`.

    Changes numbers: p is rounded relative to an older maximum, by at most the same relative error.

    Before: `%p, %m1, %l1, %alpha = flash_tile.softmax_step online %s, %m, %l ...`
    After:  `%p, %m1, %l1, %alpha = flash_tile.softmax_step deferred %s, %m, %l ...` in the run `inner`
  }];
  let dependentDialects = ["::mlir::scf::SCFDialect", "::mlir::arith::ArithDialect"];
}
def FlashTileHoldQ : Pass<"flash-tile-hold-q"> {
  let summary = "Reads Q into registers once a tile";
  let description = [{
    Expects a tile that is awaited outside the runs and read only as the left side of products, and `q_in_regs = true` in
    the plan; does nothing without. It is read into registers and released at once; the products take it from there.
    What is no such tile stays, with the reason in the plan. Changes no number.

    Before: `%q = wait; for ..: mma %q, %k; release Q`
    After:  `%q = wait; %f = read %q; release Q; for ..: mma %f, %k`
  }];
}
def FlashTilePingPong : Pass<"flash-tile-ping-pong"> {
  let summary = "Lets the consumers take turns at issuing their products";
  let description = [{
    Expects roles, runs whose two products are in flight together (`flash-tile-overlap-softmax`), and `ping_pong = true` in
    the plan; does nothing without. Puts the products of a block into one `flash_tile.in_turn`. Every instance enters once
    for each block of the tile but one; loops that hand blocks back unread (`flash-tile-exact-counts`: before and behind
    the runs, they wait for tiles and read none) enter empty turns. What is no such kernel stays, with the reason in the
    plan. Changes no number.

    Before: `mma QK(i); wait V(i - 1); mma PV(i - 1)`
    After:  `in_turn { mma QK(i); wait V(i - 1); mma PV(i - 1) }`
  }];
  let dependentDialects = ["::mlir::scf::SCFDialect", "::mlir::arith::ArithDialect"];
}
def FlashTileStageStore : Pass<"flash-tile-stage-store"> {
  let summary = "Stores the output through shared memory, beside the next tile";
  let description = [{
    Expects one store of an output, each row of which has one head, and `staged_columns` above 0 in the plan; does
    nothing without. Makes a ring "o" of that many columns (at most the output's), a slot for each instance, and stores via
    it. Of gradients it is the sums of dQ, one a run, and the ring is "dq". What is no such store stays, with the reason
    in the plan. Changes no number.

    Before: `flash_tile.store %o -> %ov[%b, %h, %row] : <64x128xbf16> -> <128xbf16>`
    After:  `flash_tile.store %o -> %ov[%b, %h, %row] via %or[%w] : !flash_tile.ring<2x64x128xbf16> : <64x128xbf16> -> <128xbf16>`
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}
def FlashTileAssign : Pass<"flash-tile-assign"> {
  let summary = "Lays out shared memory and barriers, and checks the registers";
  let description = [{
    The last tile pass, always run; leaves kernels for a cpu alone. Writes `offset` and `barriers` of each ring, and
    `flash.shared_bytes` and `flash.threads` of the kernel. What does not fit (shared memory, threads, fragments that are
    live at once against a role's registers) is an error that says by how much.

    Before: `flash_tile.ring "k" {releases = 2 : i64} : !flash_tile.ring<2x128x128xbf16>`
    After:  `flash_tile.ring "k" {barriers = 163872 : i64, offset = 32768 : i64, releases = 2 : i64} : !flash_tile.ring<2x128x128xbf16>`
  }];
}

//===----------------------------------------------------------------------===//
// Conversions
//===----------------------------------------------------------------------===//

def ConvertFlashTileToLoops : Pass<"convert-flash-tile-to-loops", "::mlir::ModuleOp"> {
  let summary = "Gives every tile op its plain meaning in memref, scf, arith and math";
  let description = [{
    The reference of the tile level, and what a machine without a GPU runs. A kernel gains two index arguments, worker and
    workers (`flash.arg`), and does that worker's share of the order. With roles, each role instance becomes a function of its own and
    ring ops call the runtime's baton. Clock `eager` copies at the fill and multiplies at the mma; `late` copies at the first
    wait, multiplies at the mma_wait, and fills released slots with NaN: a kernel that is right under both has no
    premature release and no missing wait.
  }];
  let options = [Option<"clock", "clock", "std::string", "\"eager\"", "eager or late">];
  let dependentDialects = ["::mlir::scf::SCFDialect", "::mlir::arith::ArithDialect", "::mlir::math::MathDialect",
                           "::mlir::memref::MemRefDialect", "::mlir::func::FuncDialect", "::mlir::vector::VectorDialect"];
}
def ConvertFlashTileToNVVM : Pass<"convert-flash-tile-to-nvvm", "::mlir::ModuleOp"> {
  let summary = "Emits the tile ops of a kernel as NVVM for the plan's machine";
  let description = [{
    Expects `flash-tile-assign`. A kernel becomes an llvm.func with `nvvm.kernel`; its parameters are described, in order, by
    the attribute `flash.params`: what the launcher has to pass. Control flow and arithmetic are left to upstream's
    conversions (scf, cf, arith, math to LLVM).
  }];
  let dependentDialects = ["::mlir::scf::SCFDialect", "::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect",
                           "::mlir::NVVM::NVVMDialect"];
}

#endif // FLASH_PASSES_TD
