// Fails if a step's phase, batch or first sequence differs from a run that counts token by token.
#include "train/timeline.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/random.h"

namespace moraine {
namespace {

RunConfig make_config(uint64_t seed) {
  uint64_t index = 0;
  const auto below = [&](uint64_t n) {
    return static_cast<int64_t>(random_below(n, seed, Stream::kTest, 0, index++));
  };
  RunConfig c;
  c.train.slots = int64_t{1} << below(3);
  c.train.sequence = 4 << below(3);
  const int64_t unit =
      c.train.slots * c.train.sequence * 4;  // also a multiple for sequences four times as long
  c.train.batch_tokens = unit * (1 + below(4));
  for (int64_t i = below(4), at = 0; i > 0; --i) {
    at += 1 + below(40 * static_cast<uint64_t>(unit));
    c.train.ramp_tokens.push_back(at);
    c.train.ramp_batch_tokens.push_back(unit * (1 + below(4)));
  }
  for (int64_t phases = 1 + below(4); phases > 0; --phases) {
    PhaseConfig phase;
    phase.tokens = 1 + below(60 * static_cast<uint64_t>(unit));
    if (below(4) == 0) phase.tokens = 0, phase.steps = 1 + below(20);
    if (below(2) == 0) phase.sequence = c.train.sequence * (int64_t{1} << below(3));
    if (below(3) == 0) phase.batch_tokens = unit * (1 + below(4));
    c.phases.push_back(phase);
  }
  return c;
}

TEST(Timeline, EqualsCountingStepByStep) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const RunConfig c = make_config(seed);
    const Timeline timeline(c);
    int64_t step = 0, tokens = 0;
    for (size_t p = 0; p < c.phases.size(); ++p) {
      const PhaseConfig& phase = c.phases[p];
      int64_t first_sequence = 0;
      for (int64_t in_phase = 0, phase_tokens = 0;
           phase.tokens > 0 ? phase_tokens < phase.tokens : in_phase < phase.steps; ++in_phase) {
        int64_t batch = c.train.batch_tokens;
        for (size_t i = c.train.ramp_tokens.size(); i-- > 0;) {
          if (tokens < c.train.ramp_tokens[i]) batch = c.train.ramp_batch_tokens[i];
        }
        if (phase.batch_tokens > 0) batch = phase.batch_tokens;
        const int64_t sequence = phase.sequence > 0 ? phase.sequence : c.train.sequence;
        ASSERT_LT(step, timeline.steps());
        const StepPlan plan = timeline.at(step);
        ASSERT_EQ(plan.step, step);
        ASSERT_EQ(plan.phase, static_cast<int64_t>(p)) << step;
        ASSERT_EQ(plan.tokens_before, tokens) << step;
        ASSERT_EQ(plan.batch_tokens, batch) << step;
        ASSERT_EQ(plan.sequence, sequence) << step;
        ASSERT_EQ(plan.first_sequence, first_sequence) << step;
        ASSERT_EQ(plan.num_sequences, batch / sequence) << step;
        ++step;
        tokens += batch;
        phase_tokens += batch;
        first_sequence += batch / sequence;
      }
      ASSERT_EQ(timeline.phase_sequences(static_cast<int64_t>(p)), first_sequence);
    }
    ASSERT_EQ(timeline.steps(), step);
    ASSERT_EQ(timeline.tokens(), tokens);
    // The largest batches are among the kinds of steps, however short their time.
    int64_t most = 0, most_of_kinds = 0;
    for (int64_t s = 0; s < timeline.steps(); ++s)
      most = std::max(most, timeline.at(s).batch_tokens);
    for (const StepPlan& plan : timeline.kinds())
      most_of_kinds = std::max(most_of_kinds, plan.batch_tokens);
    ASSERT_EQ(most, most_of_kinds);
  }
}

TEST(Timeline, LongRunsCostNothing) {
  RunConfig c;
  c.train = {.slots = 8,
             .sequence = 512,
             .batch_tokens = 1 << 20,
             .ramp_tokens = {1 << 20},
             .ramp_batch_tokens = {4 << 20}};
  c.phases.push_back({.tokens = int64_t{1'000'000'000'000'000}});
  const Timeline timeline(c);
  EXPECT_EQ(timeline.steps(), 953'674'314);
  EXPECT_EQ(timeline.at(0).batch_tokens, 4 << 20);
  EXPECT_EQ(timeline.at(1).batch_tokens, 1 << 20);
  EXPECT_EQ(timeline.at(timeline.steps() - 1).tokens_before + (1 << 20), timeline.tokens());
  EXPECT_EQ(timeline.kinds().size(), 2u);
}

}  // namespace
}  // namespace moraine
