// Every published style of tokenizer.json against what the Hugging Face library does with
// adversarial text (tools/make_tokenizer_golden.py). Fails if any step, the order of merging, an
// added token's rule, the post-processor or the decoder differs.
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/json.h"
#include "base/utf8.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/test_golden.h"

namespace moraine {
namespace {

const char* const kStyles[] = {"falcon", "gemma3",          "gpt2",   "gpt2_prefix",
                               "llama2", "llama3",          "o200k",  "metaspace_always",
                               "qwen",   "metaspace_first", "splits", "starcoder"};

using testing::golden_path;

class Golden : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string name = GetParam();
    tokenizer_ = Tokenizer::load(posix_file_system(), golden_path(name));
    cases_ = parse_json(posix_file_system().read(golden_path(name + ".cases")), name);
    ASSERT_GT(cases_.size(), 100u);
  }
  std::unique_ptr<Tokenizer> tokenizer_;
  Json cases_;
};

TEST_P(Golden, EncodesAsHuggingFace) {
  for (const Json& c : cases_) {
    const std::string& text = c["text"].text();
    EXPECT_EQ(tokenizer_->encode(text, false), c["ids"].get<std::vector<int32_t>>()) << c["text"];
    EXPECT_EQ(tokenizer_->encode(text, true), c["special_ids"].get<std::vector<int32_t>>())
        << c["text"];
  }
}

TEST_P(Golden, DecodesAsHuggingFace) {
  for (const Json& c : cases_) {
    const auto ids = c["special_ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(to_valid_utf8(tokenizer_->decode(ids, false)), c["decoded"].get<std::string>())
        << c["text"];
    EXPECT_EQ(to_valid_utf8(tokenizer_->decode(ids, true)), c["skipped"].get<std::string>())
        << c["text"];
  }
}

TEST_P(Golden, StreamsTheSameTextInWholeCharacters) {
  for (const Json& c : cases_) {
    StreamDecoder stream(*tokenizer_, true);
    std::string all;
    for (const int32_t id : c["special_ids"].get<std::vector<int32_t>>()) {
      const std::string piece = stream.push(id);
      EXPECT_EQ(valid_utf8_prefix(piece), static_cast<int64_t>(piece.size())) << c["text"];
      all += piece;
    }
    EXPECT_EQ(all + stream.finish(), c["skipped"].get<std::string>()) << c["text"];
  }
}

// A text that is said to have more tokens than a number has more, and one that is much longer is said to.
TEST_P(Golden, ATextThatExceedsTokensHasMore) {
  const auto expect_not = [&](const std::string& text) {
    const auto tokens = static_cast<int64_t>(tokenizer_->encode(text, false).size());
    EXPECT_FALSE(tokenizer_->exceeds(text, tokens)) << text;
  };
  for (const Json& c : cases_) expect_not(c["text"].text());
  const auto many = [](const char* piece) {
    std::string text;
    for (int i = 0; i < 20000; ++i) text += piece;
    return text;
  };
  // What normalizers make shorter, as far as they do; white space, which `<mask>` and `<r>` take along.
  for (const char* piece :
       {"K", "\xe2\x84\xaa", "\xce\xb9\xcc\x88\xcc\x81", "\xf0\x9d\x90\x80", "\xff"})
    expect_not(many(piece));
  expect_not(many(" ") + "<mask>" + many(" ") + "<r>" + many("\xe3\x80\x80"));
  const std::string style = GetParam();
  const bool drops = style == "splits" || style == "falcon";  // '_', or bytes that no token has
  EXPECT_EQ(tokenizer_->exceeds(many("abcd"), 5), !drops);
  EXPECT_FALSE(tokenizer_->exceeds(many("    "), 5));
}

// What is streamed behind a text is what the whole has more than that, wherever it is cut.
TEST_P(Golden, StreamsWhatIsAddedToATextBefore) {
  for (const Json& c : cases_) {
    const auto ids = c["special_ids"].get<std::vector<int32_t>>();
    for (const bool skip : {false, true}) {
      const std::string all = tokenizer_->decode(ids, skip);
      for (size_t cut = 0; cut <= std::min<size_t>(ids.size(), 12); ++cut) {
        const std::span<const int32_t> whole(ids), before = whole.first(cut);
        DecoderState state = tokenizer_->state_after(before, skip);
        std::string text = tokenizer_->decode(before, skip);
        for (const int32_t id : whole.subspan(cut))
          tokenizer_->decode_next(id, skip, &state, &text);
        EXPECT_EQ(text, all) << c["text"] << " cut at " << cut;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Styles, Golden, ::testing::ValuesIn(kStyles),
                         [](const auto& style) { return std::string(style.param); });

}  // namespace
}  // namespace moraine
