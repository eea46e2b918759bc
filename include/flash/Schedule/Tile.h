//===- Tile.h - how large tiles are -----------------------------*- C++ -*-===//
//
// The tile tables: the reference's rows (golden data holds them in place), and this project's
// defaults, which may differ from them with the reason in the row. The first row that fits counts.
//
//===----------------------------------------------------------------------===//

#ifndef FLASH_SCHEDULE_TILE_H
#define FLASH_SCHEDULE_TILE_H

#include "flash/Schedule/Machine.h"
#include "flash/Schedule/Mask.h"

#include <span>
#include <string>
#include <utility>

namespace flash::schedule {

enum class ElementType { f16, bf16, f32, f8 };

inline constexpr ElementType allElementTypes[] = {ElementType::f16, ElementType::bf16,
                                                  ElementType::f32, ElementType::f8};

std::string_view elementName(ElementType element); ///< "f16", "bf16", "f32", "f8e4m3"
std::optional<ElementType> parseElement(std::string_view name);
int64_t elementBytes(ElementType element);

//===----------------------------------------------------------------------===//
// The reference's tables
//===----------------------------------------------------------------------===//

inline constexpr int64_t anyHeadSize = unlimited;

struct TileQuery {
  int64_t headSize = 0, headSizeV = 0;
  bool causal = false, local = false;
  int64_t elementBytes = 2;
  bool softcap = false;
  bool vColumnMajor = false;    ///< SM90, 1-byte elements
  bool pagedWithoutTma = false; ///< SM90
  bool paged = false;           ///< SM8x
  bool varlenAndSplit = false;  ///< SM8x
  bool appendKv = false;        ///< SM8x
  bool sm86Or89 = false;        ///< SM8x
};

struct Sm90Tile {
  int64_t tileM, tileN;
  bool pvFromRegisters; ///< P feeds the second product from registers
  bool overlap;         ///< the next QK runs under this block's softmax
};
Sm90Tile referenceTileSm90(const TileQuery &query);

struct Sm8xTile {
  int64_t tileM, tileN, warps, stages;
  bool qInRegisters;
};
Sm8xTile referenceTileSm8x(const TileQuery &query);

struct BackwardTile {
  int64_t tileM, tileN;      ///< queries, keys
  int64_t consumers;         ///< warpgroups on SM90; 0 elsewhere
  int64_t stagesQ, stagesDs; ///< on SM90; 0 elsewhere
  bool transposedScores;     ///< S and dP computed as K Q^T and V dO^T
  std::string_view reason;
};
/// Where the backward starts from; target is a GPU, head sizes at most 256.
BackwardTile referenceTileBackward(Target target, int64_t headSize, bool causal, bool local,
                                   bool softcap);

//===----------------------------------------------------------------------===//
// This project's defaults
//===----------------------------------------------------------------------===//

/// What the consumers of a tile divide among them.
enum class SplitBy { rows, columns };

std::string_view splitByName(SplitBy by);
std::optional<SplitBy> parseSplitBy(std::string_view name);

/// Rows that each of the warps in step takes at least, where gradients' rows suffice: two products
/// that share what they read of the other operand, where columns are what else the warps divide.
inline constexpr int64_t leastRows(SplitBy by) {
  return by == SplitBy::columns ? 2 * warpRows : warpRows;
}

/// A complete tile choice. With SplitBy::columns every consumer computes all scores and owns
/// tile.headV / consumers columns of the output.
struct Tile {
  int64_t tileM, tileN;
  int64_t stages;
  int64_t consumers; ///< warpgroups that compute
  SplitBy splitBy;
  int64_t producerRegisters, consumerRegisters; ///< of a thread; 0 on the cpu
  bool pvFromRegisters, overlap;
  std::string_view reason;
  bool qInRegisters = false; ///< Q is read once a tile, and its slot is free at once
  bool earlyWait = false; ///< the next K is awaited before PV: keeps that wait behind the softmax
  bool pingPong = false;  ///< consumers take turns on the tensor unit
  bool deferMax = false;  ///< unmasked blocks are measured against an older maximum
};

/// Keys of a block that a deferred softmax redoes: what a product contracts at once, hence the
/// smallest ring.
inline constexpr int64_t redoneKeys = 16;

/// The sum of p above which a deferred step measures anew: f16 holds it, and no p of f16 or bf16
/// loses a bit below it.
inline constexpr float mostDeferredSum = 0x1p13f;
/// Of two, by which it may then be off. Past it the factor itself would vanish: the sum becomes
/// inf, and the rows are redone.
inline constexpr float mostDeferredPower = 100;

/// Head sizes as tiles hold them: (padded D, padded Dv).
struct HeadTile {
  int64_t d, dv;
};
HeadTile headTileOf(Target target, int64_t headSize, int64_t headSizeV);

/// One row of the default table: for which problems, and the tile.
struct TileRow {
  std::string_view name; ///< for tests and the explanation
  Target target;
  int64_t maxHeadSize, minHeadSizeV, maxHeadSizeV; ///< of the padded head sizes
  bool dense, causal, local;                       ///< masks it is meant for
  Tile tile;
  int64_t maxRows = unlimited; ///< of a (batch, KV head) or (batch, head): as a tile may pack them
  bool looksUp = false;        ///< only where tables say where rows lie
  bool caps = false;           ///< only where scores are capped

  bool covers(HeadTile head, MaskKind mask, int64_t rows, bool tables, bool softcap) const;
};
std::span<const TileRow> tileRows();

/// The row of a problem, as its mask can have it; or none where the target has no table yet.
std::optional<TileRow> defaultTile(Target target, HeadTile head, MaskKind mask,
                                   int64_t rows = unlimited, bool tables = false,
                                   bool softcap = false);

/// Why the machine cannot run the tile (registers, MMA shapes, threads), or nothing. Shared memory
/// is the block layout's question (Layout.h).
std::optional<std::string> whyNotTile(const Tile &tile, HeadTile head, ElementType element,
                                      const Machine &machine);

/// Registers of a thread of the producer and of each of `consumers` consumer warpgroups.
struct RoleRegisters {
  int64_t consumers, producer, consumer;
};
/// None for more consumers than a multiprocessor feeds. A producer that looks rows up in tables has
/// more.
std::optional<RoleRegisters> roleRegistersOf(int64_t consumers, bool looksUp = false);

/// Columns of the output that one consumer holds.
int64_t outputColumns(const Tile &tile, HeadTile head);

/// What a consumer thread needs for addresses, counters and row statistics.
inline constexpr int64_t registersBesideFragments = 24;

/// A row of 16-bit output is stored so many columns at a time.
inline constexpr int64_t storedColumns = 32;

/// Registers a consumer thread holds across the loop: scores, output and, from registers, P and Q.
int64_t fragmentRegisters(const Tile &tile, HeadTile head, ElementType element);
int64_t threadsOf(const Tile &tile, const Machine &machine);

} // namespace flash::schedule

#endif // FLASH_SCHEDULE_TILE_H
