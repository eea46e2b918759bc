//===- ScheduleRecordTest.cpp - reading and matching records --------------===//

#include "flash/Schedule/Record.h"

#include <gtest/gtest.h>

using namespace flash::schedule;

namespace {
const char *const file = R"({"gpu": "NVIDIA H200", "records": [
  {"target": "sm_90a", "element": "bf16", "head_size": 128, "head_size_v": 128, "mask": "dense",
   "queries": 4096, "keys": 4096, "plan": "dense", "why": "", "tflops": 700.5},
  {"target": "sm_90a", "element": "bf16", "head_size": 128, "head_size_v": 128, "mask": "causal",
   "queries": 16384, "keys": 16384, "plan": "causal", "why": ""},
  {"target": "sm_90a", "element": "bf16", "head_size": 128, "head_size_v": 128, "mask": "local",
   "left": 1024, "right": 0, "queries": 4096, "keys": 4096, "plan": "window", "why": ""},
  {"target": "sm_90a", "element": "bf16", "head_size": 64, "head_size_v": 64, "mask": "dense",
   "softcap": true, "queries": 4096, "keys": 4096, "plan": "capped", "why": ""}]})";

std::vector<Record> recordsOf(const std::string &text) {
  auto read = parseRecords(text);
  if (auto *sentence = std::get_if<std::string>(&read)) {
    ADD_FAILURE() << *sentence;
    return {};
  }
  return std::get<std::vector<Record>>(read);
}

std::string brokenBy(const std::string &text) {
  auto read = parseRecords(text);
  auto *sentence = std::get_if<std::string>(&read);
  return sentence ? *sentence : "read";
}

Problem problem(int64_t length, MaskRequest mask = {}, int64_t d = 128) {
  Problem p;
  p.target = Target::sm90;
  p.element = ElementType::bf16;
  p.headSize = p.headSizeV = d;
  p.mask = mask;
  p.lenQ = p.lenK = length;
  return p;
}

/// The plan of the record found, or "".
std::string found(const Problem &p, std::string_view gpu = "") {
  static const std::vector<Record> records = recordsOf(file);
  const Record *record = recordOf(p, gpu, records);
  return record ? record->plan : "";
}
} // namespace

TEST(Record, LengthsFallIntoTheNearestPowerOfTwo) {
  EXPECT_EQ(lengthBucket(4096), 12);
  EXPECT_EQ(lengthBucket(2900), 12);
  EXPECT_EQ(lengthBucket(2890), 11);
  EXPECT_EQ(lengthBucket(1), 0);
  EXPECT_EQ(lengthBucket(1 << 20), lengthBucket(16384));
}

TEST(Record, IsFoundByMaskHeadSizeAndLength) {
  EXPECT_EQ(found(problem(4096)), "dense");
  EXPECT_EQ(found(problem(5000)), "dense");
  EXPECT_EQ(found(problem(8192)), "");
  EXPECT_EQ(found(problem(4096, {}, 120)), "dense"); // padded to 128
  EXPECT_EQ(found(problem(4096, {}, 96)), "");
  EXPECT_EQ(found(problem(65536, {.causal = true})), "causal");
  EXPECT_EQ(found(problem(4096, {.causal = true})), "");
  EXPECT_EQ(found(problem(unknown)), "");
}

TEST(Record, OfTheOther16BitTypeServesWhereTheOwnIsMissing) {
  Problem p = problem(4096);
  p.element = ElementType::f16;
  EXPECT_EQ(found(p), "dense");
  std::vector<Record> both(2);
  both[0].element = ElementType::bf16, both[1].element = ElementType::f16;
  for (Record &r : both)
    r.target = p.target, r.headSize = r.headSizeV = 128, r.lenQ = r.lenK = 4096;
  EXPECT_EQ(recordOf(p, "", both), &both[1]);
  p.element = ElementType::f32;
  EXPECT_EQ(recordOf(p, "", both), nullptr);
}

TEST(Record, OfAWindowIsFoundByItsSides) {
  EXPECT_EQ(found(problem(4096, {.causal = true, .left = 1000})), "window");
  EXPECT_EQ(found(problem(4096, {.causal = true, .left = 256})), "");
  EXPECT_EQ(found(problem(4096, {.left = 1024})), ""); // its right side is open
  // A window that no row reaches is none.
  EXPECT_EQ(found(problem(4096, {.left = 4095})), "dense");
  EXPECT_EQ(found(problem(4096, {.causal = true, .left = 1000, .sinkTokens = 4})), "");
}

