// ContextCost: fails if the choice does not follow latency, overlap and memory as the formulas say.
#include "parallel/context_cost.h"

#include <gtest/gtest.h>

namespace moraine {
namespace {

// 32K tokens on 8 ranks: an 8B model's layer on a fast network.
ContextCost long_context() {
  return {.alpha_seconds = 1e-5,
          .bytes_per_second = 4e10,
          .flops_per_second = 3e14,
          .bytes_per_second_memory = 4e12,
          .overlap = true,
          .ranks = 8,
          .tokens = 4096,
          .pairs = int64_t{32768} * 32769 / 2 / 8,
          .heads = 8,
          .kv_heads = 2,
          .head_dim = 128,
          .element_bytes = 2,
          .most_bytes = 0};
}

TEST(ContextCost, WhereCoresMoveTheBytesTheAllGatherWins) {
  ContextCost c = long_context();
  c.overlap = false;
  EXPECT_EQ(choose_context_variant(c).variant, ContextVariant::kAllGather);
}

TEST(ContextCost, HiddenMessagesMakeTheRingFaster) {
  ContextCost c = long_context();
  c.tokens *= 8, c.pairs *= 64;  // a long context: attention hides the hops
  c.heads = 32, c.kv_heads = 32;
  EXPECT_EQ(choose_context_variant(c).variant, ContextVariant::kRing);
  c.overlap = false;
  EXPECT_EQ(choose_context_variant(c).variant, ContextVariant::kAllGather);
}

TEST(ContextCost, BuffersThatDoNotFitMakeItTheRing) {
  ContextCost c = long_context();
  c.overlap = false;
  const int64_t buffers = choose_context_variant(c).all_gather_buffers;
  EXPECT_EQ(buffers, int64_t{2} * 32768 * 2 * 128 * (2 + 4));
  c.most_bytes = buffers;
  EXPECT_EQ(choose_context_variant(c).variant, ContextVariant::kAllGather);
  c.most_bytes = buffers - 1;
  EXPECT_EQ(choose_context_variant(c).variant, ContextVariant::kRing);
}

TEST(ContextCost, SecondsAndBytesAreThoseOfTheFormulas) {
  const ContextCost c = {.alpha_seconds = 1,
                         .bytes_per_second = 1000,
                         .flops_per_second = 100,
                         .bytes_per_second_memory = 960,
                         .overlap = false,
                         .ranks = 4,
                         .tokens = 5,
                         .pairs = 20,
                         .heads = 2,
                         .kv_heads = 1,
                         .head_dim = 10,
                         .element_bytes = 2,
                         .most_bytes = 0};
  // kv 200 bytes, dkv 400; work 4; merge 2*4*3*4*100 / 960 = 10
  const ContextChoice choice = choose_context_variant(c);
  EXPECT_EQ(choice.ring_bytes, 3 * 2 * 200 + 4 * 400);
  EXPECT_EQ(choice.all_gather_bytes, 3 * (2 * 200 + 400));
  EXPECT_DOUBLE_EQ(choice.ring_seconds, 18 * 4 + 10 + 6 * 1.2 + 4 * 1.4);
  EXPECT_DOUBLE_EQ(choice.all_gather_seconds, 18 * 4 + 3 * (2 * 1.2 + 1.4));
}

TEST(ContextCost, OneRankSendsNothing) {
  ContextCost c = long_context();
  c.ranks = 1;
  const ContextChoice choice = choose_context_variant(c);
  EXPECT_EQ(choice.ring_bytes, 0);
  EXPECT_EQ(choice.all_gather_bytes, 0);
  EXPECT_EQ(choice.variant, ContextVariant::kAllGather);
}

}  // namespace
}  // namespace moraine
