// Places: where the sources and the built program are, for tests that read or start them.
//
// The paths are in one generated file of mr_testing and not on the command line of every test: an object compiled in
// one folder then serves the compiler cache in any other.
#pragma once

#include <string>

namespace moraine::testing {

std::string source_path(const std::string& name);  // name: "tests/golden/native-tiny"
std::string moraine_program();                     // the `moraine` of this build
std::string collectives_stand_in();                // a library that plays NCCL (tests/stand_in)
std::string matmul_stand_in();                     // one that plays cuBLASLt and hipBLASLt

}  // namespace moraine::testing
