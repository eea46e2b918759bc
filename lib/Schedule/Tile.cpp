//===- Tile.cpp - the default tiles, and what a machine can run -----------===//

#include "flash/Schedule/Tile.h"
#include "flash/Schedule/Layout.h"

namespace flash::schedule {

std::string_view elementName(ElementType element) {
  switch (element) {
  case ElementType::f16:
    return "f16";
  case ElementType::bf16:
    return "bf16";
  case ElementType::f32:
    return "f32";
  case ElementType::f8:
    return "f8e4m3";
  }
  __builtin_unreachable();
}

std::optional<ElementType> parseElement(std::string_view name) {
  for (ElementType element : allElementTypes)
    if (elementName(element) == name)
      return element;
  return std::nullopt;
}

int64_t elementBytes(ElementType element) {
  switch (element) {
  case ElementType::f16:
  case ElementType::bf16:
    return 2;
  case ElementType::f32:
    return 4;
  case ElementType::f8:
    return 1;
  }
  __builtin_unreachable();
}

std::string_view splitByName(SplitBy by) { return by == SplitBy::rows ? "rows" : "columns"; }

std::optional<SplitBy> parseSplitBy(std::string_view name) {
  for (SplitBy by : {SplitBy::rows, SplitBy::columns})
    if (splitByName(by) == name)
      return by;
  return std::nullopt;
}

/// How consumers and the producer share a multiprocessor's registers. setmaxnreg takes multiples of
/// 8 (PTX ISA, "setmaxnreg"). With 24 the producer of a chunk mask spills.
static constexpr RoleRegisters roleRegisters[] = {
    {1, 40, 232}, {2, 40, 232}, {3, 32, 160}, {4, 32, 112}};

/// The same in all, as far as registers are to be had.
static constexpr RoleRegisters lookUpRegisters[] = {
    {1, 96, 232}, {2, 72, 216}, {3, 56, 152}, {4, 64, 104}};

std::optional<RoleRegisters> roleRegistersOf(int64_t consumers, bool looksUp) {
  for (const RoleRegisters &row : looksUp ? lookUpRegisters : roleRegisters)
    if (row.consumers == consumers)
      return row;
  return std::nullopt;
}

static constexpr Tile onSm90(int64_t m, int64_t n, int64_t consumers, std::string_view reason,
                             bool overlap = true, SplitBy by = SplitBy::rows) {
  const int64_t stages = 2;
  const RoleRegisters &registers = roleRegisters[consumers - 1];
  Tile tile{m,    n,       stages, consumers, by, registers.producer, registers.consumer,
            true, overlap, reason};
  // An output split by columns leaves no shared memory to redo rows.
  tile.deferMax = by == SplitBy::rows;
  return tile;
}

/// Without the code that redoes rows, which leaves registers to look rows up.
static constexpr Tile exactMax(Tile tile) {
  tile.deferMax = false;
  return tile;
}

/// For few queries: keys and values are read once and nothing else takes time, so that all of
/// shared memory holds what is on its way.
static constexpr Tile fewOnSm90(int64_t n, int64_t stages, bool overlap = true) {
  Tile tile =
      onSm90(64, n, 1, "few rows: one consumer, and as many keys on their way as fit", overlap);
  tile.stages = stages;
  return exactMax(tile);
}

static constexpr Tile onCpu(int64_t m, int64_t n, std::string_view reason) {
  return {m, n, 1, 1, SplitBy::rows, 0, 0, true, false, reason};
}

/// With all registers that a thread can name. Tiles of 64 rows would ask the L2 cache for more than
/// it has, and 16 rows a warp read twice as much shared memory a product as 32: 128 rows by four
/// warps where the output leaves room, else by eight.
static constexpr Tile onSm8x(int64_t n, int64_t stages, int64_t warpgroups, bool qInRegisters,
                             bool deferMax, std::string_view reason) {
  const int64_t m = 128, registers = 255;
  // With one slot V(i) cannot be fetched while V(i - 1) is still read.
  const bool overlap = stages > 1;
  Tile tile{m,         n,    stages,  warpgroups, SplitBy::rows, registers,
            registers, true, overlap, reason,     qInRegisters};
  tile.deferMax = deferMax;
  return tile;
}

/// Without the next scores beside a block's softmax, which leaves registers for wider tiles.
static constexpr Tile inTurn(Tile tile) {
  tile.overlap = false;
  return tile;
}

/// Where a warp has 16 rows anyway: two blocks of 64 rows a multiprocessor, of which one copies
/// while the other computes, so that one slot of keys will do.
static constexpr Tile twoBlocksOnSm8x(int64_t n, std::string_view reason) {
  Tile tile = inTurn(onSm8x(n, 1, 1, true, true, reason));
  tile.tileM = 64;
  return tile;
}

static constexpr Tile columnsOnSm8x = {
    64,
    32,
    1,
    2,
    SplitBy::columns,
    255,
    255,
    true,
    false,
    "the output alone is 64 x 512 f32: each half of the warps owns half of its columns"};

// name, target, largest D, Dv from .. to, dense, causal, local, tile, most rows
static constexpr TileRow rows[] = {
    {"cpu", Target::cpu, anyHeadSize, 0, anyHeadSize, true, true, true,
     onCpu(64, 64, "scores, keys and values of a tile stay in a core's own caches")},

    {"sm90-64-few", Target::sm90, 64, 0, 64, true, true, true, fewOnSm90(128, 6), 64},
    {"sm90-64-256-few", Target::sm90, 64, 256, 256, true, true, true, fewOnSm90(64, 5), 64},
    {"sm90-128-few", Target::sm90, 128, 0, 128, true, true, true, fewOnSm90(128, 3), 64},
    {"sm90-192-128-few", Target::sm90, 192, 0, 128, true, true, true, fewOnSm90(64, 4), 64},
    {"sm90-192-few", Target::sm90, 192, 0, 192, true, true, true, fewOnSm90(64, 4), 64},
    {"sm90-256-few", Target::sm90, 256, 0, 256, true, true, true, fewOnSm90(64, 3), 64},

    // A producer that looks rows up needs registers of the consumers.
    {"sm90-64-tables", Target::sm90, 64, 0, 64, true, true, true,
     onSm90(128, 128, 2, "two consumers spare registers to look rows up"), unlimited, true},
    {"sm90-64-256-tables", Target::sm90, 64, 256, 256, true, true, true,
     exactMax(onSm90(128, 64, 2, "fewer keys spare registers to look rows up", false)), unlimited,
     true},
    {"sm90-192-tables", Target::sm90, 192, 129, 192, true, true, true,
     exactMax(onSm90(128, 64, 2, "fewer keys spare registers to look rows up")), unlimited, true},
    {"sm90-256-tables", Target::sm90, 256, 193, 256, true, true, true,
     exactMax(onSm90(128, 48, 2, "fewer keys spare registers to look rows up")), unlimited, true},

    {"sm90-64-512", Target::sm90, 64, 512, 512, true, true, true,
     onSm90(64, 64, 2, "the output alone is 64 x 512 f32: each consumer owns half of its columns",
            true, SplitBy::columns)},
    {"sm90-64-256", Target::sm90, 64, 256, 256, true, true, true,
     onSm90(128, 96, 2, "a wide output leaves registers for one score tile, so no overlap", false)},
    {"sm90-64-local", Target::sm90, 64, 0, 64, false, false, true,
     onSm90(192, 128, 3, "with four consumers' registers the runs of a window spill")},
    {"sm90-64", Target::sm90, 64, 0, 64, true, true, false,
     onSm90(256, 64, 4,
            "four consumers hide the softmax: measured 8 % over three with wider tiles")},
    {"sm90-96", Target::sm90, 96, 0, 96, true, true, true,
     onSm90(128, 128, 2,
            "with two consumers' registers P stays in them, unlike the reference's 192 rows")},
    {"sm90-128", Target::sm90, 128, 0, 128, true, true, true,
     onSm90(128, 128, 2,
            "measured best with two consumers: wider tiles lose 10 to 15 % on short "
            "sequences and gain on the longest only")},
    {"sm90-192-128", Target::sm90, 192, 0, 128, true, true, false,
     onSm90(128, 128, 2, "a narrow V leaves shared memory for wider tiles")},
    {"sm90-192", Target::sm90, 192, 0, 192, true, true, true,
     onSm90(128, 96, 2, "the widest tile that leaves shared memory to redo rows")},
    {"sm90-256", Target::sm90, 256, 0, 256, true, true, true,
     onSm90(128, 64, 2,
            "measured 5 % over a tile of 80, which leaves no shared memory to redo rows")},

    // Capping scores needs registers, and so does looking rows up.
    {"sm80-128-cap-tables", Target::sm80, 128, 97, 128, true, true, true,
     onSm8x(32, 2, 2, false, false,
            "16 rows a warp spare registers to cap scores and look rows up"),
     unlimited, true, true},
    {"sm80-128-cap", Target::sm80, 128, 97, 128, true, false, false,
     onSm8x(48, 2, 1, false, false, "capped scores spill beside code that redoes rows"), unlimited,
     false, true},
    {"sm80-128-local-tables", Target::sm80, 128, 97, 128, false, false, true,
     inTurn(onSm8x(32, 2, 1, false, false,
                   "without the next scores registers are left to look rows up")),
     unlimited, true},
    {"sm80-64-tables", Target::sm80, 64, 0, 64, true, false, false,
     inTurn(onSm8x(64, 2, 1, false, true, "fewer fragments spare registers to look rows up")),
     unlimited, true},
    {"sm80-128-tables", Target::sm80, 128, 97, 128, true, true, false,
     onSm8x(32, 2, 1, false, false, "fewer keys spare registers to look rows up"), unlimited, true},

    {"sm80-64-local", Target::sm80, 64, 0, 64, false, false, true,
     onSm8x(32, 2, 1, true, false, "with wider tiles the runs of a window spill")},
    {"sm80-64-causal", Target::sm80, 64, 0, 64, false, true, false,
     inTurn(onSm8x(64, 2, 1, false, true,
                   "measured 23 % over 48 keys with Q and the next scores in registers"))},
    {"sm80-64", Target::sm80, 64, 0, 64, true, false, false,
     onSm8x(48, 2, 1, true, true, "the widest tile beside Q and the next scores in registers")},
    {"sm80-64-512", Target::sm80, 64, 512, 512, true, true, true, columnsOnSm8x},
    {"sm80-64-256", Target::sm80, 64, 256, 256, true, true, true,
     onSm8x(32, 2, 2, false, false, "the output fills a warp's registers at 16 rows")},
    {"sm80-96-local", Target::sm80, 96, 0, 96, false, false, true,
     onSm8x(32, 2, 1, false, false, "with wider tiles one block fills the shared memory")},
    {"sm80-96", Target::sm80, 96, 0, 96, true, true, false,
     onSm8x(32, 2, 1, false, true, "with wider tiles one block fills the shared memory")},
    {"sm80-128-local", Target::sm80, 128, 0, 128, false, false, true,
     onSm8x(32, 2, 1, false, false, "the widest tile beside the next scores in registers")},
    {"sm80-128", Target::sm80, 128, 0, 128, true, true, false,
     onSm8x(48, 2, 1, false, true, "measured 11 to 16 % over 32 keys")},
    {"sm80-192", Target::sm80, 192, 0, 192, true, true, true,
     onSm8x(32, 2, 2, false, false, "the output fills a warp's registers at 16 rows")},
    {"sm80-256-local", Target::sm80, 256, 0, 256, false, false, true,
     onSm8x(32, 2, 2, false, false, "the output fills a warp's registers at 16 rows")},
    {"sm80-256-causal", Target::sm80, 256, 0, 256, false, true, false,
     twoBlocksOnSm8x(32, "measured 6 to 15 % over 128 rows by eight warps")},
    {"sm80-256", Target::sm80, 256, 0, 256, true, false, false,
     onSm8x(32, 2, 2, true, true, "measured 19 % over Q in shared memory")},

    {"sm86-128-cap-tables", Target::sm86, 128, 97, 128, true, true, false,
     onSm8x(32, 1, 2, false, false,
            "16 rows a warp spare registers to cap scores and look rows up"),
     unlimited, true, true},
    {"sm86-64-tables", Target::sm86, 64, 0, 64, true, false, false,
     onSm8x(48, 2, 1, false, true, "Q in shared memory spares registers to look rows up"),
     unlimited, true},

    {"sm86-64-local", Target::sm86, 64, 0, 64, false, false, true,
     onSm8x(32, 2, 1, true, false, "with wider tiles the runs of a window spill")},
    {"sm86-64", Target::sm86, 64, 0, 64, true, true, false,
     onSm8x(48, 2, 1, true, true, "the widest tile beside Q and the next scores in registers")},
    {"sm86-64-512", Target::sm86, 64, 512, 512, true, true, true, columnsOnSm8x},
    {"sm86-64-256", Target::sm86, 64, 256, 256, true, true, true,
     onSm8x(32, 2, 2, false, false, "the output fills a warp's registers at 16 rows")},
    {"sm86-128-local", Target::sm86, 128, 0, 128, false, false, true,
     onSm8x(64, 2, 2, true, false, "one block fills the shared memory, so it has eight warps")},
    {"sm86-128", Target::sm86, 128, 0, 128, true, true, false,
     onSm8x(32, 1, 1, false, false,
            "two blocks fit, whose warps read less shared memory at 32 rows; not measured there")},
    {"sm86-192", Target::sm86, 192, 0, 192, true, true, true,
     onSm8x(32, 2, 2, false, false, "the widest tile that shared memory holds twice")},
    {"sm86-256", Target::sm86, 256, 0, 256, true, true, true,
     onSm8x(32, 1, 2, false, false, "the widest tile that shared memory holds")},
};

bool TileRow::covers(HeadTile head, MaskKind mask, int64_t rows, bool tables, bool softcap) const {
  if (rows > maxRows || (looksUp && !tables) || (caps && !softcap) || head.d > maxHeadSize ||
      head.dv < minHeadSizeV || head.dv > maxHeadSizeV)
    return false;
  switch (mask) {
  case MaskKind::dense:
    return dense;
  case MaskKind::causal:
    return causal;
  case MaskKind::local:
    return local;
  }
  __builtin_unreachable();
}

std::span<const TileRow> tileRows() { return rows; }

std::optional<TileRow> defaultTile(Target target, HeadTile head, MaskKind mask, int64_t queries,
                                   bool tables, bool softcap) {
  // sm_89 has the shared memory and registers of sm_86.
  const Target of = target == Target::sm89 ? Target::sm86 : target;
  for (TileRow row : rows)
    if (row.target == of && row.covers(head, mask, queries, tables, softcap)) {
      // The runs of a window and the code that redoes rows need more registers than there are.
      row.tile.deferMax &= mask != MaskKind::local;
      return row;
    }
  return std::nullopt;
}

HeadTile headTileOf(Target target, int64_t headSize, int64_t headSizeV) {
  if (target == Target::cpu)
    return {headSize, headSizeV};
  auto padded = [](int64_t size) {
    for (int64_t tile : {64, 96, 128, 192, 256})
      if (size <= tile)
        return tile;
    return size;
  };
  const HeadTile tile{padded(headSize), padded(headSizeV)};
  for (HeadTile own : {HeadTile{192, 128}, HeadTile{64, 256}, HeadTile{64, 512}})
    if (tile.d == own.d && tile.dv == own.dv)
      return tile;
  const int64_t wider = max(tile.d, tile.dv);
  return {wider, wider};
}

int64_t outputColumns(const Tile &tile, HeadTile head) {
  return tile.splitBy == SplitBy::columns ? head.dv / tile.consumers : head.dv;
}

static constexpr int64_t warpgroupThreads = warpgroupWarps * warpThreads;

int64_t fragmentRegisters(const Tile &tile, HeadTile head, ElementType element) {
  const int64_t rows = tile.splitBy == SplitBy::columns ? tile.tileM : tile.tileM / tile.consumers;
  const int64_t scores = rows * tile.tileN, output = rows * outputColumns(tile, head);
  const int64_t perRegister = 4 / elementBytes(element);
  const int64_t p = tile.pvFromRegisters ? scores / perRegister : 0;
  const int64_t q = tile.qInRegisters ? rows * head.d / perRegister : 0;
  return ceilDiv(scores + output + p + q, warpgroupThreads);
}

int64_t threadsOf(const Tile &tile, const Machine &machine) {
  return machine.target == Target::cpu ? 1 : warpgroupThreads * (tile.consumers + machine.roles);
}

static std::string number(int64_t value) { return std::to_string(value); }

static std::optional<std::string> whyNotShapes(const Tile &tile, HeadTile head, ElementType element,
                                               const Machine &machine) {
  const std::string name(machine.name);
  const bool byColumns = tile.splitBy == SplitBy::columns;
  const int64_t productRows = machine.mmaRows,
                wanted = productRows * (byColumns ? 1 : tile.consumers);
  // What divides a tile, as plans name it.
  const int64_t unit = machine.roles ? 1 : warpgroupWarps;
  const std::string who = machine.roles ? "consumers" : "warps",
                    one = machine.roles ? "one consumer" : number(unit) + " warps";
  // Only a warpgroup's product has a fixed number of rows.
  if (machine.roles ? tile.tileM != wanted : tile.tileM % wanted != 0)
    return "expected a tile of " + number(wanted) + " queries, " + number(productRows) +
           (byColumns ? " that all " + who + " share"
                      : " for each " + (machine.roles ? "" : number(unit) + " ") + "of " +
                            number(tile.consumers * unit) + " " + who) +
           " on " + name + ", it has " + number(tile.tileM) + "; set tile m or " + who;
  // The second product contracts over keys, 32 bytes of P at a time.
  const int64_t contraction = 32 / elementBytes(element), widest = 256;
  if (tile.tileN % contraction != 0 || tile.tileN > widest)
    return "expected a tile of keys that is a multiple of " + number(contraction) + " up to " +
           number(widest) + " on " + name + ", it has " + number(tile.tileN) + "; set tile n";
  // A part of the columns that is multiplied apart begins with a panel of V.
  const int64_t columns = outputColumns(tile, head);
  const int64_t least = byColumns && machine.roles ? panelColumns : storedColumns;
  if (columns % least != 0 || columns * (byColumns ? tile.consumers : 1) != head.dv)
    return one + " would store " + number(columns) + " of " + number(head.dv) +
           " output columns, expected a multiple of " + number(least) + " on " + name +
           "; split rows, or columns over other " + who;
  if (columns > widest)
    return one + " would hold " + number(columns) + " of " + number(head.dv) +
           " output columns, a product on " + name + " has at most " + number(widest) +
           "; split columns over more " + who;
  if (head.d % contraction != 0)
    return "expected a head tile that is a multiple of " + number(contraction) + " on " + name +
           ", it has " + number(head.d);
  return std::nullopt;
}

static std::optional<std::string> whyNotRegisters(const Tile &tile, HeadTile head,
                                                  ElementType element, const Machine &machine) {
  const std::string name(machine.name);
  const int64_t held = fragmentRegisters(tile, head, element);
  if (!machine.roles) {
    // What a thread may have without keeping other threads of its own block out.
    const int64_t most =
        min(machine.maxRegistersPerThread, machine.registersPerSm / threadsOf(tile, machine));
    if (tile.consumerRegisters < 24 || tile.consumerRegisters > most)
      return "expected registers of a thread from 24 to " + number(most) + ", they are " +
             number(tile.consumerRegisters);
    if (held + registersBesideFragments > tile.consumerRegisters)
      return "a thread holds " + number(held) + " registers of scores, output" +
             (tile.qInRegisters ? ", P and Q" : " and P") + " and " +
             number(registersBesideFragments) + " beside them, the plan gives it " +
             number(tile.consumerRegisters) + "; use a smaller tile or more warps";
    return std::nullopt;
  }
  for (int64_t registers : {tile.producerRegisters, tile.consumerRegisters})
    if (registers < 24 || registers > 256 || registers % 8 != 0)
      return "expected registers of a role to be a multiple of 8 from 24 to 256, they are " +
             number(registers);
  // With no more than that ptxas waits for each product before the next.
  if (held + registersBesideFragments >= tile.consumerRegisters)
    return "a consumer holds " + number(held) + " registers of scores, output" +
           (tile.qInRegisters ? ", P and Q" : " and P") + " a thread and more than " +
           number(registersBesideFragments) + " beside them, the plan gives it " +
           number(tile.consumerRegisters) + "; use a smaller tile n";
  const int64_t threads = threadsOf(tile, machine);
  const int64_t all =
      warpgroupThreads * (tile.producerRegisters + tile.consumers * tile.consumerRegisters);
  if (const int64_t most = launchedRegisters(machine, threads); all > most)
    return "plan needs " + number(all) + " registers, " + name + " has " + number(most) + " for " +
           number(threads) + " threads; use fewer consumers or registers";
  return std::nullopt;
}

/// A CPU runs any tile that a worker has memory for; what is past these limits is a slip of the
/// pen.
static std::optional<std::string> whyNotOnCpu(const Tile &tile, HeadTile head) {
  const int64_t mostConsumers = 16, mostBytes = 1024 * mib;
  if (tile.consumers > mostConsumers)
    return "expected at most " + number(mostConsumers) +
           " consumers (or four times as many warps) " + "on cpu, there are " +
           number(tile.consumers);
  const bool rows = tile.splitBy == SplitBy::rows;
  if ((rows ? tile.tileM : head.dv) % tile.consumers != 0)
    return "expected " + number(tile.consumers) +
           " consumers (or four times as many warps) to divide " +
           (rows ? "tile m (" + number(tile.tileM) : "the output's columns (" + number(head.dv)) +
           ") evenly";
  const double columns = head.d + head.dv, m = tile.tileM, n = tile.tileN, stages = tile.stages;
  const double bytes =
      (m * n + m * columns + stages * n * columns) * elementBytes(ElementType::f32);
  if (bytes > mostBytes)
    return "a tile of " + number(tile.tileM) + " queries and " + number(tile.tileN) + " keys in " +
           number(tile.stages) + " stages takes more than " + number(mostBytes / mib) +
           " MiB of a worker on cpu; use a smaller tile or fewer stages";
  return std::nullopt;
}

std::optional<std::string> whyNotTile(const Tile &tile, HeadTile head, ElementType element,
                                      const Machine &machine) {
  for (auto [value, name] : {std::pair{tile.tileM, "tile m"},
                             {tile.tileN, "tile n"},
                             {tile.stages, "stages"},
                             {tile.consumers, "consumers"}})
    if (value < 1)
      return std::string("expected ") + name + " of at least 1, it is " + number(value);
  if (machine.target == Target::cpu)
    return whyNotOnCpu(tile, head);
  if (threadsOf(tile, machine) > machine.maxThreads)
    return "plan needs " + number(threadsOf(tile, machine)) + " threads a block, " +
           std::string(machine.name) + " has " + number(machine.maxThreads) + "; use fewer " +
           (machine.roles ? "consumers" : "warps");
  if (auto sentence = whyNotShapes(tile, head, element, machine))
    return sentence;
  // Barrier 0 is the block's; each consumer has one of its own, and one for its turn.
  if (tile.pingPong && 1 + 2 * tile.consumers > machine.namedBarriers)
    return "turns of " + number(tile.consumers) + " consumers need " +
           number(1 + 2 * tile.consumers) + " named barriers, " + std::string(machine.name) +
           " has " + number(machine.namedBarriers) + "; leave ping_pong out";
  return whyNotRegisters(tile, head, element, machine);
}

} // namespace flash::schedule
