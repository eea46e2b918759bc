//===- SchedulePlanTest.cpp - the planner and its sentences ---------------===//

#include "flash/Schedule/Plan.h"
#include "flash/Schedule/Splits.h"

#include <gtest/gtest.h>

using namespace flash::schedule;

namespace {
Problem problem(Target target, int64_t d = 128, int64_t dv = 128) {
  Problem p;
  p.target = target;
  p.element = ElementType::bf16;
  p.headSize = d;
  p.headSizeV = dv;
  p.batch = 2;
  p.heads = p.kvHeads = 8;
  p.lenQ = p.lenK = 1024;
  return p;
}

Plan planned(const Problem &p, const PlanOverrides &overrides = {}) {
  auto made = makePlan(p, overrides);
  if (auto *refusal = std::get_if<Refusal>(&made)) {
    ADD_FAILURE() << refusal->sentence;
    return {};
  }
  return std::get<Plan>(made);
}

std::string refused(const Problem &p, const PlanOverrides &overrides = {},
                    Refusal::Kind kind = Refusal::invalid) {
  auto made = makePlan(p, overrides);
  auto *refusal = std::get_if<Refusal>(&made);
  if (!refusal)
    return "planned";
  EXPECT_EQ(refusal->kind, kind) << refusal->sentence;
  return refusal->sentence;
}
} // namespace

TEST(Plan, Gradients) {
  Problem p = problem(Target::cpu);
  p.backward = true;
  Plan plan = planned(p);
  EXPECT_EQ(plan.tileM, 64);
  EXPECT_EQ(plan.tileN, 64);
  EXPECT_EQ(plan.order, WorkOrder::backwardLpt);
  EXPECT_EQ(planned(p, {.ordered = false}).order, WorkOrder::single);
  EXPECT_TRUE(plan.ordered);
  EXPECT_EQ(workShapeOf(plan, p).mTiles, 16); // of keys

  p.mask.causal = true;
  p.heads = 32;
  plan = planned(p);
  EXPECT_EQ(plan.order, WorkOrder::backwardSpt);
  EXPECT_EQ(planned(p, {.ordered = false}).order, WorkOrder::backwardLpt);
  const WorkShape<int64_t> shape = workShapeOf(plan, p);
  EXPECT_EQ(shape.heads, 8); // a tile of keys takes all query heads that read them
  EXPECT_EQ(shape.section, querySection(1024, 128, 128, 2, 16));

  p.packedK = p.packedQ = true;
  EXPECT_EQ(planned(p).order, WorkOrder::varlenDynamic);
}

TEST(Plan, GradientsThatConsumersDoNotHoldAreMultipliedByWarpsInStep) {
  Problem p = problem(Target::sm90);
  p.backward = true;
  Plan plan = planned(p);
  EXPECT_TRUE(plan.roles);
  EXPECT_EQ(plan.threads, 384);
  plan = planned(p, {.consumers = 2, .warps = 8});
  EXPECT_FALSE(plan.roles);
  EXPECT_FALSE(planned(p, {.transfer = Transfer::gather}).roles);
  EXPECT_EQ(refused(p, {.consumers = 2, .hasRoles = true, .warps = 8}),
            "expected consumers or warps, the plan has both; leave one out");
  p.headSize = p.headSizeV = 192;
  EXPECT_TRUE(planned(p).ownDv);
  plan = planned(p, {.warps = 8});
  EXPECT_FALSE(plan.roles || plan.ownDv);
  p.headSize = p.headSizeV = 64, p.softcap = true, p.mask.causal = false, p.mask.left = 100;
  plan = planned(p); // scores before and behind the cap: two tiles of registers
  EXPECT_FALSE(plan.roles);
}

TEST(Plan, GradientsOfWideHeadsHaveAKernelOfDv) {
  Problem p = problem(Target::sm90, 256, 256);
  p.backward = true;
  Plan plan = planned(p);
  EXPECT_TRUE(plan.roles);
  EXPECT_TRUE(plan.ownDv);
  EXPECT_EQ(plan.tileM, 64);
  EXPECT_EQ(plan.tileN, 128);
  EXPECT_EQ(plan.stages, 1);   // two of Q and dO do not fit beside K and V
  EXPECT_TRUE(plan.alternate); // so they share two
  EXPECT_TRUE(plan.overlap);
  EXPECT_LE(plan.sharedBytes, machineOf(Target::sm90).sharedBytesPerBlock);
  EXPECT_FALSE(planned(p, {.alternate = false}).alternate);
  EXPECT_FALSE(plan.lateV || plan.lateDp);
  EXPECT_TRUE(planned(p, {.lateV = true}).lateV);
  EXPECT_TRUE(planned(p, {.lateDp = true}).lateDp);
  EXPECT_FALSE(planned(problem(Target::sm90)).ownDv);
  EXPECT_FALSE(planned(p, {.ownDv = false}).roles);
  EXPECT_EQ(refused(p, {.consumers = 2, .hasRoles = true, .ownDv = false}),
            "a consumer holds fragments of 320 registers a thread, it has 240; use a smaller tile "
            "or more registers");
  p.headSizeV = 128, p.headSize = 192;
  plan = planned(p);
  EXPECT_EQ(plan.stages, 2);
  EXPECT_FALSE(plan.alternate);
  EXPECT_TRUE(plan.overlap);
  EXPECT_EQ(
      refused(p, {.alternate = true}),
      "alternate is for own_dv, one stage and head sizes that are alike, there are 1 and 192, "
      "128; leave alternate out");
  EXPECT_EQ(planned(p).producerRegisters, 24);
  p.usedK = true; // which the producer looks up
  EXPECT_EQ(planned(p).producerRegisters, 40);
  p.usedK = false;
  EXPECT_EQ(refused(p, {.consumers = 2, .hasRoles = true, .ownDv = false}),
            "expected consumers to divide dQ in parts of 64 queries or columns, 2 have 64 by 192");
  EXPECT_EQ(refused(p, {.ownDv = true, .stagedColumns = 48}),
            "expected staged_columns of 0 where dV has a kernel of its own, it is 48");
  EXPECT_EQ(refused(p, {.warps = 8, .ownDv = true}),
            "own_dv is for consumers, which hold both dK and dV up to head size 128; leave it out");
  p.headSize = p.headSizeV = 64;
  EXPECT_FALSE(planned(p).ownDv);
  EXPECT_TRUE(planned(p, {.ownDv = true}).ownDv);
  EXPECT_EQ(refused(p, {.stages = 1, .alternate = true}),
            "alternate is for own_dv, one stage and head sizes that are alike, there is no own_dv, "
            "and 1 and 64, 64; leave alternate out");
  p.target = Target::cpu;
  EXPECT_FALSE(planned(p).ownDv);
}

