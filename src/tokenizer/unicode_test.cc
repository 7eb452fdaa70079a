// Normal forms and UTF-8. Fails if a form is wrong at the seams between text that is normalized and
// text that is only copied, or if ordering marks takes quadratic time.
#include "tokenizer/unicode.h"

#include <gtest/gtest.h>

#include "base/utf8.h"
#include "tokenizer/byte_alphabet.h"

namespace moraine {
namespace {

TEST(Unicode, Forms) {
  const auto form = [](std::string_view text, NormalForm f) { return normalize_unicode(text, f); };
  EXPECT_EQ(form("", NormalForm::kNfc), "");
  EXPECT_EQ(form("plain", NormalForm::kNfkd), "plain");
  EXPECT_EQ(form("cafe\u0301 x", NormalForm::kNfc), "caf\u00e9 x");
  EXPECT_EQ(form("ae\u0301e\u0301a", NormalForm::kNfc), "a\u00e9\u00e9a");
  EXPECT_EQ(form("\u00e9\u0323!", NormalForm::kNfc), "\u1eb9\u0301!");
  EXPECT_EQ(form("\u00e9", NormalForm::kNfd), "e\u0301");
  EXPECT_EQ(form("q\u0307\u0323", NormalForm::kNfc), "q\u0323\u0307");
  EXPECT_EQ(form("\u0301x", NormalForm::kNfc), "\u0301x");
  EXPECT_EQ(form("\u1100\u1161\u11a8", NormalForm::kNfc), "\uac01");
  EXPECT_EQ(form("\uac01", NormalForm::kNfd), "\u1100\u1161\u11a8");
  EXPECT_EQ(form("\ufb01\u00bd\u2460", NormalForm::kNfkc),
            "fi1\u20442"
            "1");
  EXPECT_EQ(form("\ufb01", NormalForm::kNfc), "\ufb01");
  EXPECT_EQ(form("\u212b", NormalForm::kNfc), "\u00c5");
}

TEST(Unicode, ManyMarksAreNotQuadratic) {
  std::string text = "a", below, above;
  for (int i = 0; i < 100'000; ++i) text += "\u0301\u0323";  // hours if neighbours are swapped
  for (int i = 0; i < 100'000; ++i) {
    below += "\u0323";
    above += "\u0301";
  }
  EXPECT_EQ(normalize_unicode(text, NormalForm::kNfd), "a" + below + above);
}

TEST(Unicode, Lowercase) { EXPECT_EQ(lowercase("AÉ\u0130Σ"), "aéi\u0307σ"); }

TEST(Unicode, Classes) {
  EXPECT_TRUE(is_white_space(0x3000));
  EXPECT_FALSE(is_white_space(0x180E));
  EXPECT_TRUE(is_numeric(0xBD));
  EXPECT_FALSE(is_numeric('a'));
  EXPECT_TRUE(is_word_character('_'));
  EXPECT_TRUE(is_word_character(0x301));
  EXPECT_FALSE(is_word_character('-'));
  EXPECT_TRUE(is_punctuation('$'));
  EXPECT_TRUE(is_punctuation(0x3002));
}

TEST(Utf8, ValidPrefix) {
  const std::string ascii(20, 'a');
  EXPECT_EQ(valid_utf8_prefix(ascii + "é"), 22);
  for (const char* bad : {"\x80", "\xC0\xAF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                          "\xF5", "\xC3", "\xE2\x82", "\xF0\x9F\x98"}) {
    EXPECT_EQ(valid_utf8_prefix(ascii + bad), 20) << bad;
  }
}

TEST(Utf8, ReplacesMaximalParts) {
  EXPECT_EQ(to_valid_utf8("a\xF0\x9F\x98z"), "a\uFFFDz");
  EXPECT_EQ(to_valid_utf8("\xE2\x82\xE2\x82\xAC"), "\uFFFD\u20AC");
  EXPECT_EQ(to_valid_utf8("\xC0\xAF\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD");
}

TEST(Utf8, IncompleteTail) {
  EXPECT_EQ(incomplete_utf8_tail("ab"), 0);
  EXPECT_EQ(incomplete_utf8_tail("a\xC3"), 1);
  EXPECT_EQ(incomplete_utf8_tail("a\xF0\x9F\x98"), 3);
  EXPECT_EQ(incomplete_utf8_tail("a\xF0\x9F\x98\x80"), 0);
  EXPECT_EQ(incomplete_utf8_tail("\x98\x80"), 0);
  EXPECT_EQ(incomplete_utf8_tail("\xED\xA0"), 0);  // a surrogate: never valid
}

TEST(ByteAlphabet, InvertsItself) {
  std::string bytes, text, back;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  append_byte_characters(bytes, &text);
  EXPECT_EQ(valid_utf8_prefix(text), static_cast<int64_t>(text.size()));
  ASSERT_TRUE(append_character_bytes(text, &back));
  EXPECT_EQ(back, bytes);
  EXPECT_EQ(character_of_byte(' '), 0x120);
  EXPECT_FALSE(append_character_bytes("a b", &back));
}

}  // namespace
}  // namespace moraine
