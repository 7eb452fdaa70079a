// Fails if a machine file does not survive the disk, or a damaged one is taken for a measurement.
#include "plan/machine.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "testing/rig.h"

namespace moraine {
namespace {

Machine example() {
  Machine m;
  m.isa = "avx512";
  m.threads = 2;
  m.f32_gflops = 515.25;
  m.int8_gops = 2065;
  m.read_gb_s = 62.5;
  m.copy_gb_s = 92;
  m.measured_utc = "2026-01-02T03:04:05Z";
  return m;
}

TEST(Machine, SurvivesTheDisk) {
  const testing::TempFolder folder;
  const std::string path = join_path(folder.path(), "machine.json");
  save_machine(posix_file_system(), path, example());
  const Machine m = load_machine(posix_file_system(), path);
  EXPECT_EQ(m.isa, "avx512");
  EXPECT_EQ(m.threads, 2);
  EXPECT_EQ(m.f32_gflops, 515.25);
  EXPECT_EQ(m.bf16_gflops, 0);
  EXPECT_EQ(m.int8_gops, 2065);
  EXPECT_EQ(m.read_gb_s, 62.5);
  EXPECT_EQ(m.copy_gb_s, 92);
  EXPECT_EQ(m.measured_utc, "2026-01-02T03:04:05Z");
  EXPECT_EQ(matmul_gflops(m, true), 515.25);
}

Code code_of(const std::string& content) {
  const testing::TempFolder folder;
  const std::string path = join_path(folder.path(), "machine.json");
  posix_file_system().write_atomic(path, content);
  try {
    load_machine(posix_file_system(), path);
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("machine.json"), std::string::npos) << e.what();
    return e.code();
  }
  ADD_FAILURE() << "accepted: " << content;
  return Code::kIo;
}

TEST(Machine, DamagedFilesAreCorrupt) {
  const testing::TempFolder folder;
  const std::string path = join_path(folder.path(), "machine.json");
  save_machine(posix_file_system(), path, example());
  const std::string good = posix_file_system().read(path);
  for (size_t cut = 0; cut + 2 < good.size(); cut += 7) {
    EXPECT_EQ(code_of(good.substr(0, cut)), Code::kCorrupt) << cut;
  }
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string bad = good;
    bad.replace(bad.find(from), from.size(), to);
    return bad;
  };
  EXPECT_EQ(code_of(replaced("515.25", "-1")), Code::kCorrupt);
  EXPECT_EQ(code_of(replaced("515.25", "0")), Code::kCorrupt);
  EXPECT_EQ(code_of(replaced("515.25", "1e300")), Code::kCorrupt);
  EXPECT_EQ(code_of(replaced("515.25", "\"fast\"")), Code::kCorrupt);
  EXPECT_EQ(code_of(replaced("\"avx512\"", "512")), Code::kCorrupt);
  EXPECT_EQ(code_of(replaced("read_gb_s", "reed_gb_s")), Code::kCorrupt);
  EXPECT_EQ(code_of("[]"), Code::kCorrupt);
  EXPECT_EQ(code_of("3"), Code::kCorrupt);
}

TEST(Machine, MissingFileIsNotFound) {
  const testing::TempFolder folder;
  try {
    load_machine(posix_file_system(), join_path(folder.path(), "none.json"));
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kNotFound);
  }
}

TEST(Machine, QuickMeasurementFillsTheFields) {
  Pool pool(1);
  const Machine m = measure_machine_quick(pool);
  EXPECT_GT(m.f32_gflops, 0);
  EXPECT_GT(m.read_gb_s, 0);
  EXPECT_GT(m.copy_gb_s, 0);
  EXPECT_EQ(m.threads, 1);
  EXPECT_EQ(m.measured_utc.size(), 20u);
}

}  // namespace
}  // namespace moraine
