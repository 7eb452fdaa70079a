// Fails if what calibrates an expert is not the moments of the rows that reach it, or if a factor depends on how many
// passes it took.
#include "eval/weight_calibration.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "eval/observed_pass.h"
#include "eval/test_model.h"
#include "kernels/error_feedback.h"

namespace moraine {
namespace {

using testing::make_ids;

std::unique_ptr<LoadedModel> load() { return testing::load_tiny("f32", 300, 256); }

// Of the layers, by name.
std::vector<PackSource> served_sources(const ModelConfig& config) {
  std::vector<PackSource> sources = pack_sources(config, build_parameters(config));
  std::erase_if(sources, [](const PackSource& s) { return s.layer < 0 || !s.served; });
  std::sort(sources.begin(), sources.end(),
            [](const PackSource& a, const PackSource& b) { return a.name < b.name; });
  return sources;
}

// The rows of one matrix, as they were shown.
class Shown : public ForwardObserver {
 public:
  Shown(int64_t layer, ServedMatrix matrix) : layer_(layer), matrix_(matrix) {}
  void reads(int64_t layer, ServedMatrix matrix, const Tensor& x,
             std::span<const int64_t> rows) override {
    if (layer != layer_ || matrix != matrix_) return;
    bounds.assign(rows.begin(), rows.end());
    k = x.dims[1];
    values.assign(x.as<float>(), x.as<float>() + x.count());
  }
  void chooses(int64_t, const Tensor&) override {}
  // Of inputs i and j, over rows [begin, end).
  double moment(int64_t i, int64_t j, std::pair<int64_t, int64_t> rows) const {
    double sum = 0;
    for (int64_t t = rows.first; t < rows.second; ++t)
      sum += static_cast<double>(values[static_cast<size_t>(t * k + i)]) *
             static_cast<double>(values[static_cast<size_t>(t * k + j)]);
    return sum;
  }

  std::vector<int64_t> bounds;
  std::vector<float> values;
  int64_t k = 0;

 private:
  int64_t layer_;
  ServedMatrix matrix_;
};

TEST(InputMoments, AreSumsOverTheRowsOfAnExpert) {
  const auto m = load();
  const std::vector<int32_t> ids = make_ids(250);
  const std::vector<PackSource> sources = served_sources(m->config());
  InputMoments moments(m->config(), sources);
  moments.add({m->ctx(), m->model()}, ids);
  moments.add({m->ctx(), m->model()}, ids);
  EXPECT_EQ(moments.tokens(), 500);
  int64_t alone = 0, pooled = 0;
  for (size_t s = 0; s < sources.size(); ++s) {
    Shown shown(sources[s].layer, *sources[s].served);
    observed_pass({m->ctx(), m->model()}, ids, shown);
    ASSERT_EQ(shown.k, sources[s].k);
    ASSERT_EQ(static_cast<int64_t>(shown.bounds.size()), sources[s].groups + 1);
    for (int64_t g = 0; g < sources[s].groups; ++g) {
      const auto bound = shown.bounds.begin() + g;
      // Of experts with few rows the moments of all; rows come twice.
      const bool enough = 2 * (bound[1] - bound[0]) >= kEnoughRows;
      const auto rows = enough || sources[s].groups == 1
                            ? std::pair(bound[0], bound[1])
                            : std::pair(int64_t{0}, shown.bounds.back());
      (enough ? alone : pooled) += 1;
      const InputMoments::Moments got = moments.of(static_cast<int64_t>(s), g);
      EXPECT_EQ(got.rows, 2 * (rows.second - rows.first));
      for (const auto& [i, j] : {std::pair<int64_t, int64_t>(3, 3), {0, 5}, {shown.k - 1, 2}}) {
        const double want = 2 * shown.moment(i, j, rows);
        const double size = std::sqrt(shown.moment(i, i, rows) * shown.moment(j, j, rows));
        // Of at most 500 terms.
        EXPECT_NEAR(static_cast<double>(got.sums.as<float>()[i * shown.k + j]), want,
                    500 * 0x1p-24 * 2 * size)
            << sources[s].name << " " << g;
      }
    }
  }
  EXPECT_GT(alone, 0);
  EXPECT_GT(pooled, 0);
  const auto coverage = moments.coverage();
  EXPECT_EQ(coverage.all, m->config().layers * m->config().experts);
  EXPECT_LT(coverage.enough, coverage.all);
  EXPECT_GT(coverage.enough, 0);
}

TEST(InputMoments, OfTheHeadAreMeanSquares) {
  const auto m = load();
  for (const float x : InputMoments(m->config(), {}).head_squares()) EXPECT_EQ(x, 1);
  InputMoments moments(m->config(), {});
  const std::vector<int32_t> ids = make_ids(40);
  moments.add({m->ctx(), m->model()}, ids);
  Shown shown(-1, ServedMatrix::kHead);
  observed_pass({m->ctx(), m->model()}, ids, shown);
  const std::vector<float> got = moments.head_squares();
  ASSERT_EQ(static_cast<int64_t>(got.size()), m->config().hidden);
  for (const int64_t i : {int64_t{0}, int64_t{7}}) {
    const double want = shown.moment(i, i, {0, 40}) / 40;
    EXPECT_NEAR(static_cast<double>(got[static_cast<size_t>(i)]), want, 1e-6 * want);
  }
}

TEST(WeightCalibration, NoFactorDependsOnHowManyPassesItTook) {
  const auto m = load();
  const std::vector<std::vector<int32_t>> windows = {make_ids(200), {}, {7}, make_ids(120)};
  const std::vector<PackSource> sources = served_sources(m->config());
  std::map<std::string, std::vector<float>> want;
  for (const int64_t bytes : {INT64_MAX, int64_t{0}, 2 * InputMoments::bytes(sources[0])}) {
    std::vector<int64_t> passes;
    WeightCalibration calibration(
        {m->ctx(), m->model()},
        {.windows = windows,
         .sources = sources,
         .bytes = bytes,
         .progress = [&](int64_t part, int64_t, int64_t done, int64_t total) {
           EXPECT_EQ(total, 199 + 119);
           if (done == total) passes.push_back(part);
         }});
    const auto most = static_cast<int64_t>(sources.size());
    if (bytes != 2 * InputMoments::bytes(sources[0])) {
      EXPECT_EQ(calibration.parts(), bytes == 0 ? most : 1);
    }
    for (const PackSource& source : sources) {
      for (int64_t g = 0; g < source.groups; ++g) {
        const Tensor factor = calibration.factor(source, g);
        const std::vector<float> got(factor.as<float>(), factor.as<float>() + factor.count());
        std::vector<float>& first = want[source.name + std::to_string(g)];
        if (first.empty()) first = got;
        EXPECT_EQ(got, first) << source.name << " " << g;
      }
    }
    // In the order in which they are asked for, each part is read once.
    EXPECT_EQ(static_cast<int64_t>(passes.size()), calibration.parts());
    EXPECT_EQ(calibration.tokens(), 199 + 119);
    EXPECT_EQ(calibration.coverage().all, m->config().layers * m->config().experts);
  }
}

TEST(WeightCalibration, IdsOutsideTheVocabularyAreRefused) {
  const auto m = load();
  const std::vector<std::vector<int32_t>> windows = {{1, 320, 2}};
  EXPECT_THROW(WeightCalibration({m->ctx(), m->model()}, {.windows = windows, .sources = {}}),
               Error);
}

}  // namespace
}  // namespace moraine
