//===- Baton.cpp - the programs of one block, one step at a time ----------===//
#include "flash/Runtime/Baton.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include <thread>

using namespace flash;
using llvm::formatv;

/// The baton and the program of this thread; what jitted code calls finds them here.
static thread_local Baton *current;
static thread_local size_t self;

Baton::Baton(std::vector<Ring> rings, uint64_t seed) : rings(std::move(rings)), random(seed) {
  for (const Ring &ring : this->rings)
    slots.emplace_back(ring.stages);
}

Baton::Slot &Baton::slotOf(int64_t ring, int64_t ordinal) {
  return slots[ring][ordinal % rings[ring].stages];
}

void Baton::fail(const std::string &sentence) {
  if (error.empty())
    error = sentence;
}

bool Baton::canGoOn(const State &state) {
  if (!error.empty())
    return true;
  if (state.need == Need::turn)
    return turn == state.ordinal;
  const Slot &slot = slotOf(state.ring, state.ordinal);
  const Ring &ring = rings[state.ring];
  int64_t past = generation(state.ring, state.ordinal);
  switch (state.need) {
  case Need::nothing:
  case Need::turn:
    return true;
  case Need::freeSlot:
    return slot.releases >= past * ring.releases;
  case Need::fullSlot:
    return slot.fills >= (past + 1) * ring.writers;
  }
  return true;
}

std::string Baton::waitsFor(const State &state) {
  if (state.need == Need::turn)
    return formatv("{0} waits for its turn: instance {1} has not entered as often", state.name,
                   turn);
  const Slot &slot = slotOf(state.ring, state.ordinal);
  const Ring &ring = rings[state.ring];
  int64_t past = generation(state.ring, state.ordinal);
  int64_t last = state.ordinal - ring.stages;
  if (state.need == Need::freeSlot)
    return formatv(
        "{0} waits to fill ordinal {1} of ring {2}: ordinal {3} of its slot has {4} of {5} "
        "releases",
        state.name, state.ordinal, ring.name, last, slot.releases - (past - 1) * ring.releases,
        ring.releases);
  return formatv("{0} waits for ordinal {1} of ring {2}: it has {3} of {4} fills", state.name,
                 state.ordinal, ring.name, std::max<int64_t>(slot.fills - past * ring.writers, 0),
                 ring.writers);
}

/// Gives the baton to a program that can go on.
void Baton::handOver() {
  std::vector<size_t> ready;
  auto collect = [&] {
    for (auto [i, state] : llvm::enumerate(states))
      if (!state->done && canGoOn(*state))
        ready.push_back(i);
  };
  collect();
  if (ready.empty()) {
    std::string stuck;
    for (const auto &state : states)
      if (!state->done)
        stuck += (stuck.empty() ? "" : "; ") + waitsFor(*state);
    if (stuck.empty())
      return; // all are done
    fail("deadlock: " + stuck);
    collect();
  }
  holder = ready[random() % ready.size()];
  states[holder]->turn.notify_one();
}

/// The rules for who has just been let through.
void Baton::checkStart(const State &state) {
  if (state.need == Need::turn)
    return;
  const Slot &slot = slotOf(state.ring, state.ordinal);
  const Ring &ring = rings[state.ring];
  int64_t past = generation(state.ring, state.ordinal);
  if (state.need == Need::freeSlot && slot.fills >= (past + 1) * ring.writers) {
    fail(formatv("overrun: {0} fills ordinal {1} of ring {2}, which has its {3} fills", state.name,
                 state.ordinal, ring.name, ring.writers));
  } else if (state.need == Need::fullSlot && (slot.fills > (past + 1) * ring.writers ||
                                              slot.releases >= (past + 1) * ring.releases)) {
    fail(formatv("overrun: {0} waits for ordinal {1} of ring {2}, whose slot went on without it",
                 state.name, state.ordinal, ring.name));
  }
}

void Baton::pass(Need need, int64_t ring, int64_t ordinal) {
  std::unique_lock<std::mutex> lock(mutex);
  State &me = *states[self];
  me.need = need, me.ring = ring, me.ordinal = ordinal;
  if (ordinal < 0) { // nothing has that ordinal; only a broken program asks
    fail(formatv("{0} names ordinal {1} of ring {2}", me.name, ordinal, rings[ring].name));
    me.ordinal = 0;
  }
  handOver();
  me.turn.wait(lock, [&] { return holder == self; });
  if (error.empty())
    checkStart(me);
  me.need = Need::nothing;
}

