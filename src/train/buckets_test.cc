// Buckets: fails if an element of the gradient leaves twice, never, or before its layer is
// complete.
#include "train/buckets.h"

#include <gtest/gtest.h>

namespace moraine {
namespace {

ModelConfig small_model(int64_t experts) {
  ModelConfig c;
  c.hidden = 32, c.layers = 5, c.heads = 2, c.kv_heads = 1, c.head_dim = 16;
  c.experts = experts, c.expert_hidden = 24, c.router_hidden = 16, c.vocab_size = 100;
  return c;
}

TEST(Buckets, EveryElementLeavesOnceAfterItsLayer) {
  for (const int64_t experts : {0, 4}) {
    const ModelConfig c = small_model(experts);
    const ParameterTable table = build_parameters(c);
    for (const int64_t bytes : {int64_t{1}, int64_t{100'000}, int64_t{1} << 40}) {
      std::vector<int> left(static_cast<size_t>(table.total_count), 0);
      const auto leave = [&](Range r) {
        for (int64_t i = r.begin; i < r.end; ++i) ++left[static_cast<size_t>(i)];
      };
      int64_t before = c.layers;
      for (const Bucket& b : gradient_buckets(table, c.layers, bytes)) {
        EXPECT_LT(b.layer, before);
        before = b.layer;
        leave(b.shared), leave(b.experts);
        // Nothing of a lower layer yet.
        for (const Parameter& p : table.all) {
          for (int64_t i = 0; i < b.layer; ++i) {
            if (p.name.find("layers." + std::to_string(i) + ".") == std::string::npos) continue;
            ASSERT_EQ(left[static_cast<size_t>(p.offset)], 0) << p.name;
          }
        }
      }
      EXPECT_EQ(before, 0);
      for (const Range& r : rest_of_gradients(table, c.layers)) leave(r);
      for (int64_t i = 0; i < table.total_count; ++i)
        ASSERT_EQ(left[static_cast<size_t>(i)], 1) << "element " << i << ", bytes " << bytes;
    }
  }
}

TEST(Buckets, SizeDecidesHowMany) {
  const ModelConfig c = small_model(4);
  const ParameterTable table = build_parameters(c);
  EXPECT_EQ(gradient_buckets(table, c.layers, 1).size(), 5u);
  EXPECT_EQ(gradient_buckets(table, c.layers, int64_t{1} << 40).size(), 1u);
}

}  // namespace
}  // namespace moraine
