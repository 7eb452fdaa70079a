// Resident: what a control group leaves, from files as the kernel writes them.
#include "base/resident.h"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <string>

#include "base/test_folder.h"

namespace moraine {
namespace {

TEST(Resident, CachesOfFilesAreLeftInAControlGroup) {
  const testing::TestFolder folder;
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder.file(name)) << text;
  };
  constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(group_available_bytes(folder.path()), kNoLimit);
  write("memory.max", "8000\n");
  write("memory.current", "7000\n");
  EXPECT_EQ(group_available_bytes(folder.path()), 1000);
  write("memory.stat", "anon 2000\nfile 5000\nactive_file 1500\ninactive_file 3000\nslab 40\n");
  EXPECT_EQ(group_available_bytes(folder.path()), 5500);
  write("memory.current", "9000\n");
  EXPECT_EQ(group_available_bytes(folder.path()), 3500);
  write("memory.max", "max\n");
  EXPECT_EQ(group_available_bytes(folder.path()), kNoLimit);
}

}  // namespace
}  // namespace moraine
