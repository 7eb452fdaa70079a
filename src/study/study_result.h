// StudyResult: what the runs of a study say, as means over seeds with their errors.
//
//   mean          of the held-out loss at the end of each seed's run, its error sd / sqrt(n)
//   against base  mean of the differences seed by seed: runs of one seed begin with the same numbers and read the
//                 same data, so most of what a seed does cancels; interval of 95 % by Student's t with n - 1 degrees
//
// Seeds whose run has not ended count nowhere. One seed has no error.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "study/equal_compute.h"
#include "train/metrics.h"

namespace moraine {

struct StudyPoint {
  double flops = 0, loss = 0;  // held-out, nats per token
};

// One seed of one variant.
struct StudyOutcome {
  int64_t seed = 0;
  bool has_ended = false;
  int code = 0;  // of its process; another than 0: failed, `why` says
  std::string why;
  double loss = std::numeric_limits<double>::quiet_NaN();  // held-out, at the end
  double bits_per_byte = loss;
  double tokens_per_s = loss;                             // median over steps
  double load_max_over_mean = loss, load_entropy = loss;  // median over the last tenth
  double dead_experts = loss;
  std::vector<StudyPoint> curve;
};
StudyOutcome outcome_of(const std::vector<StepMetrics>& metrics, const StudyConfig& study);

struct Estimate {
  int64_t n = 0;
  double mean = std::numeric_limits<double>::quiet_NaN();
  double error = mean;     // standard, of the mean; unknown for n < 2
  double interval = mean;  // half of the 95 % interval
};
Estimate estimate(const std::vector<double>& values);

struct VariantResult {
  StudyConfig study;
  std::vector<StudyOutcome> outcomes;  // by seed
  Estimate loss, against_base;
};

// outcomes[v]: of studies[v], in one order of seeds. The first is the base.
std::vector<VariantResult> study_results(const std::vector<StudyConfig>& studies,
                                         const std::vector<std::vector<StudyOutcome>>& outcomes);

// Median over the outcomes that have ended; NaN: none.
double median_of(const VariantResult& result, double StudyOutcome::*member);

// The mean held-out loss by flops over the seeds that have ended, and its standard error.
struct MeanCurve {
  std::vector<double> flops, loss, error;
};
MeanCurve mean_curve(const VariantResult& result);

std::string study_table_text(const std::vector<VariantResult>& results);
std::string study_json(const std::vector<VariantResult>& results);

}  // namespace moraine
