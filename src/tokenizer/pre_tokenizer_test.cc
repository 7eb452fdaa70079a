// Where matches go when text is cut. Fails if a behaviour treats two matches in a row like one, or
// a prefix lands where none belongs. The five behaviours are the example of the Hugging Face
// library.
#include "tokenizer/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <string>

namespace moraine {
namespace {

std::string pieces(PreTokenizerStep step, NormalizedText text) {
  PreTokenizer pre_tokenizer;
  pre_tokenizer.add(std::move(step));
  PieceList list;
  pre_tokenizer.apply(std::move(text), &list);
  std::string out;
  for (const TextPiece& piece : list.pieces) {
    if (!out.empty()) out += '|';
    out += list.text.substr(piece.range.begin, piece.range.end - piece.range.begin);
  }
  return out;
}

std::string split(SplitBehavior behavior, bool invert = false) {
  return pieces({.kind = PreTokenizerStep::Kind::kText,
                 .pattern = "-",
                 .behavior = behavior,
                 .invert = invert},
                {.text = "the-final--countdown"});
}

TEST(PreTokenizer, Behaviors) {
  EXPECT_EQ(split(SplitBehavior::kRemoved), "the|final|countdown");
  EXPECT_EQ(split(SplitBehavior::kIsolated), "the|-|final|-|-|countdown");
  EXPECT_EQ(split(SplitBehavior::kMergedWithPrevious), "the-|final-|-|countdown");
  EXPECT_EQ(split(SplitBehavior::kMergedWithNext), "the|-final|-|-countdown");
  EXPECT_EQ(split(SplitBehavior::kContiguous), "the|-|final|--|countdown");
  EXPECT_EQ(split(SplitBehavior::kRemoved, true), "-|-|-");
}

TEST(PreTokenizer, MetaspacePrefix) {
  const auto metaspace = [](PrependScheme scheme, NormalizedText text) {
    return pieces({.kind = PreTokenizerStep::Kind::kMetaspace,
                   .pattern = "_",
                   .behavior = SplitBehavior::kMergedWithNext,
                   .prepend = scheme,
                   .cut = false},
                  std::move(text));
  };
  EXPECT_EQ(metaspace(PrependScheme::kAlways, {.text = "a b"}), "_a_b");
  EXPECT_EQ(metaspace(PrependScheme::kNever, {.text = "a b"}), "a_b");
  EXPECT_EQ(metaspace(PrependScheme::kFirst, {.text = "a b"}), "_a_b");
  EXPECT_EQ(metaspace(PrependScheme::kFirst, {.text = "a b", .from_start = false}), "a_b");
  EXPECT_EQ(metaspace(PrependScheme::kAlways, {.text = " a"}), "_a");
  EXPECT_EQ(metaspace(PrependScheme::kAlways, {.text = "a", .may_prefix = false}), "a");
}

}  // namespace
}  // namespace moraine