TEST(Plan, GradientsRefuseWhatWarpsInStepLackForThatReason) {
  const std::pair<PlanOverrides, std::string> lacking[] = {
      {{.overlap = true}, "overlap"},
      {{.alternate = true}, "alternate"},
      {{.lateV = true}, "late_v"},
      {{.lateDp = true}, "late_dp"},
      {{.stagedColumns = 64}, "staged_columns"}};
  for (Target target : {Target::sm80, Target::sm86, Target::sm89, Target::sm90})
    for (int64_t head : {64, 96, 128, 256})
      for (auto [overrides, field] : lacking) {
        Problem p = problem(target, head, head);
        p.backward = true;
        if (target == Target::sm90)
          overrides.warps = 8;
        EXPECT_EQ(refused(p, overrides),
                  field + " needs products and copies beside other work, warps in step have none; "
                          "leave it out");
        EXPECT_EQ(refused(p, {.warps = overrides.warps, .transfer = Transfer::tma}),
                  "transfer tma needs a producer, warps in step copy by themselves; use gather");
      }
}

TEST(Plan, BlocksCountNoMoreTilesThan32BitsHold) {
  for (Target target : {Target::sm80, Target::sm90})
    for (bool backward : {false, true}) {
      Problem p = problem(target);
      p.backward = backward;
      p.batch = 1 << 20, p.lenQ = p.lenK = 1, p.mask = {.causal = true};
      p.heads = p.kvHeads = 1 << 10;
      planned(p);
      const PlanOverrides whole{.splits = 1};
      for (p.heads = p.kvHeads = 1 << 11; p.heads <= 1 << 30; p.kvHeads = p.heads *= 16)
        EXPECT_TRUE(refused(p, whole).ends_with(
            " tiles in one launch, the problem has more; split the batch"))
            << p.heads;
      p.target = Target::cpu, p.heads = p.kvHeads = 1 << 11;
      planned(p, whole);
    }
  // Packed sequences of which one is long have few tiles.
  Problem p = problem(Target::sm90);
  p.packedQ = p.packedK = true;
  p.batch = 1 << 14, p.lenQ = p.lenK = 1 << 24;
  planned(p);
  p.totalQ = 1 << 24;
  planned(p);
}

TEST(Plan, FieldsThatATargetHasNoUseForAreSaidOrRefused) {
  for (Target target : {Target::sm80, Target::sm86, Target::sm89}) {
    Problem p = problem(target);
    EXPECT_EQ(refused(p, {.producerRegisters = 24, .consumerRegisters = 168}),
              "expected registers of one number twice, all warps of " +
                  std::string(targetName(target)) + " have the same; they are 24 and 168");
    EXPECT_EQ(planned(p, {.producerRegisters = 248, .consumerRegisters = 248}).consumerRegisters,
              248);
    const Plan plan = planned(p);
    EXPECT_EQ(plan.producerRegisters, plan.consumerRegisters);
    p.backward = true;
    EXPECT_EQ(refused(p, {.producerRegisters = 168, .consumerRegisters = 168}),
              "registers are shared out among roles, warps in step have none; leave registers out");
  }
  const PlanOverrides unused{.producerRegisters = 24,
                             .consumerRegisters = 240,
                             .transfer = Transfer::gather,
                             .readOnce = true};
  Problem p = problem(Target::cpu);
  const std::string none = planned(p).reasons.tile;
  EXPECT_EQ(planned(p, unused).reasons.tile,
            none + "; of GPUs, and without effect on cpu: registers, transfer, read_once");
  EXPECT_EQ(planned(p, {.transfer = Transfer::tma}).reasons.tile,
            none + "; of GPUs, and without effect on cpu: transfer");
  p.backward = true;
  EXPECT_TRUE(planned(p, {.consumerRegisters = 240}).reasons.tile.ends_with("cpu: registers"));
}

TEST(Plan, GradientsSplitColumnsWhereTheTileIsTheDefaultOneAndElseSaySo) {
  Problem p = problem(Target::sm80, 128, 128);
  p.backward = true;
  const Plan kept = planned(p);
  ASSERT_EQ(kept.splitBy, SplitBy::columns);
  for (const PlanOverrides &same :
       {PlanOverrides{.consumers = 2, .warps = 8}, {.stages = 2}, {.tileM = kept.tileM}}) {
    const Plan plan = planned(p, same);
    EXPECT_EQ(plan.splitBy, SplitBy::columns);
    EXPECT_EQ(plan.reasons.tile.find("split by rows"), std::string::npos);
  }
  const Plan other = planned(p, {.tileN = 64, .consumers = 2, .warps = 8});
  EXPECT_EQ(other.splitBy, SplitBy::rows);
  EXPECT_EQ(other.reasons.tile, "set by hand; split by rows, as columns are of the default tile; "
                                "split_by says otherwise");
  EXPECT_EQ(
      planned(p, {.tileN = 64, .consumers = 2, .warps = 8, .splitBy = SplitBy::rows}).reasons.tile,
      "set by hand");
}

