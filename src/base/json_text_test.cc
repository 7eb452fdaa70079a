// The text of Json: fails if it is read or written otherwise than by nlohmann-json.
#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "base/json.h"

namespace moraine {
namespace {

TEST(JsonText, ATextGoesThroughAsThroughTheLibrary) {
  for (const std::string& text : std::vector<std::string>{
           "null",
           " true ",
           "false",
           "0",
           "-0",
           "-0.0",
           "7",
           "-7",
           "9223372036854775807",
           "-9223372036854775808",
           "9223372036854775808",
           "18446744073709551615",
           "18446744073709551616",
           "-9223372036854775809",
           "1.0",
           "1e2",
           "1E+2",
           "0.1",
           "1e22",
           "1e-7",
           "123456789012345680.0",
           "5e-324",
           "1.7976931348623157e308",
           "2.5e-5",
           "\"\"",
           "\"a\\u0000\\b\\f\\n\\r\\t\\\"\\\\\\/\\u001f\x7f\\u20ac\\ud83d\\ude00 \xe2\x82\xac\"",
           "[]",
           "{}",
           "[[],{},[{}]]",
           "{\"b\": 1, \"a\": [1, 2.5, null, {\"c\": \"d\"}], \"\": {}}",
           "{\"a\": 1, \"b\": 2, \"a\": 3}",
           "{\"a\": [1], \"a\": {\"b\": 2}}"}) {
    const auto theirs = nlohmann::ordered_json::parse(text);
    const Json ours = parse_json(text, text);
    for (const int indent : {-1, 0, 2})
      EXPECT_EQ(json_text(ours, indent), theirs.dump(indent)) << text;
    EXPECT_EQ(parse_json_or_null(text), ours);
    EXPECT_STREQ(ours.type_name(), theirs.type_name()) << text;
    EXPECT_EQ(ours.is_number_integer(), theirs.is_number_integer()) << text;
    EXPECT_EQ(ours.is_number_unsigned(), theirs.is_number_unsigned()) << text;
    EXPECT_EQ(ours.is_number_float(), theirs.is_number_float()) << text;
    EXPECT_EQ(ours.size(), theirs.size()) << text;
  }
  for (const std::string& text : std::vector<std::string>{
           "", "nul", "01", "1.", "-", "+1", "1e999", "-1e999", "[1,]", "{\"a\"}", "{\"a\":1,}",
           "[1] 2", "\"\\x\"", "\"\\ud800\"", "\"\n\"", "\"\xff\"", "\"a", "'a'", "// c\n1"}) {
    std::string theirs = "no error";
    try {
      const auto json = nlohmann::ordered_json::parse(text);
    } catch (const nlohmann::json::parse_error& e) {
      theirs = "it: not JSON at byte " + std::to_string(e.byte) + ": " + e.what();
    } catch (const nlohmann::json::out_of_range&) {
      theirs = "it: a number is out of range: " + text;
    }
    try {
      parse_json(text, "it");
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.what(), theirs);
    }
    EXPECT_TRUE(parse_json_or_null(text).is_null()) << text;
  }
}

TEST(JsonText, NumbersAndBytesAreWrittenAsByTheLibrary) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20'000; ++i) {
    const auto number = std::bit_cast<double>(random());
    EXPECT_EQ(json_text(number), nlohmann::ordered_json(number).dump()) << number;
    const double few = static_cast<double>(random() % 100'000) / 1000;
    EXPECT_EQ(json_text(few), nlohmann::ordered_json(few).dump());
    EXPECT_EQ(json_text(static_cast<float>(few)),
              nlohmann::ordered_json(static_cast<float>(few)).dump());
    // Of the bytes that matter to UTF-8: sequences that are whole, cut, overlong, surrogates, beyond the last.
    static constexpr std::string_view kBytes =
        "a\"\n\x80\x8f\x90\x9f\xa0\xbf\xc1\xc2\xdf\xe0\xe2\xed\xef\xf0\xf1\xf4\xf5\xff";
    std::string bytes;
    for (uint64_t n = random() % 8; n > 0; --n) bytes += kBytes[random() % kBytes.size()];
    EXPECT_EQ(json_text(bytes),
              nlohmann::ordered_json(bytes).dump(-1, ' ', false,
                                                 nlohmann::ordered_json::error_handler_t::replace));
  }
  for (const double number :
       {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
        std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_EQ(json_text({1, number}), "[1,null]");
  }
  EXPECT_EQ(json_text({INT64_MIN, INT64_MAX, UINT64_MAX, -1, 1u, true, nullptr, 1.0f}),
            "[-9223372036854775808,9223372036854775807,18446744073709551615,-1,1,true,null,1.0]");
}

}  // namespace
}  // namespace moraine
