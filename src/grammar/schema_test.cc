// What each keyword allows and refuses, and what is refused by name. Fails if an answer that the
// schema forbids gets through, a valid one is stopped, or a hostile schema costs memory or time.
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "grammar/nodes.h"
#include "grammar/test_grammar.h"

namespace moraine {
namespace {

const TokenTrie& bytes_trie() {
  static const std::unique_ptr<Tokenizer> tokenizer = testing::json_tokenizer(258);
  static const TokenTrie trie(*tokenizer, 258);
  return trie;
}

bool takes(const std::string& schema, std::string_view text) {
  return testing::accepts_bytes(Grammar::of_schema(parse_json(schema, "test")), bytes_trie(), text);
}

std::string refusal(const std::string& schema, const GrammarLimits& limits = {}) {
  try {
    Grammar::of_schema(parse_json(schema, "test"), false, limits);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kInvalidArgument);
    return e.what();
  }
  return "";
}

void expect_refused(const std::string& schema, const std::string& part) {
  const std::string message = refusal(schema);
  EXPECT_NE(message.find(part), std::string::npos) << schema << ": '" << message << "'";
}

struct SchemaCase {
  const char* schema;
  std::vector<std::string> yes, no;
};

void check(const std::vector<SchemaCase>& cases) {
  for (const SchemaCase& c : cases) {
    for (const std::string& text : c.yes) EXPECT_TRUE(takes(c.schema, text)) << c.schema << text;
    for (const std::string& text : c.no) EXPECT_FALSE(takes(c.schema, text)) << c.schema << text;
  }
}

TEST(Schema, Types) {
  check({{R"({"type":"null"})", {"null", " null", "\nnull"}, {"nul", "null ", "  null", "1"}},
         {R"({"type":"boolean"})", {"true", "false"}, {"True", "null"}},
         {R"({"type":["string","null"]})", {"\"\"", "null"}, {"1"}},
         {R"({"type":"string","nullable":true})", {"\"\"", "null"}, {"1"}},
         {R"({"enum":["a"],"nullable":true})", {"\"a\"", "null"}, {"\"b\""}},
         {R"({})", {"{\"a\":[1,\"b\",{}]}", "1", "\"x\"", "null", "[]"}, {"", "a", "[1,]"}},
         {R"(true)", {"1"}, {"x"}},
         {R"({"maxLength":2})", {"\"ab\""}, {"\"abc\"", "1"}},
         {R"({"properties":{"a":true}})", {"{}", "{\"a\":1}"}, {"1"}}});
}

TEST(Schema, Strings) {
  check(
      {{R"({"type":"string"})",
        {"\"\"", "\"\\ud83d\\ude00\"", "\"\\u0041\\n\\/\"", "\"\xf0\x9f\x98\x80\""},
        {"\"", "\"\\ud83d\"", "\"\\ude00\"", "\"\\ud83d\\u0041\"", "\"\n\"", "\"\\x\"", "\"\xff\"",
         "\"\xed\xa0\x80\"", "\"\xc0\x80\"", "\"\xf4\x90\x80\x80\"", "\"a\"\"", "'a'"}},
       {R"({"type":"string","minLength":2,"maxLength":3})",
        {"\"ab\"", "\"abc\"", "\"\xe2\x82\xac\xf0\x9f\x98\x80\xc3\xa9\"", "\"\\n\\ud83d\\ude00\""},
        {"\"a\"", "\"abcd\"", "\"\\ud83d\\ude00\"", "\"\xe2\x82\xac\""}},
       {R"({"type":"string","minLength":0,"maxLength":0})", {"\"\""}, {"\"a\""}},
       {R"({"enum":["a","ab","\"\\\u00e9\n",1,null,{"k":[1]}]})",
        {"\"a\"", "\"ab\"", "\"\\\"\\\\\xc3\xa9\\n\"", "1", "null", "{\"k\":[1]}"},
        {"\"b\"", "\"\"", "11", "{\"k\": [1]}"}},
       {R"({"enum":["a",1,null],"type":["string","null"]})", {"\"a\"", "null"}, {"1"}},
       {R"({"const":12})", {"12"}, {"1", "123"}},
       {R"({"enum":[1,12]})", {"12", "1"}, {"2", "121"}}});
}

