# How a file is compiled: through the cache if there is one, behind precompiled headers, and optimised as its folder needs.

# The cache hits in any folder: paths below the source tree are relative in its key, the working directory is not in
# it, and precompiled headers are known by their content. Said here, so that nobody's own settings are needed.
find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE})
endif()
add_compile_options(-ffile-prefix-map=${CMAKE_SOURCE_DIR}=.)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  add_compile_options(-fpch-preprocess)  # ccache looks for it
elseif(CMAKE_CXX_COMPILER_ID STREQUAL Clang)
  add_compile_options("SHELL:-Xclang -fno-pch-timestamp")
  add_compile_options(-Wno-unknown-pragmas)  # #pragma GCC ivdep
endif()

# Three kinds of file, each with one precompiled header:
#   loops  as the preset says (release: -O3)
#   calm   waits for disks, ranks and kernels and has no hot loop of its own: -O1 takes half the time to compile
#   test   as calm, with googletest
set(MORAINE_CALM bench chaos chat checkpoint cli eval plan server study supervisor train)
function(moraine_headers kind)
  add_library(headers_${kind} OBJECT cmake/headers.cc)
  target_link_libraries(headers_${kind} PRIVATE fmt::fmt)
  target_precompile_headers(headers_${kind} PRIVATE
    <algorithm> <array> <atomic> <cmath> <condition_variable> <cstdint> <cstring> <functional> <limits> <map> <memory>
    <mutex> <numeric> <optional> <set> <span> <string> <string_view> <thread> <utility> <vector> <fmt/core.h>)
  if(NOT kind STREQUAL "loops")
    target_compile_options(headers_${kind} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
endfunction()
moraine_headers(loops)
moraine_headers(calm)
if(MORAINE_TESTS)
  moraine_headers(test)
  target_link_libraries(headers_test PRIVATE GTest::gtest)
  target_precompile_headers(headers_test PRIVATE <gtest/gtest.h>)
endif()

function(moraine_compile target kind)
  target_precompile_headers(${target} REUSE_FROM headers_${kind})
  if(NOT kind STREQUAL "loops")
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
endfunction()

# The kind of the files of src/<folder>.
function(moraine_kind folder out)
  if(folder STREQUAL "testing")
    set(${out} test PARENT_SCOPE)
  elseif(folder IN_LIST MORAINE_CALM)
    set(${out} calm PARENT_SCOPE)
  else()
    set(${out} loops PARENT_SCOPE)
  endif()
endfunction()
