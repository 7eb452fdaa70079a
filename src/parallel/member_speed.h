// MemberSpeed: which members of a group take longer for a row of an expert than the others.
//
// The time of a row is the least of the last four that were measured: a disturbance makes no member slow. A member
// counts as slow from 1.5 times the median: fewer rows make a row dearer, and nobody is to be blamed for that.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace moraine {

constexpr int64_t kTimedRows = 32;  // fewer take as long as products take to begin and end

class RowTime {
 public:
  void add(double seconds, int64_t rows);  // nothing without rows
  double nanoseconds() const;              // of a row; 0: not known

 private:
  std::vector<double> last_;
};

// row_nanoseconds: of each member, 0 if not known; slowness: 1 as the others, 2 twice as long, and as it was where
// nothing is known. Returns the median of those that are known; 1 if none is.
double find_slow(std::span<const double> row_nanoseconds, std::vector<double>& slowness);

}  // namespace moraine
