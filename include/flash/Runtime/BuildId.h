//===- BuildId.h - what identifies this build -------------------*- C++ -*-===//
#ifndef FLASH_RUNTIME_BUILDID_H
#define FLASH_RUNTIME_BUILDID_H

#include <string>

namespace flash {

/// What identifies this build of the library: equal only for equal code.
const std::string &buildId();

} // namespace flash

#endif // FLASH_RUNTIME_BUILDID_H
