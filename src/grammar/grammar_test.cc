// Masks against acceptance token by token, random walks through masks, and real documents. Fails if
// a bit of a mask is wrong in any state that a walk meets, or an answer is no valid JSON.
#include "grammar/grammar.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "base/random.h"
#include "grammar/test_grammar.h"

namespace moraine {
namespace {

struct WalkVocabulary {
  explicit WalkVocabulary(int64_t size, std::vector<int32_t> literal = {},
                          std::vector<int32_t> free = {})
      : tokenizer(testing::json_tokenizer(size)), trie(*tokenizer, size + 3, literal, free) {}
  std::unique_ptr<Tokenizer> tokenizer;
  TokenTrie trie;
};

const WalkVocabulary& vocabulary() {
  static const WalkVocabulary made(700);
  return made;
}

// Every bit of the mask against what accept says of that token.
void expect_exact(GrammarState* state, const TokenTrie& trie, std::vector<uint64_t>* mask,
                  const std::string& so_far) {
  state->allowed(*mask);
  for (int32_t id = 0; id < trie.vocab_size(); ++id) {
    GrammarState tried = *state;
    ASSERT_EQ(tried.accept(id), testing::is_set(*mask, id))
        << "token '" << trie.bytes(id) << "' after '" << so_far << "'";
  }
}

// Random tokens out of the masks, ending when it may with some probability and as soon as it can
// after `steps_most`. Empty if it did not end.
std::string random_answer(const std::shared_ptr<const Grammar>& grammar, const TokenTrie& trie,
                          uint64_t seed, bool exact) {
  GrammarState state(grammar, trie);
  std::vector<uint64_t> mask(trie.mask_words());
  std::string text;
  for (uint64_t step = 0; step < 400; ++step) {
    if (state.must_end()) return text;
    if (state.may_end() && random_below(4, seed, Stream::kTest, 3, step) == 0) return text;
    if (exact && step % 3 == seed % 3) {
      expect_exact(&state, trie, &mask, text);
    } else {
      state.allowed(mask);
    }
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < trie.vocab_size(); ++id) {
      if (testing::is_set(mask, id)) ids.push_back(id);
    }
    EXPECT_FALSE(ids.empty()) << "seed " << seed << " after '" << text << "'";
    if (ids.empty() || ::testing::Test::HasFatalFailure()) return "";
    // Closing brackets and quotes more often, so that answers end.
    std::vector<int32_t> closing;
    for (const int32_t id : ids) {
      const std::string_view bytes = trie.bytes(id);
      if (bytes == "\"" || bytes == "}" || bytes == "]") closing.push_back(id);
    }
    const bool close =
        !closing.empty() && random_below(step > 60 ? 1 : 5, seed, Stream::kTest, 4, step) == 0;
    const std::vector<int32_t>& from = close ? closing : ids;
    const int32_t id = from[random_below(from.size(), seed, Stream::kTest, 5, step)];
    EXPECT_TRUE(state.accept(id));
    text += trie.bytes(id);
  }
  return "";
}

const char* const kSchemas[] = {
    R"({"type":"object","properties":{"name":{"type":"string","minLength":1,"maxLength":5},"age":{"type":"integer","minimum":-3,"maximum":120},"tags":{"type":"array","items":{"type":"string","maxLength":3},"maxItems":3}},"required":["name","age"],"additionalProperties":false})",
    R"({"type":"object","properties":{"id":{"type":"number","exclusiveMinimum":0,"maximum":9.5},"ok":{"type":["boolean","null"]},"na":{"const":"x"}},"additionalProperties":{"type":"integer"}})",
    R"({"$defs":{"t":{"type":"object","properties":{"v":{"enum":["a","aaaa","\u20ac"]},"next":{"anyOf":[{"$ref":"#/$defs/t"},{"type":"null"}]}},"required":["v"],"additionalProperties":false}},"$ref":"#/$defs/t"})",
    R"({"type":"array","minItems":1,"maxItems":4,"prefixItems":[{"type":"string","pattern":"^[a-c]+\\d?$","maxLength":4}],"items":{"oneOf":[{"type":"integer"},{"type":"string","maxLength":2},{"type":"string","pattern":"^x"}]}})",
    R"({"type":"object","properties":{"name":{},"x":{"type":"object"}},"required":["x","z"]})",
    R"({"allOf":[{"properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"a":{"maximum":7},"b":{"type":"string","format":"date"}},"required":["b"]}]})"};

