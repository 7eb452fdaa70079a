// Fails if one byte of an event file moves. The golden bytes were written by TensorBoard's own
// writer.
#include "train/tensorboard.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "testing/rig.h"

namespace moraine {
namespace {

using namespace testing;

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<uint8_t>(c));
  return text;
}

TEST(Tensorboard, Crc32cMatchesTheStandard) {
  EXPECT_EQ(crc32c("", 0), 0u);
  EXPECT_EQ(crc32c("123456789", 9), 0xe3069283u);
  const std::string zeros(32, '\0'), ones(32, '\xff');  // RFC 3720 B.4
  EXPECT_EQ(crc32c(zeros.data(), 32), 0x8a9136aau);
  EXPECT_EQ(crc32c(ones.data(), 32), 0x62a8ab43u);
}

TEST(Tensorboard, GoldenBytes) {
  TempFolder folder;
  EventWriter writer(posix_file_system(), join_path(folder.path(), "tb"), 299, 1700000000.5);
  const Scalar scalars[] = {{"train/loss", 2.5}, {"train/lr", 0.001}};
  writer.write(300, 1700000001.0, scalars);
  EXPECT_TRUE(writer.path().ends_with("tb/events.out.tfevents.1700000000.moraine"));
  EXPECT_EQ(
      hex(posix_file_system().read(writer.path())),
      "1800000000000000a37f4b220900002040fc54d9411a0d627261696e2e4576656e743a322b35311010000000"
      "0000000095fbfe180900002040fc54d94110ac023a020801b94512a33200000000000000241956ec09000040"
      "40fc54d94110ac022a240a110a0a747261696e2f6c6f737315000020400a0f0a08747261696e2f6c72156f12"
      "833ae876fc16");
}

TEST(Tensorboard, ANewRunHasNoSessionStartAndFilesNeverCollide) {
  TempFolder folder;
  FileSystem& fs = posix_file_system();
  const EventWriter first(fs, folder.path(), 0, 100), second(fs, folder.path(), 0, 100);
  EXPECT_NE(first.path(), second.path());
  EXPECT_LT(first.path(), second.path());
  EXPECT_EQ(fs.file_bytes(first.path()), 16 + 24);  // framing, wall time, version
}

TEST(Tensorboard, UnknownNumbersAreLeftOut) {
  TempFolder folder;
  FileSystem& fs = posix_file_system();
  EventWriter writer(fs, folder.path(), 0, 100);
  StepMetrics m;
  m.step = 1, m.gradient_norm = 0.5;
  writer.write(m, 101);
  const std::string bytes = fs.read(writer.path());
  EXPECT_NE(bytes.find("train/loss"), std::string::npos);
  EXPECT_NE(bytes.find("train/gradient_norm"), std::string::npos);
  EXPECT_EQ(bytes.find("valid/loss"), std::string::npos);
  EXPECT_EQ(bytes.find("experts/"), std::string::npos);
}

}  // namespace
}  // namespace moraine
