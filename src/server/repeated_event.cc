// RepeatedEvent: two events that differ in the text only show where it stands.
#include "server/repeated_event.h"

#include <algorithm>

#include "base/check.h"
#include "base/json.h"

namespace moraine {

void RepeatedEvent::learn(const Write& write) {
  const std::string a = write("a"), b = write("b");
  const auto at = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
  before_ = a.substr(0, static_cast<size_t>(at));
  after_ = a.substr(before_.size() + 1);
  MR_CHECK(before_.ends_with('"') && after_.starts_with('"') && b == before_ + "b" + after_);
  before_.pop_back();
  after_.erase(0, 1);
}

std::string RepeatedEvent::with(std::string_view text, const Write& write) {
  if (before_.empty()) learn(write);
  std::string event;
  event.reserve(before_.size() + text.size() + after_.size() + 8);  // two quotes, some escapes
  event += before_;
  append_json_string(text, &event);
  event += after_;
  return event;
}

}  // namespace moraine