TEST(Grammar, RandomWalksThroughExactMasksAreValid) {
  for (const char* text : kSchemas) {
    const Json schema = parse_json(text, "test");
    const testing::SchemaValidator validator(schema);
    const std::shared_ptr<const Grammar> grammar = Grammar::of_schema(schema);
    int ended = 0;
    for (uint64_t seed = 0; seed < 40; ++seed) {
      const std::string answer = random_answer(grammar, vocabulary().trie, seed, seed < 4);
      ASSERT_FALSE(HasFatalFailure()) << text << " seed " << seed;
      if (answer.empty()) continue;
      ++ended;
      const Json value = parse_json(answer, "answer");
      EXPECT_TRUE(validator.valid(value)) << text << " seed " << seed << ": " << answer;
    }
    EXPECT_GE(ended, 20) << text;
  }
}

// Schemas of a few random parts.
Json random_schema(uint64_t seed, uint64_t* draw, int depth) {
  const auto below = [&](uint64_t n) { return random_below(n, seed, Stream::kTest, 7, (*draw)++); };
  switch (below(depth > 0 ? 9 : 5)) {
    case 0:
      return {{"type", "string"}, {"minLength", below(3)}, {"maxLength", 3 + below(40)}};
    case 1:
      return {{"type", "integer"},
              {"minimum", -static_cast<int64_t>(below(200))},
              {"maximum", below(3000)}};
    case 2:
      return {{"type", "number"}, {"minimum", static_cast<double>(below(100)) / 8}};
    case 3:
      return {{"enum", {"a", "b c", nullptr, below(100), true}}};
    case 4:
      return {{"type", {"boolean", "null", "string"}}, {"pattern", "^(\\w| ){0,6}$"}};
    case 5:
    case 6: {
      const uint64_t least = below(3);
      return {{"type", "array"},
              {"items", random_schema(seed, draw, depth - 1)},
              {"minItems", least},
              {"maxItems", least + below(4)}};
    }
    case 7:
      return {
          {"anyOf", {random_schema(seed, draw, depth - 1), random_schema(seed, draw, depth - 1)}}};
    default: {
      Json schema = {
          {"type", "object"}, {"properties", Json::object()}, {"required", Json::array()}};
      for (const char* name : {"name", "na", "\u00e9\"", "id"}) {
        if (below(2) == 0) continue;
        schema["properties"][name] = random_schema(seed, draw, depth - 1);
        if (below(2) == 0) schema["required"].push_back(name);
      }
      if (below(3) > 0)
        schema["additionalProperties"] = below(2) == 0 ? Json(false) : random_schema(seed, draw, 0);
      return schema;
    }
  }
}

TEST(Grammar, RandomSchemasGiveValidAnswers) {
  int ended = 0;
  for (uint64_t seed = 0; seed < 120; ++seed) {
    uint64_t draw = 0;
    const Json schema = random_schema(seed, &draw, 3);
    const std::string answer =
        random_answer(Grammar::of_schema(schema), vocabulary().trie, seed, seed % 10 == 0);
    ASSERT_FALSE(HasFatalFailure()) << json_text(schema) << " seed " << seed;
    if (answer.empty()) continue;
    ++ended;
    EXPECT_TRUE(testing::SchemaValidator(schema).valid(parse_json(answer, "answer")))
        << json_text(schema) << " seed " << seed << ": " << answer;
  }
  EXPECT_GE(ended, 80);
}