TEST(Plan, GradientsOfConsumersSayWhyTheyCannotHaveAField) {
  Problem p = problem(Target::sm90, 64, 64);
  p.backward = true; // what has no consumers by default is refused for what consumers lack
  EXPECT_EQ(refused(p, {.stagedColumns = 32}),
            "expected staged_columns of 0 or the 64 columns of dQ that a consumer sums, it is 32");
  EXPECT_EQ(refused(p, {.roles = false}),
            "roles = false leaves consumers without a producer that copies; set warps instead");
  p.headSize = p.headSizeV = 96;
  for (const PlanOverrides &overrides : {PlanOverrides{.overlap = true}, {.stagedColumns = 96}})
    EXPECT_EQ(refused(p, overrides),
              "expected consumers to divide dQ in parts of 64 queries or columns, 2 have 64 by 96");
  EXPECT_FALSE(planned(p, {.roles = false}).roles);
}

TEST(Plan, PiecesOfDqAreAllOfItsColumns) {
  for (int64_t columns : {8, 16, 64, 96, 128, 160, 192, 256})
    for (auto [warps, ownDv] : {std::pair{0, false}, {0, true}, {4, false}, {8, false}}) {
      int64_t at = 0;
      for (int64_t piece : piecesOfDq(columns, warps, ownDv)) {
        EXPECT_GT(piece, 0);
        if (ownDv) // each of two consumers has whole panels or a part of one
          EXPECT_TRUE(at % panelColumns == 0 &&
                      (piece == 2 * panelColumns || piece <= panelColumns));
        at += piece;
      }
      EXPECT_EQ(at, columns) << warps << ownDv;
    }
}

TEST(Plan, TheSumOfDqHasNoColumnsBesideTheHeads) {
  for (Target target : {Target::cpu, Target::sm80, Target::sm90})
    for (int64_t headSize = 8; headSize <= 256; headSize += 8) {
      Problem p = problem(target);
      p.backward = true, p.headSize = p.headSizeV = headSize;
      const Plan plan = planned(p);
      EXPECT_GE(plan.headTile, headSize);
      const Part sum = backwardParts(plan, p).front();
      EXPECT_EQ(sum.name, "dq_sum");
      const int64_t rows = ceilDiv(p.lenQ, plan.tileM) * plan.tileM;
      EXPECT_EQ(sum.sizes, (std::vector<int64_t>{p.batch, rows, p.heads, headSize}));
    }
}

TEST(Plan, GradientsRefused) {
  Problem p = problem(Target::sm90);
  p.backward = true;
  const PlanOverrides roles{.consumers = 2, .hasRoles = true};
  Plan plan = planned(p, roles);
  EXPECT_EQ(plan.tileM, 64);
  EXPECT_EQ(plan.tileN, 128);
  EXPECT_EQ(plan.threads, 384);
  EXPECT_EQ(refused(p, {.tileN = 96, .consumers = 2, .hasRoles = true}),
            "expected 64 keys for each of 2 consumers, the tile has 96");
  EXPECT_EQ(refused(p, {.tileM = 96, .consumers = 2, .hasRoles = true}),
            "expected consumers to divide dQ in parts of 64 queries or columns, 2 have 96 by 128");
  p.deterministic = true;
  EXPECT_TRUE(planned(p, roles).ordered);
  p.headSize = p.headSizeV = 256; // each piece of dQ has its turns
  plan = planned(p);
  EXPECT_TRUE(plan.roles && plan.ordered);
  auto turns = backwardParts(plan, p).back();
  EXPECT_EQ(turns.name, "turns");
  EXPECT_EQ(turns.sizes[0], ceilDiv(p.lenQ, plan.tileM) * p.batch * p.heads * plan.consumers *
                                int64_t(piecesOfDq(256, 0, /*ownDv=*/true).size()));
  p.headSize = p.headSizeV = 128;
  EXPECT_EQ(refused(p, {.tileM = 256, .tileN = 256, .consumers = 4, .hasRoles = true}),
            "expected a warp of the producer's for each consumer's turns, there are 4 consumers; "
            "leave ordered out");
  p.deterministic = false, p.target = Target::cpu;
  EXPECT_EQ(refused(p, {.splitBy = SplitBy::rows}),
            "a plan of gradients has no split_by; leave it out");
  EXPECT_EQ(refused(p, {.order = WorkOrder::dynamic}),
            "order dynamic is the forward's, the problem is a backward; use backward_lpt");
  EXPECT_EQ(refused(p, {.order = WorkOrder::varlenDynamic}),
            "order varlen_dynamic needs packed keys, the problem has none; use backward_lpt");
  EXPECT_EQ(refused(p, {.tileM = 0}), "expected tile m of at least 1, it is 0");
  Problem packed = problem(Target::sm90);
  packed.backward = packed.packedQ = packed.packedK = true;
  EXPECT_EQ(refused(packed, {.order = WorkOrder::backwardLpt}),
            "order backward_lpt is of sequences of one length, the keys are packed; use "
            "varlen_dynamic");
  // Each may be as long as all together: their tiles are no more for that.
  packed.batch = 8192, packed.totalQ = packed.lenQ = packed.lenK = 1 << 20;
  packed.heads = packed.kvHeads = 32;
  EXPECT_EQ(planned(packed).order, WorkOrder::varlenDynamic);
  p.deterministic = true;
  EXPECT_EQ(
      refused(p, {.ordered = false}),
      "deterministic gradients sum dQ in an order, the plan says ordered = false; leave it out");
  p.pageSize = 16, p.usedK = true;
  EXPECT_EQ(refused(p), "expected keys of their own for gradients, they are a cache's");
  p = problem(Target::cpu);
  p.deterministic = true;
  EXPECT_EQ(refused(p), "expected deterministic only for gradients: attention is");
}

