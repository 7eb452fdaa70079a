// Profile: finds the row of an operation by the address of its literal name, then by text.
#include "kernels/profile.h"

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/heartbeat.h"

namespace moraine {

void Profile::add(const Event& event, double inside) {
  auto row = std::find_if(rows_.begin(), rows_.end(), [&](const Row& r) {
    return r.name == event.name || std::strcmp(r.name, event.name) == 0;
  });
  if (row == rows_.end()) row = rows_.insert(row, Row{.name = event.name, .span = event.span});
  ++row->calls;
  row->seconds += event.seconds - inside;
  row->seconds_whole += event.seconds;
  row->flops += event.flops;
  row->integer_ops += event.integer_ops;
  row->bytes += event.bytes;
  if (events_ != nullptr && events_->size() < events_->capacity()) events_->push_back(event);
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

OpTimer::OpTimer(Profile* profile, const char* name, double flops, double bytes, bool integers)
    : profile_(profile),
      event_{.name = name, .flops = flops, .integer_ops = integers ? flops : 0, .bytes = bytes} {
  begin();
}

OpTimer::OpTimer(Profile* profile, Span span, const char* name, double bytes)
    : profile_(profile), event_{.name = name, .span = span, .bytes = bytes} {
  begin();
}

void OpTimer::begin() {
  if (profile_ == nullptr) return;
  inside_before_ = profile_->inside_;
  profile_->inside_ = 0;
  event_.begin = now_seconds();
}

void OpTimer::settle() const {
  if (!profile_->settle_ || event_.span != Span::kOperation) return;
  try {
    profile_->settle_();
  } catch (...) {
    // As settle() requires, the next wait says it again.
  }
}

OpTimer::~OpTimer() {
  if (profile_ == nullptr) return;
  settle();
  event_.seconds = now_seconds() - event_.begin;
  profile_->add(event_, profile_->inside_);
  profile_->inside_ = inside_before_ + event_.seconds;
  beat();
}

}  // namespace moraine
