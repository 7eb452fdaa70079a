// Lines of a log are events, whole, once.
#include "supervisor/log_tail.h"

#include <gtest/gtest.h>

#include "base/file_system.h"

namespace moraine {
namespace {

TEST(LogLine, HasLevelNameAndFields) {
  const auto event = parse_log_line(
      "2026-11-23T00:39:36.696Z rank=3 W rails.lost peer=1 reason=\"no answer: \"eth0\"\" rail=2");
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->level, Level::kWarning);
  EXPECT_EQ(event->name, "rails.lost");
  EXPECT_EQ(event->field("peer"), "1");
  EXPECT_EQ(event->field("reason"), "no answer: \"eth0\"");
  EXPECT_EQ(event->field("rail"), "2");
  EXPECT_EQ(event->field("none"), "");
}

TEST(LogLine, WhatIsNoEventIsNone) {
  for (const char* line :
       {"", "step 12/300  loss 1.8", "moraine train: no", "2026-11-23T00:39:36.696Z",
        "2026-11-23T00:39:36.696Z rank=0", "2026-11-23T00:39:36.696Z rank=0 X step.bad a=1",
        "2026-11-23 00:39:36.696 rank=0 W step.bad a=1"})
    EXPECT_FALSE(parse_log_line(line).has_value()) << line;
  EXPECT_TRUE(parse_log_line("2026-11-23T00:39:36.696Z rank=0 I run.ended").has_value());
  EXPECT_TRUE(parse_log_line("2026-11-23T00:39:36.696Z rank=0 I a.b =\" k=").has_value());
}

TEST(LogTail, GivesWholeLinesOnce) {
  FileSystem& fs = posix_file_system();
  const std::string path = ::testing::TempDir() + "moraine_tail.log";
  fs.remove_all(path);
  const auto add = [&](const std::string& text) {
    const auto file = fs.append_to(path);
    file->append(text.data(), static_cast<int64_t>(text.size()));
    file->close();
  };
  LogTail tail(path);
  EXPECT_EQ(tail.read(), "");
  add("one\ntwo");
  EXPECT_EQ(tail.read(), "one\n");
  EXPECT_EQ(tail.read(), "");
  add("\nthree\n");
  EXPECT_EQ(tail.read(), "two\nthree\n");
  EXPECT_EQ(tail.last_lines(), (std::vector<std::string>{"one", "two", "three"}));
  LogTail later(path, tail.offset());
  add("four");
  EXPECT_EQ(later.read(), "");
  EXPECT_EQ(later.read(false), "four");
  fs.remove_all(path);
}

}  // namespace
}  // namespace moraine
