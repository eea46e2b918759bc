//===- flash-golden.cpp - planning answers against golden data ------------===//

#include "Golden.h"

#include <cstdio>
#include <string_view>

int main(int argc, char **argv) {
  if (argc != 2 || std::string_view(argv[1]).starts_with("-")) {
    std::fputs("usage: flash-golden DIR\n\n"
               "Checks every line of DIR/*.jsonl (tiles, block ranges, splits, packing, orders)\n"
               "against the planner; prints the first failures and `N passed, M failed`.\n\n"
               "example: flash-golden test/golden\n",
               argc == 2 && std::string_view(argv[1]) == "--help" ? stdout : stderr);
    return argc == 2 && std::string_view(argv[1]) == "--help" ? 0 : 1;
  }
  auto outcome = flash::golden::checkFolder(argv[1]);
  for (const std::string &failure : outcome.failures)
    std::fprintf(stderr, "%s\n", failure.c_str());
  std::printf("%d passed, %d failed\n", outcome.passed, outcome.failed);
  return outcome.failed > 0;
}
