// StepTime: fails if more work, fewer cores or slower links make a step faster, or a fit does not find what made it.
#include "plan/step_time.h"

#include <gtest/gtest.h>

#include "plan/compare_times.h"
#include "plan/fit_operations.h"

namespace moraine {
namespace {

StepWork work_of(int64_t expert, int64_t context) {
  StepWork work;
  RankWork& w = work.rank;
  w.model.vocab_size = 1000;
  w.slots = 2, w.micro_batches = 2, w.sequences = 2, w.length = 256;
  w.expert = expert, w.context = context;
  w.parameters = 4'000'000, w.expert_parameters = 2'000'000;
  w.optimizer = {.muon_flops = 1e9,
                 .muon_elements = 3'000'000,
                 .adamw_elements = 500'000,
                 .owned_elements = 3'500'000};
  work.buckets = {{.layers_left = 0.5, .shared_elements = 1'000'000, .expert_elements = 1'000'000},
                  {.layers_left = 0, .shared_elements = 1'000'000, .expert_elements = 1'000'000}};
  work.norm_blocks = 60, work.counts = 60;
  return work;
}

Machine measured() {
  Machine m = nominal_machine(8);
  m.operations = {
      {.name = "linear_forward", .bf16 = true, .threads = 1, .call_us = 2, .factor = 3}};
  return m;
}

Place hosts(int64_t ranks_per_host) {
  Place place = place_on_machine(measured(), ranks_per_host);
  place.far = {.latency_seconds = 20e-6, .bytes_per_second = 10e9};
  return place;
}

double seconds(const StepWork& work, const Mesh& mesh, const Place& place) {
  return step_time(work, mesh, place, measured()).seconds;
}

TEST(StepTime, MoreWorkTakesLonger) {
  const Mesh mesh{.ranks = 8, .context = 2, .expert = 2};
  const StepWork base = work_of(2, 2);
  const double t = seconds(base, mesh, hosts(4));
  const auto longer = [&](const char* what, const auto& change) {
    StepWork more = base;
    change(more);
    EXPECT_GT(seconds(more, mesh, hosts(4)), t) << what;
  };
  longer("slots", [](StepWork& w) { w.rank.slots *= 2; });
  longer("sequences", [](StepWork& w) { w.rank.sequences *= 2; });
  longer("length", [](StepWork& w) { w.rank.length *= 2; });
  longer("width", [](StepWork& w) { w.rank.model.hidden *= 2; });
  longer("layers", [](StepWork& w) { w.rank.model.layers += 1; });
  longer("imbalance", [](StepWork& w) { w.rank.imbalance = 1.5; });
  longer("recompute", [](StepWork& w) { w.rank.recompute = Recompute::kLayer; });
  longer("gradients", [](StepWork& w) { w.buckets[1].shared_elements *= 4; });
  longer("vocabulary", [](StepWork& w) { w.rank.model.vocab_size *= 2; });
}

TEST(StepTime, SlowerLinksAndFewerCoresNeverHelp) {
  const Mesh mesh{.ranks = 8, .context = 1, .expert = 4};
  const StepWork work = work_of(4, 1);
  const Place base = hosts(4);
  const double t = seconds(work, mesh, base);
  for (const double factor : {1.5, 4.0, 100.0}) {
    Place slow = base;
    slow.far.bytes_per_second /= factor;
    EXPECT_GT(seconds(work, mesh, slow), t);
    slow = base, slow.far.latency_seconds *= factor;
    EXPECT_GT(seconds(work, mesh, slow), t);
    slow = base, slow.near.bytes_per_second /= factor;
    EXPECT_GT(seconds(work, mesh, slow), t);
  }
  Place crowded = base;
  crowded.cores = 2;
  EXPECT_GT(seconds(work, mesh, crowded), t);
}

TEST(StepTime, OneRankSaysNothingAndPartsAddUp) {
  StepWork alone = work_of(1, 1);
  alone.buckets.clear();
  const StepTime one = step_time(alone, {}, place_on_machine(measured(), 1), measured());
  EXPECT_EQ(one.communication, 0);
  EXPECT_EQ(one.exposed, 0);
  EXPECT_EQ(one.bytes_near + one.bytes_far, 0);
  const StepTime many =
      step_time(work_of(2, 2), {.ranks = 8, .context = 2, .expert = 2}, hosts(4), measured());
  double sum = 0, exposed = 0;
  for (const TimePart& part : many.parts) {
    sum += part.seconds;
    exposed += part.is_communication ? part.seconds : 0;
  }
  EXPECT_NEAR(sum, many.seconds, 1e-12);
  EXPECT_NEAR(exposed, many.exposed, 1e-12);
  EXPECT_LE(many.exposed, many.communication);
  EXPECT_GT(many.bytes_far, 0);
}

// A bucket that is whole before backward ends costs nothing over hosts, and everything in one.
TEST(StepTime, BucketsHideBehindBackwardBetweenHosts) {
  const Mesh mesh{.ranks = 4, .expert = 1};
  StepWork work = work_of(1, 1);
  work.buckets = {{.layers_left = 0.9, .shared_elements = 1000}};
  const auto exposed = [&](const Place& place) {
    for (const TimePart& part : step_time(work, mesh, place, measured()).parts) {
      if (part.name == "ranks: gradients") return part.seconds;
    }
    return 0.0;
  };
  EXPECT_EQ(exposed(hosts(1)), 0);
  EXPECT_GT(exposed(place_on_machine(measured(), 4)), 0);
  work.buckets[0].layers_left = 0;  // leaves when backward has ended
  EXPECT_GT(exposed(hosts(1)), 0);
}

TEST(FitOperations, GivesBackWhatMadeTheSamples) {
  std::vector<OperationSample> samples;
  for (const double size : {1.0, 3.0, 10.0})
    samples.push_back({"both", 40, size, 40 * 2e-3 + size * 1.5});
  samples.push_back({"factor alone", 8, 2.0, 5.0});
  samples.push_back({"calls alone", 8, 0.0, 4.0});
  samples.push_back({"never negative", 10, 1.0, 1.0});
  samples.push_back({"never negative", 10, 4.0, 8.0});
  samples.push_back({"not seen", 10, 4.0, 0.0});
  const std::vector<OperationFit> fits = fit_operations(samples, true, 2);
  ASSERT_EQ(fits.size(), 4u);
  EXPECT_NEAR(fits[0].call_us, 2e3, 1e-6);
  EXPECT_NEAR(fits[0].factor, 1.5, 1e-9);
  EXPECT_EQ(fits[0].threads, 2);
  EXPECT_DOUBLE_EQ(fits[1].factor, 2.5);
  EXPECT_DOUBLE_EQ(fits[2].call_us, 0.5e6);
  EXPECT_GE(fits[3].call_us, 0);
  EXPECT_GT(fits[3].factor, 0);
}

TEST(CompareTimes, KnowsOrderAndError) {
  const TimeComparison same = compare_times({{1, 2}, {2, 4}, {3, 6}});
  EXPECT_DOUBLE_EQ(same.rank_correlation, 1);
  EXPECT_DOUBLE_EQ(same.error_median, 0.5);
  EXPECT_DOUBLE_EQ(same.bias, -0.5);
  EXPECT_DOUBLE_EQ(compare_times({{1, 3}, {2, 2}, {3, 1}}).rank_correlation, -1);
  const TimeComparison one_off = compare_times({{1, 1}, {2, 2}, {6, 3}, {4, 4}});
  EXPECT_DOUBLE_EQ(one_off.error_largest, 1);
  EXPECT_NEAR(one_off.rank_correlation, 0.8, 1e-12);
  EXPECT_EQ(compare_times({}).rank_correlation, 0);
}

}  // namespace
}  // namespace moraine
