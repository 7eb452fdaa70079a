// RepeatedEvent: fails if an event around a learnt place has other bytes than one that is written whole.
#include "server/repeated_event.h"

#include <gtest/gtest.h>

#include "server/answer.h"

namespace moraine {
namespace {

TEST(RepeatedEvent, HasTheBytesOfTheWholeEventWithEveryText) {
  for (const Json& around : {Json("a"), Json("b"), Json("\"text\":\"a\""), Json("")}) {
    const auto write = [&](const std::string& text) {
      return sse_event("name", {{"before", around}, {"text", text}, {"after", {around, nullptr}}});
    };
    RepeatedEvent event;
    for (const std::string text : {"", "a", "b", " word", "\"", "\\", "\n\t\x01\x7f",
                                   "\xc3\xa9\xf0\x9f\x98\x80", "\xff cut \xc3"})
      EXPECT_EQ(event.with(text, write), write(text)) << text;
    EXPECT_EQ(event.with(std::string("a\0b", 3), write), write(std::string("a\0b", 3)));
  }
}

}  // namespace
}  // namespace moraine
