// Fails if a token lands on the wrong side of a border, if marks change the tokens of the text, or if a stranger's text
// becomes a special token.
#include "tokenizer/encode_marked.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "tokenizer/decoder.h"
#include "tokenizer/test_golden.h"

namespace moraine {
namespace {

using testing::load_golden;

// Some special token of the vocabulary that a text can hold.
std::string special_of(const Tokenizer& tokenizer) {
  for (int32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    const std::string text(tokenizer.token_text(id));
    if (!tokenizer.is_special(id) || text.empty()) continue;
    if (tokenizer.encode("a" + text + "b", false).size() >
        tokenizer.encode_ordinary("a" + text + "b").size())
      continue;
    return text;
  }
  return "";
}

std::string text_of_targets(const Tokenizer& tokenizer, const MarkedTokens& marked) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < marked.ids.size(); ++i)
    if (marked.is_target[i] != 0) ids.push_back(marked.ids[i]);
  return tokenizer.decode(ids, false);
}

class EncodeMarked : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Styles, EncodeMarked,
                         ::testing::Values("gpt2", "gpt2_prefix", "llama2", "gemma3", "falcon"));

TEST_P(EncodeMarked, TheWholeTextAndEachByteRangeOfIt) {
  const std::unique_ptr<Tokenizer> tokenizer = load_golden(GetParam());
  const std::string text = "Hello there, general. How is 12345\n\n  the weather?\n";
  const std::vector<int32_t> whole = tokenizer->encode(text, false);
  const bool prefixed = std::string(GetParam()) == "gpt2_prefix";
  std::vector<int64_t> begins;  // of the tokens of the whole
  DecoderState state;
  std::string bytes;
  for (const int32_t id : whole) {
    begins.push_back(std::max<int64_t>(0, static_cast<int64_t>(bytes.size()) - prefixed));
    tokenizer->decode_next(id, false, &state, &bytes);
  }
  const int64_t n = static_cast<int64_t>(text.size());
  const auto is_border = [&](int64_t at) {
    return at == n || std::count(begins.begin(), begins.end(), at) > 0;
  };
  int64_t uncut = 0;
  for (int64_t begin = 0; begin < n; ++begin) {
    for (const int64_t end : {begin + 1, (begin + n + 1) / 2, n}) {
      const std::vector<ByteRange> targets = {{begin, end}};
      const MarkedTokens marked = encode_marked(*tokenizer, text, targets);
      ASSERT_EQ(marked.ids.size(), marked.is_target.size());
      // Learnt is what stands there, no more and no less; a space in front may come with a cut.
      const std::string part =
          text.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
      const std::string learnt = text_of_targets(*tokenizer, marked);
      EXPECT_TRUE(learnt == part || " " + learnt == part || learnt == " " + part)
          << begin << " to " << end << ": " << learnt;
      if (!is_border(begin) || !is_border(end)) continue;
      ++uncut;
      EXPECT_EQ(marked.ids, whole) << begin << " to " << end;
    }
  }
  EXPECT_GT(uncut, 10);
  EXPECT_TRUE(encode_marked(*tokenizer, "", {}).ids.empty());
}

TEST_P(EncodeMarked, SpecialTokensOfTheTemplateAndNotOfStrangers) {
  const std::unique_ptr<Tokenizer> tokenizer = load_golden(GetParam());
  const std::string special = special_of(*tokenizer);
  if (special.empty()) GTEST_SKIP() << "no special token that shortens a text";
  const std::string text = "user says " + special + " here" + special + "answer" + special;
  const int64_t stranger = 10, size = static_cast<int64_t>(special.size());
  const int64_t answer = static_cast<int64_t>(text.find("answer"));
  const std::vector<ByteRange> targets = {{answer, static_cast<int64_t>(text.size())}};
  const std::vector<ByteRange> ordinary = {{stranger, stranger + size}};
  const auto specials = [&](const MarkedTokens& marked) {
    int64_t count = 0;
    for (const int32_t id : marked.ids) count += tokenizer->token_text(id) == special;
    return count;
  };
  EXPECT_EQ(specials(encode_marked(*tokenizer, text, targets)), 3);
  const MarkedTokens marked = encode_marked(*tokenizer, text, targets, ordinary);
  EXPECT_EQ(specials(marked), 2);
  // The end of the answer is learnt, the end of the question not.
  EXPECT_EQ(tokenizer->token_text(marked.ids.back()), special);
  EXPECT_EQ(marked.is_target.back(), 1);
  EXPECT_NE(text_of_targets(*tokenizer, marked).find("answer"), std::string::npos);
  EXPECT_EQ(text_of_targets(*tokenizer, marked).find("here"), std::string::npos);
}

// gemma3 writes spaces as U+2581: a text that holds that sign does not come back as it was.
TEST(EncodeMarkedChanged, TokensStillBelongToOneSide) {
  const std::unique_ptr<Tokenizer> tokenizer = load_golden("gemma3");
  const std::string left = "odd \xE2\x96\x81 sign", right = "the answer";
  ASSERT_NE(tokenizer->decode(tokenizer->encode(left, false), false), left);
  const std::string text = left + right;
  const std::vector<ByteRange> targets = {
      {static_cast<int64_t>(left.size()), static_cast<int64_t>(text.size())}};
  const MarkedTokens marked = encode_marked(*tokenizer, text, targets);
  EXPECT_EQ(text_of_targets(*tokenizer, marked), right);
  const int64_t learnt =
      std::accumulate(marked.is_target.begin(), marked.is_target.end(), int64_t{0});
  EXPECT_GT(learnt, 0);
  EXPECT_LT(learnt, static_cast<int64_t>(marked.ids.size()));
}

}  // namespace
}  // namespace moraine
