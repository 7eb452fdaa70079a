// MemberSpeed: a least, and a median.
#include "parallel/member_speed.h"

#include <algorithm>

namespace moraine {
namespace {

constexpr size_t kRememberedTimes = 4;
constexpr double kSlow = 1.5;  // times the median time of a row

}  // namespace

void RowTime::add(double seconds, int64_t rows) {
  if (rows <= 0) return;
  if (last_.size() == kRememberedTimes) last_.erase(last_.begin());
  last_.push_back(seconds * 1e9 / static_cast<double>(rows));
}

double RowTime::nanoseconds() const {
  return last_.empty() ? 0 : *std::min_element(last_.begin(), last_.end());
}

double find_slow(std::span<const double> row_nanoseconds, std::vector<double>& slowness) {
  std::vector<double> known;
  for (const double x : row_nanoseconds)
    if (x > 0) known.push_back(x);
  if (known.empty()) return 1;
  std::sort(known.begin(), known.end());
  const double median = known[(known.size() - 1) / 2];
  for (size_t m = 0; m < slowness.size(); ++m) {
    const double times = row_nanoseconds[m] / median;
    if (row_nanoseconds[m] > 0) slowness[m] = times >= kSlow ? times : 1;
  }
  return median;
}

}  // namespace moraine
