// Texts, choices and comparisons on an emulated GPU: fails if a number is not the CPU's within what f32 comes to, if
// windows that are computed together leave a trace, if looking at a pass changes a bit of it, or if what is seen is not
// what the CPU shows.
#include <gtest/gtest.h>

#include <cmath>

#include "eval/compare.h"
#include "eval/continuation.h"
#include "eval/observed_pass.h"
#include "eval/score.h"
#include "eval/test_model.h"
#include "kernels/gpu/runtime.h"
#include "model/test_golden.h"

namespace moraine {
namespace {

using namespace testing;

// Of one token's loss: each is so near the public implementation's (model/model_test.cc).
constexpr double kNear = 2 * 2e-6;

std::unique_ptr<LoadedModel> load_on(const std::string& device, const std::string& dtype = "f32") {
  LoadOptions options;
  options.dtype = dtype;
  options.threads = 1;
  options.tokens = 18;
  options.positions = 9;
  options.device = device;
  return LoadedModel::open(
      ModelDirectory::open(posix_file_system(), source_path("tests/golden/native-tiny")), options);
}

TEST(EvalOnAGpu, PerplexityAndChoicesAreTheCpus) {
  const auto cpu = load_on("cpu"), gpu = load_on("emulated:plain");
  const std::vector<int32_t> ids = make_ids(20);
  const PerplexityOptions options{.context = 9, .stride = 5, .progress = {}};
  const auto perplexity = [&](LoadedModel& m) {
    return document_perplexity({m.ctx(), m.model()}, ids, 20, options);
  };
  const Perplexity want = perplexity(*cpu), got = perplexity(*gpu);
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_NEAR(got.loss(), want.loss(), kNear);
  EXPECT_NE(got.nll, want.nll);  // so it was not the CPU
  const std::vector<Continuation> all = {{.ids = {5, 6, 7, 8}, .context_tokens = 2},
                                         {.ids = {5, 6, 9}, .context_tokens = 2},
                                         {.ids = {30, 31, 32, 33, 34}, .context_tokens = 3}};
  const auto score = [&](LoadedModel& m, std::span<const Continuation> some) {
    return score_continuations({m.ctx(), m.model()}, some, [](int64_t, int64_t) {});
  };
  const std::vector<double> on_cpu = score(*cpu, all), on_gpu = score(*gpu, all);
  for (size_t i = 0; i < all.size(); ++i) EXPECT_NEAR(on_gpu[i], on_cpu[i], 2 * kNear);
  EXPECT_EQ(score(*gpu, std::span(all).subspan(1, 1))[0], on_gpu[1]);
}

// What a pass showed: bounds of rows and the rows of every product, and all routes.
class Seen : public ForwardObserver {
 public:
  void reads(int64_t, ServedMatrix, const Tensor& x, std::span<const int64_t> rows) override {
    bounds.emplace_back(rows.begin(), rows.end());
    const int64_t count = rows.back() * x.dims[1];  // behind them is what passes before have left
    inputs.emplace_back(x.as<float>(), x.as<float>() + count);
  }
  void chooses(int64_t, const Tensor& expert) override {
    routes.emplace_back(expert.as<int32_t>(), expert.as<int32_t>() + expert.count());
  }
  std::vector<std::vector<int64_t>> bounds;
  std::vector<std::vector<float>> inputs;
  std::vector<std::vector<int32_t>> routes;
};

TEST(EvalOnAGpu, APassIsSeenAsItIsAndStaysAsItIs) {
  const auto cpu = load_on("cpu"), gpu = load_on("emulated:sm_80");
  const std::vector<int32_t> ids = make_ids(9);
  Seen there, here;
  observed_pass({cpu->ctx(), cpu->model()}, ids, there);
  observed_pass({gpu->ctx(), gpu->model()}, ids, here);
  EXPECT_EQ(here.bounds, there.bounds);
  EXPECT_EQ(here.routes, there.routes);
  ASSERT_EQ(here.inputs.size(), there.inputs.size());
  for (size_t i = 0; i < here.inputs.size(); ++i) {
    const auto tensor = [](std::vector<float>& values) {
      return make_tensor(values.data(), DType::kF32, {static_cast<int64_t>(values.size())});
    };
    EXPECT_LE(relative_distance(tensor(here.inputs[i]), tensor(there.inputs[i])), 2 * kF32Logit)
        << i;
  }
  // Nobody looks at this one.
  const std::vector<double> unseen = score_tokens({gpu->ctx(), gpu->model()}, ids);
  ModelComparison compare({cpu->ctx(), cpu->model()}, {gpu->ctx(), gpu->model()});
  compare.add(ids);
  const Comparison c = compare.finish();
  double loss = 0;
  for (size_t i = 1; i < unseen.size(); ++i) loss -= unseen[i] / 8;
  EXPECT_NEAR(c.loss, loss, 1e-6);
  EXPECT_NEAR(c.loss, c.loss_reference, kNear);
  EXPECT_EQ(c.agreement, 1);
  EXPECT_EQ(c.most_flips(), 0);
  EXPECT_EQ(c.flips.size(), static_cast<size_t>(cpu->config().layers));
}

// A route that is given is the one that is computed.
class Given : public ForwardObserver {
 public:
  void reads(int64_t, ServedMatrix, const Tensor&, std::span<const int64_t>) override {}
  bool looks_at_inputs() const override { return false; }
  void chooses(int64_t, const Tensor& expert) override {
    for (int64_t t = 0; t < expert.count(); ++t) EXPECT_EQ(expert.as<int32_t>()[t], t % 2);
  }
  void route(int64_t, const Tensor& expert) override {
    for (int64_t t = 0; t < expert.count(); ++t)
      expert.as<int32_t>()[t] = static_cast<int32_t>(t % 2);
  }
};

TEST(EvalOnAGpu, AGivenRouteIsTaken) {
  const auto gpu = load_on("emulated:sm_80", "bf16");
  Given given;
  observed_pass({gpu->ctx(), gpu->model()}, make_ids(4), given);
  std::vector<int64_t> bounds(static_cast<size_t>(gpu->config().experts + 1));
  const Tensor rows = gpu->model().acts(gpu->config().layers - 1).rows;
  gpu->ctx().gpu->copy_out(bounds.data(), rows.data, static_cast<int64_t>(bounds.size() * 8));
  EXPECT_EQ(bounds, (std::vector<int64_t>{0, 2, 4, 4, 4}));
}

}  // namespace
}  // namespace moraine