TEST(Plan, Hopper) {
  Problem p = problem(Target::sm90);
  Plan plan = planned(p);
  EXPECT_EQ(plan.tileM, 128);
  EXPECT_EQ(plan.tileN, 128);
  EXPECT_EQ(plan.consumers, 2);
  EXPECT_EQ(plan.threads, 384);
  EXPECT_EQ(plan.sharedBytes, (32 + 4 * 32 + 8 + 32) * 1024 + 8 * 16);
  EXPECT_EQ(plan.order, WorkOrder::fixed);
  EXPECT_EQ(gridOf(plan, p), 128); // as many tiles; fewer than SMs

  p.mask.causal = true;
  p.batch = 4;
  plan = planned(p);
  EXPECT_EQ(plan.order, WorkOrder::dynamic);
  EXPECT_TRUE(plan.persistent);
  EXPECT_TRUE(plan.stealing);
  EXPECT_EQ(ringsOf(plan, p.element)[3].name, "work");
  EXPECT_EQ(ringsOf(plan, p.element)[4].name, "exact");
  EXPECT_EQ(ringsOf(planned(p, {.deferMax = false, .stagedColumns = 0}), p.element).size(), 4u);
  EXPECT_FALSE(planned(p, {.transfer = Transfer::gather}).stealing);
  EXPECT_FALSE(planned(p, {.stealing = false}).stealing);
  EXPECT_EQ(gridOf(plan, p), 132);
  EXPECT_EQ(workShapeOf(plan, p).section, 64); // a head of 512 KiB

  p.headSizeV = 512;
  p.headSize = 64;
  plan = planned(p);
  EXPECT_EQ(plan.splitBy, SplitBy::columns);
  EXPECT_EQ(plan.threads, 384);
  EXPECT_EQ(ringsOf(plan, p.element)[0].stages, 1); // both consumers read one Q
}

TEST(Plan, SizesMayBeUnknown) {
  for (Target target : {Target::cpu, Target::sm90}) {
    Problem p = problem(target);
    p.batch = p.heads = p.kvHeads = p.lenQ = p.lenK = unknown;
    p.mask = {.causal = true};
    Plan plan = planned(p);
    EXPECT_EQ(plan.mask.kind, MaskKind::causal);
    EXPECT_EQ(plan.splits, 1);
    EXPECT_FALSE(plan.packGqa);
  }
}

TEST(Plan, FewTilesAreSplitAndQueryHeadsPacked) {
  Problem p = problem(Target::cpu);
  p.sms = 132;
  p.lenQ = 1;
  p.lenK = 16384;
  p.kvHeads = 2;
  Plan plan = planned(p);
  EXPECT_TRUE(plan.packGqa);
  EXPECT_EQ(plan.group, 4);
  EXPECT_GT(plan.splits, 16); // 4 tiles for 132 workers
  EXPECT_EQ(plan.order, WorkOrder::single);
  EXPECT_FALSE(plan.persistent);
  EXPECT_EQ(tilesOf(workShapeOf(plan, p)), 4 * plan.splits);

  p.numSplits = 3;
  p.packGqa = false;
  plan = planned(p);
  EXPECT_EQ(plan.splits, 3);
  EXPECT_FALSE(plan.packGqa);
  EXPECT_EQ(plan.reasons.splits, "set by hand");
}

TEST(Plan, WhatIsSetByHandIsKeptAndChecked) {
  Plan plan =
      planned(problem(Target::cpu),
              {.tileM = 4, .tileN = 4, .stages = 3, .order = WorkOrder::dynamic, .l2Section = 5});
  EXPECT_EQ(plan.tileM, 4);
  EXPECT_EQ(plan.tileN, 4);
  EXPECT_EQ(plan.stages, 3);
  EXPECT_EQ(plan.l2Section, 5);
  EXPECT_EQ(plan.order, WorkOrder::dynamic);

  plan = planned(problem(Target::sm90), {.tileM = 192, .tileN = 64}); // consumers follow
  EXPECT_EQ(plan.consumers, 3);
  EXPECT_EQ(plan.consumerRegisters, 160);
}

