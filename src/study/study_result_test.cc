// Fails if an error bar is not what statistics say, differences are not taken seed by seed, or a run that did not end
// counts.
#include "study/study_result.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"
#include "base/test_page.h"
#include "study/study_page.h"

namespace moraine {
namespace {

using namespace testing;

TEST(Estimate, IsTheMeanWithStudentsInterval) {
  const Estimate e = estimate({1, 2, 3, 6});
  EXPECT_EQ(e.n, 4);
  EXPECT_DOUBLE_EQ(e.mean, 3);
  EXPECT_NEAR(e.error, std::sqrt(14.0 / 3 / 4), 1e-12);
  EXPECT_NEAR(e.interval, 3.182 * e.error, 1e-12);
  EXPECT_TRUE(std::isnan(estimate({5}).error));
  EXPECT_TRUE(std::isnan(estimate({}).mean));
  std::vector<double> many(31);
  for (size_t i = 0; i < many.size(); ++i) many[i] = i % 2 == 0 ? 1 : -1;
  const Estimate wide = estimate(many);
  EXPECT_NEAR(wide.interval / wide.error, 2.0423, 1e-3);  // 30 degrees
}

StudyConfig study_of(const std::string& name) {
  StudyConfig s{.variant = {.name = name, .assignments = {}}, .config = {}};
  s.config.model.vocab_size = 512;
  s.token_flops = 1e6, s.total_flops = 1e9, s.steps = 10, s.tokens = 1000;
  return s;
}

StudyOutcome ended(int64_t seed, double loss) {
  StudyOutcome o;
  o.seed = seed, o.has_ended = true;
  o.loss = loss, o.bits_per_byte = loss / 2, o.tokens_per_s = 100;
  o.curve = {{5e8, loss + 1}, {1e9, loss}};
  return o;
}

TEST(StudyResult, DifferencesAreTakenSeedBySeed) {
  const std::vector<StudyConfig> studies = {study_of("base"), study_of("<b>")};
  // Seeds differ by far more than the variants do; the third of the variant has failed.
  StudyOutcome failed;
  failed.seed = 3, failed.code = 14, failed.why = "exit code 14";
  const std::vector<VariantResult> results = study_results(
      studies,
      {{ended(1, 4.0), ended(2, 5.0), ended(3, 6.0)}, {ended(1, 3.9), ended(2, 4.8), failed}});
  EXPECT_EQ(results[0].loss.n, 3);
  EXPECT_EQ(results[0].against_base.n, 0);
  EXPECT_EQ(results[1].loss.n, 2);
  EXPECT_NEAR(results[1].against_base.mean, -0.15, 1e-12);
  EXPECT_NEAR(results[1].against_base.error, 0.05, 1e-12);
  const MeanCurve curve = mean_curve(results[1]);
  ASSERT_EQ(curve.loss.size(), 2u);
  EXPECT_NEAR(curve.loss[0], 5.35, 1e-12);
  EXPECT_EQ(curve.flops[1], 1e9);

  const std::string table = study_table_text(results);
  EXPECT_NE(table.find("-0.1500"), std::string::npos) << table;
  EXPECT_NE(table.find("2/3"), std::string::npos) << table;
  const Json json = parse_json(study_json(results));
  EXPECT_EQ(json["variants"][1]["runs"][2]["exit_code"], 14);
  EXPECT_TRUE(json["variants"][0]["against_base"]["mean"].is_null());
  const std::string page = study_page(results);
  expect_sound(page);
  EXPECT_EQ(page.find("<b></b>"), std::string::npos);
  EXPECT_NE(page.find("&lt;b&gt;"), std::string::npos);
  EXPECT_NE(page.find("exit code 14"), std::string::npos);
  expect_sound(study_page(study_results(studies, {{{}}, {{}}})));  // nothing has ended yet
}

TEST(StudyResult, ReadsARunFromItsMetrics) {
  const StudyConfig study = study_of("base");
  std::vector<StepMetrics> metrics(10);
  for (size_t i = 0; i < metrics.size(); ++i) {
    StepMetrics& m = metrics[i];
    m.step = static_cast<int64_t>(i) + 1, m.tokens_seen = m.step * 100;
    m.tokens_per_s = static_cast<double>(i), m.load_max_over_mean = i < 9 ? 8 : 1.5;
    if (i % 5 == 4) m.valid_loss = 5 - 0.1 * static_cast<double>(i);
  }
  const StudyOutcome o = outcome_of(metrics, study);
  EXPECT_TRUE(o.has_ended);
  EXPECT_NEAR(o.loss, 4.1, 1e-12);
  EXPECT_DOUBLE_EQ(o.tokens_per_s, 4.5);
  EXPECT_DOUBLE_EQ(o.load_max_over_mean, 1.5);  // of the last tenth
  ASSERT_EQ(o.curve.size(), 2u);
  EXPECT_DOUBLE_EQ(o.curve[0].flops, 5e8);
  metrics.pop_back();
  EXPECT_FALSE(outcome_of(metrics, study).has_ended);
  EXPECT_FALSE(outcome_of({}, study).has_ended);
}

}  // namespace
}  // namespace moraine