TEST(Grammar, AnyJsonIsAnObject) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const std::string answer =
        random_answer(Grammar::any_json(), vocabulary().trie, seed, seed < 3);
    if (answer.empty()) continue;
    EXPECT_TRUE(parse_json(answer, "answer").is_object()) << answer;
  }
}

void expect_accepted(const std::shared_ptr<const Grammar>& grammar, const std::string& text) {
  const WalkVocabulary& v = vocabulary();
  GrammarState state(grammar, v.trie);
  std::vector<uint64_t> mask(v.trie.mask_words());
  for (const int32_t id : v.tokenizer->encode_ordinary(text)) {
    state.allowed(mask);
    ASSERT_TRUE(testing::is_set(mask, id)) << v.trie.bytes(id) << " of " << text;
    ASSERT_TRUE(state.accept(id));
  }
  EXPECT_TRUE(state.may_end()) << text;
}

TEST(Grammar, ValidDocumentsAreAcceptedTokenByToken) {
  const Json document = {{"name", "Z\u00e9\n\"quoted\" \u20ac\U0001F600\u4e2d\u6587"},
                         {"age", -12.5},
                         {"tags", {"a", "", "b", Json::object(), Json::array()}},
                         {"x", nullptr}};
  for (const int indent : {-1, 1, 2, 4}) {
    expect_accepted(Grammar::any_json(), json_text(document, indent));
    expect_accepted(Grammar::of_schema(true), json_text(document, indent));
  }
  expect_accepted(Grammar::any_json(), R"({"a": "\ud83d\ude00\u00e9", "b": [1, 2.5e-3]})");
  const std::shared_ptr<const Grammar> short_text =
      Grammar::of_schema({{"type", "string"}, {"minLength", 4}, {"maxLength", 4}});
  expect_accepted(short_text, "\"\xf0\x9f\x98\x80\xe4\xb8\xad\xe6\x96\x87\xe2\x82\xac\"");
}

TEST(Grammar, RefusedTokensChangeNothing) {
  const WalkVocabulary& v = vocabulary();
  GrammarState state(Grammar::of_schema({{"type", "integer"}, {"minimum", 10}, {"maximum", 19}}),
                     v.trie);
  EXPECT_FALSE(state.may_end());
  EXPECT_FALSE(state.accept(-1));
  EXPECT_FALSE(state.accept(0));  // special
  EXPECT_FALSE(state.accept(1 << 30));
  EXPECT_FALSE(
      state.accept(static_cast<int32_t>(v.trie.vocab_size()) - 1));  // past the tokenizer's
  EXPECT_TRUE(state.accept_bytes("1"));
  EXPECT_FALSE(state.accept_bytes("x"));
  GrammarState copy = state;
  EXPECT_TRUE(copy.accept_bytes("5"));
  EXPECT_TRUE(copy.must_end());
  EXPECT_FALSE(state.may_end());
}

TEST(Grammar, ManyOpenAlternativesStayBounded) {
  Json choices = Json::array();
  for (int i = 0; i < 2000; ++i) choices.push_back({{"type", "string"}, {"maxLength", 1000 + i}});
  const std::shared_ptr<const Grammar> grammar = Grammar::of_schema({{"anyOf", choices}});
  GrammarState state(grammar, vocabulary().trie);
  std::vector<uint64_t> mask(vocabulary().trie.mask_words());
  EXPECT_TRUE(
      state.accept(vocabulary().trie.trie().ids_at(vocabulary().trie.trie().find("\""))[0]));
  expect_exact(&state, vocabulary().trie, &mask, "\"");
  EXPECT_TRUE(state.accept_bytes("abc\""));
  EXPECT_TRUE(state.must_end());
}