TEST(Plan, RefusesWithDemandFactAndWayOut) {
  const Problem h = problem(Target::sm90), cpu = problem(Target::cpu);
  EXPECT_EQ(refused(h, {.stages = 4}),
            "plan needs 303296 bytes of shared memory, sm_90a has 232448; use fewer stages");
  EXPECT_EQ(refused(h, {.tileM = 100}),
            "expected a tile of 64 queries, 64 for each of 1 consumers on sm_90a, it has 100; set "
            "tile m or consumers");
  EXPECT_EQ(refused(h, {.tileN = 24}),
            "expected a tile of keys that is a multiple of 16 up to 256 on sm_90a, it has 24; set "
            "tile n");
  EXPECT_EQ(
      refused(h, {.tileN = 256}),
      "a consumer holds 256 registers of scores, output and P a thread and more than 24 beside "
      "them, the plan gives it 232; use a smaller tile n");
  EXPECT_EQ(refused(h, {.producerRegisters = 40, .consumerRegisters = 248}),
            "plan needs 68608 registers, sm_90a has 64512 for 384 threads; use fewer consumers or "
            "registers");
  EXPECT_EQ(refused(problem(Target::sm90, 64, 512), {.consumers = 1, .splitBy = SplitBy::rows}),
            "one consumer would hold 512 of 512 output columns, a product on sm_90a has at most "
            "256; split columns over more consumers");
  const Problem ada = problem(Target::sm89, 96, 96);
  EXPECT_EQ(refused(ada, {.tileM = 64, .tileN = 32, .consumers = 2, .splitBy = SplitBy::columns}),
            "4 warps would store 48 of 96 output columns, expected a multiple of 32 on sm_89; "
            "split rows, or columns over other warps");
  EXPECT_EQ(refused(ada, {.consumers = 1, .warps = 3}),
            "expected warps in multiples of 4, there are 3");
  EXPECT_EQ(refused(cpu, {.tileN = 0}), "expected tile n of at least 1, it is 0");
  EXPECT_EQ(refused(cpu, {.order = WorkOrder::varlenDynamic}),
            "order varlen_dynamic needs packed sequences, the problem has none; use dynamic");
  EXPECT_EQ(refused(h, {.warps = 8}),
            "sm_90a has roles, its warps do not copy and compute in step; "
            "set consumers instead of warps");
  EXPECT_EQ(refused(h, {.ordered = true}),
            "ordered is of gradients, attention sums nothing across blocks; leave it out");
  const std::string gradients =
      " is of gradients, which multiply more, and other tiles; leave it out";
  EXPECT_EQ(refused(h, {.alternate = false}), "alternate" + gradients);
  EXPECT_EQ(refused(cpu, {.ownDv = true}), "own_dv" + gradients);
  EXPECT_EQ(refused(h, {.lateV = true}), "late_v" + gradients);
  EXPECT_EQ(refused(h, {.lateDp = true}), "late_dp" + gradients);
  // Where V's columns have no panel for each consumer, and with as many registers as it holds.
  EXPECT_EQ(refused(problem(Target::sm90, 64, 192),
                    {.tileM = 64, .tileN = 64, .consumers = 2, .splitBy = SplitBy::columns}),
            "one consumer would store 96 of 192 output columns, expected a multiple of 64 on "
            "sm_90a; split rows, or columns over other consumers");
  EXPECT_EQ(refused(h, {.tileM = 64, .tileN = 192}),
            "a consumer holds 208 registers of scores, output and P a thread and more than 24 "
            "beside them, the plan gives it 232; use a smaller tile n");
  Problem a = problem(Target::sm80);
  // Registers follow warps: what a multiprocessor has for each.
  EXPECT_EQ(planned(a, {.tileM = 256, .tileN = 32, .consumers = 4, .warps = 16}).consumerRegisters,
            128);
  EXPECT_EQ(refused(a, {.tileM = 128, .consumers = 4, .warps = 16}),
            "expected a tile of 256 queries, 64 for each 4 of 16 warps on sm_80, it has 128; set "
            "tile m or warps");
  EXPECT_EQ(refused(a, {.tileM = 640, .consumers = 10, .warps = 40}),
            "plan needs 1280 threads a block, sm_80 has 1024; use fewer warps");
  EXPECT_EQ(refused(a, {.stealing = true}), "sm_80 has no roles, and nobody who takes tiles "
                                            "from a counter (stealing); leave stealing out");
  EXPECT_EQ(refused(a, {.pingPong = true}),
            "sm_80 has no roles, whose consumers take turns (ping_pong); leave ping_pong out");
  for (Target target : {Target::sm80, Target::sm86, Target::sm89}) {
    const std::string demand = std::string(machineOf(target).name) +
                               " has no roles, all its warps copy and compute; leave ";
    EXPECT_EQ(refused(problem(target), {.exactCounts = true}), demand + "exact_counts out");
    EXPECT_EQ(refused(problem(target), {.roles = true}), demand + "roles out");
    EXPECT_EQ(planned(problem(target), {.roles = false, .exactCounts = false}).tileM,
              planned(problem(target)).tileM);
  }
  Problem uneven = h;
  uneven.mask.causal = true;
  EXPECT_FALSE(planned(uneven, {.persistent = false}).stealing);
  EXPECT_EQ(refused(uneven, {.persistent = false, .stealing = true}),
            "tiles from a counter (stealing) need blocks that take several, order dynamic is not "
            "persistent; leave persistent or stealing out");
  EXPECT_EQ(refused(h, {.order = WorkOrder::single, .stealing = true}),
            "tiles from a counter (stealing) need blocks that take several, order single has one "
            "tile a block; use dynamic or static");
  EXPECT_EQ(refused(h, {.transfer = Transfer::gather, .stealing = true}),
            "tiles from a counter (stealing) need one thread that starts copies, transfer gather "
            "has many; use tma");
  EXPECT_EQ(refused(cpu, {.splits = -2}), "expected splits from 1 to 65535, there are -2");
}

