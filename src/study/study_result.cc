// StudyResult: medians of runs, means over seeds, Student's t.
#include "study/study_result.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "model/config.h"
#include "model/parameters.h"
#include "study/study_text.h"

namespace moraine {
namespace {

double nan() { return std::numeric_limits<double>::quiet_NaN(); }

double median(std::vector<double> values) {
  values.erase(std::remove_if(values.begin(), values.end(), [](double v) { return std::isnan(v); }),
               values.end());
  if (values.empty()) return nan();
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

// 97.5 % point of Student's t.
double student(int64_t degrees) {
  constexpr double kTable[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365,
                               2.306,  2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
                               2.131,  2.120, 2.110, 2.101, 2.093, 2.086};
  if (degrees < 1) return nan();
  if (degrees <= 20) return kTable[degrees - 1];
  // The first terms of its expansion (Abramowitz and Stegun 26.7.5) in 1 / degrees; within 0.001 from here on.
  const double z = 1.959964, z2 = z * z, d = static_cast<double>(degrees);
  return z + z * (z2 + 1) / (4 * d) + z * (5 * z2 * z2 + 16 * z2 + 3) / (96 * d * d);
}

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json estimate_json(const Estimate& e) {
  return {{"n", e.n},
          {"mean", number(e.mean)},
          {"standard_error", number(e.error)},
          {"interval_95", number(e.interval)}};
}

Json outcome_json(const StudyOutcome& o) {
  return {{"seed", o.seed},
          {"ended", o.has_ended},
          {"exit_code", o.code},
          {"valid_loss", number(o.loss)},
          {"bits_per_byte", number(o.bits_per_byte)},
          {"tokens_per_s", number(o.tokens_per_s)},
          {"load_max_over_mean", number(o.load_max_over_mean)},
          {"load_entropy", number(o.load_entropy)},
          {"dead_experts", number(o.dead_experts)}};
}

// So that columns stand under each other: "±" is two bytes and one column.
std::string padded(const std::string& text, size_t width) {
  size_t columns = 0;
  for (const char c : text) columns += (static_cast<unsigned char>(c) & 0xc0) != 0x80 ? 1 : 0;
  return std::string(width > columns ? width - columns : 0, ' ') + text;
}

std::string row_text(const VariantResult& r, size_t name_width, double base_flops) {
  const ParameterCount count = count_parameters(r.study.config.model);
  std::string row = fmt::format("{:<{}}", r.study.variant.name, name_width);
  row += padded(fmt::format("{}/{}", r.loss.n, r.outcomes.size()), 6);
  row += padded(with_error(r.loss.mean, r.loss.error), 18);
  row += padded(signed_with_error(r.against_base.mean, r.against_base.interval), 19);
  row += padded(with_digits(median_of(r, &StudyOutcome::bits_per_byte), 4), 10);
  row += padded(fmt::format("{:.3f}", r.study.token_flops / base_flops), 9);
  row += padded(format_count(static_cast<double>(r.study.tokens)), 9);
  row += padded(fmt::format("{} ({})", format_count(static_cast<double>(count.active)),
                            format_count(static_cast<double>(count.total))),
                17);
  row += padded(
      fmt::format("{}/{}", r.study.config.model.hidden, r.study.config.model.expert_hidden), 10);
  row += padded(with_digits(median_of(r, &StudyOutcome::load_max_over_mean), 2), 9);
  row += padded(with_digits(median_of(r, &StudyOutcome::load_entropy), 3), 9);
  row += padded(r.loss.n == 0 ? "-" : format_count(median_of(r, &StudyOutcome::tokens_per_s)), 9);
  return row + "\n";
}

}  // namespace

StudyOutcome outcome_of(const std::vector<StepMetrics>& metrics, const StudyConfig& study) {
  StudyOutcome o;
  if (metrics.empty()) return o;
  const StepMetrics& last = metrics.back();
  o.has_ended = last.step == study.steps && std::isfinite(last.valid_loss);
  o.loss = last.valid_loss, o.bits_per_byte = last.bits_per_byte;
  std::vector<double> speeds, balance, entropy, dead;
  const size_t tail = metrics.size() - std::max<size_t>(1, metrics.size() / 10);
  for (size_t i = 0; i < metrics.size(); ++i) {
    const StepMetrics& m = metrics[i];
    speeds.push_back(m.tokens_per_s);
    if (i >= tail) {
      balance.push_back(m.load_max_over_mean);
      entropy.push_back(m.load_entropy);
      dead.push_back(static_cast<double>(m.dead_experts));
    }
    if (std::isfinite(m.valid_loss))
      o.curve.push_back({study.token_flops * static_cast<double>(m.tokens_seen), m.valid_loss});
  }
  o.tokens_per_s = median(speeds);
  o.load_max_over_mean = median(balance), o.load_entropy = median(entropy);
  o.dead_experts = median(dead);
  return o;
}

Estimate estimate(const std::vector<double>& values) {
  Estimate e{.n = static_cast<int64_t>(values.size())};
  if (values.empty()) return e;
  const double n = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (const double v : values) sum += v;
  e.mean = sum / n;
  if (values.size() < 2) return e;
  for (const double v : values) squares += (v - e.mean) * (v - e.mean);
  e.error = std::sqrt(squares / (n - 1) / n);
  e.interval = student(e.n - 1) * e.error;
  return e;
}

std::vector<VariantResult> study_results(const std::vector<StudyConfig>& studies,
                                         const std::vector<std::vector<StudyOutcome>>& outcomes) {
  std::vector<VariantResult> all;
  for (size_t v = 0; v < studies.size(); ++v) {
    std::vector<double> losses, differences;
    for (size_t s = 0; s < outcomes[v].size(); ++s) {
      const StudyOutcome &one = outcomes[v][s], &base = outcomes.front()[s];
      if (!one.has_ended) continue;
      losses.push_back(one.loss);
      if (v > 0 && base.has_ended) differences.push_back(one.loss - base.loss);
    }
    all.push_back({.study = studies[v],
                   .outcomes = outcomes[v],
                   .loss = estimate(losses),
                   .against_base = estimate(differences)});
  }
  return all;
}

double median_of(const VariantResult& result, double StudyOutcome::*member) {
  std::vector<double> values;
  for (const StudyOutcome& o : result.outcomes)
    if (o.has_ended) values.push_back(o.*member);
  return median(values);
}

MeanCurve mean_curve(const VariantResult& result) {
  MeanCurve curve;
  for (size_t i = 0;; ++i) {
    std::vector<double> losses;
    double flops = 0;
    for (const StudyOutcome& o : result.outcomes) {
      if (!o.has_ended || i >= o.curve.size()) continue;
      losses.push_back(o.curve[i].loss);
      flops = o.curve[i].flops;
    }
    if (losses.empty()) return curve;
    const Estimate e = estimate(losses);
    curve.flops.push_back(flops), curve.loss.push_back(e.mean), curve.error.push_back(e.error);
  }
}

std::string study_table_text(const std::vector<VariantResult>& results) {
  size_t width = 8;
  for (const VariantResult& r : results) width = std::max(width, r.study.variant.name.size() + 1);
  std::string text = fmt::format("{:<{}}", "variant", width);
  text += fmt::format("{:>6}{:>18}{:>19}{:>10}{:>9}{:>9}{:>17}{:>10}{:>9}{:>9}{:>9}\n", "seeds",
                      "held-out loss", "against base", "bits/byte", "flops", "tokens",
                      "active (params)", "D/F", "balance", "entropy", "tok/s");
  for (const VariantResult& r : results)
    text += row_text(r, width, results.front().study.token_flops);
  return text +
         "held-out loss: nats per token, ± standard error over seeds; against base: mean over "
         "seeds, ± half of "
         "the 95 % interval\nflops: per token, of the base; D/F: hidden, expert_hidden; balance: "
         "busiest expert "
         "over the mean, worst layer\n";
}

std::string study_json(const std::vector<VariantResult>& results) {
  Json rows = Json::array();
  for (const VariantResult& r : results) {
    const ParameterCount count = count_parameters(r.study.config.model);
    Json outcomes = Json::array();
    for (const StudyOutcome& o : r.outcomes) outcomes.push_back(outcome_json(o));
    rows.push_back({{"variant", r.study.variant.name},
                    {"settings", r.study.variant.assignments},
                    {"hidden", r.study.config.model.hidden},
                    {"expert_hidden", r.study.config.model.expert_hidden},
                    {"flops_per_token", r.study.token_flops},
                    {"flops", r.study.total_flops},
                    {"tokens", r.study.tokens},
                    {"steps", r.study.steps},
                    {"parameters", count.total},
                    {"active_parameters", count.active},
                    {"valid_loss", estimate_json(r.loss)},
                    {"against_base", estimate_json(r.against_base)},
                    {"runs", outcomes}});
  }
  return json_text(Json::object({{"variants", rows}}));
}

}  // namespace moraine
