// Fails if a model differs from itself, or if a difference is not seen.
#include "eval/compare.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "eval/score.h"
#include "eval/test_model.h"
#include "model/write_model.h"
#include "testing/rig.h"

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

// Of a model whose tokens have two experts: each document counts for itself, in company and alone.
TEST(Compare, DocumentsOfOnePassAreThoseOfTheirOwn) {
  const testing::TempFolder folder;
  ModelConfig c;
  c.vocab_size = 320, c.hidden = 40, c.layers = 2, c.head_dim = 10, c.rotary_fraction = 0.4;
  c.experts = 6, c.experts_per_token = 2, c.expert_hidden = 23, c.router_hidden = 9;
  c.max_positions = 64;
  const ParameterTable table = build_parameters(c);
  const InitialValues values{table, c, 3};
  const auto write = [&](const char* name) {
    write_model_directory(
        posix_file_system(), folder.path() + name,
        {.config = c,
         .weights = [&](int64_t begin,
                        const Tensor& out) { initialize_elements(values, begin, out); },
         .dtype = DType::kF32,
         .language_files = {}});
  };
  write("/m");
  const auto open = [&](const std::string& dtype, const char* name = "/m") {
    LoadOptions load;
    load.dtype = dtype;
    load.tokens = 150;
    return LoadedModel::open(ModelDirectory::open(posix_file_system(), folder.path() + name), load);
  };
  const auto a = open("f32"), b = open("bf16");
  const std::vector<int32_t> ids = make_ids(160);
  const std::span<const int32_t> all = ids;
  const std::vector<std::span<const int32_t>> documents = {all.first(60), all.subspan(60, 2),
                                                           all.subspan(90, 64)};
  ModelComparison together({a->ctx(), a->model()}, {b->ctx(), b->model()}), alone = together;
  together.add(documents);
  Comparison sums;
  sums.flips.resize(2);
  for (const std::span<const int32_t> document : documents) {
    alone.add(document);
    ModelComparison own({a->ctx(), a->model()}, {b->ctx(), b->model()});
    own.add(document);
    for (size_t layer = 0; layer < 2; ++layer)
      sums.flips[layer] += own.finish().flips[layer] * static_cast<double>(own.finish().tokens);
  }
  const Comparison got = together.finish(), want = alone.finish();
  EXPECT_EQ(got.tokens, 59 + 1 + 63);
  EXPECT_EQ(got.kl, want.kl);
  EXPECT_EQ(got.loss, want.loss);
  EXPECT_EQ(got.agreement, want.agreement);
  EXPECT_EQ(got.flips, want.flips);
  EXPECT_GT(got.most_flips(), 0);
  for (size_t layer = 0; layer < 2; ++layer)
    EXPECT_NEAR(got.flips[layer] * static_cast<double>(got.tokens), sums.flips[layer], 1e-9);
  // Another number of experts for a token is another model, whose routes cannot be held against these.
  c.experts_per_token = 1;
  write("/one");
  const auto one = open("f32", "/one");
  EXPECT_THROW(ModelComparison({a->ctx(), a->model()}, {one->ctx(), one->model()}), Error);
  EXPECT_THROW(ModelComparison({one->ctx(), one->model()}, {a->ctx(), a->model()}), Error);
}

TEST(ObservedPass, WindowsAreDividedByRows) {
  std::vector<std::vector<int32_t>> windows;
  for (const size_t tokens : {5, 1, 5, 0, 6, 12, 2}) windows.emplace_back(tokens);
  std::vector<std::vector<size_t>> sizes;
  for (const auto& pass : divide_windows(windows, 8)) {
    sizes.emplace_back();
    for (const std::span<const int32_t> window : pass) sizes.back().push_back(window.size());
  }
  EXPECT_EQ(sizes, (std::vector<std::vector<size_t>>{{5, 5}, {6}, {12}, {2}}));
  EXPECT_TRUE(divide_windows({}, 8).empty());
}

TEST(Compare, IdsOutsideTheVocabularyAreRefused) {
  const auto a = load("f32");
  ModelComparison compare({a->ctx(), a->model()}, {a->ctx(), a->model()});
  EXPECT_THROW(compare.add(std::vector<int32_t>{1, 320}), Error);
  EXPECT_THROW(compare.add(std::vector<int32_t>{-1, 3}), Error);
}

}  // namespace
}  // namespace moraine
