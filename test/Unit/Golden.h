//===- Golden.h - checks planning answers line by line ----------*- C++ -*-===//

#ifndef FLASH_TEST_UNIT_GOLDEN_H
#define FLASH_TEST_UNIT_GOLDEN_H

#include <string>
#include <string_view>
#include <vector>

namespace flash::golden {

/// What is wrong with one line of golden data, or nothing.
std::string check(std::string_view line);

struct Outcome {
  int passed = 0, failed = 0;
  std::vector<std::string> failures; ///< "file:line: sentence", of the first few
};

/// Checks every line of every *.jsonl in a folder. A folder without any has failed.
Outcome checkFolder(const std::string &folder);

} // namespace flash::golden

#endif // FLASH_TEST_UNIT_GOLDEN_H
