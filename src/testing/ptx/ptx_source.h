// PtxSource: the PTX of our own kernels, as this machine's clang 19 writes it of the .cu files of this tree.
//
// The same flags as scripts/gpu_compile.sh has. A file is compiled when the first of its kernels is asked for.
//
// Errors:   kNotFound: no file of src/kernels/gpu has the kernel; kDevice: clang's own words.
#pragma once

#include <map>
#include <string>

#include "testing/ptx/syntax.h"

namespace moraine::testing {

// Whether clang++-19 is in PATH: without it a test is skipped, and says what would install it.
bool can_compile_ptx();
constexpr const char kNoPtxCompiler[] =
    "no clang++-19 on this machine: `scripts/setup.sh gpu` installs it";

class PtxSource {
 public:
  explicit PtxSource(const std::string& target) : target_(target) {}  // "sm_80"

  const std::string& target() const { return target_; }
  // The text that has `kernel`.
  const std::string& text_with(const std::string& kernel);

 private:
  std::string file_with(const std::string& kernel) const;

  const std::string target_;
  std::map<std::string, std::string> texts_;  // by file
};

}  // namespace moraine::testing