TEST(Schema, Patterns) {
  check({{R"({"type":"string","pattern":"^[a-c]{2,3}$"})",
          {"\"ab\"", "\"abc\""},
          {"\"a\"", "\"abcd\""}},
         {R"({"type":"string","pattern":"b+"})", {"\"b\"", "\"abba\\n\""}, {"\"\"", "\"aca\""}},
         {R"({"type":"string","pattern":"^a|b$"})", {"\"ax\"", "\"xb\"", "\"a\""}, {"\"xa\""}},
         {R"({"type":"string","pattern":"^(?:x\\d|\\.)*?$"})", {"\"\"", "\"x1.x2\""}, {"\"x\""}},
         {R"({"type":"string","pattern":"^[^a]$"})",
          {"\"b\"", "\"\xe2\x82\xac\"", "\"\\\"\"", "\"\\n\"", "\"\\u0001\"", "\"\\\\\"",
           "\"\xf0\x9f\x98\x80\""},
          {"\"a\"", "\"\"\"", "\"\\\"", "\"\xed\xa0\x80\"", "\"\\u0041\""}},
         {R"({"type":"string","pattern":"^[\u00e9-\u20ac]\\u{1F600}$"})",
          {"\"\xe2\x82\xac\xf0\x9f\x98\x80\"", "\"\xc3\xa9\xf0\x9f\x98\x80\""},
          {"\"\xc3\xa8\xf0\x9f\x98\x80\""}},
         {R"({"type":"string","pattern":"^\\ud83d\\ude00$"})", {"\"\xf0\x9f\x98\x80\""}, {"\"\""}},
         {R"({"type":"string","pattern":"^(aa)*$","minLength":3,"maxLength":5})",
          {"\"aaaa\""},
          {"\"aa\"", "\"aaa\""}},
         {R"({"type":"string","pattern":"^{a}$"})", {"\"{a}\""}, {"\"a\""}},
         {R"({"type":"string","format":"date"})",
          {"\"2024-02-29\"", "\"2000-02-29\"", "\"2023-12-31\""},
          {"\"2023-02-29\"", "\"1900-02-29\"", "\"2023-04-31\"", "\"2023-13-01\""}},
         {R"({"type":"string","format":"date-time"})",
          {"\"2024-01-01T23:59:59.5+01:00\""},
          {"\"2024-01-01T24:00:00Z\""}},
         {R"({"type":"string","format":"uuid"})",
          {"\"123e4567-e89b-12d3-a456-426614174000\""},
          {"\"123\""}},
         {R"({"type":"string","format":"email"})", {"\"a.b@c-d.org\""}, {"\"a@b\"", "\"@c.d\""}},
         {R"({"type":"string","format":"ipv4"})", {"\"255.0.10.1\""}, {"\"256.0.0.1\""}},
         {R"({"type":"string","format":"no-such"})", {"\"x\""}, {"1"}}});
}

TEST(Schema, WholeNumbersByBounds) {
  const int64_t bounds[] = {-1234, -1000, -999, -100, -10, -9,  -1,  0,   1,
                            7,     9,     10,   11,   99,  100, 101, 1050};
  for (const int64_t low : bounds) {
    for (const int64_t high : bounds) {
      if (high < low) continue;
      const Json schema = {{"type", "integer"}, {"minimum", low}, {"exclusiveMaximum", high + 1}};
      const std::shared_ptr<const Grammar> grammar = Grammar::of_schema(schema);
      for (int64_t value = -1300; value <= 1300; value += value > -120 && value < 120 ? 1 : 13) {
        EXPECT_EQ(testing::accepts_bytes(grammar, bytes_trie(), std::to_string(value)),
                  value >= low && value <= high)
            << low << " " << high << " " << value;
      }
    }
  }
  check({{R"({"type":"integer"})",
          {"0", "-1", "999999999999999999"},
          {"-0", "01", "1.0", "1000000000000000000"}},
         {R"({"type":"integer","minimum":0.5,"maximum":2.5})", {"1", "2"}, {"0", "3"}},
         {R"({"type":"integer","maximum":1e300})", {"5", "-5"}, {}}});
}

