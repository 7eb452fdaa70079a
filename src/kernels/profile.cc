// Profile: finds the row of an operation by the address of its literal name, then by text.
#include "kernels/profile.h"

#include <algorithm>
#include <cstring>

#include "base/clock.h"

namespace moraine {

void Profile::add(const char* name, double seconds, double flops, double bytes) {
  auto row = std::find_if(rows_.begin(), rows_.end(), [&](const Row& r) {
    return r.name == name || std::strcmp(r.name, name) == 0;
  });
  if (row == rows_.end()) row = rows_.insert(row, Row{.name = name});
  ++row->calls;
  row->seconds += seconds;
  row->flops += flops;
  row->bytes += bytes;
}

std::vector<Profile::Row> Profile::rows() const {
  std::vector<Row> sorted = rows_;
  std::sort(sorted.begin(), sorted.end(),
            [](const Row& a, const Row& b) { return a.seconds > b.seconds; });
  return sorted;
}

double Profile::flops() const {
  double total = 0;
  for (const Row& row : rows_) total += row.flops;
  return total;
}

OpTimer::OpTimer(Profile* profile, const char* name, double flops, double bytes)
    : profile_(profile), name_(name), flops_(flops), bytes_(bytes) {
  if (profile_ != nullptr) start_ = now_seconds();
}

OpTimer::~OpTimer() {
  if (profile_ != nullptr) profile_->add(name_, now_seconds() - start_, flops_, bytes_);
}

}  // namespace moraine
