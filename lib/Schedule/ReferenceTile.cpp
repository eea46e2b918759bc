//===- ReferenceTile.cpp - the reference's tile tables --------------------===//

#include "flash/Schedule/Tile.h"

namespace flash::schedule {

using Q = const TileQuery &;
using When = bool (*)(Q);

static bool always(Q) { return true; }
static bool local(Q q) { return q.local; }

// SM90
static bool narrowK(Q q) { return q.local || q.pagedWithoutTma; }
static bool vIs512(Q q) { return q.headSizeV == 512; }
static bool vIs256(Q q) { return q.headSizeV == 256; }
static bool causalOrNarrow(Q q) { return q.causal || narrowK(q); }
static bool narrowV(Q q) { return q.headSizeV <= 128; }
static bool gathered(Q q) { return q.pagedWithoutTma; }
static bool crowded(Q q) { return q.vColumnMajor || (q.softcap && q.local); }
static bool crowdedLocal(Q q) { return (q.pagedWithoutTma || q.softcap) && q.local; }
static bool gatheredLocal(Q q) { return q.local && q.pagedWithoutTma; }

// SM8x
static bool splitOrLocal(Q q) { return q.varlenAndSplit || q.local; }
static bool scattered(Q q) { return q.appendKv || q.paged || splitOrLocal(q); }
static bool varlenSplit(Q q) { return q.varlenAndSplit; }
static bool wideLocal(Q q) { return (q.sm86Or89 || q.varlenAndSplit) && q.local; }
static bool sm86(Q q) { return q.sm86Or89; }
static bool sm86Scattered(Q q) { return q.sm86Or89 && scattered(q); }
static bool sm86Append(Q q) { return q.sm86Or89 && q.appendKv; }
static bool sm86SplitOrLocal(Q q) { return q.sm86Or89 && splitOrLocal(q); }
static bool append(Q q) { return q.appendKv; }

namespace {
struct Sm90Row {
  int64_t elementBytes, maxHeadSize;
  When when;
  Sm90Tile tile;
  std::string_view reason;
};
struct Sm8xRow {
  int64_t maxHeadSize;
  When when;
  Sm8xTile tile;
  std::string_view reason;
};
struct BackwardRow {
  int64_t maxHeadSize;
  bool sm80, sm86, sm90;
  bool (*when)(bool causal, bool local, bool softcap);
  BackwardTile tile;
};
} // namespace

static constexpr Sm90Row sm90Rows[] = {
    {2, 64, vIs512, {64, 64, false, false}, "the output fills two warpgroups"},
    {2, 64, vIs256, {128, 96, true, false}, "a wide output leaves few registers"},
    {2, 64, causalOrNarrow, {192, 128, true, true}, "less of each diagonal tile is wasted"},
    {2, 64, always, {192, 192, false, true}, "P fits shared memory beside wide tiles"},
    {2, 96, narrowK, {192, 128, false, true}, "less of each diagonal tile is wasted"},
    {2, 96, always, {192, 144, false, true}, "three warpgroups, P through shared memory"},
    {2, 128, causalOrNarrow, {128, 128, true, true}, "less of each diagonal tile is wasted"},
    {2, 128, always, {128, 176, true, true}, "the widest tile that shared memory holds"},
    {2, 192, narrowK, {128, 96, true, true}, "less of each diagonal tile is wasted"},
    {2, 192, narrowV, {128, 128, true, true}, "a narrow V leaves room for wider tiles"},
    {2, 192, always, {128, 112, true, true}, "the widest tile that shared memory holds"},
    {2, anyHeadSize, local, {128, 64, true, true}, "less of each diagonal tile is wasted"},
    {2, anyHeadSize, always, {128, 80, true, true}, "the widest tile that shared memory holds"},

    {1, 64, always, {192, 160, true, true}, "three warpgroups"},
    {1, 96, always, {192, 128, true, true}, "three warpgroups"},
    {1, 128, gathered, {128, 160, true, true}, "gathered keys gain nothing from wide tiles"},
    {1, 128, crowded, {128, 192, true, true}, "registers of the score function"},
    {1, 128, always, {128, 224, true, true}, "the widest tile that registers hold"},
    {1, 192, crowdedLocal, {128, 128, true, true}, "less of each diagonal tile is wasted"},
    {1, 192, always, {128, 160, true, true}, "the widest tile that registers hold"},
    {1, anyHeadSize, gatheredLocal, {128, 64, true, false}, "gathering takes overlap's registers"},
    {1, anyHeadSize, local, {128, 64, true, true}, "less of each diagonal tile is wasted"},
    {1, anyHeadSize, gathered, {128, 128, true, false}, "gathering takes overlap's registers"},
    {1, anyHeadSize, always, {128, 128, true, true}, "the widest tile that registers hold"},
};

static constexpr Sm8xRow sm8xRows[] = {
    {64, varlenSplit, {128, 80, 4, 1, false}, "short splits"},
    {64, local, {128, 96, 4, 1, false}, "less of each diagonal tile"},
    {64, always, {128, 112, 4, 1, false}, "the widest tile that four warps hold"},
    {96, splitOrLocal, {128, 48, 4, 1, false}, "less of each diagonal tile"},
    {96, always, {128, 64, 4, 1, false}, "the widest tile that four warps hold"},
    {128, wideLocal, {128, 96, 8, 1, true}, "V takes Q's shared memory"},
    {128, varlenSplit, {128, 112, 8, 1, true}, "V takes Q's shared memory"},
    {128, sm86, {128, 128, 8, 1, true}, "V takes Q's shared memory"},
    {128, local, {128, 48, 4, 1, false}, "less of each diagonal tile"},
    {128, always, {128, 64, 4, 1, false}, "two blocks share a multiprocessor"},
    {192, sm86Scattered, {128, 64, 8, 1, false}, "scattered keys gain nothing from more"},
    {192, sm86, {128, 96, 8, 1, true}, "V takes Q's shared memory"},
    {192, scattered, {128, 64, 8, 2, false}, "scattered keys gain nothing from more"},
    {192, always, {128, 96, 8, 2, true}, "V takes Q's shared memory"},
    {anyHeadSize, sm86Append, {128, 32, 8, 1, false}, "the appended rows need registers"},
    {anyHeadSize, sm86SplitOrLocal, {128, 48, 8, 1, true}, "less of each diagonal tile"},
    {anyHeadSize, sm86, {128, 64, 8, 1, true}, "V takes Q's shared memory"},
    {anyHeadSize, append, {128, 48, 8, 1, false}, "the appended rows need registers"},
    {anyHeadSize, splitOrLocal, {128, 64, 8, 1, false}, "less of each diagonal tile"},
    {anyHeadSize, always, {128, 96, 8, 1, false}, "the widest tile that shared memory holds"},
};

Sm90Tile referenceTileSm90(const TileQuery &query) {
  for (const Sm90Row &row : sm90Rows)
    if (query.elementBytes == row.elementBytes && query.headSize <= row.maxHeadSize &&
        row.when(query))
      return row.tile;
  return {0, 0, false, false}; // no such element size
}

Sm8xTile referenceTileSm8x(const TileQuery &query) {
  for (const Sm8xRow &row : sm8xRows)
    if (query.headSize <= row.maxHeadSize && row.when(query))
      return row.tile;
  __builtin_unreachable(); // the last row takes all
}

static bool anyScores(bool, bool, bool) { return true; }
static bool causalSoftcap(bool causal, bool, bool softcap) { return causal && softcap; }
static bool costlyScores(bool causal, bool local, bool softcap) {
  return causal || local || softcap;
}

// M, N, consumers, stages of Q and dO, stages of dS, transposed scores.
static constexpr BackwardRow backwardRows[] = {
    {64, false, false, true, causalSoftcap, {96, 128, 2, 2, 2, true, "softcap needs registers"}},
    {64, false, false, true, anyScores, {128, 128, 2, 2, 2, true, "two warpgroups of keys"}},
    {64, true, false, false, anyScores, {128, 128, 0, 0, 0, false, "shared memory of sm_80"}},
    {64, false, true, false, anyScores, {64, 128, 0, 0, 0, false, "shared memory of sm_86"}},
    {96, false, false, true, anyScores, {64, 128, 2, 2, 2, true, "dK and dV fill the registers"}},
    {96, true, true, false, anyScores, {64, 128, 0, 0, 0, false, "dK and dV fill the registers"}},
    {128, false, false, true, costlyScores, {64, 128, 2, 2, 2, true, "the mask needs registers"}},
    {128, false, false, true, anyScores, {80, 128, 2, 2, 2, true, "the most queries that fit"}},
    {128, true, false, false, anyScores, {64, 128, 0, 0, 0, false, "shared memory of sm_80"}},
    {128, false, true, false, anyScores, {64, 96, 0, 0, 0, false, "shared memory of sm_86"}},
    {192, false, false, true, anyScores, {64, 96, 3, 1, 1, false, "three warpgroups of keys"}},
    {192, true, false, false, anyScores, {64, 80, 0, 0, 0, false, "shared memory of sm_80"}},
    {192, false, true, false, anyScores, {64, 64, 0, 0, 0, false, "shared memory of sm_86"}},
    {256, false, false, true, anyScores, {64, 80, 2, 1, 1, false, "dK and dV fill the registers"}},
    {256, true, false, false, anyScores, {64, 64, 0, 0, 0, false, "shared memory of sm_80"}},
    {256, false, true, false, anyScores, {32, 64, 0, 0, 0, false, "shared memory of sm_86"}},
};

BackwardTile referenceTileBackward(Target target, int64_t headSize, bool causal, bool local,
                                   bool softcap) {
  for (const BackwardRow &row : backwardRows) {
    bool meant = target == Target::sm90 ? row.sm90 : target == Target::sm80 ? row.sm80 : row.sm86;
    if (meant && headSize <= row.maxHeadSize && row.when(causal, local, softcap))
      return row.tile;
  }
  return {0, 0, 0, 0, 0, false, "no head size above 256"};
}

} // namespace flash::schedule
