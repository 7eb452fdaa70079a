// Json: fails if a value does not hold what was put into it, or if a text from outside gets further than an Error:
// broken, too deep, out of range.
#include "base/json.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "base/error.h"
#include "base/json_document.h"
#include "base/json_quote.h"

namespace moraine {
namespace {

std::string nested(int64_t depth) {
  return std::string(static_cast<size_t>(depth), '[') +
         std::string(static_cast<size_t>(depth), ']');
}

template <class F>
std::string error_of(const F& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kCorrupt);
    return e.what();
  }
  return "no error";
}

TEST(Json, WhatIsNoJsonIsAnError) {
  for (const std::string& text :
       {std::string("1e999"), std::string("{\"a\": -1e999}"), std::string(""), std::string("[1,"),
        std::string("\"\xff\""), nested(300), std::string(100'000, '['),
        std::string(100'000, '{')}) {
    const std::string error = error_of([&] { parse_json(text, "the file"); });
    EXPECT_NE(error.find("the file"), std::string::npos) << error;
  }
  EXPECT_EQ(error_of([] { parse_json("[1, 1e999]", "it"); }),
            "it: a number is out of range: 1e999");
  EXPECT_NE(error_of([] { parse_json("[1, 01]", "it"); }).find("it: not JSON at byte"),
            std::string::npos);
  // What is printed goes down one call for each level.
  EXPECT_EQ(json_text(parse_json(nested(kJsonDepth), "deep")), nested(kJsonDepth));
  const std::string brackets = "{\"[[\":\"\\\"[\"}";
  EXPECT_EQ(json_text(parse_json(brackets, "text")), brackets);
}

TEST(Json, WritingNeverFails) {
  EXPECT_EQ(json_text(Json{{"file", "caf\xe9.txt"}}), "{\"file\":\"caf\xef\xbf\xbd.txt\"}");
  EXPECT_EQ(json_quote("a\"\n"), "\"a\\\"\\n\"");
  EXPECT_THROW(json_quote("\xff"), Error);
}

TEST(Json, ListsInBracesMeanWhatTheySay) {
  const Json object = {{"prompt", "a"}, {"n", 3}};
  EXPECT_EQ(json_text(object), "{\"prompt\":\"a\",\"n\":3}");
  EXPECT_EQ(json_text({1, 2}), "[1,2]");
  EXPECT_EQ(json_text({"a", "b"}), "[\"a\",\"b\"]");
  EXPECT_EQ(json_text({{"a", "b"}, {"c", 1, 2}}), "[[\"a\",\"b\"],[\"c\",1,2]]");
  EXPECT_EQ(json_text({{"a", {{"b", {}}}}, {"c", {1.5}}, {"a", 2}}),
            "{\"a\":{\"b\":null},\"c\":[1.5]}");
  EXPECT_EQ(json_text(Json::array({{"a", 1}})), "[[\"a\",1]]");
  EXPECT_EQ(json_text(Json::array()) + json_text(Json::object()) + json_text({}), "[]{}null");
  EXPECT_EQ(json_text(Json::object({{"a", object}, {"b", std::vector<int>{1, 2}}})),
            "{\"a\":{\"prompt\":\"a\",\"n\":3},\"b\":[1,2]}");
  EXPECT_EQ(json_text(object), "{\"prompt\":\"a\",\"n\":3}");  // still
}

TEST(Json, ReadsAndChanges) {
  Json json;
  json["a"]["b"] = {1, 2};
  json["c"].push_back("x");
  json["c"].push_back({{"d", 2.5}});
  const Json& read = json;
  EXPECT_EQ(json_text(json), "{\"a\":{\"b\":[1,2]},\"c\":[\"x\",{\"d\":2.5}]}");
  EXPECT_EQ(read["a"]["b"].get<std::vector<int32_t>>(), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(read.at("c").at(0).get<std::string>() + read["c"][0].text(), "xx");
  EXPECT_EQ(read["c"].back().value("d", 0.0), 2.5);
  EXPECT_EQ(read.value("z", "none") + read["c"][1].value("y", std::string("no")), "noneno");
  EXPECT_TRUE(read.contains("a") && !read.contains("b") && !read["c"].contains("x"));
  EXPECT_EQ(read.find("c")->size(), 2u);
  EXPECT_TRUE(read.find("d") == read.end() && Json(3).find("d") == Json(3).end());
  json["a"] = json["a"]["b"];  // a part of itself
  json.update({{"c", 1}, {"e", true}});
  EXPECT_EQ(json, Json({{"a", {1, 2}}, {"c", 1}, {"e", true}}));
  EXPECT_EQ(json.erase("c") + json.erase("c"), 1u);
  json["a"].erase(0);
  json["a"].erase(std::find(json["a"].begin(), json["a"].end(), Json(2)));
  EXPECT_EQ(json_text(json), "{\"a\":[],\"e\":true}");
  Json copy = json;
  copy["e"] = false;
  EXPECT_TRUE(json["e"].get<bool>());
  std::ostringstream out;
  for (const Json& each : copy) out << each;
  for (const auto& [name, value] : copy.items()) out << name << value;
  for (const Json& each : Json("s")) out << each;
  EXPECT_EQ(out.str(), "[]falsea[]efalse\"s\"");
  EXPECT_TRUE(Json().empty() && Json().items().empty() && Json().begin() == Json().end());
}

TEST(Json, NumbersAreEqualByValue) {
  EXPECT_EQ(Json(1), Json(1u));
  EXPECT_EQ(Json(1), Json(1.0));
  EXPECT_NE(Json(1), Json(true));
  EXPECT_NE(Json(-1), Json(UINT64_MAX));
  EXPECT_NE(Json(INT64_MAX), Json(INT64_MAX - 1));
  EXPECT_NE(Json({{"a", 1}, {"b", 2}}), Json({{"b", 2}, {"a", 1}}));
  const Json ascending[] = {-1e300, INT64_MIN, -2, -1.5, 0, 1u, 1.5, INT64_MAX, UINT64_MAX, 1e300};
  for (size_t a = 0; a < std::size(ascending); ++a) {
    for (size_t b = 0; b < std::size(ascending); ++b) {
      EXPECT_EQ(ascending[a].less_than(ascending[b]), a < b) << a << " " << b;
    }
  }
}

TEST(Json, AnotherKindIsAnError) {
  const Json json = {{"a", "x"}, {"b", {1}}};
  EXPECT_EQ(error_of([&] { json["a"].get<int64_t>(); }), "read JSON: found string, wanted number");
  EXPECT_EQ(error_of([&] { json["a"].get<bool>(); }), "read JSON: found string, wanted boolean");
  EXPECT_EQ(error_of([&] { json["b"].text(); }), "read JSON: found array, wanted string");
  EXPECT_EQ(error_of([&] { json["b"]["c"]; }), "read JSON: found array, wanted object");
  EXPECT_EQ(error_of([&] { json["b"].items(); }), "read JSON: found array, wanted object");
  EXPECT_EQ(error_of([&] { json["a"].value("c", 1); }), "read JSON: found string, wanted object");
  EXPECT_EQ(error_of([&] { Json(json).push_back(1); }), "read JSON: found object, wanted array");
  EXPECT_EQ(error_of([&] { json["c"]; }), "read JSON: 'c' is missing");
  EXPECT_EQ(error_of([&] { json["b"][1]; }), "read JSON: element 1 of array with 1");
  EXPECT_EQ(error_of([&] { Json().erase(0); }), "read JSON: element 0 of null with 0");
  EXPECT_EQ(error_of([&] { Json("a").less_than(1); }), "read JSON: found string, wanted number");
}

// With a search through all names for each this would take minutes.
TEST(Json, ManyMembersAreFoundAndTakenOut) {
  constexpr int kMembers = 100'000;
  std::string text = "{";
  for (int i = 0; i < kMembers; ++i) text += fmt::format("\"{}\":{},", i, i);
  text.back() = '}';
  Json json = parse_json(text);
  EXPECT_EQ(json_text(json), text);
  for (int i = 0; i < kMembers; ++i) ASSERT_EQ(json[std::to_string(i)].get<int>(), i);
  EXPECT_FALSE(json.contains("100000"));
  Json few = Json::object();
  for (int i = 0; i < 100; ++i) few[std::to_string(i)] = i;
  for (int i = 0; i < 100; i += 2) EXPECT_EQ(few.erase(std::to_string(i)), 1u);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(few.value(std::to_string(i), -1), i % 2 == 1 ? i : -1);
    if (i % 2 == 1) few.erase(0);
  }
  EXPECT_TRUE(few.empty());
}

TEST(JsonDocument, NamesDocumentMemberAndElement) {
  const JsonDocument document("{\"a\": [1, \"x\"], \"b\": 1, \"b\": 2, \"c\": null}", "it.json");
  const JsonValue& root = document.root();
  EXPECT_EQ(
      error_of([&] { root.at("a").elements([](int64_t, const JsonValue& v) { v.integer(); }); }),
      "read it.json: 'a' element 1: found a string, wanted an integer");
  EXPECT_EQ(error_of([&] { root.at("z"); }), "read it.json: 'z' is missing");
  EXPECT_EQ(error_of([&] { root.integer("b"); }), "read it.json: 'b' is given twice");
  EXPECT_EQ(error_of([&] { root.text("a"); }),
            "read it.json: 'a': found an array, wanted a string");
  JsonValue value;
  EXPECT_FALSE(root.find("c", &value));
  EXPECT_FALSE(root.find("z", &value));
  EXPECT_EQ(root.at("a").count(), 2);
  const JsonDocument unnamed("{\"a\": 1}");
  EXPECT_EQ(error_of([&] { unnamed.root().text("a"); }), "'a': found an integer, wanted a string");
}

TEST(JsonDocument, BrokenAndDeepTextsAreErrors) {
  for (const std::string& text : {std::string("["), std::string("1e999"), std::string(100'000, '['),
                                  std::string("{\"a\xff\": 1}"), std::string()}) {
    EXPECT_NE(error_of([&] { JsonDocument(text, "it.json"); }).find("read it.json: not JSON"),
              std::string::npos);
  }
  EXPECT_NE(error_of([&] { JsonDocument("1e999", "it"); }).find("or a number out of range"),
            std::string::npos);
  JsonDocument again("[1]");
  EXPECT_EQ(error_of([&] { again.parse("{"); }).substr(0, 8), "not JSON");
  again.parse("[1, 2]");
  EXPECT_EQ(again.root().count(), 2);
}

}  // namespace
}  // namespace moraine
