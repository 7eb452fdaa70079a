// Fails if a model differs from itself, or if a difference is not seen.
#include "eval/compare.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "eval/score.h"
#include "eval/test_model.h"

namespace moraine {
namespace {

using testing::make_ids;

std::unique_ptr<LoadedModel> load(const std::string& dtype) {
  return testing::load_tiny(dtype, 300, 256);
}

TEST(Compare, AModelIsItself) {
  const auto a = load("f32"), b = load("f32");
  ModelComparison compare({a->ctx(), a->model()}, {b->ctx(), b->model()});
  const std::vector<int32_t> ids = make_ids(257);
  compare.add(ids);
  const Comparison c = compare.finish();
  EXPECT_EQ(c.tokens, 256);
  EXPECT_EQ(c.kl, 0);
  EXPECT_EQ(c.agreement, 1);
  EXPECT_EQ(c.loss, c.loss_reference);
  EXPECT_EQ(c.most_flips(), 0);
  ASSERT_EQ(c.flips.size(), static_cast<size_t>(a->config().layers));
  double nll = 0;
  for (const double lp : score_tokens({a->ctx(), a->model()}, ids)) nll -= std::isnan(lp) ? 0 : lp;
  EXPECT_NEAR(c.loss, nll / 256, 1e-6);
}

TEST(Compare, RoundedWeightsAreSeen) {
  const auto a = load("f32"), b = load("bf16");
  ModelComparison compare({a->ctx(), a->model()}, {b->ctx(), b->model()});
  compare.add(make_ids(200));
  const Comparison c = compare.finish();
  EXPECT_GT(c.kl, 1e-9);
  EXPECT_LT(c.kl, 0.01);
  EXPECT_NE(c.loss, c.loss_reference);
  EXPECT_GT(c.agreement, 0.8);
  EXPECT_LT(c.most_flips(), 0.2);
}

TEST(Compare, IdsOutsideTheVocabularyAreRefused) {
  const auto a = load("f32");
  ModelComparison compare({a->ctx(), a->model()}, {a->ctx(), a->model()});
  EXPECT_THROW(compare.add(std::vector<int32_t>{1, 320}), Error);
  EXPECT_THROW(compare.add(std::vector<int32_t>{-1, 3}), Error);
}

}  // namespace
}  // namespace moraine
