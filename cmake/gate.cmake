# What the gate builds and runs beside the program: structure checks as tests, headers alone, fuzz programs.
# Included at the end of CMakeLists.txt: it adds to targets that are there.

# The checks of text are tests like any other, so that the runner's summary counts them.
if(MORAINE_TESTS)
  foreach(check layers sizes types format docs)
    add_test(NAME check.${check} COMMAND ${CMAKE_SOURCE_DIR}/scripts/check_${check}.sh)
    set_tests_properties(check.${check} PROPERTIES LABELS check SKIP_RETURN_CODE 77)
  endforeach()
endif()

# Real clients against the program, where pip reaches packages; elsewhere it says so and is skipped.
if(MORAINE_TESTS)
  add_test(NAME check.clients COMMAND ${CMAKE_SOURCE_DIR}/tools/check_clients.sh $<TARGET_FILE:moraine>)
  set_tests_properties(check.clients PROPERTIES LABELS clients SKIP_RETURN_CODE 77 TIMEOUT 900
                       ENVIRONMENT MORAINE_CLIENTS=${CMAKE_SOURCE_DIR}/build/clients)
  add_test(NAME check.page COMMAND ${CMAKE_SOURCE_DIR}/tools/check_page.sh $<TARGET_FILE:moraine>)
  set_tests_properties(check.page PROPERTIES LABELS clients SKIP_RETURN_CODE 77 TIMEOUT 600
                       ENVIRONMENT MORAINE_BROWSER=${CMAKE_SOURCE_DIR}/build/browser)
endif()

# headers_alone: one file for each header that includes nothing else. Built when it is asked for.
file(GLOB_RECURSE headers RELATIVE ${CMAKE_SOURCE_DIR}/src CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/*.h)
set(alone)
foreach(header ${headers})
  # Those without #pragma once are parts of a file that Highway compiles several times; fuzz.h defines the entry of a program.
  file(STRINGS ${CMAKE_SOURCE_DIR}/src/${header} once REGEX "^#pragma once" LIMIT_COUNT 1)
  if(NOT once)
    continue()
  endif()
  string(REPLACE "/" "__" name ${header})
  set(file ${CMAKE_BINARY_DIR}/alone/${name}.cc)
  file(CONFIGURE OUTPUT ${file} CONTENT "#include \"${header}\"\n" @ONLY)
  list(APPEND alone ${file})
endforeach()
# Alone means behind the precompiled standard headers, which every file of the tree has; headers_alone_strict does without them
# and takes about twice as long.
add_library(headers_alone OBJECT EXCLUDE_FROM_ALL ${alone})
add_library(headers_alone_strict OBJECT EXCLUDE_FROM_ALL ${alone})
moraine_compile(headers_alone calm)
target_compile_options(headers_alone PRIVATE -Werror)
target_compile_options(headers_alone_strict PRIVATE -O0 -g0 -Werror -fno-sanitize=all)
target_link_libraries(headers_alone PRIVATE fmt::fmt hwy::hwy)
target_link_libraries(headers_alone_strict PRIVATE fmt::fmt hwy::hwy)
set_target_properties(headers_alone_strict PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)

# With sanitizers, the loops of Highway are compiled as for speed, without them and for the baseline only: instrumented they take
# minutes to build and hours to run, and their tests compare every output with the reference, for each instruction set, in the
# release build. ref/ and all that calls them keep the sanitizers.
option(MORAINE_PLAIN_KERNELS "the SIMD loops without sanitizers" OFF)
if(MORAINE_PLAIN_KERNELS)
  file(GLOB plain CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/cpu/*.cc)
  list(APPEND plain ${CMAKE_SOURCE_DIR}/src/optim/flat_math.cc)
  set_property(SOURCE ${plain} APPEND PROPERTY COMPILE_OPTIONS -fno-sanitize=all -O2 -g0)
  set_source_files_properties(${plain} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  # Everywhere: isa.cc says from it what the binary has.
  foreach(target kernels optim)
    target_compile_definitions(mr_${target} PRIVATE HWY_COMPILE_ONLY_STATIC)
  endforeach()
  # Undefined behaviour is looked for in the program; its checks would be a third of the time to compile the tests.
  if(CMAKE_CXX_FLAGS_DEBUG MATCHES "undefined")
    get_property(targets DIRECTORY PROPERTY BUILDSYSTEM_TARGETS)
    list(FILTER targets INCLUDE REGEX "_test$")
    foreach(target ${targets})
      target_compile_options(${target} PRIVATE -fno-sanitize=undefined)
    endforeach()
  endif()
endif()

# gpu_test: the tests of src/kernels/gpu alone, for the sanitizers. Built when it is asked for; kernels_test has them too.
if(MORAINE_TESTS)
  file(GLOB gpu_tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/gpu/*_test.cc)
  add_executable(gpu_test EXCLUDE_FROM_ALL ${gpu_tests})
  target_link_libraries(gpu_test PRIVATE mr_kernels mr_testing GTest::gtest GTest::gtest_main)
  moraine_compile(gpu_test test)
endif()

# Tests of GPU kernels on their PTX, interpreted, for sm_80: a selection of some 6 s, most of the kernels; skipped without clang 19.
if(MORAINE_TESTS)
  set(ptx_filter "*WithOneResult*:GpuLinear.Every*:GpuAttention.Every*:GpuLinearBackward.Every*:GpuMatmul.Every*")
  add_test(NAME check.ptx COMMAND ${CMAKE_SOURCE_DIR}/scripts/ptx_check.sh --program $<TARGET_FILE:kernels_test>
                                  --filter ${ptx_filter} sm_80)
  set_tests_properties(check.ptx PROPERTIES LABELS check SKIP_RETURN_CODE 77 TIMEOUT 900)
endif()

# <parser>_fuzz: a libFuzzer program of each src/<folder>/**/<parser>_fuzz.cc, for clang only (scripts/fuzz.sh).
option(MORAINE_FUZZ "build the fuzz programs" OFF)
if(MORAINE_FUZZ)
  # What -fsanitize=fuzzer-no-link is made of: that itself would not go with precompiled headers.
  foreach(folder base tokenizer grammar chat data comm checkpoint)
    target_compile_options(mr_${folder} PRIVATE -fsanitize-coverage=inline-8bit-counters,pc-table,trace-cmp,indirect-calls)
  endforeach()
  file(GLOB_RECURSE fuzz_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/*_fuzz.cc)
  add_custom_target(fuzz_programs)
  foreach(source ${fuzz_sources})
    cmake_path(GET source STEM name)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${CMAKE_SOURCE_DIR}/src OUTPUT_VARIABLE folder)
    string(REGEX REPLACE "/.*" "" folder ${folder})
    add_executable(${name} EXCLUDE_FROM_ALL ${source})
    target_link_libraries(${name} PRIVATE mr_${folder})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    set_target_properties(${name} PROPERTIES DISABLE_PRECOMPILE_HEADERS ON RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
    add_dependencies(fuzz_programs ${name})
  endforeach()
endif()
