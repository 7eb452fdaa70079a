// NamedFile: fails if a file that is not there, or is a folder, is told without its flag.
#include "base/named_file.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/test_folder.h"

namespace moraine {
namespace {

TEST(NamedFile, ErrorsNameTheFlag) {
  const testing::TestFolder folder;
  folder.write("a.toml", "text");
  FileSystem& fs = posix_file_system();
  EXPECT_EQ(read_named_file(fs, "train --config", folder.file("a.toml")), "text");
  const auto told = [&](const std::string& path) -> std::string {
    try {
      return read_named_file(fs, "train --config", path);
    } catch (const Error& e) {
      return std::string(code_name(e.code())) + " " + e.what();
    }
  };
  const std::string none = folder.file("none");
  EXPECT_EQ(told(none), std::string(code_name(Code::kNotFound)) + " train --config " + none +
                            ": there is no such file; look for a mistake in its name");
  EXPECT_NE(told(folder.path()).find("train --config " + folder.path() + ": this is a folder"),
            std::string::npos);
}

}  // namespace
}  // namespace moraine