TEST(Schema, NumbersByBounds) {
  const double bounds[] = {-10.25, -1, -0.5, 0, 0.05, 0.5, 1, 9.99, 10, 100.5};
  const char* values[] = {"-11",      "-10.25", "-10.250", "-10.3", "-10.2", "-1",   "-1.0",
                          "-0.99",    "-0.5",   "-0.05",   "0",     "0.0",   "0.04", "0.05",
                          "0.050",    "0.051",  "0.5",     "0.49",  "1",     "1.00", "1.01",
                          "9.98",     "9.99",   "9.990",   "9.991", "10",    "10.0", "11",
                          "100.4999", "100.5",  "100.51",  "101"};
  for (const double low : bounds) {
    for (const double high : bounds) {
      if (high <= low) continue;
      const Json closed = {{"type", "number"}, {"minimum", low}, {"maximum", high}};
      const Json open = {{"type", "number"}, {"exclusiveMinimum", low}, {"exclusiveMaximum", high}};
      const std::shared_ptr<const Grammar> of_closed = Grammar::of_schema(closed),
                                           of_open = Grammar::of_schema(open);
      for (const char* text : values) {
        const double v = std::stod(text);
        EXPECT_EQ(testing::accepts_bytes(of_closed, bytes_trie(), text), v >= low && v <= high)
            << low << " " << high << " " << text;
        EXPECT_EQ(testing::accepts_bytes(of_open, bytes_trie(), text), v > low && v < high)
            << low << " " << high << " " << text;
      }
    }
  }
  check({{R"({"type":"number"})",
          {"0", "-0.5", "1e9", "1.5E-300", "-0"},
          {"1.", ".5", "+1", "1e999", "01"}}});
}

TEST(Schema, ArraysAndObjects) {
  check(
      {{R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":2})",
        {"[1]", "[1,2]", "[ 1, 2 ]", "[\n  1,\n  2\n]"},
        {"[]", "[1,2,3]", "[1 ,2]", "[1,,2]", "[1,  2]"}},
       {R"({"type":"array","maxItems":0})", {"[]", "[ ]"}, {"[1]"}},
       {R"({"type":"array","maxItems":1000000000,"minItems":2})", {"[1,2]"}, {"[1]"}},
       {R"({"prefixItems":[{"type":"integer"},{"type":"null"}],"items":false})",
        {"[]", "[1]", "[1,null]"},
        {"[null]", "[1,null,1]"}},
       {R"({"items":[{"type":"integer"}],"additionalItems":{"type":"null"}})",
        {"[1,null,null]"},
        {"[1,1]"}},
       {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"null"},"ab":{"const":"x"}},"required":["b"],"additionalProperties":false})",
        {"{\"b\":null}", "{\"a\":1,\"b\":null,\"ab\":\"x\"}", "{ \"a\": 1, \"b\": null }",
         "{\n\t\"b\": null\n}"},
        {"{}", "{\"a\":1}", "{\"b\":null,\"a\":1}", "{\"b\":null,\"c\":1}", "{\"b\":null,}",
         "{\"b\":null,\"b\":null}"}},
       {R"({"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":{"type":"null"}})",
        {"{}", "{\"a\":1}", "{\"b\":null}", "{\"a\":1,\"aa\":null,\"\":null}"},
        {"{\"a\":null}", "{\"b\":1}", "{\"b\":null,\"a\":1}", "{\"\\u0061\":null}"}},
       {R"({"type":"object","properties":{"a\"\\":{"type":"integer"}},"required":["a\"\\"]})",
        {"{\"a\\\"\\\\\":1}"},
        {"{\"a\\\"\":1}"}},
       {R"({"type":"object","required":["z"],"additionalProperties":{"type":"integer"}})",
        {"{\"z\":1}", "{\"z\":1,\"y\":2}"},
        {"{}", "{\"y\":1}"}},
       {R"({"type":"object","properties":{"a":false,"b":true}})",
        {"{\"b\":1}", "{\"c\":1}"},
        {"{\"a\":1}"}}});
}

