// Json: fails if a text from outside gets further than an Error: broken, too deep, out of range.
#include "base/json.h"

#include <gtest/gtest.h>

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
  JsonDocument again("[1]");
  EXPECT_EQ(error_of([&] { again.parse("{"); }).substr(0, 8), "not JSON");
  again.parse("[1, 2]");
  EXPECT_EQ(again.root().count(), 2);
}

}  // namespace
}  // namespace moraine
