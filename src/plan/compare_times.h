// CompareTimes: how well predicted times order measured ones, and how far they are off.
#pragma once

#include <vector>

namespace moraine {

struct PredictedTime {
  double predicted = 0, measured = 0;  // seconds, more than 0
};

struct TimeComparison {
  double rank_correlation = 0;  // Spearman's; equal times share their rank; 0: fewer than two
  double error_median = 0, error_largest = 0;  // |predicted / measured - 1|
  double bias = 0;                             // median of predicted / measured - 1
};
TimeComparison compare_times(const std::vector<PredictedTime>& times);

}  // namespace moraine
