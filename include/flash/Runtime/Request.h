//===- Request.h - a problem as text, and its plan --------------*- C++ -*-===//
//
// What flash_compile is asked (Flash.h describes the JSON), planned once, and the two texts made of
// it: the op that goes through the pipeline and the key of its program.
//
//===----------------------------------------------------------------------===//
#ifndef FLASH_RUNTIME_REQUEST_H
#define FLASH_RUNTIME_REQUEST_H

#include "flash/Runtime/Failure.h"
#include "flash/Schedule/Plan.h"

#include <map>

namespace flash {

struct Request {
  std::string text; ///< as it was asked; what records advised stands in it as a plan
  schedule::Problem problem;
  bool merge = false;                 ///< not attention but the join of its parts; there is no plan
  std::string byHand;                 ///< "#flash.plan<...>" of a hand or a record, or empty
  std::map<std::string, bool> passes; ///< optional passes by name
  schedule::Plan plan;
  std::string
      planText; ///< `byHand` and what the planner decided with the sizes: "#flash.plan<...>"
};

/// Parses and plans; what the planner refuses is refused here.
Or<Request> readRequest(const std::string &text);

/// Everything that shapes the code, the compiler and the assembler left out.
std::string keyOf(const Request &request);

/// A function of one flash.attention (or flash.combine) over memrefs whose sizes and strides are
/// known at run time.
std::string opText(const Request &request);

/// Name of the function in opText, which names the kernels.
inline constexpr const char *kernelName = "flash_attention";

} // namespace flash

#endif // FLASH_RUNTIME_REQUEST_H
