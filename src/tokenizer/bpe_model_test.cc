// The fast ways of merging against merging by definition, on random vocabularies. Fails if the
// scan, the heap, the look-up of whole tokens or the cut before U+2581 changes one id.
#include "tokenizer/bpe_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/random.h"
#include "base/utf8.h"

namespace moraine {
namespace {

struct RandomBpe {
  TokenTable vocabulary;
  std::vector<BpeMerge> merges;
  std::vector<std::string> characters;
};

class Draw {
 public:
  explicit Draw(uint64_t seed) : seed_(seed) {}
  int64_t below(int64_t n) {
    return static_cast<int64_t>(random_below(n, seed_, Stream::kTest, 0, index_++));
  }

 private:
  uint64_t seed_, index_ = 0;
};

RandomBpe random_bpe(Draw* draw, int64_t merges) {
  RandomBpe bpe;
  bpe.characters = {"a", "b", "c", "\xE2\x96\x81", "é", "😀"};
  for (const std::string& c : bpe.characters) {
    bpe.vocabulary.insert(c, static_cast<int32_t>(bpe.vocabulary.count()));
  }
  while (static_cast<int64_t>(bpe.merges.size()) < merges) {
    const int64_t left = draw->below(bpe.vocabulary.count());
    const int64_t right = draw->below(bpe.vocabulary.count());
    const std::string joined =
        std::string(bpe.vocabulary.token(left)) + std::string(bpe.vocabulary.token(right));
    if (joined.size() > 24) continue;
    // Tokens that reach across U+2581 are rare, as in real vocabularies, so that cutting happens.
    const bool across = joined.find("\xE2\x96\x81", 1) != std::string::npos;
    if (across && draw->below(8) != 0) continue;
    bpe.vocabulary.insert(joined, static_cast<int32_t>(bpe.vocabulary.count()));
    bpe.merges.push_back(
        {static_cast<int32_t>(left), static_cast<int32_t>(right), bpe.vocabulary.find(joined)});
  }
  return bpe;
}

// The definition: the pair of lowest rank, leftmost first; of a repeated pair, the last rank.
std::vector<int32_t> merge_by_definition(const RandomBpe& bpe,
                                         const std::vector<int32_t>& symbols) {
  std::vector<int32_t> ids = symbols;
  const int64_t none = static_cast<int64_t>(bpe.merges.size());
  for (;;) {
    int64_t best = none;
    size_t place = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      for (int64_t rank = none - 1; rank >= 0; --rank) {
        if (bpe.merges[rank].left != ids[i] || bpe.merges[rank].right != ids[i + 1]) continue;
        if (rank < best) {
          best = rank;
          place = i;
        }
        break;
      }
    }
    if (best == none) return ids;
    ids[place] = bpe.merges[best].result;
    ids.erase(ids.begin() + static_cast<int64_t>(place) + 1);
  }
}

TEST(BpeModel, EqualsTheDefinition) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    Draw draw(seed);
    const RandomBpe bpe = random_bpe(&draw, 5 + draw.below(60));
    const BpeModel model({}, bpe.vocabulary, bpe.merges);
    for (int i = 0; i < 30; ++i) {
      const int64_t length = draw.below(i % 3 == 0 ? 150 : 12);  // heap and scan
      std::string text;
      std::vector<int32_t> symbols, ids;
      for (int64_t k = 0; k < length; ++k) {
        symbols.push_back(static_cast<int32_t>(draw.below(6)));
        text += bpe.characters[symbols.back()];
      }
      BpeModel::Scratch scratch;
      model.encode(text, &scratch, &ids);
      EXPECT_EQ(ids, merge_by_definition(bpe, symbols)) << text;
    }
  }
}

TEST(BpeModel, IgnoreMergesTakesAWholePiece) {
  RandomBpe bpe;
  for (const char* token : {"a", "b", "abb"}) {
    bpe.vocabulary.insert(token, static_cast<int32_t>(bpe.vocabulary.count()));
  }
  BpeModel::Scratch scratch;
  for (const bool ignore : {false, true}) {
    const BpeModel model({.ignore_merges = ignore}, bpe.vocabulary, {});
    std::vector<int32_t> ids;
    model.encode("abb", &scratch, &ids);
    EXPECT_EQ(ids, ignore ? std::vector<int32_t>{2} : (std::vector<int32_t>{0, 1, 1}));
  }
}

TEST(BpeModel, UnknownCharacters) {
  TokenTable vocabulary;
  for (const char* token : {"a", "<unk>", "<0xC3>", "<0xA9>"}) {
    vocabulary.insert(token, static_cast<int32_t>(vocabulary.count()));
  }
  const auto encode = [&](const BpeOptions& options, std::string_view text) {
    BpeModel::Scratch scratch;
    std::vector<int32_t> ids;
    BpeModel(options, vocabulary, {}).encode(text, &scratch, &ids);
    return ids;
  };
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(encode({}, "axxéa"), (Ids{0, 0}));
  EXPECT_EQ(encode({.unknown_id = 1}, "axxéa"), (Ids{0, 1, 1, 1, 0}));
  EXPECT_EQ(encode({.fuse_unknown = true, .unknown_id = 1}, "axxéa"), (Ids{0, 1, 0}));
  EXPECT_EQ(encode({.byte_fallback = true, .unknown_id = 1}, "aéa"), (Ids{0, 2, 3, 0}));
  // As the Hugging Face library: an unknown token waits until a known character.
  EXPECT_EQ(encode({.byte_fallback = true, .unknown_id = 1}, "xéa"), (Ids{2, 3, 1, 0}));
}

TEST(BpeModel, LongRunsAreNotQuadratic) {
  RandomBpe bpe;
  bpe.vocabulary.insert("a", 0);
  std::string token = "a";
  for (int32_t id = 1; id <= 6; ++id) {
    token += token;
    bpe.vocabulary.insert(token, id);
    bpe.merges.push_back({id - 1, id - 1, id});
  }
  const BpeModel model({}, bpe.vocabulary, bpe.merges);
  BpeModel::Scratch scratch;
  std::vector<int32_t> ids;
  model.encode(std::string(1 << 20, 'a'), &scratch, &ids);  // hours if quadratic
  EXPECT_EQ(ids, std::vector<int32_t>((1 << 20) / 64, 6));
}

}  // namespace
}  // namespace moraine
