// Fails if the rate of prompts follows what was asked instead of what could be done, or does not follow a machine that
// changes; if a limit of the queue is one off, or if a refusal does not say when to ask again.
#include "infer/queue_limit.h"

#include <gtest/gtest.h>

#include "infer/prefill_rate.h"

namespace moraine {
namespace {

TEST(PrefillRate, IsThatOfStepsThatLeavePromptsWaiting) {
  PrefillRate rate;
  rate.add(8, 0.5, /*more=*/false);  // all there was: says nothing
  rate.add(8, 5.0, false);
  EXPECT_FALSE(rate.known());
  rate.add(400, 0.4, true);
  EXPECT_FALSE(rate.known()) << "0.4 s are too short";
  for (int i = 0; i < 3; ++i) rate.add(400, 0.4, true);
  EXPECT_TRUE(rate.known());
  EXPECT_NEAR(rate.tokens_per_second(), 1000, 1e-9);
  for (int i = 0; i < 100; ++i) rate.add(8, 0.1, false);
  EXPECT_NEAR(rate.tokens_per_second(), 1000, 1e-9) << "small prompts on a free machine";
  rate.add(2000, 1, false);
  EXPECT_GT(rate.tokens_per_second(), 1000) << "faster than was known";
}

TEST(PrefillRate, ForgetsInTwentySeconds) {
  PrefillRate rate;
  for (int i = 0; i < 1000; ++i) rate.add(100, 0.1, true);
  EXPECT_NEAR(rate.tokens_per_second(), 1000, 1e-6);
  // 20 s in which all seats are taken: 1/e of it is left.
  for (int i = 0; i < 200; ++i) rate.add(0, 0.1, true);
  EXPECT_NEAR(rate.tokens_per_second(), 1000 / 2.71828, 5);
  for (int i = 0; i < 1000; ++i) rate.add(20, 0.1, true);
  EXPECT_NEAR(rate.tokens_per_second(), 200, 5);
}

// Seconds to wait; 0: let in.
int64_t retry(const QueueLimits& limits, const QueueLoad& load, int64_t tokens, bool let_in = false,
              const std::string& piece = "") {
  try {
    check_queue(limits, load, tokens, let_in);
    return 0;
  } catch (const QueueFull& full) {
    EXPECT_EQ(full.code(), Code::kOverloaded);
    const std::string what = full.what();
    EXPECT_NE(what.find(piece), std::string::npos) << what;
    EXPECT_NE(what.find(fmt::format("; try again in {} s", full.retry_seconds())),
              std::string::npos)
        << what;
    return full.retry_seconds();
  }
}

TEST(QueueLimit, SecondsOfPromptWorkAreBounded) {
  const QueueLimits limits = {.seconds = 10};
  const auto load = [](int64_t work, double rate) {
    return QueueLoad{.requests = 1, .tokens = 1, .prompt_work = work, .tokens_per_second = rate};
  };
  EXPECT_EQ(retry(limits, load(10'000, 1000), 1 << 20), 0) << "at the limit; its own do not count";
  EXPECT_EQ(retry(limits, load(10'001, 1000), 1, false, "about 11 s of prompt work are waiting"),
            1);
  EXPECT_EQ(retry(limits, load(13'100, 1000), 1, false, "and 10 s may"), 4) << "rounded up";
  EXPECT_EQ(retry(limits, load(70'000, 1000), 1), 60);
  EXPECT_EQ(retry(limits, load(1 << 30, 1000), 1), kMostRetrySeconds);
  EXPECT_EQ(retry(limits, load(1 << 30, 0), 1), 0) << "nothing was measured yet";
  EXPECT_EQ(retry(limits, load(1 << 30, 1000), 1, /*let_in=*/true), 0);
  EXPECT_EQ(retry({}, load(1 << 30, 1000), 1), 0) << "no limit";
}

TEST(QueueLimit, RequestsAndTokensAreBounded) {
  const QueueLoad load = {
      .requests = 4, .tokens = 100, .prompt_work = 800, .tokens_per_second = 10};
  EXPECT_EQ(retry({.requests = 5}, load, 1), 0);
  EXPECT_EQ(retry({.requests = 4}, load, 1, false, "4 requests are waiting, as many as may"), 20)
      << "until one of four has gone";
  EXPECT_EQ(retry({.tokens = 120}, load, 20), 0);
  EXPECT_EQ(retry({.tokens = 120}, load, 21, false,
                  "100 prompt tokens are waiting, and 21 more would pass the 120 that may"),
            1);
  EXPECT_EQ(retry({.tokens = 100}, load, 35), 4);
  EXPECT_EQ(retry({.tokens = 100}, {}, 101), 0) << "alone it may be longer than the queue";
  EXPECT_EQ(retry({.requests = 4}, {.requests = 4}, 1), 1) << "no rate is known";
  EXPECT_EQ(retry({.requests = 4, .tokens = 100}, load, 35, /*let_in=*/true), 0);
}

}  // namespace
}  // namespace moraine
