// Log: fails if a field from a file can begin a line of its own, or if a line lacks its rank or event.
#include "base/log.h"

#include <gtest/gtest.h>

namespace moraine {
namespace {

TEST(Log, AnEventIsOneLineWhateverItsFieldsHold) {
  ::testing::internal::CaptureStderr();
  log_event(Level::kWarning, "checkpoint.bad", "reason=\"{}\"",
            "a\x1b[2J\n2026-01-01T00:00:00.000Z rank=0 I checkpoint.saved");
  const std::string line = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(line.find('\n'), line.size() - 1) << line;
  EXPECT_EQ(line.find('\x1b'), std::string::npos) << line;
  EXPECT_NE(line.find("Z rank=0 W checkpoint.bad reason=\"a\\x1b[2J\\n2026"), std::string::npos)
      << line;
}

}  // namespace
}  // namespace moraine
