// CheckPlace: fails if a place that can not be written to passes, or if looking at one leaves or changes something.
#include "base/check_place.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <functional>

#include "base/error.h"

namespace moraine {
namespace {

class Places : public ::testing::Test {
 protected:
  Places() {
    std::string pattern = ::testing::TempDir() + "moraine-places-XXXXXX";
    folder = ::mkdtemp(pattern.data());
    fs.write_atomic(at("file"), "kept");
  }
  ~Places() override { fs.remove_all(folder); }
  std::string at(const std::string& name) const { return join_path(folder, name); }
  void refused(const std::function<void()>& check, const std::string& piece) const {
    try {
      check();
      ADD_FAILURE() << "passes: " << piece;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(piece), std::string::npos) << e.what();
      EXPECT_TRUE(std::string(e.what()).starts_with("bench --chart ")) << e.what();
    }
  }
  std::string folder;
  FileSystem& fs = posix_file_system();
};

TEST_F(Places, OfAFile) {
  const auto check = [&](const std::string& path) {
    return [&, path] { check_file_place(fs, "bench --chart", path); };
  };
  check(at("new"))();
  check(at("file"))();
  EXPECT_EQ(fs.list(folder), std::vector<std::string>{"file"});
  EXPECT_EQ(fs.read(at("file")), "kept");
  refused(check(folder), "this is a folder");
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  refused(check(at("pipe")), "this is a device, a pipe or a socket");
  EXPECT_EQ(fs.kind(at("pipe")), FileKind::kPipe);
  fs.remove_all(at("pipe"));
  refused(check(at("none/new")), "there is no folder " + at("none") + "; make it");
  refused(check(at("file/new")), "there is no folder " + at("file"));
  refused(check("/proc/new.html"),
          "wanted a place that can be written to");  // nobody may, not even root
  // What another process is writing stays.
  fs.create(at("new.partial"))->append("half", 4);
  check(at("new"))();
  EXPECT_EQ(fs.read(at("new.partial")), "half");
}

TEST_F(Places, OfAFolder) {
  const auto check = [&](const std::string& path) {
    return [&, path] { check_folder_place(fs, "bench --chart", path); };
  };
  check(folder)();
  check(at("new/deeper"))();
  EXPECT_EQ(fs.list(folder), std::vector<std::string>{"file"});
  refused(check(at("file")), at("file") + " is no folder");
  refused(check(at("file/new")), at("file") + " is no folder");
  refused(check("/proc/new/folder"), "wanted a place that can be written to");
}

}  // namespace
}  // namespace moraine
