// Fails if a field is lost on the way to disk and back, or a resumed run tells two histories.
#include "train/metrics.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "testing/rig.h"

namespace moraine {
namespace {

using namespace testing;

StepMetrics example() {
  StepMetrics m;
  m.step = 1200, m.steps_total = 50000, m.tokens_seen = 12345678901;
  m.loss = 2.31412, m.gradient_norm = 0.4123, m.lr = 3e-4, m.tokens_per_s = 12900,
  m.percent_of_peak = 41.23;
  m.seconds = 0.8124, m.seconds_left = 723, m.load_max_over_mean = 1.21, m.load_entropy = 0.99,
  m.rank_load_over_mean = 1.04, m.home_load_over_mean = 1.9, m.skip_rate = 0.0004;
  return m;
}

TEST(Metrics, HumanLine) {
  StepMetrics m = example();
  EXPECT_EQ(
      human_line(m),
      "step 1200/50000  loss 2.3141  norm 0.41  lr 3.0e-4  812 ms  12.9k tok/s  41.2% of peak  "
      "balance 1.21 ent 0.99 skip 0.0% dead 0  ranks 1.04  left 12m03s");
  m.rank_load_over_mean = m.home_load_over_mean = StepMetrics::kUnknown;
  m.valid_loss = 2.5, m.bits_per_byte = 1.0234, m.load_max_over_mean = StepMetrics::kUnknown,
  m.steps_total = 0;
  m.percent_of_peak = m.seconds_left = StepMetrics::kUnknown, m.seconds = 12.34, m.lr = 2.5e-12;
  EXPECT_EQ(human_line(m),
            "step 1200  loss 2.3141  valid 2.5000  1.023 bits/byte  norm 0.41  lr 2.5e-12  12.3 s  "
            "12.9k tok/s");
  EXPECT_EQ(human_line({}), "step 0  loss nan  norm nan");
}

TEST(Metrics, DurationsAndCounts) {
  EXPECT_EQ(format_duration(0.2), "0s");
  EXPECT_EQ(format_duration(59.4), "59s");
  EXPECT_EQ(format_duration(59.6), "1m00s");
  EXPECT_EQ(format_duration(3599.6), "1h00m");
  EXPECT_EQ(format_duration(11100), "3h05m");
  EXPECT_EQ(format_duration(2 * 86400 + 4 * 3600), "2d04h");
  EXPECT_EQ(format_duration(std::nan("")), "?");
  EXPECT_EQ(format_duration(-1), "?");
  EXPECT_EQ(format_count(812.4), "812");
  EXPECT_EQ(format_count(999.6), "1.00k");
  EXPECT_EQ(format_count(12900), "12.9k");
  EXPECT_EQ(format_count(129000), "129k");
  EXPECT_EQ(format_count(1.29e6), "1.29M");
  EXPECT_EQ(format_count(3.4e9), "3.40G");
}

TEST(Metrics, EveryFieldSurvivesTheFile) {
  StepMetrics m = example();
  m.dead_experts = 3, m.valid_loss = 2.5, m.bits_per_byte = 1.02,
  m.layer_loads = {{0.5f, 1.5f}, {1.0f, 1.0f}};
  StepMetrics back;
  ASSERT_TRUE(parse_metrics(metrics_json(m), &back));
  EXPECT_EQ(metrics_json(back), metrics_json(m));
  EXPECT_EQ(human_line(back), human_line(m));
  EXPECT_EQ(back.tokens_seen, 12345678901);
  EXPECT_EQ(back.dead_experts, 3);
  EXPECT_EQ(back.home_load_over_mean, 1.9);
  EXPECT_EQ(back.layer_loads, m.layer_loads);
  StepMetrics diverged;
  diverged.step = 7, diverged.gradient_norm = INFINITY;
  EXPECT_NE(metrics_json(diverged).find("\"loss\":null,\"gradient_norm\":null"), std::string::npos);
  ASSERT_TRUE(parse_metrics(metrics_json(diverged), &back));
  EXPECT_TRUE(std::isnan(back.loss));
}

TEST(Metrics, ParsingHostileLines) {
  StepMetrics m;
  for (const char* line : {"", "{", "null", "[1]", "{\"step\":\"x\"}", "{\"step\":-1}",
                           "{\"step\":1e300}", "{\"step\":0}", "\xff\xfe"}) {
    EXPECT_FALSE(parse_metrics(line, &m)) << line;
  }
  EXPECT_TRUE(parse_metrics(
      R"({"step":5,"loss":"much","tokens_seen":1e300,"layer_loads":[[1,"a"],[]]})", &m));
  EXPECT_TRUE(std::isnan(m.loss));
  EXPECT_EQ(m.tokens_seen, 0);
  EXPECT_EQ(m.layer_loads.size(), 2u);
  EXPECT_TRUE(parse_metrics(R"({"step":5,"layer_loads":[1,2]})", &m));
  EXPECT_TRUE(m.layer_loads.empty());
}

TEST(Metrics, ResumingDropsWhatCameAfter) {
  TempFolder folder;
  FileSystem& fs = posix_file_system();
  const std::string path = join_path(folder.path(), "metrics.jsonl");
  const auto steps = [&] {
    std::string text;
    for (const StepMetrics& m : read_metrics(fs, path)) text += std::to_string(m.step) + " ";
    return text;
  };
  const auto write = [&](int64_t resumed, int64_t last) {
    MetricsWriter writer(fs, path, resumed);
    for (int64_t s = resumed + 1; s <= last; ++s) {
      StepMetrics m;
      m.step = s, m.loss = static_cast<double>(100 * resumed + s);
      writer.write(m);
    }
  };
  write(0, 5);
  EXPECT_EQ(steps(), "1 2 3 4 5 ");
  fs.append_to(path)->append("{\"step\":6,\"lo", 13);  // the crash
  EXPECT_EQ(steps(), "1 2 3 4 5 ");
  write(3, 6);
  EXPECT_EQ(steps(), "1 2 3 4 5 6 ");
  EXPECT_EQ(read_metrics(fs, path)[3].loss, 304);  // the second history of step 4
  fs.append_to(path)->append("garbage\n", 8);
  write(6, 7);
  EXPECT_EQ(fs.read(path).find("garbage"), std::string::npos);
  write(0, 2);  // a new run in the same folder
  EXPECT_EQ(steps(), "1 2 ");
}

// More than is read at once, and a line longer than that, of nobody.
TEST(Metrics, ResumingCutsAFileOfAnyLength) {
  TempFolder folder;
  FileSystem& fs = posix_file_system();
  const std::string path = join_path(folder.path(), "metrics.jsonl");
  const auto write = [&](int64_t step) {
    StepMetrics m;
    m.step = step;
    MetricsWriter(fs, path, step - 1).write(m);
  };
  write(1);
  const int64_t line = fs.file_bytes(path), hole = int64_t{5} << 30;
  fs.truncate(path, line + hole);  // takes no place on the disk
  const std::unique_ptr<WritableFile> file = fs.append_to(path);
  file->append("\n", 1);
  for (int64_t step = 2; step <= 20000; ++step) {
    const std::string text = fmt::format("{{\"step\":{:90}}}\n", step);
    file->append(text.data(), 100);
  }
  EXPECT_EQ(fs.file_bytes(path), line + hole + 1 + 19999 * 100);
  write(5001);
  EXPECT_EQ(fs.file_bytes(path), line + hole + 1 + 4999 * 100 + line + 3);
  write(1);
  EXPECT_EQ(fs.file_bytes(path), line);
}

TEST(Metrics, LoadSummary) {
  Rig rig;
  StepMetrics m;
  set_load(&m, rig.int64s({10, 10, 10, 10, 0, 0, 30, 10, 0, 40}).reshaped({2, 5}), true, true);
  EXPECT_DOUBLE_EQ(m.load_max_over_mean, 3);
  EXPECT_EQ(m.dead_experts, 2);
  EXPECT_DOUBLE_EQ(m.skip_rate, 40.0 / 120);
  const double entropy = -(0.75 * std::log(0.75) + 0.25 * std::log(0.25)) / std::log(4.0);
  EXPECT_NEAR(m.load_entropy, (1 + entropy) / 2, 1e-12);
  EXPECT_EQ(m.layer_loads, (std::vector<std::vector<float>>{{1, 1, 1, 1}, {0, 3, 1, 0}}));
  set_load(&m, rig.int64s({5, 5}).reshaped({1, 2}), false, false);
  EXPECT_DOUBLE_EQ(m.load_entropy, 1);
  EXPECT_DOUBLE_EQ(m.skip_rate, 0);
  EXPECT_TRUE(m.layer_loads.empty());
  set_load(&m, rig.int64s({0, 0, 0}).reshaped({1, 3}), true, false);
  EXPECT_EQ(m.dead_experts, 2);
  EXPECT_DOUBLE_EQ(m.load_max_over_mean, 0);
}

}  // namespace
}  // namespace moraine