ToolGrammar two_tools(ToolGrammar::Choice choice) {
  ToolGrammar tools;
  tools.tools = {{"look_up",
                  {{"type", "object"},
                   {"properties", {{"query", {{"type", "string"}}}}},
                   {"required", {"query"}},
                   {"additionalProperties", false}}},
                 {"now", nullptr}};
  tools.choice = choice;
  tools.begin = "<tool_call>\n{\"name\": \"";
  tools.between = "\", \"arguments\": ";
  tools.end = "}\n</tool_call>";
  tools.separator = "\n";
  tools.trigger = "<tool_call>";
  return tools;
}

const std::string kLookUp =
    "<tool_call>\n{\"name\": \"look_up\", \"arguments\": {\"query\": \"x\"}}\n</tool_call>";
const std::string kNow = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";

TEST(ToolGrammar, FreeTextUntilACallBegins) {
  const TokenTrie& trie = vocabulary().trie;
  const std::shared_ptr<const Grammar> grammar =
      Grammar::of_tool_calls(two_tools(ToolGrammar::Choice::kAuto));
  for (const std::string& text : {std::string(), std::string("any <text> <tool_cal"), kLookUp,
                                  "Well. " + kLookUp + " and " + kNow + "\xff.", kNow + kNow,
                                  "<<tool" + kNow, kNow + "\n" + kLookUp}) {
    EXPECT_TRUE(testing::accepts_bytes(grammar, trie, text)) << text;
  }
  for (const std::string& text :
       {std::string("<tool_call>"), std::string("a<tool_call>x"), kNow.substr(0, kNow.size() - 1),
        std::string("<tool_call>\n{\"name\": \"other\"")}) {
    EXPECT_FALSE(testing::accepts_bytes(grammar, trie, text)) << text;
  }
  std::vector<uint64_t> mask(trie.mask_words());
  const std::string text =
      "hi <tool_call>\n{\"name\": \"look_up\", \"arguments\": {\"query\": \"x\"}}\n</tool_call> "
      "and <tool";
  GrammarState state(grammar, trie);
  for (size_t i = 0; i < text.size(); ++i) {
    expect_exact(&state, trie, &mask, text.substr(0, i));
    ASSERT_FALSE(HasFatalFailure());
    ASSERT_TRUE(state.accept_bytes(text.substr(i, 1)));
  }
  EXPECT_TRUE(state.may_end());
}

TEST(ToolGrammar, RequiredNamedAndAtMostOne) {
  const TokenTrie& trie = vocabulary().trie;
  ToolGrammar tools = two_tools(ToolGrammar::Choice::kRequired);
  const auto takes = [&](const std::string& text) {
    return testing::accepts_bytes(Grammar::of_tool_calls(tools), trie, text);
  };
  EXPECT_TRUE(takes(kLookUp));
  EXPECT_TRUE(takes(kLookUp + "\n" + kNow));
  EXPECT_FALSE(takes(""));
  EXPECT_FALSE(takes("a" + kNow));
  tools.parallel = false;
  EXPECT_TRUE(takes(kNow));
  EXPECT_FALSE(takes(kLookUp + "\n" + kNow));
  tools.choice = ToolGrammar::Choice::kNamed;
  tools.name = "now";
  EXPECT_TRUE(takes(kNow));
  EXPECT_FALSE(takes(kLookUp));
  tools.choice = ToolGrammar::Choice::kAuto;
  EXPECT_TRUE(takes("a" + kNow));
  EXPECT_FALSE(takes(kNow + "a"));
}

