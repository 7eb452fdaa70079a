// TestFolder: a folder of its own for one test, removed with everything in it.
//
// In memory where the system offers that and TEST_TMPDIR is not set: the fault tests make ten
// thousands of small files, 6 s of a disk's file system against 1 s.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "base/file_system.h"

namespace moraine::testing {

class TestFolder {
 public:
  TestFolder() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    const bool in_memory = std::getenv("TEST_TMPDIR") == nullptr && ::access("/dev/shm", W_OK) == 0;
    std::string name = std::string("moraine-") + info->test_suite_name() + "-" + info->name() +
                       "-" + std::to_string(::getpid());
    std::replace(name.begin(), name.end(), '/',
                 '-');  // of parameterised tests: one folder, no path
    path_ = join_path(in_memory ? "/dev/shm" : ::testing::TempDir(), name);
    clear();
  }
  ~TestFolder() { posix_file_system().remove_all(path_); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return join_path(path_, name); }
  std::string read(const std::string& name) const { return posix_file_system().read(file(name)); }
  void clear() {
    posix_file_system().remove_all(path_);
    posix_file_system().make_directories(path_);
  }
  // With the folders of a name like "a/b/c".
  void write(const std::string& name, const std::string& content) const {
    posix_file_system().make_directories(parent_path(file(name)));
    const auto out = posix_file_system().create(file(name));
    out->append(content.data(), static_cast<int64_t>(content.size()));
    out->close();
  }

 private:
  std::string path_;
};

}  // namespace moraine::testing
