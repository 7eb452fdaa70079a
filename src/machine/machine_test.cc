// Fails if a machine file does not survive the disk, or a damaged one is taken for a measurement.
#include "machine/machine.h"

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

TEST(Machine, WithoutAnInstructionForItBf16IsFasterWhereVectorsAreWide) {
  Machine m = example();
  EXPECT_TRUE(bf16_is_faster(m));
  m.isa = "avx2";
  EXPECT_FALSE(bf16_is_faster(m));
  m.isa = "avx512bf16", m.bf16_gflops = m.f32_gflops / 2;
  EXPECT_FALSE(bf16_is_faster(m));
  m.bf16_gflops = m.f32_gflops * 2;
  EXPECT_TRUE(bf16_is_faster(m));
}

CommLimits example_comm() {
  CommLimits c;
  c.ranks = 2;
  c.transport = "process";
  c.message_latency_us = 0.375;
  c.message_gb_s = 9.5;
  c.bucket_latency_us = 10;
  c.bucket_gb_s = 5;
  c.messages = {{8, 0.5}, {1 << 20, 110}};
  c.buckets = {{16, 0.75}};
  return c;
}

TEST(Machine, CommLimitsSurviveTheDiskAndANewMeasurementOfTheRest) {
  const testing::TempFolder folder;
  const std::string path = join_path(folder.path(), "machine.json");
  Machine with = example();
  with.comm = example_comm();
  save_machine(posix_file_system(), path, with);
  save_machine(posix_file_system(), path, example());
  const CommLimits c = load_machine(posix_file_system(), path).comm;
  EXPECT_EQ(c.ranks, 2);
  EXPECT_EQ(c.transport, "process");
  EXPECT_EQ(c.message_latency_us, 0.375);
  EXPECT_EQ(c.message_gb_s, 9.5);
  EXPECT_EQ(c.bucket_latency_us, 10);
  EXPECT_EQ(c.bucket_gb_s, 5);
  ASSERT_EQ(c.messages.size(), 2u);
  EXPECT_EQ(c.messages[1].bytes, 1 << 20);
  EXPECT_EQ(c.messages[1].us, 110);
  ASSERT_EQ(c.buckets.size(), 1u);
}

TEST(Machine, ASuggestedBucketSpendsAtMostATwentiethOnLatency) {
  Machine m = example();
  EXPECT_EQ(suggested_bucket_bytes(m), 4 << 20);
  m.comm = example_comm();
  // 10 us at 5 GB/s are 50000 bytes: 19 times as many.
  EXPECT_EQ(suggested_bucket_bytes(m), 950000);
  m.comm.bucket_latency_us = 0;
  EXPECT_EQ(suggested_bucket_bytes(m), 64 << 10);
  m.comm.bucket_latency_us = 1e6;
  EXPECT_EQ(suggested_bucket_bytes(m), 64 << 20);
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

TEST(Machine, AFileOfAnotherKindIsNoPlaceForOne) {
  const testing::TempFolder folder;
  FileSystem& fs = posix_file_system();
  const std::string path = join_path(folder.path(), "machine.json");
  const auto refused = [&] {
    try {
      check_machine_place(fs, "bench --machine", path);
    } catch (const Error& e) {
      return e.code() == Code::kInvalidArgument;
    }
    return false;
  };
  EXPECT_FALSE(refused());
  fs.write_atomic(path, "");  // as mktemp makes it
  EXPECT_FALSE(refused());
  save_machine(fs, path, example());
  EXPECT_FALSE(refused());
  for (const char* text : {"[model]\nhidden = 64\n", "{\"isa\": \"avx2\"}", "{"}) {
    fs.write_atomic(path, text);
    EXPECT_TRUE(refused()) << text;
    EXPECT_EQ(fs.read(path), text);
  }
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

TEST(Machine, ProductsAndOperationsSurviveTheDiskAndANewMeasurementOfTheRest) {
  const testing::TempFolder folder;
  const std::string path = join_path(folder.path(), "machine.json");
  Machine with = example();
  with.products = {{.is_weight = true,
                    .bf16 = true,
                    .rows = 256,
                    .n = 64,
                    .k = 32,
                    .groups = 8,
                    .gflops = 77.5}};
  with.operations = {{.name = "muon", .bf16 = true, .threads = 2, .call_us = 1.5, .factor = 2.25}};
  with.calibration = {.plans = 30,
                      .ranks_most = 8,
                      .rank_correlation = 0.75,
                      .error_median = 0.125,
                      .error_largest = 0.5};
  save_machine(posix_file_system(), path, with);
  save_machine(posix_file_system(), path, example());
  const Machine m = load_machine(posix_file_system(), path);
  EXPECT_EQ(m.calibration.plans, 30);
  EXPECT_EQ(m.calibration.ranks_most, 8);
  EXPECT_EQ(m.calibration.rank_correlation, 0.75);
  EXPECT_EQ(m.calibration.error_median, 0.125);
  EXPECT_EQ(m.calibration.error_largest, 0.5);
  ASSERT_EQ(m.products.size(), 1u);
  const ProductPoint& p = m.products[0];
  EXPECT_TRUE(p.is_weight && p.bf16);
  EXPECT_EQ(p.rows, 256);
  EXPECT_EQ(p.n, 64);
  EXPECT_EQ(p.k, 32);
  EXPECT_EQ(p.groups, 8);
  EXPECT_EQ(p.gflops, 77.5);
  ASSERT_EQ(m.operations.size(), 1u);
  EXPECT_EQ(m.operations[0].name, "muon");
  EXPECT_EQ(m.operations[0].threads, 2);
  EXPECT_EQ(m.operations[0].call_us, 1.5);
  EXPECT_EQ(m.operations[0].factor, 2.25);
}

// A measured shape has its own rate; between two the rate is between theirs; other kinds and types do not count.
TEST(Machine, RatesOfProductsAreInterpolated) {
  Machine m = example();
  EXPECT_EQ(product_gflops(m, {.rows = 10, .n = 10, .k = 10}), m.f32_gflops);
  m.products = {{.rows = 64, .n = 256, .k = 256, .gflops = 100},
                {.rows = 4096, .n = 256, .k = 256, .gflops = 400},
                {.is_weight = true, .rows = 512, .n = 256, .k = 256, .gflops = 7},
                {.bf16 = true, .rows = 512, .n = 256, .k = 256, .gflops = 9000}};
  EXPECT_NEAR(product_gflops(m, {.rows = 64, .n = 256, .k = 256}), 100, 1e-3);
  EXPECT_NEAR(product_gflops(m, {.rows = 512, .n = 256, .k = 256}), 200, 1e-9);
  const double near = product_gflops(m, {.rows = 128, .n = 256, .k = 256});
  EXPECT_GT(near, 100);
  EXPECT_LT(near, 200);
}

}  // namespace
}  // namespace moraine
