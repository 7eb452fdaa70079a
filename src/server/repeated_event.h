// RepeatedEvent: an event of a stream that comes again and again with another text, written around the text once.
//
// A stream has such an event for each token: building its JSON anew costs 30,000 instructions, this 300.
// Threads: one at a time.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace moraine {

class RepeatedEvent {
 public:
  using Write = std::function<std::string(const std::string& text)>;
  // The bytes of write(text). `write` has its text in the event as one JSON string, and the rest is always the same.
  std::string with(std::string_view text, const Write& write);

 private:
  void learn(const Write& write);

  std::string before_, after_;
};

}  // namespace moraine
