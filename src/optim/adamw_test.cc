// Fails if a term of AdamW is wrong, if a split of the ranges changes a bit, or if a neighbour is
// touched.
#include "optim/adamw.h"

#include <gtest/gtest.h>

#include "optim/flat_math.h"
#include "optim/test_adamw.h"

namespace moraine {
namespace {

using namespace testing;

const AdamWOptions kOptions = {
    .lr = 0, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};

void step(Rig& rig, const AdamWBuffers& r, std::span<const AdamWRange> ranges, int64_t t,
          AdamWSeen* seen = nullptr) {
  adamw_step(rig.ctx, {.weights = r.w,
                       .m = r.m,
                       .v = r.v,
                       .gradients = r.g,
                       .ranges = ranges,
                       .gradient_scale = 0.5,
                       .lr = 0.01,
                       .step = t,
                       .options = kOptions,
                       .seen = seen});
}

TEST(AdamW, MatchesTheFormulasOverSteps) {
  for_each_isa([](Isa) {
    Rig rig;
    const std::vector<AdamWRange> ranges = {
        {.offset = 3, .state_offset = 0, .count = 1, .weight_decay = true},
        {.offset = 5, .state_offset = 1, .count = 97, .lr_scale = 0.1, .weight_decay = false},
        {.offset = 110, .state_offset = 98, .count = 0},
        {.offset = 120, .state_offset = 98, .count = 70001, .weight_decay = true}};
    const AdamWBuffers run = adamw_buffers(rig, 70200, 70100);
    const AdamWBuffers want = in_double(rig, run);
    for (int64_t t = 1; t <= 5; ++t) {
      step(rig, run, ranges, t);
      for (const AdamWRange& range : ranges) adamw_formulas(want, range, t, kOptions, 0.01);
    }
    // Five steps of about ten roundings each.
    EXPECT_CLOSE(run.m, want.m, tolerance(DType::kF32, 50));
    EXPECT_CLOSE(run.v, want.v, tolerance(DType::kF32, 50));
    EXPECT_CLOSE(run.w, want.w, tolerance(DType::kF32, 50));
    const Tensor start = rig.normal({70200}, DType::kF32, 1);
    for (const int64_t gap : {0, 2, 4, 102, 119, 70121, 70199}) {
      EXPECT_EQ(run.w.as<float>()[gap], start.as<float>()[gap]) << gap;
    }
  });
}

TEST(AdamW, SplitsAndThreadsDoNotChangeABit) {
  Rig one(Backend::kCpu, 1), two(Backend::kCpu, 2);
  const int64_t N = 70000;
  const std::vector<AdamWRange> whole = {
      {.offset = 0, .state_offset = 0, .count = N, .weight_decay = true}};
  std::vector<AdamWRange> parts;
  for (int64_t at = 0; at < N;) {
    const int64_t n =
        std::min<int64_t>(N - at, 1 + 7919 * static_cast<int64_t>(parts.size()) % 1013);
    parts.push_back({.offset = at, .state_offset = at, .count = n, .weight_decay = true});
    at += n;
  }
  const AdamWBuffers a = adamw_buffers(one, N, N), b = adamw_buffers(two, N, N),
                     c = adamw_buffers(one, N, N);
  for (int64_t t = 1; t <= 3; ++t) {
    step(one, a, whole, t);
    step(two, b, whole, t);
    step(one, c, parts, t);
  }
  for (const AdamWBuffers& other : {b, c}) {
    EXPECT_SAME_BITS(other.w, a.w);
    EXPECT_SAME_BITS(other.m, a.m);
    EXPECT_SAME_BITS(other.v, a.v);
  }
}

// Of ranges in their order, by the words of flat_math.h.
AdamWSums sums_of(Rig& rig, const AdamWBuffers& r, std::span<const AdamWRange> ranges) {
  return adamw_sums(rig.ctx, {.weights = r.w, .m = r.m, .v = r.v, .ranges = ranges});
}

TEST(AdamW, WhatAStepSawIsWhatWasThereAndWhatItLeft) {
  std::vector<AdamWSums> all;
  for_each_isa([&](Isa) {
    for (const int threads : {1, 3}) {
      Rig rig(Backend::kCpu, threads);
      const std::vector<AdamWRange> ranges = {
          {.offset = 3, .state_offset = 0, .count = 1, .weight_decay = true},
          {.offset = 5, .state_offset = 1, .count = 97, .lr_scale = 0.1},
          {.offset = 110, .state_offset = 98, .count = 0},
          {.offset = 120, .state_offset = 98, .count = 70001, .weight_decay = true}};
      const AdamWBuffers run = adamw_buffers(rig, 70200, 70100),
                         unseen = adamw_buffers(rig, 70200, 70100);
      for (int64_t t = 1; t <= 2; ++t) {
        const AdamWSums before = sums_of(rig, run, ranges);
        AdamWSeen seen;
        step(rig, run, ranges, t, &seen);
        step(rig, unseen, ranges, t);
        EXPECT_SAME_BITS(run.w, unseen.w);
        EXPECT_SAME_BITS(run.m, unseen.m);
        EXPECT_SAME_BITS(run.v, unseen.v);
        EXPECT_EQ(seen.before, before);
        EXPECT_EQ(seen.after, sums_of(rig, run, ranges));
        EXPECT_NE(seen.after.w, seen.before.w);
        EXPECT_NE(seen.after.m, seen.before.m);
        EXPECT_NE(seen.after.v, seen.before.v);
      }
      all.push_back(sums_of(rig, adamw_buffers(rig, 70200, 70100), ranges));
    }
  });
  for (const AdamWSums& sums : all) EXPECT_EQ(sums, all[0]);
}

// With a zero gradient and negative zeros at the end: lanes behind the end must not count.
TEST(AdamW, SumsEndWithTheRange) {
  for_each_isa([](Isa) {
    Rig rig;
    for (int64_t n = 1; n <= 33; ++n) {
      const AdamWBuffers run = adamw_buffers(rig, n, n);
      std::fill(run.g.as<float>(), run.g.as<float>() + n, -0.0f);
      const std::vector<AdamWRange> range = {{.count = n, .weight_decay = true}};
      AdamWSeen seen;
      step(rig, run, range, 1, &seen);
      EXPECT_EQ(seen.after, sums_of(rig, run, range)) << n;
    }
  });
}

TEST(WordSum, EveryBitCountsAndAnySplitIsTheSame) {
  for_each_isa([](Isa) {
    Rig rig;
    const int64_t N = 77;
    const Tensor x = rig.normal({N}, DType::kF32, 3);
    x.as<float>()[5] = 0;
    const int64_t first = (int64_t{1} << 32) - 20;  // keys go on beyond it
    const uint64_t sum = word_sum_block(x.as<float>(), N, first);
    for (const int64_t cut : {0, 1, 8, 31, 76, 77}) {
      EXPECT_EQ(word_sum_block(x.as<float>(), cut, first) +
                    word_sum_block(x.as<float>() + cut, N - cut, first + cut),
                sum)
          << cut;
    }
    for (int64_t bit = 0; bit < 32 * N; ++bit) {
      uint32_t& word = static_cast<uint32_t*>(x.data)[bit / 32];
      word ^= 1u << bit % 32;
      EXPECT_NE(word_sum_block(x.as<float>(), N, first), sum) << bit;
      word ^= 1u << bit % 32;
    }
    std::swap(x.as<float>()[7], x.as<float>()[8]);
    EXPECT_NE(word_sum_block(x.as<float>(), N, first), sum);
  });
}

TEST(AdamW, ZeroGradientOnlyDecays) {
  Rig rig;
  const AdamWBuffers run = adamw_buffers(rig, 100, 100);
  std::fill(run.g.as<float>(), run.g.as<float>() + 100, 0.0f);
  const Tensor before = rig.copy(run.w);
  const std::vector<AdamWRange> still = {{.offset = 0, .state_offset = 0, .count = 100}};
  step(rig, run, still, 1);
  EXPECT_SAME_BITS(run.w, before);
  const std::vector<AdamWRange> decaying = {
      {.offset = 0, .state_offset = 0, .count = 100, .weight_decay = true}};
  step(rig, run, decaying, 2);
  for (int i = 0; i < 100; ++i)
    EXPECT_FLOAT_EQ(run.w.as<float>()[i], before.as<float>()[i] * 0.999f);
}

}  // namespace
}  // namespace moraine
