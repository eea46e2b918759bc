//===- Baton.h - the programs of one block, one step at a time --*- C++ -*-===//
//
// Each program of a kernel with roles runs on a thread of its own, but only the one that holds the
// baton moves. At every ring op the baton goes to a program that can go on, picked at random: with
// enough seeds every order of events that the rings allow is seen. The rings are counters:
//
//   a slot is full  for ordinal it  once  fills    reaches (it / stages + 1) * writers
//   a slot is free  for ordinal it  once  releases reaches (it / stages)     * releases
//
// A program that waits on hardware sees a parity only, so each counter must also not be a whole
// generation ahead of whoever waits for it.
//
//===----------------------------------------------------------------------===//
#ifndef FLASH_RUNTIME_BATON_H
#define FLASH_RUNTIME_BATON_H

#include "llvm/Support/Error.h"
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <vector>

namespace flash {

class Baton {
public:
  struct Ring {
    std::string name;
    int64_t stages, writers, releases;
    int64_t cluster = 1; ///< blocks that have to fill it equally often
  };
  struct Program {
    std::string name;
    std::function<void()> body; ///< calls flash_baton_* of its thread
  };
  Baton(std::vector<Ring> rings, uint64_t seed);

  /// Runs the programs to their ends. An error is the first broken rule: a deadlock with who waits
  /// for what and why, an overrun, counts that do not match. After it nobody waits any more, so the
  /// programs end, with wrong numbers.
  llvm::Error run(std::vector<Program> programs);

  enum class Need { nothing, freeSlot, fullSlot, turn };
  /// Ends the current program's step: it goes on when ring `ring` has what it needs for `ordinal`.
  void pass(Need need, int64_t ring, int64_t ordinal);
  void commit(int64_t ring, int64_t ordinal);
  /// The program says that it has waited for the ordinal before.
  void waitAgain(int64_t ring, int64_t ordinal);
  /// Instances 0, 1, ... of one role enter in that order, over and over; `pass`es until it is
  /// `instance`'s turn.
  void enter(int64_t instance);
  void leave(int64_t instance, int64_t instances);
  /// How often each ring was filled.
  std::vector<int64_t> fills() const;
  /// True for the release that makes the slot free.
  bool release(int64_t ring, int64_t ordinal);

private:
  struct Slot {
    int64_t fills = 0, releases = 0;
  };
  struct State {
    std::string name;
    Need need = Need::nothing;
    int64_t ring = 0, ordinal = 0; ///< or the instance that waits for its turn
    bool done = false;
    std::condition_variable turn;
  };
  Slot &slotOf(int64_t ring, int64_t ordinal);
  int64_t generation(int64_t ring, int64_t ordinal) const { return ordinal / rings[ring].stages; }
  bool canGoOn(const State &state);
  void handOver();
  void checkStart(const State &state);
  void checkEnd();
  void fail(const std::string &sentence);
  std::string waitsFor(const State &state);

  std::vector<Ring> rings;
  std::vector<std::vector<Slot>> slots;
  std::vector<std::unique_ptr<State>> states;
  std::mt19937_64 random;
  std::mutex mutex;
  size_t holder = 0;
  int64_t turn = 0; ///< the instance that enters next
  std::string error;
};

} // namespace flash

#endif // FLASH_RUNTIME_BATON_H
