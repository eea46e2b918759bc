//===- Record.h - plans that were measured ----------------------*- C++ -*-===//
//
// What a search on a GPU found best (python -m flash_mlir.tune), as files of JSON:
//
//   {"gpu": "NVIDIA H200", "records": [
//     {"target": "sm_90a", "element": "bf16", "head_size": 128, "head_size_v": 128, "mask":
//     "dense",
//      "queries": 4096, "keys": 4096, "plan": "#flash.plan<tile = [128, 176]>",
//      "why": "690 TFLOP/s, the default 655"}]}
//
// "mask" is "dense", "causal" or "local" (then with "left" and "right"); "softcap" and "backward"
// (a plan of gradients) are false where they are left out. "tflops" is for people; other fields are
// refused, and so are two plans for one problem.
//
//===----------------------------------------------------------------------===//

#ifndef FLASH_SCHEDULE_RECORD_H
#define FLASH_SCHEDULE_RECORD_H

#include "flash/Schedule/Plan.h"

namespace flash::schedule {

/// A measured plan, and of which problem.
struct Record {
  std::string gpu; ///< as the driver names it
  Target target = Target::sm90;
  ElementType element = ElementType::bf16;
  int64_t headSize = 0, headSizeV = 0;
  bool softcap = false, backward = false;
  MaskKind mask = MaskKind::dense;
  int64_t left = -1, right = -1; ///< of a local mask; -1: unbounded
  int64_t lenQ = 0, lenK = 0;
  std::string plan; ///< "#flash.plan<...>"
  std::string why;  ///< what was measured
};

/// Lengths and windows as records tell them apart: by powers of two, the nearest counts, and what
/// is longer than the longest is like it.
int64_t lengthBucket(int64_t length);

/// Parsers recurse: whether text opens more brackets than any problem or plan has. Those that close
/// do not count, as they may stand in strings.
bool isTooDeep(std::string_view text);

/// The same of a plan, which must not be long either: signs nest without brackets.
bool isTooDeepPlan(std::string_view text);

/// The records in the text of a file, or the sentence what is wrong with it.
std::variant<std::vector<Record>, std::string> parseRecords(std::string_view text);

/// The same of a file; the sentence names it.
std::variant<std::vector<Record>, std::string> readRecords(const std::string &path);

/// The first record of such a problem on `gpu` (empty: any), else that of its twin in f16 or bf16,
/// or none. Chunks and sink tokens have none, and neither have problems of unknown lengths.
const Record *recordOf(const Problem &problem, std::string_view gpu,
                       std::span<const Record> records);

} // namespace flash::schedule

#endif // FLASH_SCHEDULE_RECORD_H
