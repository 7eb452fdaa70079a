// Fuzz: a chat template, run on a conversation with tools, and its text read as an answer in every format.
#include "chat/chat_template.h"
#include "chat/jinja/template.h"
#include "chat/tool_calls.h"
#include "testing/fuzz.h"

namespace moraine {

void fuzz_one(std::string_view input) {
  static const Json kVariables = parse_json(R"({"messages": [
    {"role": "system", "content": "s"}, {"role": "user", "content": " hi\n"},
    {"role": "assistant", "content": null, "tool_calls": [{"id": "abcdef123", "type": "function",
      "function": {"name": "f", "arguments": {"a": [1, 2.5, true], "é": "日"}}}]},
    {"role": "tool", "content": "{}"}, {"role": "assistant", "content": "<think>x</think>y"}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": {}}}}],
    "bos_token": "<s>", "n": 3, "add_generation_prompt": true})");
  std::string text(input);
  testing::parses_or_throws_error([&] {
    const jinja::Limits limits{.steps = 200'000, .memory_bytes = 1 << 24, .output_bytes = 1 << 20};
    const jinja::Template t(text, "fuzz", limits);
    text = t.render_tracked({&kVariables}).text;
  });
  testing::parses_or_throws_error([&] {
    for (int format = 0; format < 6; ++format) {
      ReplyOptions o;
      o.format = static_cast<ToolFormat>(format);
      o.tools = kVariables["tools"];
      parse_reply(text, o);
    }
  });
}

}  // namespace moraine