TEST(Record, IsOfOneGpuAndScoreFunction) {
  EXPECT_EQ(found(problem(4096), "NVIDIA H200"), "dense");
  EXPECT_EQ(found(problem(4096), "NVIDIA H100 80GB HBM3"), "");
  Problem p = problem(4096);
  p.softcap = true;
  EXPECT_EQ(found(p), "");
  p.headSize = p.headSizeV = 64;
  EXPECT_EQ(found(p), "capped");
}

/// The file with its first `from` replaced.
static std::string with(std::string_view from, std::string_view to) {
  std::string text = file;
  return text.replace(text.find(from), from.size(), to);
}

TEST(Record, NamesItsTargetRight) {
  EXPECT_EQ(
      brokenBy(with("sm_90a", "sm_90")),
      "record 0: expected target to be one of cpu, sm_80, sm_86, sm_89, sm_90a, got \"sm_90\"");
}

TEST(Record, HasNoOtherFields) {
  EXPECT_EQ(brokenBy(with("\"softcap\"", "\"softcapp\"")),
            "record 3: a record of mask dense has no field 'softcapp'; leave it out");
  EXPECT_EQ(brokenBy(with("\"tflops\"", "\"left\": 7, \"tflops\"")),
            "record 0: a record of mask dense has no field 'left'; leave it out");
  EXPECT_EQ(brokenBy(with("\"gpu\"", "\"gpus\": 2, \"gpu\"")),
            "records have no field 'gpus'; leave it out");
}

TEST(Record, OfOneProblemHasOnePlan) {
  const std::string same = with("\"causal\",\n   \"queries\": 16384, \"keys\": 16384",
                                "\"dense\", \"queries\": 4096, \"keys\": 4096");
  EXPECT_EQ(brokenBy(same),
            "record 1: it and record 0 have different plans for one problem; leave one out");
  std::string twice = same;
  twice.replace(twice.find("\"causal\", \"why"), 8, "\"dense\"");
  EXPECT_EQ(recordsOf(twice).size(), 4u);
  // What differs in anything else is another problem, also where one record serves both.
  for (auto [from, to] : {std::pair("\"queries\": 4096, \"keys\": 4096, \"plan\": \"dense",
                                    "\"queries\": 4096, \"keys\": 4095, \"plan\": \"dense"),
                          {"128, \"mask\": \"dense", "120, \"mask\": \"dense"},
                          {"bf16", "f16"},
                          {"\"why\"", "\"backward\": true, \"why\""}}) {
    std::string text = same;
    text.replace(text.find(from), std::string_view(from).size(), to);
    EXPECT_EQ(recordsOf(text).size(), 4u) << to;
  }
}

TEST(Record, OfABrokenFileIsASentence) {
  EXPECT_EQ(brokenBy("{"), "expected records as a JSON object");
  EXPECT_EQ(brokenBy("[]"), "expected records as a JSON object");
  EXPECT_EQ(brokenBy(R"({"gpu": 1, "records": []})"),
            "expected records with a string 'gpu' and an array 'records'");
  EXPECT_EQ(brokenBy(R"({"gpu": "x", "records": [3]})"), "record 0: expected an object");
  std::string text = file;
  text.replace(text.find("\"dense\""), 7, "\"dents\"");
  EXPECT_EQ(brokenBy(text),
            "record 0: expected mask to be one of dense, causal, local, got \"dents\"");
  text = file;
  text.replace(text.find("16384"), 5, "\"16k\"");
  EXPECT_EQ(brokenBy(text),
            "record 1: expected queries to be an integer of at least 1, got \"16k\"");
  EXPECT_EQ(brokenBy(std::string(100000, '[')), "expected records as a JSON object");
  // What a parser of plans would overflow its stack on, also where strings hide it.
  for (const std::string &plan :
       {std::string(1000, '['), std::string(100, ']') + std::string(100, '{'),
        "affine_map<() -> (" + std::string(10000, '-')}) {
    text = file;
    text.replace(text.find("\"causal\", \"why"), 8, '"' + plan + '"');
    EXPECT_EQ(brokenBy(text), "record 1: expected plan to be #flash.plan<...>, got more text or "
                              "brackets than any has");
  }
  EXPECT_NE(std::get<std::string>(readRecords("no/such/file")).find("no/such/file"),
            std::string::npos);
}