TEST(Plan, QInRegistersCountsAndTurnsNeedBarriers) {
  const Problem h = problem(Target::sm90);
  Plan plan = planned(h, {.qInRegisters = true, .earlyWait = true, .pingPong = true});
  EXPECT_TRUE(plan.qInRegisters && plan.earlyWait && plan.pingPong);
  const HeadTile head{128, 128};
  EXPECT_EQ(fragmentRegisters(tileOf(plan), head, ElementType::bf16), 64 + 64 + 32 + 32);
  EXPECT_EQ(
      refused(h, {.tileN = 160, .qInRegisters = true}),
      "a consumer holds 216 registers of scores, output, P and Q a thread and more than 24 beside "
      "them, the plan gives it 232; use a smaller tile n");
  // Four consumers of 64 rows: 32 scores, 32 outputs, 16 of P; Q's 16 are too many.
  const Problem narrow = problem(Target::sm90, 64, 64);
  plan = planned(narrow, {.tileM = 256, .tileN = 64, .stages = 4, .pingPong = true});
  EXPECT_EQ(plan.consumers, 4);
  EXPECT_EQ(plan.threads, 640);
  EXPECT_EQ(plan.consumerRegisters, 112);
  EXPECT_EQ(refused(narrow, {.tileM = 256, .tileN = 64, .qInRegisters = true}),
            "a consumer holds 96 registers of scores, output, P and Q a thread and more than 24 "
            "beside them, "
            "the plan gives it 112; use a smaller tile n");
  Machine crowded = machineOf(Target::sm90);
  crowded.namedBarriers = 8;
  EXPECT_EQ(whyNotTile(tileOf(plan), {64, 64}, ElementType::bf16, crowded),
            "turns of 4 consumers need 9 named barriers, sm_90a has 8; leave ping_pong out");
}

TEST(Plan, TheOutputIsStagedWhereItFits) {
  const Problem h = problem(Target::sm90);
  const Plan plan = planned(h);
  EXPECT_EQ(plan.stagedColumns, 128);
  const RingNeed o = ringsOf(plan, h.element).back();
  EXPECT_EQ(o.name, "o");
  EXPECT_EQ(o.bytes * o.stages, 32 * kib);
  EXPECT_FALSE(o.barriers);
  EXPECT_EQ(planned(h, {.stagedColumns = 0}).stagedColumns, 0);
  EXPECT_EQ(planned(h, {.stagedColumns = 64}).stagedColumns, 64);
  EXPECT_EQ(planned(problem(Target::sm90, 64, 512), {.deferMax = false}).stagedColumns, 256);
  // Of a wide output as much at once as fits, or nothing.
  const Problem wide = problem(Target::sm90, 256, 256);
  EXPECT_EQ(planned(wide).stagedColumns, 64);
  EXPECT_EQ(planned(wide, {.stagedColumns = 0}).stagedColumns, 0);
  EXPECT_EQ(planned(wide, {.tileM = 128, .tileN = 80, .deferMax = false}).stagedColumns, 0);
  EXPECT_EQ(planned(problem(Target::sm80)).stagedColumns, 0);
  EXPECT_EQ(planned(problem(Target::cpu)).stagedColumns, 0);
  EXPECT_EQ(refused(h, {.stagedColumns = 96}),
            "expected staged columns to be all 128 of a consumer's output, or a multiple of 64 of "
            "them, they are 96");
  EXPECT_EQ(refused(problem(Target::sm80), {.stagedColumns = 128}),
            "storing via shared memory (staged_columns) takes a tensor map, the machine has no "
            "engine that copies tiles; leave staged_columns out");
  EXPECT_EQ(refused(h, {.splits = 3, .stagedColumns = 128}),
            "storing via shared memory (staged_columns) takes a tensor map, parts of split keys "
            "are joined in f32; leave staged_columns out");
  Problem grouped = h;
  grouped.heads = 16, grouped.packGqa = true;
  EXPECT_EQ(planned(grouped).stagedColumns, 0);
  Problem used = h;
  used.usedQ = true;
  EXPECT_EQ(planned(used).stagedColumns, 128);
}

TEST(Plan, EachLaunchHasItsOwnSplits) {
  Problem decode = problem(Target::sm90);
  decode.batch = 1, decode.heads = decode.kvHeads = 8, decode.lenQ = 1, decode.lenK = 8192;
  const Plan plan = planned(decode);
  EXPECT_GT(plan.splits, 1);
  EXPECT_TRUE(plan.splitsAtLaunch);
  EXPECT_EQ(plan.order, WorkOrder::single);
  EXPECT_EQ(splitsOf(plan, decode), plan.splits);
  decode.lenK = 64;
  EXPECT_EQ(splitsOf(plan, decode), 1); // the parts and their join, all the same
  const Plan whole = planned(decode);
  EXPECT_TRUE(planned(problem(Target::sm90)).deferMax);
  EXPECT_FALSE(planned(problem(Target::sm90), {.splits = 3}).deferMax);
  const Plan fixed = planned(decode, {.splits = 3});
  EXPECT_FALSE(fixed.splitsAtLaunch);
  EXPECT_EQ(splitsOf(fixed, decode), 3);
}

TEST(Plan, FewRowsStreamKeysOnHopper) {
  Problem decode = problem(Target::sm90);
  decode.batch = 1, decode.heads = 32, decode.kvHeads = 8, decode.lenQ = 1, decode.lenK = 4096;
  const Plan plan = planned(decode);
  EXPECT_TRUE(streamsKeys(plan, Target::sm90));
  EXPECT_EQ(plan.splits, 16); // 8 tiles on 132 SMs, 32 key tiles
  EXPECT_EQ(plan.reasons.splits,
            "reading keys takes all time: the fewest key tiles a block and wave");
  decode.target = Target::sm80; // several blocks share a multiprocessor
  EXPECT_FALSE(streamsKeys(planned(decode), Target::sm80));
  EXPECT_FALSE(streamsKeys(planned(problem(Target::cpu)), Target::cpu));
  EXPECT_FALSE(streamsKeys(planned(problem(Target::sm90)), Target::sm90));
}

