// MessageForm: calls as templates see them. Breaks if who asks a model and who makes data write them in two ways.
#include "chat/message_form.h"

#include <gtest/gtest.h>

namespace moraine {
namespace {

TEST(MessageForm, ACallHasOneOrderAndItsArgumentsAreAnObject) {
  const auto text = [](const Json& arguments) {
    return json_text(served_call("7", "look", arguments)["function"]["arguments"]);
  };
  EXPECT_EQ(json_text(served_call("7", "look", R"({"a": 1})")),
            R"({"id":"7","type":"function","function":{"name":"look","arguments":{"a":1}}})");
  EXPECT_EQ(text(Json()), "{}");
  EXPECT_EQ(text("{}"), "{}");
  EXPECT_EQ(text("[1]"), R"("[1]")");  // not an object: as it was
  EXPECT_EQ(text(""), R"("")");
  EXPECT_EQ(text(Json::object({{"a", 1}})), R"({"a":1})");
}

}  // namespace
}  // namespace moraine
