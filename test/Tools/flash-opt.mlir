// The tool knows our dialects beside upstream's, and so does Debian's mlir-opt with the plugin.
// RUN: flash-opt --show-dialects | FileCheck %s
// RUN: mlir-opt --load-dialect-plugin=%plugin --load-pass-plugin=%plugin --show-dialects | FileCheck %s
// CHECK-LABEL: Available Dialects:
// CHECK-SAME: flash{{[^_]}}
// CHECK-SAME: flash_tile
