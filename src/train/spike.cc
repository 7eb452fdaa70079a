// Spike: keeps averages of the loss, saved as hexadecimal (exact) numbers.
#include "train/spike.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/error.h"

namespace moraine {

bool SpikeDetector::observe(double loss, double gradient_norm) {
  const bool finite = std::isfinite(loss) && std::isfinite(gradient_norm);
  const double deviation = std::sqrt(variance_);
  z_ = finite && seen_ >= kWarm && deviation > 0 ? (loss - mean_) / deviation : 0;
  if (!finite || (sigma_ > 0 && z_ > sigma_)) {
    ++bad_in_a_row_;
    return true;
  }
  bad_in_a_row_ = 0;
  seen_ = std::min(seen_ + 1, kWindow);
  const double weight = 1.0 / static_cast<double>(seen_), difference = loss - mean_;
  mean_ += weight * difference;
  variance_ = (1 - weight) * (variance_ + weight * difference * difference);
  return false;
}

std::string SpikeDetector::save() const {
  char text[128];
  std::snprintf(text, sizeof text, "%a %a %ld %ld", mean_, variance_, static_cast<long>(seen_),
                static_cast<long>(bad_in_a_row_));
  return text;
}

void SpikeDetector::restore(const std::string& text) {
  long seen = 0, bad = 0;
  if (std::sscanf(text.c_str(), "%la %la %ld %ld", &mean_, &variance_, &seen, &bad) != 4 ||
      seen < 0 || seen > kWindow || bad < 0) {
    throw_error(Code::kCorrupt, "checkpoint: loop state \"{}\" is not what a spike detector saves",
                text);
  }
  seen_ = seen;
  bad_in_a_row_ = bad;
}

}  // namespace moraine
