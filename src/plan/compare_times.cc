// CompareTimes: Spearman's correlation is Pearson's of the ranks.
#include "plan/compare_times.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace moraine {
namespace {

// Place of each value in ascending order; equal ones have the mean of their places.
std::vector<double> places(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> place(values.size());
  for (size_t i = 0; i < order.size();) {
    size_t end = i;
    while (end < order.size() && values[order[end]] == values[order[i]]) ++end;
    for (size_t j = i; j < end; ++j) place[order[j]] = static_cast<double>(i + end - 1) / 2;
    i = end;
  }
  return place;
}

double pearson(const std::vector<double>& x, const std::vector<double>& y) {
  const double n = static_cast<double>(x.size());
  const double mx = std::accumulate(x.begin(), x.end(), 0.0) / n,
               my = std::accumulate(y.begin(), y.end(), 0.0) / n;
  double xx = 0, yy = 0, xy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xx += (x[i] - mx) * (x[i] - mx), yy += (y[i] - my) * (y[i] - my);
    xy += (x[i] - mx) * (y[i] - my);
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : 0;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

TimeComparison compare_times(const std::vector<PredictedTime>& times) {
  std::vector<double> predicted, measured, off, size;
  for (const PredictedTime& t : times) {
    predicted.push_back(t.predicted), measured.push_back(t.measured);
    off.push_back(t.predicted / t.measured - 1), size.push_back(std::abs(off.back()));
  }
  TimeComparison c;
  if (times.size() > 1) c.rank_correlation = pearson(places(predicted), places(measured));
  c.error_median = median(size);
  c.error_largest = size.empty() ? 0 : *std::max_element(size.begin(), size.end());
  c.bias = median(off);
  return c;
}

}  // namespace moraine