TEST(Plan, KeysOfOneReaderLeaveTheCacheFirst) {
  Problem decode = problem(Target::sm90);
  decode.batch = 1, decode.heads = 32, decode.kvHeads = 8, decode.lenQ = 1, decode.lenK = 4096;
  EXPECT_TRUE(planned(decode).readOnce);
  EXPECT_FALSE(planned(decode, {.readOnce = false}).readOnce);
  EXPECT_FALSE(planned(decode, {.transfer = Transfer::gather}).readOnce);
  EXPECT_EQ(refused(decode, {.transfer = Transfer::gather, .readOnce = true}),
            "keys and values that are read once (read_once) come by the copy engine, transfer "
            "gather copies by threads; leave read_once out");
  EXPECT_FALSE(planned(decode, {.packGqa = false}).readOnce); // four heads read them
  decode.lenK = unknown;
  EXPECT_FALSE(planned(decode).readOnce);
  decode.lenK = 4096, decode.batch = 1000;
  EXPECT_FALSE(planned(decode).readOnce);
  EXPECT_TRUE(planned(decode, {.readOnce = true}).readOnce);
  EXPECT_FALSE(planned(problem(Target::sm90)).readOnce);
  EXPECT_EQ(refused(problem(Target::sm90), {.multicast = true, .readOnce = true}),
            "blocks share keys and values (multicast), which read_once denies; leave one out");
}

TEST(Plan, ATileOfTheCombineFillsWarps) {
  for (const Join &join : {joinOfFewRows, joinOfRows})
    for (int64_t headSizeV = 8; headSizeV <= 512; headSizeV += headSizeV < 256 ? 8 : 256) {
      const int64_t threads =
          join.aside * combineRows(headSizeV, join.aside) * headSizeV / combineColumns;
      EXPECT_EQ(threads % warpThreads, 0) << headSizeV;
      EXPECT_LE(threads, 1024) << headSizeV;
    }
}

TEST(Plan, AJoinReadsPartsAsideThatDivideThoseAtOnce) {
  Problem decode = problem(Target::sm90);
  EXPECT_EQ(planned(decode).join.aside, joinOfRows.aside);
  decode.lenQ = 1;
  EXPECT_EQ(planned(decode).join.aside, joinOfFewRows.aside);
  EXPECT_EQ(planned(decode, {.join = Join{12, 3}}).join.atOnce, 12);
  EXPECT_EQ(refused(decode, {.join = Join{12, 5}}),
            "parts that a combine reads aside divide those at once, the plan has 5 of 12; read 1 "
            "aside, or a divisor");
  EXPECT_EQ(refused(decode, {.join = Join{129, 1}}),
            "a combine joins at most 128 parts at once, the plan says 129; join fewer");
}

TEST(Plan, BlocksThatShareKeysComeInPairs) {
  Problem h = problem(Target::sm90);
  EXPECT_FALSE(planned(h).multicast);
  h.batch = 1, h.heads = h.kvHeads = 1, h.lenQ = 300, h.lenK = 300, h.sms = 131;
  Plan plan = planned(h, {.multicast = true});
  EXPECT_TRUE(plan.multicast);
  EXPECT_EQ(tilesOf(workShapeOf(plan, h)), 4); // 3 of 128 rows
  EXPECT_EQ(gridOf(plan, h), 4);
  h.heads = h.kvHeads = 100;
  EXPECT_EQ(gridOf(plan, h), 130);
  h.sms = 1;
  EXPECT_EQ(gridOf(plan, h), 2);
  EXPECT_EQ(refused(h, {.multicast = true, .transfer = Transfer::gather}),
            "blocks share keys (multicast) by the copy engine, transfer gather copies by threads; "
            "use tma");
  EXPECT_EQ(refused(problem(Target::sm80), {.multicast = true}),
            "blocks share keys (multicast) by a copy engine, sm_80 has none; leave multicast out");
  EXPECT_EQ(
      refused(h, {.multicast = true, .persistent = false}),
      "blocks that share keys (multicast) take several tiles, order static is not persistent; "
      "leave persistent or multicast out");
  EXPECT_EQ(refused(h, {.multicast = true, .order = WorkOrder::single}),
            "blocks that share keys (multicast) take several tiles, order single has one tile a "
            "block; use dynamic or static");
  EXPECT_EQ(refused(problem(Target::cpu), {.multicast = true, .splits = 2}),
            "blocks that share keys (multicast) are not built for split keys; leave multicast out");
}

TEST(Plan, FewQueriesAreOneTileOfAllHeads) {
  Problem decode = problem(Target::sm90);
  decode.batch = 1, decode.heads = 32, decode.kvHeads = 8, decode.lenQ = 1, decode.lenK = 8192;
  Plan plan = planned(decode);
  EXPECT_TRUE(plan.packGqa);
  EXPECT_EQ(plan.group, 4);
  EXPECT_EQ(plan.tileM, 64);
  EXPECT_EQ(plan.consumers, 1);
  EXPECT_EQ(plan.stages, 3);
  EXPECT_EQ(plan.transfer, Transfer::tma);
  EXPECT_EQ(workShapeOf(plan, decode).heads, 8);
  decode.heads = 24; // no box holds whole queries of 3 heads
  plan = planned(decode);
  EXPECT_TRUE(plan.packGqa);
  EXPECT_EQ(plan.transfer, Transfer::gather);
  EXPECT_EQ(planned(decode, {.packGqa = false}).transfer, Transfer::tma);
  decode.lenQ = 22; // 66 rows
  EXPECT_EQ(planned(decode).tileM, 128);
  EXPECT_EQ(planned(decode, {.packGqa = false}).tileM, 64);
}

TEST(Plan, WhatIsNotBuiltIsSaidApart) {
  const Problem h = problem(Target::sm90);
  Problem f8 = h;
  f8.element = ElementType::f8;
  EXPECT_EQ(refused(f8, {}, Refusal::notBuilt), "f8e4m3 is not built; use f16 or bf16");
}