void Baton::commit(int64_t ring, int64_t ordinal) {
  if (error.empty())
    ++slotOf(ring, ordinal).fills;
  pass(Need::nothing, ring, ordinal);
}

void Baton::waitAgain(int64_t ring, int64_t ordinal) {
  pass(Need::nothing, ring, ordinal);
  if (error.empty() &&
      slotOf(ring, ordinal).fills < (generation(ring, ordinal) + 1) * rings[ring].writers)
    fail(formatv("early: {0} reads ordinal {1} of ring {2} without a wait, which is not filled",
                 states[self]->name, ordinal, rings[ring].name));
}

void Baton::enter(int64_t instance) { pass(Need::turn, 0, instance); }

void Baton::leave(int64_t instance, int64_t instances) {
  if (error.empty())
    turn = (instance + 1) % instances;
  pass(Need::nothing, 0, 0);
}

bool Baton::release(int64_t ring, int64_t ordinal) {
  bool last = false;
  if (error.empty() && ordinal >= 0) {
    Slot &slot = slotOf(ring, ordinal);
    int64_t past = generation(ring, ordinal), each = rings[ring].releases;
    if (slot.fills < (past + 1) * rings[ring].writers)
      fail(formatv("overrun: {0} releases ordinal {1} of ring {2}, which is not filled",
                   states[self]->name, ordinal, rings[ring].name));
    else if (slot.releases >= (past + 1) * each)
      fail(formatv("overrun: {0} releases ordinal {1} of ring {2}, which has its {3} releases",
                   states[self]->name, ordinal, rings[ring].name, each));
    else
      last = ++slot.releases == (past + 1) * each;
  }
  return last;
}

std::vector<int64_t> Baton::fills() const {
  std::vector<int64_t> sums;
  for (const std::vector<Slot> &ring : slots) {
    sums.push_back(0);
    for (const Slot &slot : ring)
      sums.back() += slot.fills;
  }
  return sums;
}

/// Every fill is to be released by the end: what is left would block the block's next tile.
void Baton::checkEnd() {
  if (error.empty() && turn != 0)
    fail(formatv("unmatched: instance {0} took fewer turns than the one before it", turn));
  for (auto [ring, slots] : llvm::zip(rings, slots))
    for (auto [i, slot] : llvm::enumerate(slots))
      if (error.empty() && slot.fills * ring.releases != slot.releases * ring.writers)
        fail(formatv(
            "unmatched: slot {0} of ring {1} ends with {2} fills by {3} and {4} releases by "
            "{5}",
            i, ring.name, slot.fills, ring.writers, slot.releases, ring.releases));
}

llvm::Error Baton::run(std::vector<Program> programs) {
  std::vector<std::thread> threads;
  for (size_t i = 0; i < programs.size(); ++i)
    states.push_back(std::make_unique<State>());
  {
    std::lock_guard<std::mutex> lock(mutex);
    for (auto [state, program] : llvm::zip(states, programs))
      state->name = program.name;
    holder = random() % programs.size();
  }
  for (size_t i = 0; i < programs.size(); ++i)
    threads.emplace_back([this, i, body = std::move(programs[i].body)] {
      current = this, self = i;
      {
        std::unique_lock<std::mutex> lock(mutex);
        states[i]->turn.wait(lock, [&] { return holder == i; });
      }
      body();
      std::lock_guard<std::mutex> lock(mutex);
      states[i]->done = true;
      handOver();
    });
  for (std::thread &thread : threads)
    thread.join();
  checkEnd();
  if (error.empty())
    return llvm::Error::success();
  return llvm::createStringError(error);
}

//===----------------------------------------------------------------------===//
// What jitted code calls
//===----------------------------------------------------------------------===//

extern "C" {
void flash_baton_acquire(int64_t ring, int64_t ordinal) {
  current->pass(Baton::Need::freeSlot, ring, ordinal);
}
void flash_baton_commit(int64_t ring, int64_t ordinal) { current->commit(ring, ordinal); }
void flash_baton_wait(int64_t ring, int64_t ordinal) {
  current->pass(Baton::Need::fullSlot, ring, ordinal);
}
void flash_baton_wait_again(int64_t ring, int64_t ordinal) { current->waitAgain(ring, ordinal); }
void flash_baton_enter(int64_t instance, int64_t) { current->enter(instance); }
void flash_baton_leave(int64_t instance, int64_t instances) { current->leave(instance, instances); }
bool flash_baton_release(int64_t ring, int64_t ordinal) { return current->release(ring, ordinal); }
}
