// FileSystem: fails if a file that is cut, or that is none, ends the program without its name, or
// hangs it.
#include "base/file_system.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/file_lock.h"
#include "base/heartbeat.h"
#include "base/mapped_ranges.h"

namespace moraine {
namespace {

class Files : public ::testing::Test {
 protected:
  Files() {
    std::string pattern = ::testing::TempDir() + "moraine-files-XXXXXX";
    folder = ::mkdtemp(pattern.data());
  }
  ~Files() override { fs.remove_all(folder); }
  std::string write(const std::string& name, const std::string& content) {
    const std::string path = join_path(folder, name);
    fs.create(path)->append(content.data(), static_cast<int64_t>(content.size()));
    return path;
  }
  std::string folder;
  FileSystem& fs = posix_file_system();
};

constexpr int64_t kLong = 100'000;

TEST_F(Files, ReadingAFileThatWasCutIsAnError) {
  const std::string path = write("a", std::string(kLong, 'a'));
  const auto file = fs.map(path);
  std::string bytes(kLong, ' ');
  file->read_at(0, kLong, bytes.data());
  EXPECT_EQ(bytes, std::string(kLong, 'a'));
  fs.truncate(path, 10);
  try {
    file->read_at(5, 10, bytes.data());
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kCorrupt);
    EXPECT_NE(std::string(e.what()).find(path), std::string::npos);
  }
}

TEST_F(Files, ReadingIsHeard) {
  const auto file = fs.map(write("a", "abc"));
  const uint64_t before = heartbeat().beats;
  char bytes[3];
  file->read_at(0, 3, bytes);
  EXPECT_GT(heartbeat().beats, before);
}

// Else a run whose disk is away for a moment would take itself for a new one.
TEST_F(Files, WhatMayNotBeLookedAtIsNotAbsent) {
  const std::string inside = join_path(folder, "closed/a");
  fs.make_directories(inside);
  ::chmod(join_path(folder, "closed").c_str(), 0);
  ::chmod(folder.c_str(), 0755);
  EXPECT_EXIT(
      {
        if (::getuid() == 0 && ::setuid(65534) != 0) ::_exit(2);
        int refused = 0;
        for (const auto& look : std::vector<std::function<void()>>{[&] { fs.exists(inside); },
                                                                   [&] { fs.is_directory(inside); },
                                                                   [&] { fs.kind(inside); }}) {
          try {
            look();
          } catch (const Error& e) {
            refused += e.code() == Code::kIo ? 1 : 0;
          }
        }
        ::_exit(refused == 3 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
  ::chmod(join_path(folder, "closed").c_str(), 0755);
  EXPECT_FALSE(fs.exists(join_path(folder, "none")));
  EXPECT_FALSE(fs.exists(join_path(folder, "none/a")));
  EXPECT_FALSE(fs.exists(join_path(folder, std::string(300, 'a'))));
}

// A look at a page that is gone can only end the program.
TEST_F(Files, ALostPageOfAMappingHasAName) {
  ::testing::FLAGS_gtest_death_test_style = "fast";
  const std::string path = write("a", std::string(kLong, 'a')), other = write("b", "b");
  const auto before = fs.map(other), file = fs.map(path);
  const auto lose = [&] {
    name_lost_mappings();
    fs.truncate(path, 4096);
    const volatile uint8_t* data = file->data();
    ::_exit(data[90'000] == 'a' ? 0 : 1);
  };
  EXPECT_EXIT(lose(), ::testing::ExitedWithCode(12), "moraine: read .*/a: byte [0-9]+ is gone");
}

TEST_F(Files, APipeIsNoFile) {
  const std::string path = join_path(folder, "pipe");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const std::vector<std::function<void()>> ways = {[&] { fs.map(path); }, [&] { fs.read(path); },
                                                   [&] { fs.read("/dev/zero"); }};
  for (const auto& way : ways) {
    try {
      way();
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("not a regular file"), std::string::npos) << e.what();
    }
  }
}

TEST_F(Files, NoFileTakesThePlaceOfAPipe) {
  const std::string pipe = join_path(folder, "pipe"), link = join_path(folder, "link");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  ASSERT_EQ(::symlink(pipe.c_str(), link.c_str()), 0);
  for (const std::string& path : {pipe, link}) {
    EXPECT_TRUE(fs.is_special(path));
    const FileKind before = fs.kind(path);
    try {
      fs.write_atomic(path, "text");
      ADD_FAILURE() << path;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::kInvalidArgument) << e.what();
    }
    EXPECT_EQ(fs.kind(path), before);
    EXPECT_FALSE(fs.exists(path + ".partial"));
  }
  const std::string file = write("a", "x");
  EXPECT_FALSE(fs.is_special(file) || fs.is_special(folder) || fs.is_special(file + "/none"));
  EXPECT_TRUE(fs.is_special("/dev/null"));
}

TEST_F(Files, ALinkStaysWhereAFileIsWritten) {
  fs.make_directories(join_path(folder, "far"));
  const std::string file = join_path(folder, "far/a"), near = join_path(folder, "far/near"),
                    link = join_path(folder, "link"), round = join_path(folder, "round");
  ASSERT_EQ(::symlink("far/near", link.c_str()), 0);
  ASSERT_EQ(::symlink("a", near.c_str()), 0);
  ASSERT_EQ(::symlink("round", round.c_str()), 0);
  EXPECT_EQ(fs.end_of_links(file), file);
  EXPECT_EQ(fs.end_of_links(link), file);
  for (const char* text : {"made", "replaced"}) {  // the first through a link that leads to nothing
    fs.write_atomic(link, text);
    EXPECT_EQ(fs.read(file), text);
    EXPECT_EQ(fs.kind(link), FileKind::kLink);
    EXPECT_EQ(fs.kind(near), FileKind::kLink);
    EXPECT_EQ(fs.kind(file), FileKind::kFile);
  }
  EXPECT_EQ(fs.list(folder), (std::vector<std::string>{"far", "link", "round"}));
  try {
    fs.write_atomic(round, "text");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kIo);
    EXPECT_NE(std::string(e.what()).find(round), std::string::npos) << e.what();
  }
}

TEST_F(Files, ANameIsLookedAtWithoutFollowingIt) {
  const std::string file = write("a", "x"), link = join_path(folder, "link"),
                    pipe = join_path(folder, "pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(fs.kind(file), FileKind::kFile);
  EXPECT_EQ(fs.kind(folder), FileKind::kFolder);
  EXPECT_EQ(fs.kind(pipe), FileKind::kPipe);
  EXPECT_EQ(fs.kind("/dev/null"), FileKind::kDevice);
  for (const char* absent : {"absent", "a/below-a-file"})
    EXPECT_EQ(fs.kind(join_path(folder, absent)), FileKind::kNothing);
  for (const std::string& to : {file, folder, join_path(folder, "absent")}) {
    ASSERT_EQ(::symlink(to.c_str(), link.c_str()), 0);
    EXPECT_EQ(fs.kind(link), FileKind::kLink) << to;
    fs.remove_all(link);
  }
}

TEST_F(Files, AStreamIsReadToItsEnd) {
  const std::string path = join_path(folder, "pipe"), text(kLong, 'a');
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  std::thread writer([&] { fs.append_to(path)->append(text.data(), kLong); });
  EXPECT_EQ(read_stream(path), text);
  writer.join();
  EXPECT_EQ(read_stream(write("file", text)), text);
}

// A file with a hole that no memory holds.
TEST_F(Files, WhatIsReadWholeHasAnEnd) {
  const std::string path = write("long", "");
  fs.truncate(path, kReadBytesMax + 1);
  try {
    fs.read(path);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kInvalidArgument);
    EXPECT_NE(std::string(e.what()).find(path), std::string::npos) << e.what();
  }
}

TEST_F(Files, OneHolderOfALock) {
  auto first = FileLock::take(folder, "work in it");
  const std::string me = "process " + std::to_string(::getpid()) + " on ";
  EXPECT_EQ(fs.read(join_path(folder, kLockName)).substr(0, me.size()), me);
  try {
    FileLock::take(folder, "work in it");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kInvalidArgument);
    EXPECT_NE(std::string(e.what()).find(me), std::string::npos) << e.what();
  }
  EXPECT_TRUE(fs.exists(join_path(folder, kLockName)));  // of the first, still
  first.reset();
  EXPECT_TRUE(fs.list(folder).empty());
  write(kLockName, "process 1 on a host that crashed");
  EXPECT_NO_THROW(FileLock::take(folder, "work in it"));
  EXPECT_TRUE(fs.list(folder).empty());
}

}  // namespace
}  // namespace moraine
