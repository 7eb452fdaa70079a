// Fails if what calibrates an expert is not the moments of the rows that reach it, if a factor depends on how many
// passes it took, or if a model whose errors are fed back is no closer to what it was made from.
#include "eval/weight_calibration.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "eval/compare.h"
#include "eval/observed_pass.h"
#include "eval/test_model.h"
#include "model/write_packed.h"
#include "testing/rig.h"

namespace moraine {
namespace {

using testing::make_ids;

std::unique_ptr<LoadedModel> load() { return testing::load_tiny("f32", 300, 256); }

// By name.
std::vector<PackSource> served_sources(const ModelConfig& config) {
  std::vector<PackSource> sources = pack_sources(config, build_parameters(config));
  std::erase_if(sources, [](const PackSource& s) { return !s.served; });
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
  std::vector<WatchedGroups> watched;  // of experts all but the first
  for (const PackSource& source : sources)
    watched.push_back({source, source.groups > 1 ? 1 : 0, source.groups});
  InputMoments moments(m->config(), watched);
  const std::span<const int32_t> document = ids;
  moments.add({m->ctx(), m->model()}, Documents(&document, 1));
  moments.add({m->ctx(), m->model()}, Documents(&document, 1));
  EXPECT_EQ(moments.tokens(), 500);
  for (const WatchedGroups& w : watched) {
    Shown shown(w.source.layer, *w.source.served);
    observed_pass({m->ctx(), m->model()}, ids, shown);
    ASSERT_EQ(shown.k, w.source.k);
    for (int64_t g = w.begin; g < w.end; ++g) {
      const std::pair rows(shown.bounds[static_cast<size_t>(g)],
                           shown.bounds[static_cast<size_t>(g) + 1]);
      const InputMoments::Moments got = moments.of(w.source, g);
      EXPECT_EQ(got.rows, 2 * (rows.second - rows.first));
      for (const auto& [i, j] : {std::pair<int64_t, int64_t>(3, 3), {0, 5}, {shown.k - 1, 2}}) {
        const double want = 2 * shown.moment(i, j, rows);
        const double size = std::sqrt(shown.moment(i, i, rows) * shown.moment(j, j, rows));
        // Of at most 500 terms.
        EXPECT_NEAR(static_cast<double>(got.sums.as<float>()[i * shown.k + j]), want,
                    500 * 0x1p-24 * 2 * size)
            << w.source.name << " " << g;
      }
    }
  }
  const auto coverage = moments.coverage();
  EXPECT_EQ(coverage.all, m->config().layers * m->config().experts);
  EXPECT_LT(coverage.enough, coverage.all);
  EXPECT_GT(coverage.enough, 0);
}

TEST(WeightCalibration, NoFactorDependsOnHowManyPassesItTook) {
  const auto m = load();
  const std::vector<std::vector<int32_t>> windows = {make_ids(200), {}, make_ids(120), {7}};
  const std::vector<PackSource> sources = served_sources(m->config());
  int64_t groups = 0;
  for (const PackSource& source : sources) groups += source.groups;
  std::map<std::string, std::vector<float>> want;
  // Three groups: of experts some now, some later.
  for (const int64_t bytes : {INT64_MAX, int64_t{0}, 3 * InputMoments::group_bytes(sources[0])}) {
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
    EXPECT_GE(calibration.parts(), bytes == INT64_MAX ? 1 : 5);
    EXPECT_LE(calibration.parts(), bytes == INT64_MAX ? 1 : groups);
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

// The golden model in q4, with what `feedback` gives.
std::unique_ptr<LoadedModel> pack_q4(const std::string& path,
                                     const decltype(PackedToWrite::feedback)& feedback) {
  FileSystem& fs = posix_file_system();
  const ModelDirectory from =
      ModelDirectory::open(fs, testing::source_path("tests/golden/native-tiny"));
  const ParameterTable table = build_parameters(from.config());
  testing::Rig rig(Backend::kCpu, 2);
  write_packed_model(
      rig.ctx, fs, path,
      {.config = from.config(),
       .weights = [&](int64_t begin, const Tensor& t) { from.read_elements(table, begin, t); },
       .type = *find_pack_type("q4"),
       .language_files = {},
       .feedback = feedback});
  LoadOptions load;
  load.tokens = 300;
  load.positions = 256;
  return LoadedModel::open(ModelDirectory::open(fs, path), load);
}

TEST(WeightCalibration, ErrorsThatAreFedBackDoLessHarm) {
  const auto m = load();
  std::vector<std::vector<int32_t>> windows;
  const std::vector<int32_t> ids = make_ids(16 * 256);
  for (auto at = ids.begin(); at != ids.end(); at += 256) windows.emplace_back(at, at + 256);
  const testing::TempFolder folder;
  WeightCalibration calibration({m->ctx(), m->model()}, {.windows = std::span(windows).subspan(1),
                                                         .sources = served_sources(m->config()),
                                                         .bytes = INT64_MAX});
  const auto alone = pack_q4(folder.path() + "/alone", {});
  const auto fed_back = pack_q4(
      folder.path() + "/fed_back",
      [&](const PackSource& source, int64_t group) { return calibration.factor(source, group); });
  const auto lost = [&](LoadedModel& other) {
    ModelComparison compare({m->ctx(), m->model()}, {other.ctx(), other.model()});
    compare.add(windows[0]);
    return compare.finish().kl;
  };
  EXPECT_LT(lost(*fed_back), 0.85 * lost(*alone));
}

TEST(WeightCalibration, InputsThatAreNotFiniteAreNamed) {
  const auto m = load();
  std::vector<PackSource> sources = served_sources(m->config());
  std::erase_if(sources, [](const PackSource& s) {
    return s.name != "model.layers.1.mlp.experts.down_proj";
  });
  ASSERT_EQ(sources.size(), 1u);
  const std::vector<std::vector<int32_t>> windows = {make_ids(60)};
  // The second matrix of an expert reads what the first ones made.
  const MatrixPack& first = m->model().weights().layers[1].gate_up;
  for (int64_t i = 0; i < packed_bytes(first.forward) / 4; ++i)
    static_cast<float*>(first.forward.data)[i] *= 1e25f;
  WeightCalibration calibration({m->ctx(), m->model()}, {.windows = windows, .sources = sources});
  try {
    for (int64_t group = 0; group < sources[0].groups; ++group)
      calibration.factor(sources[0], group);
    ADD_FAILURE() << "no Error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kCorrupt);
    EXPECT_NE(std::string(e.what()).find("experts.down_proj: its inputs are infinite"),
              std::string::npos)
        << e.what();
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