// Calls, or an answer of a schema, and no text around them.
TEST(ToolGrammar, CallsOrAnAnswerOfASchema) {
  const TokenTrie& trie = vocabulary().trie;
  ToolGrammar tools = two_tools(ToolGrammar::Choice::kAuto);
  tools.answer = {{"type", "object"},
                  {"properties", {{"name", {{"const", "x"}}}}},
                  {"required", {"name"}},
                  {"additionalProperties", false}};
  const std::shared_ptr<const Grammar> grammar = Grammar::of_tool_calls(tools);
  for (const std::string& text : {kLookUp, kNow + "\n" + kLookUp, std::string("{\"name\":\"x\"}"),
                                  std::string("\n{\"name\": \"x\" }")}) {
    EXPECT_TRUE(testing::accepts_bytes(grammar, trie, text)) << text;
  }
  for (const std::string& text :
       {std::string(), std::string("Well."), "Well. " + kNow, kNow + " and", kNow.substr(0, 20),
        std::string("{\"name\":\"y\"}"), std::string("{\"name\":\"x\"}") + kNow}) {
    EXPECT_FALSE(testing::accepts_bytes(grammar, trie, text)) << text;
  }
  std::vector<uint64_t> mask(trie.mask_words());
  for (const std::string& text : {kLookUp, std::string("{\"name\": \"x\"}")}) {
    GrammarState state(grammar, trie);
    for (size_t i = 0; i < text.size(); ++i) {
      expect_exact(&state, trie, &mask, text.substr(0, i));
      ASSERT_FALSE(HasFatalFailure());
      ASSERT_TRUE(state.accept_bytes(text.substr(i, 1)));
    }
  }
  // Where the schema's text and a call begin alike, both go on.
  tools.begin = "{\"name\": \"", tools.end = "}", tools.separator = "; ", tools.trigger.clear();
  const std::shared_ptr<const Grammar> alike = Grammar::of_tool_calls(tools);
  EXPECT_TRUE(testing::accepts_bytes(alike, trie, "{\"name\": \"x\"}"));
  EXPECT_TRUE(testing::accepts_bytes(alike, trie, "{\"name\": \"now\", \"arguments\": {}}"));
}

TEST(ToolGrammar, ParametersBetweenTags) {
  const TokenTrie& trie = vocabulary().trie;
  const Json parameters = parse_json(
      R"({"type":"object","$defs":{"n":{"type":"integer","maximum":9}},"properties":{
        "query":{"type":"string"},"unit":{"type":"string","enum":["C","F \"x\""]},"days":{"$ref":"#/$defs/n","type":"integer"},
        "code":{"type":"string","pattern":"^[a-z]+\n?$","maxLength":4},"list":{"type":"array","items":{"type":"integer"}}},
        "required":["query","days"]})",
      "test");
  ToolGrammar tools{
      .tools = {{.name = "f", .parameters = parameters}, {.name = "now", .parameters = nullptr}}};
  tools.tagged = true;
  tools.begin = "<tool_call>\n<function=";
  tools.between = ">\n";
  tools.end = "</function>\n</tool_call>";
  tools.trigger = "<tool_call>";
  const std::shared_ptr<const Grammar> grammar = Grammar::of_tool_calls(tools);
  const auto parameter = [](const std::string& key, const std::string& value) {
    return "<parameter=" + key + ">\n" + value + "\n</parameter>\n";
  };
  const auto takes = [&](const std::string& inside) {
    return testing::accepts_bytes(grammar, trie,
                                  "Ok <tool_call>\n<function=f>\n" + inside + tools.end + " x");
  };
  const std::string days = parameter("days", "3");
  EXPECT_TRUE(testing::accepts_bytes(grammar, trie, tools.begin + "now>\n" + tools.end));
  EXPECT_FALSE(testing::accepts_bytes(grammar, trie, tools.begin + "other>\n" + tools.end));
  for (const std::string& text :
       {std::string(), std::string("a"), std::string("two\nlines \"\\ <b> </parameter \xc3\xa9\n"),
        std::string("\n</param")})
    EXPECT_TRUE(takes(parameter("query", text) + days)) << text;
  EXPECT_FALSE(takes(parameter("query", "a</parameter>b") + days));
  EXPECT_FALSE(takes(parameter("query", "\xff") + days));
  EXPECT_FALSE(takes(days)) << "query is required";
  EXPECT_FALSE(takes(parameter("query", "a")));
  EXPECT_FALSE(takes(days + parameter("query", "a"))) << "in their order";
  const std::string query = parameter("query", "a");
  EXPECT_TRUE(takes(query + parameter("unit", "F \"x\"") + days));
  EXPECT_FALSE(takes(query + parameter("unit", "K") + days));
  EXPECT_FALSE(takes(query + parameter("days", "10")));
  EXPECT_FALSE(takes(query + parameter("days", "three")));
  EXPECT_TRUE(takes(query + days + parameter("code", "abc\n")));
  EXPECT_FALSE(takes(query + days + parameter("code", "abcd\n"))) << "five characters";
  EXPECT_FALSE(takes(query + days + parameter("code", "A")));
  EXPECT_TRUE(takes(query + days + parameter("code", "a") + parameter("list", "[1, 2]")));
  EXPECT_FALSE(takes(query + days + parameter("list", "[1")));
  EXPECT_FALSE(takes(query + days + parameter("other", "1")));
  tools.tools[0].parameters["description"] = std::string(GrammarLimits().schema_bytes, 'x');
  EXPECT_THROW(Grammar::of_tool_calls(tools), Error);
  // Every bit of the masks along a call.
  std::vector<uint64_t> mask(trie.mask_words());
  const std::string text =
      "a <tool_call>\n<function=f>\n" + parameter("query", "x </p\n") + days + tools.end;
  GrammarState state(grammar, trie);
  for (size_t i = 0; i < text.size(); ++i) {
    expect_exact(&state, trie, &mask, text.substr(0, i));
    ASSERT_FALSE(HasFatalFailure());
    ASSERT_TRUE(state.accept_bytes(text.substr(i, 1))) << i;
  }
  EXPECT_TRUE(state.may_end());
}

