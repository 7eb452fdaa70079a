// Fails if a model differs from itself, if a difference is not seen, or if what calibrates an expert is not the mean
// square of the rows that reach it.
#include "eval/compare.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "eval/activation_squares.h"
#include "eval/observed_pass.h"
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
  compare.add(std::span<const int32_t>(ids).first(1));  // predicts nothing
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

// The rows of one matrix, as they were shown.
class Shown : public ForwardObserver {
 public:
  explicit Shown(ServedMatrix matrix) : matrix_(matrix) {}
  void reads(int64_t layer, ServedMatrix matrix, const Tensor& x,
             std::span<const int64_t> rows) override {
    if (layer != 1 || matrix != matrix_) return;
    bounds.assign(rows.begin(), rows.end());
    k = x.dims[1];
    values.assign(x.as<float>(), x.as<float>() + x.count());
  }
  void chooses(int64_t, const Tensor& expert) override { experts = expert.count(); }

  std::vector<int64_t> bounds;
  std::vector<float> values;
  int64_t k = 0, experts = 0;

 private:
  ServedMatrix matrix_;
};

TEST(ActivationSquares, AreMeansOverTheRowsOfAnExpert) {
  const auto m = load("f32");
  const std::vector<int32_t> ids = make_ids(250);
  ActivationSquares squares(m->config());
  squares.add({m->ctx(), m->model()}, ids);
  squares.add({m->ctx(), m->model()}, ids);
  EXPECT_EQ(squares.tokens(), 500);
  for (const ServedMatrix matrix : {ServedMatrix::kGateUp, ServedMatrix::kDown}) {
    Shown shown(matrix);
    observed_pass({m->ctx(), m->model()}, ids, shown);
    ASSERT_EQ(shown.experts, 250);
    const std::vector<float> importance = squares.importance(1, matrix);
    ASSERT_EQ(importance.size(), (shown.bounds.size() - 1) * static_cast<size_t>(shown.k));
    for (size_t g = 0; g + 1 < shown.bounds.size(); ++g) {
      // Of experts with few rows the mean of all; their rows come twice.
      const bool enough = 2 * (shown.bounds[g + 1] - shown.bounds[g]) >= kEnoughRows;
      const int64_t begin = enough ? shown.bounds[g] : 0,
                    end = enough ? shown.bounds[g + 1] : shown.bounds.back();
      double sum = 0;
      for (int64_t t = begin; t < end; ++t)
        sum += std::pow(static_cast<double>(shown.values[static_cast<size_t>(t * shown.k + 3)]), 2);
      const double mean = sum / static_cast<double>(end - begin);
      EXPECT_NEAR(importance[g * static_cast<size_t>(shown.k) + 3], mean, 1e-6 * mean) << g;
    }
  }
  const auto coverage = squares.coverage();
  EXPECT_EQ(coverage.all, m->config().layers * m->config().experts);
  EXPECT_LE(coverage.enough, coverage.all);
  EXPECT_GT(coverage.enough, 0);
}

TEST(ActivationSquares, WithoutTextAllCountAlike) {
  const auto m = load("f32");
  ActivationSquares squares(m->config());
  squares.add({m->ctx(), m->model()}, make_ids(40));
  for (const float x : ActivationSquares(m->config()).importance(-1, ServedMatrix::kHead))
    EXPECT_EQ(x, 1);
  const std::vector<float> head = squares.importance(-1, ServedMatrix::kHead);
  EXPECT_EQ(head.size(), static_cast<size_t>(m->config().hidden));
}

}  // namespace
}  // namespace moraine
