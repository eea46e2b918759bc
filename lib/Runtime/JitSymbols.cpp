//===- JitSymbols.cpp - what jitted code may call -------------------------===//
#include "JitSymbols.h"
#include "llvm/ExecutionEngine/Orc/Core.h"
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>

static __bf16 toBf16(float f) { // round to nearest even
  uint32_t u;
  memcpy(&u, &f, 4);
  u = f != f ? (u >> 16) | 0x40 : (u + 0x7fff + ((u >> 16) & 1)) >> 16;
  return __builtin_bit_cast(__bf16, (uint16_t)u);
}

extern "C" {
// LLVM's names for what processors without the instruction call. libgcc 12 has no bf16 ones.
static __bf16 flash_truncsfbf2(float f) { return toBf16(f); }
static __bf16 flash_truncdfbf2(double d) { // through a float rounded to odd: rounded once
  float f = (float)d;
  uint32_t u;
  memcpy(&u, &f, 4);
  if (d == d && (double)f != d) {
    u -= std::fabs((double)f) > std::fabs(d);
    u |= 1;
    memcpy(&f, &u, 4);
  }
  return toBf16(f);
}
_Float16 __truncdfhf2(double);
_Float16 __truncsfhf2(float);
float __extendhfsf2(_Float16);

// The turns of stores that add in an order: a memref as MLIR passes it, and which of its elements.
static void flash_turn_await(int32_t *, int32_t *turns, int64_t offset, int64_t, int64_t stride,
                             int64_t place, int64_t turn) {
  std::atomic_ref<int32_t> at(turns[offset + place * stride]);
  while (at.load(std::memory_order_acquire) != turn)
    std::this_thread::yield();
}
static void flash_turn_pass(int32_t *, int32_t *turns, int64_t offset, int64_t, int64_t stride,
                            int64_t place, int64_t turn) {
  std::atomic_ref<int32_t> at(turns[offset + place * stride]);
  at.store(int32_t(turn + 1), std::memory_order_release);
}

void flash_baton_acquire(int64_t, int64_t);
void flash_baton_commit(int64_t, int64_t);
void flash_baton_wait(int64_t, int64_t);
void flash_baton_wait_again(int64_t, int64_t);
void flash_baton_enter(int64_t, int64_t);
void flash_baton_leave(int64_t, int64_t);
bool flash_baton_release(int64_t, int64_t);
}

llvm::orc::SymbolMap flash::jitSymbols(llvm::orc::MangleAndInterner intern) {
  llvm::orc::SymbolMap map;
  auto add = [&](const char *name, auto *function) {
    map[intern(name)] = {llvm::orc::ExecutorAddr::fromPtr(reinterpret_cast<void *>(function)),
                         llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
  };
#define FLASH_OWN(name) add(#name, &::name)
  FLASH_OWN(expf);
  FLASH_OWN(exp2f);
  FLASH_OWN(fmaf);
  FLASH_OWN(log2f);
  FLASH_OWN(logf);
  FLASH_OWN(powf);
  FLASH_OWN(tanhf);
  FLASH_OWN(memcpy);
  FLASH_OWN(memmove);
  FLASH_OWN(memset);
  FLASH_OWN(malloc);
  FLASH_OWN(free);
  FLASH_OWN(__extendhfsf2);
  FLASH_OWN(__truncdfhf2);
  FLASH_OWN(__truncsfhf2);
  FLASH_OWN(flash_turn_await);
  FLASH_OWN(flash_turn_pass);
  FLASH_OWN(flash_baton_acquire);
  FLASH_OWN(flash_baton_commit);
  FLASH_OWN(flash_baton_wait);
  FLASH_OWN(flash_baton_wait_again);
  FLASH_OWN(flash_baton_enter);
  FLASH_OWN(flash_baton_leave);
  FLASH_OWN(flash_baton_release);
#undef FLASH_OWN
  add("__truncsfbf2", &flash_truncsfbf2);
  add("__truncdfbf2", &flash_truncdfbf2);
  return map;
}
