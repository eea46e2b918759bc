//===- PackGqa.h - query heads of a KV head in one tile ---------*- C++ -*-===//

#ifndef FLASH_SCHEDULE_PACKGQA_H
#define FLASH_SCHEDULE_PACKGQA_H

#include <cstdint>

namespace flash::schedule {

/// Whether the `group` query heads of a KV head should share tiles of tileM rows: when the number
/// of queries varies per sequence, or when packing fills tiles clearly better.
bool shouldPackGqa(bool varlenQ, int64_t lenQ, int64_t group, int64_t tileM);

} // namespace flash::schedule

#endif // FLASH_SCHEDULE_PACKGQA_H
