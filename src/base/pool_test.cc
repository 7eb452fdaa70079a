// Pool: every task of every loop runs once, whether its threads spin or are parked when the loop begins.
#include "base/pool.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/heartbeat.h"

namespace moraine {
namespace {

// What takes long in one operation, as Muon, is no hang.
TEST(Pool, TasksAreBeats) {
  for (const int threads : {1, 3}) {
    Pool pool(threads);
    const uint64_t before = heartbeat().beats;
    pool.parallel_for(1000, [](int64_t, int) { std::this_thread::yield(); });
    EXPECT_GT(heartbeat().beats, before);
  }
}

TEST(Pool, EveryTaskRunsOnceAfterShortWaitsAndLongOnes) {
  constexpr int kLoops = 200, kLongEvery = 20, kLongMicroseconds = 300;
  for (const int threads : {1, 2, 5}) {
    Pool pool(threads);
    for (int loop = 0; loop < kLoops; ++loop) {
      std::vector<int> runs(static_cast<size_t>(loop % 13 + 1));
      pool.parallel_for(std::ssize(runs), [&](int64_t task, int worker) {
        if (loop % kLongEvery == 0 && task == 0) usleep(kLongMicroseconds);  // the others park
        runs[static_cast<size_t>(task)] += worker < threads ? 1 : 100;
      });
      ASSERT_EQ(runs, std::vector<int>(runs.size(), 1)) << threads << " threads, loop " << loop;
      if (loop % kLongEvery == 1) usleep(kLongMicroseconds);  // all park
    }
  }
}

// Who comes late to one loop takes nothing of it, and none of the next loop's tasks for its own.
TEST(Pool, ManyShortLoopsWithMoreThreadsThanCores) {
  constexpr int kThreads = 8, kLoops = 3000;
  Pool pool(kThreads);
  for (int loop = 0; loop < kLoops; ++loop) {
    std::vector<std::atomic<int>> runs(static_cast<size_t>(loop % 3 + 2));
    pool.parallel_for(std::ssize(runs),
                      [&](int64_t task, int) { ++runs[static_cast<size_t>(task)]; });
    for (const std::atomic<int>& run : runs) ASSERT_EQ(run, 1) << loop;
  }
}

// A worker may be held up for as long as its core is taken from it: here by a task of its own.
TEST(Pool, EachLoopWaitsForThoseWhoHaveATask) {
  constexpr int kThreads = 4;
  Pool pool(kThreads);
  for (int loop = 0; loop < 50; ++loop) {
    std::atomic<int> done = 0;
    pool.parallel_for(kThreads, [&](int64_t, int worker) {
      if (worker != 0) usleep(2000);
      ++done;
    });
    ASSERT_EQ(done, kThreads);
  }
}

}  // namespace
}  // namespace moraine
