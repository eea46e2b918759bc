# One ccache for every clone: paths below the source tree are rewritten relative to the build folder,
# which must lie below the source folder at the same relative place in every clone.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # ccache 4.7 takes no KEY=VALUE arguments, hence `cmake -E env`.
  set(_launcher ${CMAKE_COMMAND} -E env
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
      CCACHE_NOHASHDIR=1
      CCACHE_COMPILERCHECK=content
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      ${CCACHE_PROGRAM})
  set(CMAKE_C_COMPILER_LAUNCHER ${_launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${_launcher})
endif()