// Lengths of bare text are counted, whatever they are, and a pattern leaves room for its end.
TEST(ToolGrammar, BareTextHoldsToItsLength) {
  const TokenTrie& trie = vocabulary().trie;
  ToolGrammar tools{.tools = {{.name = "f", .parameters = {}}}};
  tools.tagged = true;
  tools.begin = "<tool_call>\n<function=";
  tools.between = ">\n";
  tools.end = "</function>\n</tool_call>";
  tools.trigger = "<tool_call>";
  const auto grammar_of = [&](const char* text) {
    tools.tools[0].parameters = {{"type", "object"},
                                 {"properties", {{"a", parse_json(text, "test")}}}};
    return Grammar::of_tool_calls(tools);
  };
  const auto call = [&](const std::string& value) {
    return tools.begin + "f>\n<parameter=a>\n" + value + "\n</parameter>\n" + tools.end;
  };
  const auto many = [](int64_t n, const std::string& character) {
    std::string text;
    for (int64_t i = 0; i < n; ++i) text += character;
    return text;
  };
  struct Case {
    const char* schema;
    std::vector<std::string> taken, refused;
  };
  const std::string e = "\xc3\xa9", euro = "\xe2\x82\xac";
  const Case cases[] = {
      {R"({"type":"string","maxLength":2000})",
       {"", many(2000, "a"), many(2000, e), many(1999, euro) + "\n"},
       {many(2001, "a"), many(1999, e) + "ab", many(2000, e) + euro}},
      {R"({"type":"string","minLength":1500,"maxLength":1000000000})",
       {many(1500, e), many(1700, "a")},
       {"", many(1499, e)}},
      {R"({"type":"string","minLength":3,"maxLength":3})", {"ab" + e}, {"ab", "abcd", e + "a"}},
      {R"({"type":"string","pattern":"^x+end$","minLength":5,"maxLength":3000})",
       {"xxend", many(2997, "x") + "end"},
       {"xend", many(2998, "x") + "end"}},
  };
  for (const Case& c : cases) {
    const std::shared_ptr<const Grammar> grammar = grammar_of(c.schema);
    for (const std::string& text : c.taken)
      EXPECT_TRUE(testing::accepts_bytes(grammar, trie, call(text))) << c.schema << text.size();
    for (const std::string& text : c.refused)
      EXPECT_FALSE(testing::accepts_bytes(grammar, trie, call(text))) << c.schema << text.size();
  }
  // What no end would fit behind does not begin: seven x, then "end", in ten characters.
  GrammarState state(grammar_of(R"({"type":"string","pattern":"^x+end$","maxLength":10})"), trie);
  ASSERT_TRUE(state.accept_bytes(tools.begin + "f>\n<parameter=a>\nxxxxxxx"));
  EXPECT_FALSE(state.accept_bytes("x"));
  EXPECT_TRUE(state.accept_bytes("end\n</parameter>\n" + tools.end));
  const char* kNone = R"({"type":"string","pattern":"^x+end$","maxLength":3})";
  EXPECT_FALSE(testing::accepts_bytes(grammar_of(kNone), trie, call("end")));
  EXPECT_TRUE(testing::accepts_bytes(grammar_of(kNone), trie, tools.begin + "f>\n" + tools.end));
}

