// SpecialTexts: fails if one is missed, if a shorter one hides a longer, or if ordinary text counts.
#include "server/special_texts.h"

#include <gtest/gtest.h>

#include "base/file_system.h"
#include "testing/places.h"

namespace moraine {
namespace {

TEST(SpecialTexts, FindsEachWhereItStands) {
  const auto tokenizer = Tokenizer::load(posix_file_system(),
                                         testing::source_path("tests/golden/tokenizer/qwen.json"));
  const SpecialTexts specials(*tokenizer);
  int found = 0;
  for (int64_t id = 0; id < tokenizer->vocabulary_size(); ++id) {
    const auto token = static_cast<int32_t>(id);
    const std::string text(tokenizer->token_text(token));
    if (!tokenizer->is_special(token) || text.empty()) continue;
    ++found;
    EXPECT_EQ(specials.begins("a" + text + "b", 1), text);
    EXPECT_TRUE(specials.is_in("a" + text));
  }
  EXPECT_GT(found, 0);
  EXPECT_FALSE(specials.is_in("<|no|> special <|en"));
  EXPECT_FALSE(SpecialTexts().is_in("<|end|>"));
}

}  // namespace
}  // namespace moraine
