//===- Failure.h - why something could not be done --------------*- C++ -*-===//
#ifndef FLASH_RUNTIME_FAILURE_H
#define FLASH_RUNTIME_FAILURE_H

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace flash {

struct Failure {
  enum Kind {
    invalid,  ///< the caller's input does not make sense
    notBuilt, ///< it does, and this version has no kernel for it
    internal, ///< the machine, the driver or the compiler failed
  };
  Kind kind;
  std::string sentence;
};

template <class T> using Or = std::variant<T, Failure>;
/// Nothing when it was done.
using Outcome = std::optional<Failure>;

inline Failure invalid(std::string sentence) { return {Failure::invalid, std::move(sentence)}; }
inline Failure notBuilt(std::string sentence) { return {Failure::notBuilt, std::move(sentence)}; }
inline Failure internal(std::string sentence) { return {Failure::internal, std::move(sentence)}; }

} // namespace flash

#endif // FLASH_RUNTIME_FAILURE_H