// Fails if a mask is taken for a place that is nearer to a bound than it was made for.
TEST(ToolGrammar, MasksAreExactNearTheBoundsOfBareText) {
  const TokenTrie& trie = vocabulary().trie;
  ToolGrammar tools{.tools = {{.name = "f", .parameters = {}}}};
  tools.tagged = true;
  tools.begin = "<tool_call>\n<function=";
  tools.between = ">\n";
  tools.end = "</function>";
  tools.trigger = "<tool_call>";
  std::vector<uint64_t> mask(trie.mask_words());
  const std::pair<const char*, std::string> cases[] = {
      {R"({"type":"string","minLength":40,"maxLength":60})", ""},
      {R"({"type":"string","pattern":"^[^z]*end$","maxLength":60})", "end"}};
  for (const auto& [schema, last] : cases) {
    tools.tools[0].parameters = {{"type", "object"},
                                 {"properties", {{"a", parse_json(schema, "test")}}}};
    GrammarState state(Grammar::of_tool_calls(tools), trie);
    ASSERT_TRUE(state.accept_bytes(tools.begin + "f>\n<parameter=a>\n"));
    std::string text;
    for (size_t i = 0; i < 60 - last.size(); ++i) {
      expect_exact(&state, trie, &mask, text);
      ASSERT_FALSE(HasFatalFailure());
      const std::string next = i % 7 == 3 ? "\xe2\x82\xac" : i % 5 == 1 ? " " : "a";
      for (const char byte : next) ASSERT_TRUE(state.accept_bytes(std::string(1, byte))) << text;
      text += next;
    }
    expect_exact(&state, trie, &mask, text);
    EXPECT_FALSE(state.accept_bytes("a"));
    EXPECT_TRUE(state.accept_bytes(last + "\n</parameter>\n" + tools.end));
  }
}

TEST(ToolGrammar, CallsInAList) {
  const TokenTrie& trie = vocabulary().trie;
  ToolGrammar tools = two_tools(ToolGrammar::Choice::kRequired);
  tools.open = "[TOOL_CALLS][";
  tools.begin = "{\"name\": \"";
  tools.end = "}";
  tools.separator = ", ";
  tools.close = "]";
  tools.trigger = "[TOOL_CALLS]";
  const std::string now = "{\"name\": \"now\", \"arguments\": {}}";
  for (const auto choice : {ToolGrammar::Choice::kRequired, ToolGrammar::Choice::kAuto}) {
    tools.choice = choice;
    const std::shared_ptr<const Grammar> grammar = Grammar::of_tool_calls(tools);
    EXPECT_TRUE(testing::accepts_bytes(grammar, trie, "[TOOL_CALLS][" + now + "]"));
    EXPECT_TRUE(testing::accepts_bytes(grammar, trie, "[TOOL_CALLS][" + now + ", " + now + "]"));
    EXPECT_FALSE(testing::accepts_bytes(grammar, trie, "[TOOL_CALLS][" + now));
    EXPECT_FALSE(testing::accepts_bytes(grammar, trie, "[TOOL_CALLS][]"));
  }
}