TEST(Plan, Ragged) {
  Problem p = problem(Target::cpu);
  p.heads = 32;
  p.lenQ = 128; // fills tiles, but not of every sequence
  EXPECT_FALSE(planned(p).packGqa);
  p.packedQ = p.packedK = true;
  Plan plan = planned(p);
  EXPECT_TRUE(plan.packGqa);
  EXPECT_EQ(plan.order, WorkOrder::varlenDynamic);
  EXPECT_EQ(planned(p, {.splits = 3}).order, WorkOrder::varlenDynamic);
  p.totalQ = 130;
  EXPECT_EQ(workShapeOf(plan, p).mTiles, 130 * plan.group / plan.tileM + p.batch);
  EXPECT_EQ(workShapeOf(plan, p).batch, 1);
  EXPECT_EQ(planned(p, {.order = WorkOrder::single}).order, WorkOrder::single);
}

TEST(Plan, PackedTilesOfHopperAreTakenFromACounter) {
  Problem p = problem(Target::sm90);
  p.packedQ = p.packedK = true;
  p.totalQ = 1500;
  Plan plan = planned(p);
  EXPECT_EQ(plan.order, WorkOrder::varlenDynamic);
  EXPECT_EQ(plan.stealing, plan.transfer == Transfer::tma);
  EXPECT_EQ(gridOf(plan, p), min(tilesOf(workShapeOf(plan, p)), machineOf(p.target).sms));
  EXPECT_FALSE(planned(p, {.order = WorkOrder::single}).stealing);
}

TEST(Plan, SequencesOfVeryDifferentLengthsHaveTheirOwnSplits) {
  Problem p = problem(Target::sm90);
  p.batch = 64, p.heads = 32, p.kvHeads = 8, p.lenQ = 1, p.lenK = 1 << 17;
  EXPECT_EQ(planned(p).splits, 1); // 512 tiles: alike, they fill the machine
  p.usedK = true;
  Plan plan = planned(p);
  EXPECT_TRUE(plan.ownSplits && plan.splitsAtLaunch && plan.stealing);
  EXPECT_EQ(plan.splits, 16); // as if the longest were alone: 8 tiles for 132 SMs
  EXPECT_EQ(plan.order, WorkOrder::varlenDynamic);
  EXPECT_EQ(plan.reasons.splits, "sequences differ in length: each is split by its share of the "
                                 "work, which a kernel before finds");
  EXPECT_EQ(splitsOf(plan, p), 16);
  EXPECT_EQ(gridOf(plan, p), machineOf(p.target).sms);
  EXPECT_FALSE(planned(p, {.splits = 4}).ownSplits);
  EXPECT_FALSE(planned(p, {.order = WorkOrder::dynamic}).ownSplits);
  p.numSplits = 1;
  EXPECT_FALSE(planned(p).ownSplits);
  p.numSplits = 0;
  p.batch = mostScheduled + 1;
  EXPECT_FALSE(planned(p).ownSplits);
  p.batch = 1; // differs from none
  EXPECT_FALSE(planned(p).ownSplits);
  p.batch = 64, p.lenK = leastShare * plan.tileN; // an even share for one block
  EXPECT_FALSE(planned(p).ownSplits);
  p.target = Target::sm80, p.lenK = 1 << 17;
  plan = planned(p);
  EXPECT_TRUE(plan.ownSplits && !plan.persistent);
  EXPECT_EQ(gridOf(plan, p), 512 + sharesOfAnSm * machineOf(p.target).sms);
}

TEST(Plan, PagesThatNoTensorMapDescribes) {
  Problem p = problem(Target::sm90);
  p.usedK = true;
  EXPECT_EQ(planned(p, {.tileN = 64}).transfer, Transfer::tma);
  for (int64_t size : {8, 16, 32, 64, 128}) {
    p.pageSize = size;
    EXPECT_EQ(planned(p, {.tileN = 64}).transfer, Transfer::tma) << size;
  }
  for (int64_t size : {int64_t(1), int64_t(4), int64_t(24), int64_t(96), unknown}) {
    p.pageSize = size;
    EXPECT_EQ(planned(p, {.tileN = 64}).transfer, Transfer::gather) << size;
  }
  EXPECT_EQ(refused(p, {.tileN = 64, .transfer = Transfer::tma}),
            "transfer tma copies rows that follow each other, a tile of 64 keys spans pages of any "
            "size; use gather");
  Problem onCpu = p; // which copies anything
  onCpu.target = Target::cpu;
  EXPECT_EQ(planned(onCpu, {.tileN = 64, .transfer = Transfer::tma}).transfer, Transfer::tma);
  p.pageSize = 64;
  p.leftpad = true;
  EXPECT_EQ(planned(p, {.tileN = 64}).reasons.transfer,
            "rows before the keys shift tiles across pages");
}

TEST(Plan, TablesThatNeedOthers) {
  Problem p = problem(Target::cpu);
  p.pageSize = 16;
  EXPECT_EQ(refused(p), "expected seqused_k besides page_table: it says how many rows of the pages "
                        "count");
  p.usedK = p.packedK = true;
  EXPECT_EQ(refused(p), "expected cu_seqlens_k or page_table, got both: the lengths of pages are "
                        "seqused_k");
  p.packedK = false;
  p.rotary = 16;
  EXPECT_EQ(refused(p), "expected k_new besides rotary_cos: the embedding turns q and k_new");
  p.append = true;
  EXPECT_EQ(refused(p), "planned");
  p.rotary = 65;
  EXPECT_EQ(refused(p), "expected rotary_cos to turn at most q's head size (128), got 130");
}