TEST(Schema, ChoicesMergesAndReferences) {
  check(
      {{R"({"anyOf":[{"type":"integer"},{"type":"string","maxLength":1}]})",
        {"1", "\"a\""},
        {"\"ab\"", "null"}},
       {R"({"type":"object","properties":{"a":{"type":"integer"}},"anyOf":[{"required":["a"]},{"properties":{"b":{"const":1}},"required":["b"]}],"additionalProperties":false})",
        {"{\"a\":1}"},
        {"{}", "{\"c\":1}"}},
       {R"({"allOf":[{"type":["integer","string"],"minimum":3},{"type":"number","maximum":5}]})",
        {"3", "5"},
        {"2", "6", "\"a\"", "3.5"}},
       {R"({"allOf":[{"properties":{"a":{"minimum":1}},"required":["a"]},{"properties":{"a":{"type":"integer"},"b":{"type":"null"}},"required":["b"]}]})",
        {"{\"a\":1,\"b\":null}"},
        {"{\"a\":0,\"b\":null}", "{\"a\":1}", "{\"a\":1.5,\"b\":null}"}},
       {R"({"allOf":[{"properties":{"a":true},"additionalProperties":false},{"properties":{"b":true}}]})",
        {"{}", "{\"a\":1}"},
        {"{\"b\":1}"}},
       {R"({"allOf":[{"enum":[1,2,3]},{"enum":[2,3,4]},{"type":"integer"}]})",
        {"2", "3"},
        {"1", "4"}},
       {R"({"$defs":{"n":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]}},"required":["v","next"],"additionalProperties":false}},"$ref":"#/$defs/n"})",
        {"{\"v\":1,\"next\":null}", "{\"v\":1,\"next\":{\"v\":2,\"next\":null}}"},
        {"{\"v\":1}", "{\"v\":1,\"next\":{}}"}},
       {R"({"definitions":{"a/b":{"type":"integer"}},"properties":{"x":{"$ref":"#/definitions/a~1b","minimum":5,"description":"d"}}})",
        {"{\"x\":5}"},
        {"{\"x\":4}"}},
       {R"({"anyOf":[{"$ref":"#"},{"type":"integer"}]})", {"7"}, {"\"a\""}},
       {R"({"type":"array","items":{"$ref":"#"}})", {"[[],[[]]]"}, {"[1]"}}});
}

// Two alternatives, and whether no value satisfies both.
TEST(Schema, StrictTakesOneOfWhereAlternativesExcludeEachOther) {
  const auto refused = [](const std::string& a, const std::string& b) {
    bool was[2];
    for (const bool swapped : {false, true}) {
      const std::string parts = swapped ? b + "," + a : a + "," + b;
      const Json schema =
          parse_json(R"({"oneOf":[)" + parts +
                         R"(],"$defs":{"t":{"type":"string"},"me":{"$ref":"#/$defs/me"}}})",
                     "test");
      Grammar::of_schema(schema);  // read as anyOf
      try {
        Grammar::of_schema(schema, /*strict=*/true);
        was[swapped] = false;
      } catch (const Error& e) {
        was[swapped] = true;
        EXPECT_NE(std::string(e.what()).find(
                      "schema #: one value might satisfy alternatives 0 and 1 of oneOf"),
                  std::string::npos)
            << e.what();
      }
    }
    EXPECT_EQ(was[0], was[1]) << "in either order: " << a << " " << b;
    return was[0];
  };
  const std::string object = R"({"type":"object","properties":)";
  const std::string kind_a = object + R"({"kind":{"const":"a"}},"required":["kind"]})",
                    kind_b = object + R"({"kind":{"enum":["b","c"]}},"required":["kind"]})",
                    kind_c = object + R"({"kind":{"const":"c"},"x":{}},"required":["x"]})",
                    closed = object + R"({"y":{}},"additionalProperties":false})";
  for (const auto& [a, b] : std::vector<std::pair<std::string, std::string>>{
           {R"({"type":"string"})", R"({"type":["integer","null"]})"},
           {R"({"$ref":"#/$defs/t"})", R"({"type":"boolean"})"},
           {R"({"const":1})", R"({"enum":[2,"1"]})"},
           {R"({"const":"a"})", R"({"type":"number"})"},
           {kind_a, kind_b},
           {kind_a, R"({"anyOf":[)" + kind_b + R"(,{"type":"array"}]})"},
           {kind_a, kind_c},  // who has a kind has another one
           {kind_a, closed},
           {R"({"allOf":[{"type":"string"},{"minLength":2}]})", R"({"type":"object"})"}}) {
    EXPECT_FALSE(refused(a, b)) << a << " " << b;
  }
  for (const auto& [a, b] : std::vector<std::pair<std::string, std::string>>{
           {R"({"type":"integer"})", R"({"type":"number"})"},
           {R"({"type":"integer"})", R"({"const":1.0})"},
           {R"({"type":"string"})", R"({"maxLength":3})"},  // which numbers satisfy too
           {R"({"type":"string","nullable":true})", R"({"type":"null"})"},
           {R"({"nullable":true,"$ref":"#/$defs/t"})", R"({"type":["null","integer"]})"},
           {R"({"enum":[1,2]})", R"({"enum":[2,3]})"},
           {kind_b, kind_c},
           {R"({"$ref":"#/$defs/t"})", R"({"type":"string"})"},
           {kind_a, R"({"anyOf":[)" + kind_b + R"(,{"type":"object"}]})"},
           {object + R"({"kind":{"const":"a"}}})", object + R"({"kind":{"const":"b"}}})"},  // {}
           {object + R"({}})", closed}}) {
    EXPECT_TRUE(refused(a, b)) << a << " " << b;
  }
  // Many alternatives: what is not seen in the time there is is refused, and takes no longer.
  std::string many;
  for (int i = 0; i < 400; ++i) many += fmt::format("{}{{\"const\":{}}}", i == 0 ? "" : ",", i);
  const Json few = parse_json("{\"oneOf\":[{\"const\":0},{\"const\":1},{\"const\":2}]}", "test");
  EXPECT_NO_THROW(Grammar::of_schema(few, /*strict=*/true));
  EXPECT_THROW(Grammar::of_schema(parse_json("{\"oneOf\":[" + many + "]}", "test"), true), Error);
}

TEST(Schema, RefusesByNameAndPlace) {
  expect_refused(R"({"properties":{"a":{"items":{"multipleOf":2}}}})",
                 "#/properties/a/items: multipleOf");
  expect_refused(R"({"not":{}})", "not is not supported");
  expect_refused(R"({"uniqueItems":true})", "uniqueItems");
  expect_refused(R"({"maxLenght":3})", "'maxLenght' is no known keyword");
  expect_refused(R"({"type":"text"})", "type is 'text'");
  expect_refused(R"({"minLength":-1})", "minLength is -1");
  expect_refused(R"({"minLength":1.5})", "minLength is 1.5");
  expect_refused(R"({"minimum":"1"})", "minimum is \"1\"");
  expect_refused(R"({"properties":{"a":1}})", "properties is");
  expect_refused(R"({"required":[1]})", "required is");
  expect_refused(R"({"anyOf":[]})", "anyOf is []");
  expect_refused(R"({"$ref":"http://x"})", "want #/...");
  expect_refused(R"({"$ref":"#/$defs/x"})", "names nothing");
  expect_refused(R"({"enum":[]})", "satisfies");
  expect_refused(R"(false)", "satisfies");
  expect_refused(R"([1])", "want an object");
  expect_refused(R"({"type":"integer","minimum":3,"maximum":2})", "satisfies");
  expect_refused(R"({"minItems":3,"maxItems":2})", "satisfies");
  expect_refused(R"({"properties":{"a":{"$ref":"#"}},"required":["a"]})", "satisfies");
  expect_refused(R"({"allOf":[{"$ref":"#"}]})", "deep");
  expect_refused(R"({"allOf":[{"pattern":"a"},{"pattern":"b"}]})", "pattern stands in two");
  expect_refused(R"({"enum":[1,2],"minimum":2})", "minimum beside enum");
  for (const char* pattern : {"(?=a)", "(?<n>a)", "\\\\1", "\\\\b", "\\\\p{L}", "a^", "(a$)", "(a",
                              "a)", "[a", "a**", "[b-a]", "a{3,2}"}) {
    expect_refused(std::string(R"({"pattern":")") + pattern + "\"}", "not supported");
  }
  EXPECT_EQ(
      refusal(R"({"x-order":1,"title":"t","default":3,"uniqueItems":false,"type":"integer"})"), "");
}

TEST(Schema, HostileOnesAreCheapOrRefused) {
  check({{R"({"type":"string","maxLength":1000000000,"minLength":3})", {"\"abc\""}, {"\"ab\""}},
         {R"({"type":"array","items":{"type":"string","maxLength":99999999},"maxItems":1e18})",
          {"[\"a\"]"},
          {}}});
  expect_refused(R"({"pattern":"(a|b)*a(a|b){30}"})", "states");
  expect_refused(R"x({"pattern":"(((a{1000}){1000}){1000})"})x", "states");
  expect_refused(R"({"pattern":"((){9999}){9999}"})", "states");
  expect_refused(R"({"pattern":"^a*$","maxLength":1000000000})", "states");
  // Twice as many ways with each bracket: they are one set of stacks.
  const std::string twice =
      R"({"$defs":{"a":{"anyOf":[{"type":"array","items":{"$ref":"#/$defs/a"}},{"type":"array","items":{"$ref":"#/$defs/a"},"maxItems":3}]}},"$ref":"#/$defs/a"})";
  EXPECT_TRUE(takes(twice, std::string(200, '[') + std::string(200, ']')));
  Json defs = Json::object();
  for (int i = 0; i < 25; ++i) {
    const Json next = {{"$ref", "#/$defs/" + std::to_string(i + 1)}};
    defs[std::to_string(i)] = {{"allOf", {next, next}}};
  }
  defs["25"] = {{"properties", {{"a", true}}}};
  expect_refused(json_text({{"$defs", defs}, {"$ref", "#/$defs/0"}}), "units of work");
}

// Each took seconds, and within the limits of its parts still does: the work of all is counted together.
TEST(Schema, WorkIsBounded) {
  const auto many = [](int count, const auto& one) {
    Json list = Json::array();
    for (int i = 0; i < count; ++i) list.push_back(one(i));
    return list;
  };
  const auto numbered = [](int i) { return Json(i); };
  for (const char* pattern : {"^((a|b|ab|c?){0,40}){0,40}$", "^([^]?[^a]?[^b]?[^c]?){0,300}$",
                              "[a-z]{0,500}[a-y]{0,500}"})
    expect_refused(json_text({{"items", {{"pattern", pattern}}}}),
                   std::string("schema #/items: pattern '") + pattern + "' brings the work");
  // Each is small.
  const auto counted = [](int i) {
    return Json{{"pattern", fmt::format("^((a|b|ab){{0,9}}){{0,{}}}$", 10 + i)}};
  };
  const Json patterns = {{"prefixItems", many(100, counted)}};
  expect_refused(json_text(patterns), "brings the work");
  // A list that is copied for each alternative, or for each name of one reference.
  const Json null = {{"type", "null"}, {"enum", many(8000, numbered)}};
  Json beside = null;
  beside["anyOf"] = many(20000, [](int) { return Json::object(); });
  expect_refused(json_text(beside), "units of work");
  const Json names = many(2048, [](int i) {
    std::string name;
    for (int bit = 0; bit < 11; ++bit) name += (i >> bit & 1) == 0 ? "a" : "%61";
    return Json{{"$ref", "#/$defs/" + name}};
  });
  expect_refused(json_text({{"$defs", {{"aaaaaaaaaaa", null}}}, {"anyOf", names}}),
                 "units of work");
  // Alternatives of alternatives, with a keyword beside them.
  Json defs = {{"20", {{"type", "null"}}}};
  for (int i = 0; i < 20; ++i) {
    const Json next = {{"$ref", "#/$defs/" + std::to_string(i + 1)}};
    defs[std::to_string(i)] = {{"anyOf", Json::array({next, next})}};
  }
  expect_refused(
      json_text({{"$defs", defs}, {"title", "t"}, {"$ref", "#/$defs/0"}, {"type", "null"}}),
      "units of work");
}

// What others write takes little of the work there is.
TEST(Schema, OrdinaryOnesTakeLittleWork) {
  Json values = Json::array(), members = Json::object(), ranges = Json::array();
  for (int i = 0; i < 8192; ++i) values.push_back(fmt::format("value {}", i));
  for (int i = 0; i < 4000; ++i)
    members[fmt::format("member {}", i)] = {{"type", "string"}, {"description", "d"}};
  for (int i = 0; i < 200; ++i)
    ranges.push_back({{"type", "integer"}, {"minimum", i}, {"maximum", 3 * i}});
  const Json of_values = {{"enum", values}}, of_members = {{"properties", members}};
  std::vector<Json> schemas = {
      of_values,
      of_members,
      {{"prefixItems", ranges}},
      {{"allOf", Json::array({of_values, of_values})}},
      {{"allOf", Json::array({of_members, {{"required", {"member 7"}}}})}}};
  for (const char* format : {"date", "time", "date-time", "uuid", "ipv4", "email"})
    schemas.push_back({{"format", format}});
  for (const char* pattern : {"^.{1,200}$", "^[a-z0-9]+(?:-[a-z0-9]+)*$", "^(\\w+ ?)+$",
                              "^\\+?[1-9]\\d{1,14}$", "^[A-Za-z ]{1,1000}$"})
    schemas.push_back({{"pattern", pattern}, {"maxLength", 60}});
  GrammarLimits quarter;
  quarter.work /= 4;
  for (const Json& schema : schemas) {
    const std::string text = json_text(schema);
    EXPECT_EQ(refusal(text, quarter), "") << text.substr(0, 200);
  }
}

// Equal values are found whatever their types, in the order of the first schema.
TEST(Schema, EnumsThatHoldTogether) {
  check(
      {{R"({"allOf":[{"enum":[1,"a",[1,{"k":2}],null,true,9007199254740993]},{"enum":[true,1.0,[1.0,{"k":2}],"b",9007199254740992]}]})",
        {"1", "[1,{\"k\":2}]", "true"},
        {"\"a\"", "null", "\"b\"", "9007199254740993", "9007199254740992", "1.0"}},
       {R"({"allOf":[{"const":2},{"enum":[1,2]}]})", {"2"}, {"1"}},
       {R"({"allOf":[{"required":["a","b"]},{"required":["b","c"]}],"properties":{"a":true,"b":true,"c":true}})",
        {R"({"a":1,"b":1,"c":1})"},
        {R"({"a":1,"b":1})", R"({"b":1,"c":1})"}}});
}

// A grammar and one part more than its work is refused there.
TEST(Schema, WorkHoldsAtItsValue) {
  const std::string text = R"({"properties":{"a":{"pattern":"^a{3}$"},"b":{"enum":[1,2]}}})";
  GrammarLimits limits;
  limits.work = Grammar::of_schema(parse_json(text, "test"))->nodes().work;
  EXPECT_EQ(refusal(text, limits), "");
  --limits.work;
  EXPECT_NE(refusal(text, limits).find("units of work"), std::string::npos);
}

TEST(Schema, LimitsHoldAtTheirValue) {
  const auto deep = [](int64_t depth) {
    std::string text;
    for (int64_t i = 0; i < depth; ++i) text += "{\"items\":";
    return text + "true" + std::string(depth, '}');
  };
  EXPECT_EQ(refusal(deep(64)), "");
  EXPECT_NE(refusal(deep(65)).find("more than 64 deep"), std::string::npos);
  GrammarLimits limits;
  limits.enum_entries = 2;
  EXPECT_EQ(refusal(R"({"enum":[1,2]})", limits), "");
  EXPECT_NE(refusal(R"({"enum":[1,2,3]})", limits), "");
  limits.properties = 2;
  EXPECT_EQ(refusal(R"({"properties":{"a":true,"b":true}})", limits), "");
  EXPECT_NE(refusal(R"({"properties":{"a":true,"b":true,"c":true}})", limits), "");
  limits.pattern_bytes = 3;
  EXPECT_EQ(refusal(R"({"pattern":"abc"})", limits), "");
  EXPECT_NE(refusal(R"({"pattern":"abcd"})", limits), "");
  limits.schema_bytes = 18;
  EXPECT_EQ(refusal(R"({"maxLength":1000})", limits), "");
  EXPECT_NE(refusal(R"({"maxLength":10000})", limits), "");
  GrammarLimits flat;
  flat.nesting = 3;
  const std::shared_ptr<const Grammar> arrays =
      Grammar::of_schema(parse_json(R"({"type":"array"})", ""), false, flat);
  EXPECT_TRUE(testing::accepts_bytes(arrays, bytes_trie(), "[[[]]]"));
  EXPECT_FALSE(testing::accepts_bytes(arrays, bytes_trie(), "[[[[]]]]"));
  EXPECT_NE(
      refusal(
          R"({"type":"array","minItems":1,"items":{"type":"array","minItems":1,"items":{"type":"array","minItems":1,"items":{"type":"array"}}}})",
          flat),
      "");
}

TEST(Schema, TooManyPartsAreRefusedWhereTheyStand) {
  const std::string schema =
      R"({"additionalProperties":false,"properties":{"a":{"minLength":1},"b":{"additionalProperties":false,"properties":{"c":{"minLength":2},"d":{"minLength":3}}}}})";
  GrammarLimits limits;
  limits.nodes = 2;
  EXPECT_NE(refusal(schema, limits).find("schema #/properties/b/properties/d: "), std::string::npos)
      << refusal(schema, limits);
  EXPECT_NE(refusal(schema, limits).find("more than 2 parts"), std::string::npos);
  EXPECT_NE(refusal(schema, limits).find("leave out properties"), std::string::npos);
  limits.nodes = 3;
  EXPECT_NE(refusal(schema, limits).find("schema #/properties/b: "), std::string::npos);
  limits.nodes = 6;  // with the outer object, and the space before it
  EXPECT_EQ(refusal(schema, limits), "");
  // What any value is comes from the first place that takes one.
  limits.nodes = 4;
  EXPECT_NE(refusal(R"({"properties":{"a":{"items":true}}})", limits)
                .find("schema #/additionalProperties: "),
            std::string::npos);
  limits = {};
  limits.alternatives = 2;
  EXPECT_NE(refusal(R"({"anyOf":[{"type":"null"},{"minLength":1},{"minLength":2}]})", limits)
                .find("schema #: anyOf"),
            std::string::npos);
}

TEST(Schema, TooManyPartsOfToolsAreRefusedWithTheTool) {
  const auto refused = [](bool tagged) -> std::string {
    ToolGrammar tools;
    tools.choice = ToolGrammar::Choice::kRequired;
    tools.tagged = tagged;
    tools.begin = "<";
    tools.between = ":";
    tools.end = ">";
    for (const char* name : {"add", "look_up"}) {
      tools.tools.push_back(
          {.name = name,
           .parameters = parse_json(
               R"({"additionalProperties":false,"properties":{"n":{"type":"integer"}}})", "test")});
    }
    GrammarLimits limits;
    limits.nodes = tagged ? 9 : 5;  // what `add` needs
    try {
      Grammar::of_tool_calls(tools, limits);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  for (const bool tagged : {false, true})
    EXPECT_NE(refused(tagged).find("schema tools/look_up/parameters"), std::string::npos)
        << refused(tagged);
}

}  // namespace
}  // namespace moraine
