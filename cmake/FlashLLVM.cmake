# MLIR/LLVM 22 from Debian with two link modes in one configure: flash_link_dylib() uses libMLIR.so
# and libLLVM.so, flash_link_static() the archives. Own object libraries name neither; the program
# or library that takes their objects picks the mode, and never both.

# LLVMExports.cmake names zstd::libzstd_shared; nothing of zstd is needed (lib/CAPI/Stubs.c).
if(NOT TARGET zstd::libzstd_shared)
  add_library(zstd::libzstd_shared INTERFACE IMPORTED)
endif()
set(ZLIB_USE_STATIC_LIBS ON) # must stand before the first find_package(ZLIB)
find_package(MLIR REQUIRED CONFIG)
list(APPEND CMAKE_MODULE_PATH ${MLIR_CMAKE_DIR} ${LLVM_CMAKE_DIR})
include(TableGen)
include(AddLLVM)
include(AddMLIR)
include(HandleLLVMOptions)

include_directories(SYSTEM ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
include_directories(${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include)
separate_arguments(_definitions NATIVE_COMMAND ${LLVM_DEFINITIONS})
add_definitions(${_definitions})
# HandleLLVMOptions adds -fno-exceptions to add_llvm_* targets only. A forgotten enum case is an error.
add_compile_options(
  $<$<COMPILE_LANGUAGE:CXX>:-fno-exceptions>
  -Wall -Werror=switch -Werror=return-type -Werror=unused-result)

# Debian's archives name the dylibs in their link interface; drop them, so that an archive never drags
# in a second LLVM. The dylib targets keep theirs.
get_property(_imported DIRECTORY PROPERTY IMPORTED_TARGETS)
foreach(t IN LISTS _imported)
  get_target_property(_type ${t} TYPE)
  get_target_property(_libraries ${t} INTERFACE_LINK_LIBRARIES)
  if(_type STREQUAL "STATIC_LIBRARY" AND _libraries)
    list(FILTER _libraries EXCLUDE REGEX "^(LLVM|MLIR|\\$<LINK_ONLY:(LLVM|MLIR)>)$")
    set_target_properties(${t} PROPERTIES INTERFACE_LINK_LIBRARIES "${_libraries}")
  endif()
endforeach()

# The precompiled header is the "object" of a one-file library. target_precompile_headers() is not used:
# its PCH records absolute paths, so no other clone could take it from the cache. Here the main file is a
# header of Debian's, the rest comes by -include, and nothing names the clone. System headers only.
if(FLASH_PCH)
  set(_main ${MLIR_INCLUDE_DIRS}/mlir/Transforms/DialectConversion.h)
  set_source_files_properties(${_main} PROPERTIES LANGUAGE CXX HEADER_FILE_ONLY OFF)
  add_library(flash_pch OBJECT ${_main})
  set(FLASH_PCH_FILE ${PROJECT_BINARY_DIR}/CMakeFiles/flash_pch.dir${_main}.o)
  target_compile_options(flash_pch PRIVATE
    -x c++-header -Xclang -fno-pch-timestamp -fpch-instantiate-templates)
  foreach(h
      Dialect/Arith/IR/Arith
      Dialect/ControlFlow/IR/ControlFlowOps
      Dialect/Func/IR/FuncOps
      Dialect/GPU/IR/GPUDialect
      Dialect/LLVMIR/LLVMDialect
      Dialect/LLVMIR/NVVMDialect
      Dialect/Math/IR/Math
      Dialect/MemRef/IR/MemRef
      Dialect/SCF/IR/SCF
      Dialect/Vector/IR/VectorOps
      IR/DialectImplementation
      IR/ImplicitLocOpBuilder
      Pass/PassManager
      Transforms/GreedyPatternRewriteDriver)
    target_compile_options(flash_pch PRIVATE "SHELL:-include mlir/${h}.h")
  endforeach()
endif()

# flash_mlir_sources(TARGET FILES...): adds sources that include MLIR headers. They see the generated
# headers and use the precompiled one.
function(flash_mlir_sources target)
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE _files)
  target_sources(${target} PRIVATE ${_files})
  add_dependencies(${target} FlashIncGen)
  if(FLASH_PCH)
    # A literal path (OBJECT_DEPENDS takes no generator expression); add_dependencies alone is not
    # enough with Ninja.
    set_source_files_properties(${_files} TARGET_DIRECTORY ${target}
      PROPERTIES OBJECT_DEPENDS ${FLASH_PCH_FILE}
                 COMPILE_OPTIONS "-include-pch;${FLASH_PCH_FILE};-Xclang;-fno-pch-timestamp;-fpch-instantiate-templates")
  endif()
endfunction()

# flash_link_dylib(TARGET LIBRARIES...): own object libraries plus the shared libMLIR and libLLVM.
function(flash_link_dylib target)
  target_link_libraries(${target} PRIVATE ${ARGN} MLIR LLVM)
endfunction()

# flash_link_static(TARGET OWN objects... LLVM components... MLIR archives...): everything of LLVM inside.
function(flash_link_static target)
  cmake_parse_arguments(A "" "" "LLVM;MLIR;OWN" ${ARGN})
  llvm_map_components_to_libnames(_llvm ${A_LLVM})
  # libgcc.a stands before libgcc_s: no symbol versions of GCC 12, so that older distributions load it.
  target_link_libraries(${target} PRIVATE ${A_OWN} ${A_MLIR} ${_llvm} gcc)
  target_link_options(${target} PRIVATE
    -Wl,--gc-sections -Wl,--as-needed -Wl,-O2 -static-libstdc++
    -Wl,-z,defs -Wl,--exclude-libs,ALL $<$<CONFIG:Release>:-Wl,-s>)
endfunction()