TEST(ToolGrammar, SpecialTokensSpellFixedTextOnly) {
  const WalkVocabulary v(400, {1});  // <|call|>
  ToolGrammar tools = two_tools(ToolGrammar::Choice::kAuto);
  tools.begin = "<|call|>{\"name\": \"";
  tools.trigger = "<|call|>";
  GrammarState state(Grammar::of_tool_calls(tools), v.trie);
  std::vector<uint64_t> mask(v.trie.mask_words());
  expect_exact(&state, v.trie, &mask, "");
  EXPECT_TRUE(testing::is_set(mask, 1));
  EXPECT_FALSE(testing::is_set(mask, 0));
  EXPECT_TRUE(state.accept(1));
  EXPECT_FALSE(state.may_end());
  EXPECT_TRUE(state.accept_bytes("{\"name\": \"look_up\", \"arguments\": {\"query\": \""));
  expect_exact(&state, v.trie, &mask, "in a string");
  EXPECT_FALSE(testing::is_set(mask, 1));
}

// As `</think>`, which ends what a model thinks before it calls.
TEST(ToolGrammar, SpecialTokensOfFreeTextAreInFreeTextOnly) {
  const WalkVocabulary v(400, {1}, {0});  // <|call|>; <|end|> where text is free
  ToolGrammar tools = two_tools(ToolGrammar::Choice::kAuto);
  tools.begin = "<|call|>{\"name\": \"";
  tools.end = "}";
  tools.trigger = "<|call|>";
  GrammarState state(Grammar::of_tool_calls(tools), v.trie);
  std::vector<uint64_t> mask(v.trie.mask_words());
  const auto expect_free = [&](bool free, const std::string& so_far) {
    expect_exact(&state, v.trie, &mask, so_far);
    EXPECT_EQ(testing::is_set(mask, 0), free) << so_far;
  };
  expect_free(true, "");
  EXPECT_TRUE(state.accept(0));
  EXPECT_TRUE(state.accept_bytes("a <|ca"));
  expect_free(true, "the beginning of a trigger");
  EXPECT_TRUE(state.accept(0));
  EXPECT_TRUE(state.may_end());
  EXPECT_TRUE(state.accept(1));
  expect_free(false, "a call");
  EXPECT_TRUE(state.accept_bytes("{\"name\": \"look_up\", \"arguments\": {\"query\": \""));
  expect_free(false, "a string");
  EXPECT_TRUE(state.accept_bytes("x\"}}"));
  expect_free(true, "behind a call");
  tools.choice = ToolGrammar::Choice::kRequired;
  GrammarState required(Grammar::of_tool_calls(tools), v.trie);
  EXPECT_FALSE(required.accept(0));
}

TEST(ToolGrammar, RefusesWhatCannotBeRead) {
  const auto refused = [](const ToolGrammar& tools) {
    try {
      Grammar::of_tool_calls(tools);
    } catch (const Error& e) {
      return e.code() == Code::kInvalidArgument;
    }
    return false;
  };
  ToolGrammar tools = two_tools(ToolGrammar::Choice::kAuto);
  EXPECT_FALSE(refused(tools));
  tools.trigger = "<other>";
  EXPECT_TRUE(refused(tools));
  tools = two_tools(ToolGrammar::Choice::kNamed);
  EXPECT_TRUE(refused(tools));  // of no name
  tools = two_tools(ToolGrammar::Choice::kAuto);
  tools.tools.clear();
  EXPECT_TRUE(refused(tools));
  tools = two_tools(ToolGrammar::Choice::kAuto);
  tools.tools[0].parameters = {{"not", true}};
  EXPECT_TRUE(refused(tools));
  tools = two_tools(ToolGrammar::Choice::kAuto);
  tools.tools[0].name = "\xff";
  EXPECT_TRUE(refused(tools));
}

}  // namespace
}  // namespace moraine
