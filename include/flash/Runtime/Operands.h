//===- Operands.h - the tensors and scalars of one call ---------*- C++ -*-===//
#ifndef FLASH_RUNTIME_OPERANDS_H
#define FLASH_RUNTIME_OPERANDS_H

#include "flash-c/Flash.h"

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace flash {

/// What a kernel's `flash.arg` names.
enum class Operand {
  q,
  k,
  v,
  o,
  lse,
  sink,
  oPartial,
  lsePartial,
  cuSeqlensQ,
  cuSeqlensK,
  sequsedQ,
  sequsedK,
  pageTable,
  kvBatchIdx,
  leftpadK,
  schedule,
  kNew,
  vNew,
  rotaryCos,
  rotarySin,
  qTurned,
  dO,
  dq,
  dk,
  dv,
  dsink,
  dqSum,
  lseLog2,
  delta,
  turns,
  workspace
};

inline constexpr std::array<std::string_view, 31> operandNames = {"q",
                                                                  "k",
                                                                  "v",
                                                                  "o",
                                                                  "lse",
                                                                  "sink",
                                                                  "o_partial",
                                                                  "lse_partial",
                                                                  "cu_seqlens_q",
                                                                  "cu_seqlens_k",
                                                                  "seqused_q",
                                                                  "seqused_k",
                                                                  "page_table",
                                                                  "kv_batch_idx",
                                                                  "leftpad_k",
                                                                  "schedule",
                                                                  "k_new",
                                                                  "v_new",
                                                                  "rotary_cos",
                                                                  "rotary_sin",
                                                                  "q_turned",
                                                                  "do",
                                                                  "dq",
                                                                  "dk",
                                                                  "dv",
                                                                  "dsink",
                                                                  "dq_sum",
                                                                  "lse_log2",
                                                                  "delta",
                                                                  "turns",
                                                                  "workspace"};

inline std::string_view operandName(Operand operand) { return operandNames[size_t(operand)]; }

/// Whether it holds 32-bit integers, of sequences.
inline bool isTable(Operand operand) {
  return operand >= Operand::cuSeqlensQ && operand <= Operand::schedule;
}

inline std::optional<Operand> parseOperand(std::string_view name) {
  for (size_t i = 0; i < operandNames.size(); ++i)
    if (operandNames[i] == name)
      return Operand(i);
  return std::nullopt;
}

/// The tensors of a call by name; null where it has none.
struct Operands {
  std::array<const FlashTensor *, operandNames.size()> tensors = {};

  const FlashTensor *operator[](Operand operand) const { return tensors[size_t(operand)]; }
  const FlashTensor *&operator[](Operand operand) { return tensors[size_t(operand)]; }
};

} // namespace flash

#endif // FLASH_RUNTIME_OPERANDS_H
