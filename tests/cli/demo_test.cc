// Demo: how long the demo trains. Fails if a slow machine gets a run of an hour, a fast one more
// tokens than help, a choice is not kept, or a run from before there was a choice gets another.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/file_system.h"
#include "base/test_folder.h"
#include "testing/places.h"

namespace moraine {
namespace {

using testing::TestFolder;

class DemoTokens : public ::testing::Test {
 protected:
  // The script's answer for a program whose `bench train` measures `rate`.
  std::string choose(const std::string& rate) {
    folder.write("moraine",
                 "#!/bin/sh\n[ \"$1 $2\" = \"bench train\" ] || exit 2\necho '" + rate + "'\n");
    const std::string out = folder.file("out");
    const int status = std::system(("chmod +x " + folder.file("moraine") + " && " +
                                    testing::source_path("scripts/demo_tokens.sh") + " " +
                                    folder.file("moraine") + " configs/demo.toml " +
                                    folder.file("run") + " >" + out + " 2>" + folder.file("err"))
                                       .c_str());
    if (status != 0) return "failed";
    return posix_file_system().read(out);
  }
  static std::string line(const std::string& rate) {
    return R"({"alone_tokens_per_s":0.0,"bench":"train","tokens_per_s":)" + rate + R"(,"ranks":1})";
  }
  TestFolder folder;
};

TEST_F(DemoTokens, TenMinutesOfThisMachineBetweenBounds) {
  const std::pair<const char*, const char*> cases[] = {{"2345.678", "1400000\n"},
                                                       {"5000", "3000000\n"},
                                                       {"16900.1", "6000000\n"},
                                                       {"900.5", "1000000\n"}};
  for (const auto& [rate, tokens] : cases) {
    EXPECT_EQ(choose(line(rate)), tokens);
    posix_file_system().remove_all(folder.file("run"));
  }
  EXPECT_NE(posix_file_system().read(folder.file("err")).find("6 M take 111 minutes"),
            std::string::npos);
}

TEST_F(DemoTokens, TheChoiceIsKept) {
  EXPECT_EQ(choose(line("5000")), "3000000\n");
  EXPECT_EQ(choose(line("16900")), "3000000\n");
}

TEST_F(DemoTokens, WhatIsKeptIsANumber) {
  for (const char* kept : {"abc\n", "12 34\n", "-5\n", "1e6\n", "0\n"}) {
    folder.write("run/demo_tokens", kept);
    EXPECT_EQ(choose(line("5000")), "failed") << kept;
    EXPECT_NE(folder.read("err").find("run/demo_tokens holds"), std::string::npos)
        << folder.read("err");
  }
}

TEST_F(DemoTokens, ARunFromBeforeGoesOnAsItBegan) {
  posix_file_system().make_directories(folder.file("run"));
  folder.write("run/config.toml",
               "[data]\ntokens = 5\n[train]\nseed = 1\ntokens = 6000000\n[[phase]]\ntokens = 7\n");
  EXPECT_EQ(choose(line("2000")), "6000000\n");
}

TEST_F(DemoTokens, WithoutARateThereIsNoChoice) {
  EXPECT_EQ(choose("nothing"), "failed");
  EXPECT_FALSE(posix_file_system().exists(folder.file("run/demo_tokens")));
}

}  // namespace
}  // namespace moraine
