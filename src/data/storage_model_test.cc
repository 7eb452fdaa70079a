// Storage model: the published example comes out, and the probe reads a real file.
#include "data/storage_model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "data/storage_probe.h"
#include "testing/rig.h"

namespace moraine {
namespace {

constexpr StoragePattern kPublished = {.sequences_per_step = 4096,
                                       .tokens_per_sequence = 4096,
                                       .bytes_per_token = 4,
                                       .page_bytes = 4096,
                                       .step_seconds = 2.5,
                                       .extra_pages_per_sequence = 0,
                                       .iops_max = 70000};

TEST(StorageModelTest, PublishedExample) {
  const StorageNeed need = storage_need(kPublished);
  EXPECT_EQ(need.bytes_per_step, 64.0 * 1048576);
  EXPECT_EQ(need.pages_per_step, 16384);
  EXPECT_EQ(need.sigma, 1);
  EXPECT_NEAR(need.iops, 6553.6, 1e-9);
  EXPECT_NEAR(need.break_step_seconds, 0.23406, 1e-5);
  EXPECT_NEAR(need.share, 6553.6 / 70000, 1e-12);
}

TEST(StorageModelTest, ScatterCostsInProportion) {
  StoragePattern pattern = kPublished;
  pattern.extra_pages_per_sequence = 4;  // a sequence is 4 pages of data
  const StorageNeed need = storage_need(pattern);
  EXPECT_DOUBLE_EQ(need.sigma, 2);
  EXPECT_NEAR(need.iops, 2 * 6553.6, 1e-9);
  EXPECT_NEAR(need.break_step_seconds, 2 * 0.23406, 1e-4);
  EXPECT_EQ(need.bytes_per_step, 64.0 * 1048576);  // data, not what is read beside it
  // At the breaking step time the device is exactly full.
  pattern.step_seconds = need.break_step_seconds;
  EXPECT_NEAR(storage_need(pattern).share, 1, 1e-12);
  EXPECT_NE(storage_need_text(pattern, storage_need(pattern)).find("sigma = 2.000"),
            std::string::npos);
}

TEST(StorageModelTest, SenselessValuesAreRefused) {
  for (const double bad : {0.0, -1.0, std::nan(""), double{INFINITY}}) {
    for (double StoragePattern::*field :
         {&StoragePattern::sequences_per_step, &StoragePattern::tokens_per_sequence,
          &StoragePattern::bytes_per_token, &StoragePattern::page_bytes,
          &StoragePattern::step_seconds, &StoragePattern::iops_max}) {
      StoragePattern pattern = kPublished;
      pattern.*field = bad;
      EXPECT_THROW(storage_need(pattern), Error);
    }
  }
  StoragePattern pattern = kPublished;
  pattern.extra_pages_per_sequence = -1;
  EXPECT_THROW(storage_need(pattern), Error);
}

TEST(StorageProbeTest, ReadsAFileAndSaysHow) {
  FileSystem& files = posix_file_system();
  const testing::TempFolder folder;
  const std::string path = join_path(folder.path(), "f");
  files.write_atomic(path, std::string(1 << 20, 'x'));
  const StorageProbe probe = measure_storage_iops(files, path, {.threads = 2, .seconds = 0.02});
  EXPECT_GE(probe.reads, 2);
  EXPECT_GT(probe.iops, 0);
  EXPECT_LE(probe.latency_us_median, probe.latency_us_p99);
  EXPECT_FALSE(probe.direct && probe.page_cache_answered);
  EXPECT_FALSE(storage_probe_text(probe).empty());
  EXPECT_THROW(measure_storage_iops(files, path, {.threads = 0}), Error);
  EXPECT_THROW(measure_storage_iops(files, path, {.seconds = 0}), Error);
  EXPECT_THROW(measure_storage_iops(files, path, {.page_bytes = 1000}), Error);
  EXPECT_THROW(measure_storage_iops(files, path, {.page_bytes = 2 << 20}), Error);
  EXPECT_THROW(measure_storage_iops(files, join_path(folder.path(), "none"), {}), Error);
}

}  // namespace
}  // namespace moraine
