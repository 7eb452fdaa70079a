// TestTree: a folder of made files for one test, removed with it.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "base/file_system.h"

namespace moraine::testing {

class TestTree {
 public:
  TestTree() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    path_ = join_path(::testing::TempDir(), fmt::format("moraine-{}-{}-{}", info->test_suite_name(),
                                                        info->name(), ::getpid()));
    clear();
  }
  ~TestTree() { posix_file_system().remove_all(path_); }
  TestTree(const TestTree&) = delete;
  TestTree& operator=(const TestTree&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return join_path(path_, name); }
  std::string read(const std::string& name) const { return posix_file_system().read(file(name)); }
  void clear() {
    posix_file_system().remove_all(path_);
    posix_file_system().make_directories(path_);
  }
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
