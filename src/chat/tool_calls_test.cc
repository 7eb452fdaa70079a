// Generated text in each format, whole and cut everywhere. Fails if a tag, an argument or a space goes to the wrong
// side, if text that is no call is lost, or if the result depends on where the text was cut.
#include "chat/tool_calls.h"

#include <gtest/gtest.h>

#include <string>

#include "base/random.h"

namespace moraine {
namespace {

const Json kTools = parse_json(
    R"([{"type": "function", "function": {"name": "look", "parameters": {"type": "object",
  "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "list": {"type": "array"}}}}},
  {"type": "function", "function": {"name": "now"}}])");

// content | reasoning | name(arguments)problem...
std::string shown(const Reply& r) {
  std::string text = r.content + "|" + r.reasoning + "|";
  for (const ToolCall& c : r.calls) {
    text += c.name + "(" + c.arguments + ")" + (c.problem.empty() ? "" : "!");
  }
  return text;
}

struct Case {
  ToolFormat format;
  const char* text;
  const char* wanted;
};

const Case kCases[] = {
    {ToolFormat::kNone, "Hello <tool_call>{} world \n", "Hello <tool_call>{} world \n||"},
    {ToolFormat::kNone, "<think>\nHm. \n</think>\n\nYes. ", "Yes. |Hm.|"},
    {ToolFormat::kNone, " \n", " \n||"},
    {ToolFormat::kNone, "", "||"},
    {ToolFormat::kNone, " <thin", " <thin||"},
    {ToolFormat::kNone, "a <think>b</think>", "a <think>b</think>||"},
    {ToolFormat::kNone, "<think>never ends <", "|never ends <|"},
    {ToolFormat::kNone, "<think></think>x", "x||"},
    {ToolFormat::kHermes,
     "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"city\": \"}\\\"{\"}}\n</tool_call>",
     "||look({\"city\": \"}\\\"{\"})"},
    {ToolFormat::kHermes,
     "Sure.\n<tool_call>{\"name\":\"now\"}</tool_call>\n<tool_call>{\"arguments\": {\"a\": [1]}, "
     "\"id\": 7, \"name\":\"look\"}</tool_call>\nDone",
     "Sure.Done||now({})look({\"a\": [1]})"},
    {ToolFormat::kHermes,
     "<tool_call>{\"name\": \"look\", \"arguments\": \"{\\\"city\\\": 1}\"}</tool_call>",
     "||look({\"city\": 1})"},
    {ToolFormat::kHermes, "<tool_call>not json</tool_call> x",
     "<tool_call>not json</tool_call> x||"},
    {ToolFormat::kHermes, "a <tool_call>{\"nome\": 1}</tool_call>",
     "a <tool_call>{\"nome\": 1}</tool_call>||"},
    {ToolFormat::kHermes, "<tool_call>{\"name\": \"look\", \"arguments\": {\"a\": 1",
     "||look({\"a\": 1)!"},
    {ToolFormat::kHermes, "<tool_call>{\"name\": \"lo", "<tool_call>{\"name\": \"lo||"},
    {ToolFormat::kHermes, "<tool_call>{\"name\": \"look\", \"arguments\": {a}}</tool_call>",
     "||look({a})!"},
    {ToolFormat::kHermes,
     "<tool_call>{\"name\": \"look\", \"arguments\": {}} {\"name\": \"now\"}</tool_call>",
     "{\"name\": \"now\"}</tool_call>||look({})"},
    {ToolFormat::kHermes,
     "<think>t</think>\n\n<tool_call>\n<function=look>\n<parameter=city>\nA\n\"b\"\n</"
     "parameter>\n</function>\n</tool_call>",
     "|t|look({\"city\": \"A\\n\\\"b\\\"\"})"},
    {ToolFormat::kQwenCoder,
     "Ok\n\n<tool_call>\n<function=look>\n<parameter=city>\n X "
     "<y>\n</parameter>\n<parameter=days>\n3\n</parameter>\n<parameter=list>[1, "
     "2]</parameter></function>\n</tool_call>",
     "Ok||look({\"city\": \" X <y>\", \"days\": 3, \"list\": [1, 2]})"},
    {ToolFormat::kQwenCoder, "<function=now></function></tool_call>", "||now({})"},
    {ToolFormat::kQwenCoder,
     "<function=look><parameter=days>many</parameter><parameter=other>1</parameter></function>",
     "||look({\"days\": \"many\", \"other\": \"1\"})"},
    {ToolFormat::kQwenCoder, "<tool_call><function=look><parameter=city>Par",
     "||look({\"city\": \"Par)!"},
    {ToolFormat::kQwenCoder, "<function=look>oops</function> z", "oops</function> z||look()!"},
    {ToolFormat::kQwenCoder, "see <function=a\nb> c", "see <function=a\nb> c||"},
    {ToolFormat::kZaya,
     "Let me "
     "see.\n<zyphra_tool_call>\n<function=look>\n<parameter=city>\nŁódź\n</parameter>\n</"
     "function>\n</zyphra_tool_call>\n",
     "Let me see.||look({\"city\": \"Łódź\"})"},
    {ToolFormat::kZaya,
     "<zyphra_tool_call>{\"name\": \"look\", \"arguments\": {\"days\": 2}}</zyphra_tool_call>",
     "||look({\"days\": 2})"},
    {ToolFormat::kZaya,
     "<zyphra_tool_call><function=look><parameter=days>True</parameter></zyphra_tool_call>x",
     "x||look({\"days\": true})"},
    {ToolFormat::kZaya, "a <zyphra_tool", "a <zyphra_tool||"},
    // The end cuts a tag in or behind a call.
    {ToolFormat::kHermes, "<tool_call>{\"name\": \"now\", \"arguments\": {}}<", "||now({})"},
    {ToolFormat::kHermes, "<tool_call>{\"name\": \"now\", \"arguments\": {}}\n</tool_c",
     "||now({})"},
    {ToolFormat::kHermes, "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_d",
     "</tool_d||now({})"},
    {ToolFormat::kZaya, "<zyphra_tool_call><function=now></function>\n</zyphra", "||now({})"},
    {ToolFormat::kQwenCoder, "<function=now></function></tool_call", "||now({})"},
    {ToolFormat::kQwenCoder, "<tool_call><function=now></func", "||now()!"},
    {ToolFormat::kQwenCoder, "<tool_call><function=look><parameter=ci", "||look()!"},
    {ToolFormat::kQwenCoder, "<tool_call><function=look><parameter=city>Par\n</param",
     "||look({\"city\": \"Par)!"},
    {ToolFormat::kQwenCoder, "<tool_call><function=look><parameter=days>3</param",
     "||look({\"days\": 3)!"},
    {ToolFormat::kLlama, " {\"name\": \"look\", \"parameters\": {\"city\": \"x\"}}",
     "||look({\"city\": \"x\"})"},
    {ToolFormat::kLlama,
     "<|python_tag|>{\"type\": \"function\", \"name\": \"now\", \"parameters\": {}}; {\"name\": "
     "\"look\", \"parameters\": null}",
     "||now({})look({})"},
    {ToolFormat::kLlama, "{\"answer\": 1} ", "{\"answer\": 1} ||"},
    {ToolFormat::kLlama, "{\"name\": \"Bob\", \"parameters\": {}}",
     "{\"name\": \"Bob\", \"parameters\": {}}||"},
    {ToolFormat::kLlama, "It is {\"name\": \"look\"}", "It is {\"name\": \"look\"}||"},
    {ToolFormat::kMistral,
     "[TOOL_CALLS] [{\"name\": \"look\", \"arguments\": {\"city\": \"]\"}, \"id\": \"abc\"}, "
     "{\"name\": \"now\", \"arguments\": {}}]",
     "||look({\"city\": \"]\"})now({})"},
    {ToolFormat::kMistral, "Hm [TOOL_CALLS]look[CALL_ID]a1[ARGS]{\"city\": \"y\"}[TOOL_CALLS]now{}",
     "Hm||look({\"city\": \"y\"})now({})"},
    {ToolFormat::kMistral, "[TOOL_CALLS] nothing", "[TOOL_CALLS] nothing||"},
};

ReplyOptions options_of(const Case& c) {
  ReplyOptions o;
  o.format = c.format;
  o.tools = kTools;
  return o;
}

TEST(ToolCalls, EachFormatIsTakenApart) {
  for (const Case& c : kCases) {
    EXPECT_EQ(shown(parse_reply(c.text, options_of(c))), c.wanted) << c.text;
  }
}

TEST(ToolCalls, AnyCutGivesTheSame) {
  for (const Case& c : kCases) {
    const std::string text = c.text;
    for (size_t cut = 0; cut <= text.size(); ++cut) {
      ReplyParser parser(options_of(c));
      Reply reply;
      add_to_reply(parser.feed(text.substr(0, cut)), &reply);
      add_to_reply(parser.feed(text.substr(cut)), &reply);
      add_to_reply(parser.finish(), &reply);
      EXPECT_EQ(shown(reply), c.wanted) << text << "\ncut at " << cut;
    }
    ReplyParser parser(options_of(c));
    Reply reply;
    for (const char byte : text) add_to_reply(parser.feed({&byte, 1}), &reply);
    add_to_reply(parser.finish(), &reply);
    EXPECT_EQ(shown(reply), c.wanted) << text << "\nbyte by byte";
  }
}

TEST(ToolCalls, RandomTextsOfMarksAreCutAnywhere) {
  const char* const kParts[] = {"<tool_call>",
                                "</tool_call>",
                                "<function=",
                                "look",
                                ">",
                                "<parameter=",
                                "city",
                                "</parameter>",
                                "</function>",
                                "{",
                                "}",
                                "\"",
                                "name",
                                ":",
                                ",",
                                " ",
                                "\n",
                                "<think>",
                                "</think>",
                                "[TOOL_CALLS]",
                                "[",
                                "]",
                                "<|python_tag|>",
                                ";",
                                "{\"name\": \"look\", ",
                                "\"arguments\": {",
                                "\\",
                                "<zyphra_tool_call>"};
  uint64_t index = 0;
  const auto draw = [&](uint64_t n) { return random_below(n, 1, Stream::kTest, 0, index++); };
  for (int i = 0; i < 20000; ++i) {
    ReplyOptions o;
    o.format = static_cast<ToolFormat>(draw(6));
    o.tools = kTools;
    o.starts_in_reasoning = draw(8) == 0;
    std::string text;
    for (uint64_t n = draw(14); n > 0; --n) text += kParts[draw(std::size(kParts))];
    const std::string whole = shown(parse_reply(text, o));
    ReplyParser parser(o);
    Reply reply;
    for (size_t at = 0; at < text.size();) {
      const size_t n = 1 + draw(5);
      add_to_reply(parser.feed(std::string_view(text).substr(at, n)), &reply);
      at += n;
    }
    add_to_reply(parser.finish(), &reply);
    ASSERT_EQ(shown(reply), whole) << tool_format_name(o.format) << " " << text << " case " << i;
  }
}

TEST(ToolCalls, ArgumentsStreamBeforeTheCallEnds) {
  ReplyOptions o;
  o.format = ToolFormat::kHermes;
  ReplyParser parser(o);
  Reply reply;
  add_to_reply(parser.feed("<tool_call>{\"name\": \"look\", \"arguments\": {\"city\": \"Par"),
               &reply);
  EXPECT_EQ(shown(reply), "||look({\"city\": \"Par)!");
  add_to_reply(parser.feed("is\"}}</tool_call>"), &reply);
  EXPECT_EQ(shown(reply), "||look({\"city\": \"Paris\"})");
}

TEST(ToolCalls, FormatsAreToldByTheTemplate) {
  EXPECT_EQ(detect_tool_format("x <zyphra_tool_call> <tool_call>"), ToolFormat::kZaya);
  EXPECT_EQ(detect_tool_format("'<tool_call>\\n{'"), ToolFormat::kHermes);
  EXPECT_EQ(detect_tool_format("<tool_call><function=x>"), ToolFormat::kQwenCoder);
  EXPECT_EQ(detect_tool_format("[TOOL_CALLS]"), ToolFormat::kMistral);
  EXPECT_EQ(detect_tool_format("<|start_header_id|> '\"parameters\": '"), ToolFormat::kLlama);
  EXPECT_EQ(detect_tool_format("<start_of_turn>"), ToolFormat::kNone);
}

TEST(ToolCalls, APromptInsideOfReasoningStartsThere) {
  ReplyOptions o;
  o.starts_in_reasoning = true;
  EXPECT_EQ(shown(parse_reply("Hm.\n</think>\nYes.", o)), "Yes.|Hm.|");
}

}  // namespace
}  // namespace moraine
