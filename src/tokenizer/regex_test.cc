// Patterns in the syntax of Oniguruma: what they match, as observed of that library through Hugging
// Face tokenizers 0.23.3, and what is refused. Fails if a construct is passed on to PCRE2, which
// means something else by it.
#include "tokenizer/regex.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/train.h"

namespace moraine {
namespace {

// Matches and the text between them, with '|' at the cuts.
std::string cut(const std::string& pattern, const std::string& text, bool jit = true) {
  std::vector<TextRange> matches;
  Regex(pattern, "test", jit).find_all(text, &matches);
  std::string out;
  int64_t done = 0;
  const auto put = [&](int64_t end) {
    if (end > done && !out.empty()) out += '|';
    out += text.substr(done, end - done);
    done = end;
  };
  for (const TextRange& match : matches) {
    put(match.begin);
    put(match.end);
  }
  put(static_cast<int64_t>(text.size()));
  return out;
}

struct Case {
  const char *pattern, *text, *pieces;
};

const Case kCases[] = {
    {"a{1,2}+", "aaaaab", "aaaaa|b"},
    {"a{,2}", "aaaaab", "aa|aa|a|b"},
    {"a{2}?", "aaaaab", "aa|aa|a|b"},
    {"a++b?", "aab", "aab"},
    {"^a", "a\nab", "a|\n|a|b"},
    {"b$", "b\nab", "b|\na|b"},
    {".", "a\nb\r", "a|\n|b|\r"},
    {"(?m).", "a\nb", "a|\n|b"},
    {"(?m).+", "a\nb", "a\nb"},
    {"\\u0061", "bab", "b|a|b"},
    {"\\x{61}", "bab", "b|a|b"},
    {"\\h", "zaz1", "z|a|z|1"},
    {"[a-z&&[^b]]+", "abc", "a|b|c"},
    {"[a[bc]]+", "xabcx", "x|abc|x"},
    {"[^a[bc]]+", "xabcx", "x|abc|x"},
    {"[^a-c&&[b-z]]+", "abcd", "a|bc|d"},
    {"x*", "axxb", "a|xx|b"},
    {"\\p{Han}+", "a漢、々〇b", "a|漢|、|々〇|b"},
    {"\\p{^L}+", "a12", "a|12"},
    {"[[:alpha:]]+", "1aé1", "1|aé|1"},
    {"(?<=a)b", "abcb", "a|b|cb"},
    {"\\bfoo\\b", "foo food", "foo| food"},
    {"[\\r\\n\\/]+", "a/\n", "a|/\n"},
    {"(?i:'s)", "'ſ 'S", "'ſ| |'S"},
    {"\\w+", "x²+½ ⅷ", "x²|+|½| |ⅷ"},
    {"[\\w]+", "x²+½", "x|²+½"},
    {"\\s+", "a\u180e \u00a0\u0085b", "a\u180e| \u00a0\u0085|b"},
    {"[^\\s]+", "a\u180eb c", "a\u180eb| |c"},
    {"(?i)a|b", "AxB", "A|x|B"},
};

TEST(Regex, MatchesAsOniguruma) {
  for (const Case& c : kCases) {
    for (const bool jit : {true, false}) {
      EXPECT_EQ(cut(c.pattern, c.text, jit), c.pieces) << c.pattern << " jit=" << jit;
    }
  }
}

TEST(Regex, RefusesByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"(a)\\1", "\\1"},
      {"\\Ka", "\\K"},
      {"\\Xa", "\\X"},
      {"(?~a)", "group option"},
      {"(?s).", "'s'"},
      {"a**(", "parenthesis"},
      {"a)", "parenthesis"},
      {"[a", "class"},
      {"[]", "class"},
      {"*a", "repeat"},
      {"a{3,1}", "exchanged"},
      {"\\p{Nonsense}", "Nonsense"},
      {"[[:nonsense:]]", "nonsense"},
      {"a{99999}", "65535"},
      {"\\x{110000}", "range"},
      {"\xff", "UTF-8"},
      {"[z-a]", "range"},
      {"\\", "end"},
  };
  for (const auto& [pattern, named] : cases) {
    try {
      Regex(pattern, "test");
      ADD_FAILURE() << pattern;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::kInvalidArgument) << pattern;
      EXPECT_NE(std::string(e.what()).find(named), std::string::npos) << e.what();
    }
  }
  const std::string deep(1000, '(');
  EXPECT_THROW(Regex(deep + std::string(1000, ')'), "test"), Error);
  EXPECT_THROW(Regex(std::string(1000, '['), "test"), Error);
}

TEST(Regex, ALongPatternDoesNotHideWhatIsWrongWithIt) {
  const std::string many(100'000, 'a');
  for (const std::string& pattern : {many + ")", "(?:" + many + "){2000}"}) {
    try {
      Regex(pattern, "test");
      ADD_FAILURE();
    } catch (const Error& e) {
      const std::string text = e.what();
      EXPECT_LT(text.size(), 1000u);
      EXPECT_TRUE(text.find("at byte 100000: a closing parenthesis") != std::string::npos ||
                  text.find("too large") != std::string::npos)
          << text;
    }
  }
}

TEST(Regex, EndlessBacktrackingIsAnError) {
  std::vector<TextRange> matches;
  const Regex regex("(?:a+)+[bc]", "test");
  EXPECT_THROW(regex.find_all(std::string(60, 'a'), &matches), Error);
}

TEST(Regex, LongRuns) {
  for (const char* pattern : {kGpt2Pattern, kTrainPattern}) {
    for (const bool jit : {true, false}) {
      const std::string spaces(300'000, ' ');
      std::vector<TextRange> matches;
      Regex(pattern, "test", jit).find_all(spaces + "x", &matches);
      ASSERT_EQ(matches.size(), 2u);
      EXPECT_EQ(matches[0], (TextRange{0, 299'999}));
    }
  }
}

TEST(Regex, TheTrainPattern) {
  EXPECT_EQ(cut(kTrainPattern, "Don't say 'tis 1815, she said;\n\n  \"no\"  end"),
            "Don|'t| say| '|tis| |1|8|1|5|,| she| said|;|\n\n| | \"|no|\"| | end");
  EXPECT_EQ(cut(kTrainPattern, "it’s WE’LL"), "it|’s| WE|’LL");
}

}  // namespace
}  // namespace moraine
