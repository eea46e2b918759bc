//===- Splits.h - into how many parts the keys are split --------*- C++ -*-===//

#ifndef FLASH_SCHEDULE_SPLITS_H
#define FLASH_SCHEDULE_SPLITS_H

#include <cstdint>
#include <optional>
#include <string>

namespace flash::schedule {

inline constexpr int64_t defaultMaxSplits = 128;

struct SplitQuestion {
  int64_t tiles;       ///< batch * heads (KV heads when packed) * mTiles
  int64_t mTiles;      ///< query tiles of one head
  int64_t nTiles;      ///< key tiles that one query tile can load
  int64_t kvHeadBytes; ///< keys and values of one KV head
  int64_t sms;
  bool causalOrLocal;
  int64_t maxSplits = defaultMaxSplits;
};

/// Whether tiles alone keep the machine busy; what is split nevertheless outgrows the L2 cache.
bool fillsMachine(const SplitQuestion &question);

/// The smallest number of splits that fills the machine nearly as well as any (at least 1).
int64_t numSplits(const SplitQuestion &question);

/// The same where memory alone takes time, and a block fills a multiprocessor (`streamsKeys`): the
/// number of splits with the least waves of blocks times the key tiles of each.
int64_t streamedSplits(const SplitQuestion &question);

/// Neighbouring f32 columns of a row that a thread of the combine has: 16 bytes.
inline constexpr int64_t combineColumns = 4;

/// Threads of a block that deals a fragment of these sizes out, for no product: whole warps.
int64_t dealtThreads(int64_t rows, int64_t columns);

/// How the combine reads parts: so many at once, enough loads to wait for memory once, and of those
/// `aside` by threads of their own, which share the work of joining them.
struct Join {
  int64_t atOnce = 1, aside = 1;
};
/// On a GPU, of any rows.
inline constexpr Join joinOfRows = {8, 1};
/// Of few rows of many parts, whose latency counts: on an H200 16 parts of 32 rows were joined 0.5
/// to 1.1 us sooner than 8 by 8, on decodes of 15 to 138; 4 parts of 128 rows within 0.4 us.
inline constexpr Join joinOfFewRows = {16, 4};

/// The sentence for a join that the combine cannot do.
std::optional<std::string> whyNotJoin(const Join &join);

/// Rows of a tile of the combine on a GPU: the fewest that fill whole warps.
int64_t combineRows(int64_t headSizeV, int64_t aside = 1);

/// Key tiles one query tile can load: all, or at most what a window of known sides spans.
int64_t reachableKeyTiles(int64_t lenK, int64_t windowLeft, int64_t windowRight, int64_t tileM,
                          int64_t tileN);

} // namespace flash::schedule

#endif // FLASH_SCHEDULE_SPLITS_H
