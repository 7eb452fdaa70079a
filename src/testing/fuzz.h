// Fuzz: what the fuzz programs of parsers share: an input as a file, and what a parser may do with it.
//
// A parser of foreign bytes has one right answer and one wrong one: a value, or an Error. Anything
// else (another exception, MR_CHECK, a sanitizer's report, minutes of work) is a finding.
// scripts/fuzz.sh builds and runs them; the programs link nothing but the library that they test.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"

namespace moraine::testing {

// Runs f(); an Error is an answer.
template <class F>
void parses_or_throws_error(const F& f) {
  try {
    f();
  } catch (const Error& e) {
    if (std::string_view(e.what()).empty()) std::abort();  // an Error says something
  }
}

// A file of this process in memory, for parsers that open a path.
class FuzzFile {
 public:
  // `name`: the last part of the path, for parsers that look at it.
  explicit FuzzFile(const std::string& name) {
    const char* base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    folder_ = std::string(base) + "/moraine-fuzz-XXXXXX";
    if (mkdtemp(folder_.data()) == nullptr) std::abort();
    path_ = folder_ + "/" + name;
  }
  ~FuzzFile() {
    std::remove(path_.c_str());
    rmdir(folder_.c_str());
  }
  FuzzFile(const FuzzFile&) = delete;
  FuzzFile& operator=(const FuzzFile&) = delete;

  void write(std::string_view bytes) {
    std::FILE* file = std::fopen(path_.c_str(), "wb");
    if (file == nullptr) std::abort();
    const bool done = bytes.empty() || std::fwrite(bytes.data(), bytes.size(), 1, file) == 1;
    if (std::fclose(file) != 0 || !done) std::abort();
  }
  const std::string& path() const { return path_; }
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_, path_;
};

}  // namespace moraine::testing

// Every fuzz program defines this: one input, tried once.
namespace moraine {
void fuzz_one(std::string_view input);
}

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, unsigned long bytes) {
  moraine::fuzz_one({reinterpret_cast<const char*>(data), bytes});
  return 0;
}
