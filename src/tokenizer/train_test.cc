// Training against training by definition; the file that it makes. Fails if a count is wrong after
// a merge, ties fall another way, threads change anything, or a byte string does not survive.
#include "tokenizer/train.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "base/random.h"
#include "base/utf8.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/word_counts.h"

namespace moraine {
namespace {

std::string train(const std::vector<std::string>& texts, const BpeTrainOptions& options,
                  int threads = 1) {
  Pool pool(threads);
  size_t next = 0;
  const auto give = [&](std::string* text) {
    if (next == texts.size()) return false;
    *text = texts[next++];
    return true;
  };
  return train_bpe(give, options, pool, [](const BpeTrainProgress&) {});
}

std::vector<std::string> merges_of(const std::string& json) {
  return parse_json(json, "trained")["model"]["merges"].get<std::vector<std::string>>();
}

std::string random_text(uint64_t seed, int64_t length, std::string_view letters) {
  std::string text;
  for (int64_t i = 0; i < length; ++i) {
    text += letters[random_below(letters.size(), seed, Stream::kTest, 1, i)];
  }
  return text;
}

// Counts all pairs of all words again for every merge.
std::vector<std::string> merges_by_definition(const std::map<std::string, int64_t>& words,
                                              int64_t merges, int64_t min_frequency) {
  std::vector<std::string> texts = {"<|endoftext|>"}, out;
  std::vector<int32_t> characters;
  for (int byte = 0; byte < 256; ++byte) {
    characters.push_back(character_of_byte(static_cast<uint8_t>(byte)));
  }
  std::sort(characters.begin(), characters.end());
  for (const int32_t c : characters) append_utf8(c, &texts.emplace_back());
  std::vector<std::pair<std::vector<int32_t>, int64_t>> symbols;
  for (const auto& [word, count] : words) {
    std::vector<int32_t> ids;
    for (char byte : word) {
      std::string character;
      append_byte_characters(std::string_view(&byte, 1), &character);
      ids.push_back(
          static_cast<int32_t>(std::find(texts.begin(), texts.end(), character) - texts.begin()));
    }
    symbols.emplace_back(ids, count);
  }
  while (static_cast<int64_t>(out.size()) < merges) {
    std::map<std::pair<int32_t, int32_t>, int64_t> counts;
    for (const auto& [ids, count] : symbols) {
      for (size_t i = 0; i + 1 < ids.size(); ++i) counts[{ids[i], ids[i + 1]}] += count;
    }
    std::pair<int32_t, int32_t> best;
    int64_t most = 0;
    for (const auto& [pair, count] : counts) {
      if (count > most) most = count, best = pair;  // the map is in order: ties to the smaller ids
    }
    if (most < min_frequency) break;
    const std::string text = texts[best.first] + texts[best.second];
    out.push_back(texts[best.first] + " " + texts[best.second]);
    auto id = std::find(texts.begin(), texts.end(), text);
    if (id == texts.end()) id = texts.insert(texts.end(), text);
    for (auto& [ids, count] : symbols) {
      std::vector<int32_t> merged;
      for (size_t i = 0; i < ids.size(); ++i) {
        if (i + 1 < ids.size() && ids[i] == best.first && ids[i + 1] == best.second) {
          merged.push_back(static_cast<int32_t>(id - texts.begin()));
          ++i;
        } else {
          merged.push_back(ids[i]);
        }
      }
      ids = merged;
    }
  }
  return out;
}

TEST(Train, EqualsTheDefinition) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    std::map<std::string, int64_t> words;
    std::vector<std::string> texts;
    for (uint64_t i = 0; i < 60; ++i) {
      const std::string word =
          random_text(seed * 1000 + i, 1 + static_cast<int64_t>(i % 9), seed % 2 ? "ab" : "abcde");
      const int64_t count = 1 + static_cast<int64_t>(i * i % 7);
      words[word] += count;
      for (int64_t k = 0; k < count; ++k) texts.push_back(word);
    }
    BpeTrainOptions options;
    options.vocab_size = 257 + 40;
    const std::vector<std::string> merges = merges_of(train(texts, options));
    const auto wanted =
        merges_by_definition(words, static_cast<int64_t>(merges.size()), options.min_frequency);
    EXPECT_EQ(merges, wanted);
    EXPECT_GT(merges.size(), 20u);
  }
}

// Words of several sections, of which some lose all their symbols to the one before.
TEST(Train, LongWordsEqualTheDefinition) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE(seed);
    std::vector<std::string> texts = {random_text(seed, 5000 + static_cast<int64_t>(seed), "ab"),
                                      random_text(seed + 10, 2300, "abc"),
                                      random_text(seed, 1024, "ab"),
                                      random_text(seed + 20, 1025, "ab")};
    if (seed % 2 == 0)
      texts.push_back(std::string(4097 + seed, 'a') + "b" + std::string(3000, 'a'));
    if (seed == 5) texts = {std::string(10'000, 'a')};
    std::map<std::string, int64_t> words;
    for (const std::string& text : texts) ++words[text];
    BpeTrainOptions options;
    options.vocab_size = 257 + 60;
    const std::vector<std::string> merges = merges_of(train(texts, options));
    EXPECT_EQ(merges, merges_by_definition(words, 60, options.min_frequency));
    EXPECT_GT(merges.size(), 10u);
  }
}

TEST(Train, ThreadsChangeNothing) {
  std::vector<std::string> texts;
  for (uint64_t i = 0; i < 40; ++i) texts.push_back(random_text(i, 60'000, "abcdefgh  .\n"));
  BpeTrainOptions options;
  options.vocab_size = 600;
  const std::string one = train(texts, options, 1);
  EXPECT_EQ(one, train(texts, options, 2));
  EXPECT_EQ(one, train(texts, options, 5));
}

TEST(Train, TheFileLoadsAndKeepsEveryByte) {
  BpeTrainOptions options;
  options.vocab_size = 400;
  options.special_tokens = {"<|endoftext|>", "<|user|>"};
  const std::string json =
      train({random_text(1, 20'000, "the quick brown fox\n0123é"), "a<|user|>b"}, options);
  const auto tokenizer = Tokenizer::parse(json, "trained");
  EXPECT_EQ(tokenizer->vocabulary_size(), 400);
  EXPECT_EQ(tokenizer->id_of("<|endoftext|>"), 0);
  EXPECT_EQ(tokenizer->eos_id(), 0);
  EXPECT_EQ(tokenizer->bos_id(), -1);
  EXPECT_EQ(tokenizer->encode("<|user|>", true), std::vector<int32_t>{1});
  EXPECT_EQ(tokenizer->json(), json);
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const std::string text =
        random_text(seed, static_cast<int64_t>(seed), all + "aaaa    \xC3\xA9");
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, true), false), text) << seed;
  }
}

TEST(Train, SpecialTokensTeachNothing) {
  BpeTrainOptions options;
  options.vocab_size = 300;
  const std::string json = train({"<|endoftext|><|endoftext|><|endoftext|>", "endoftext"}, options);
  EXPECT_TRUE(merges_of(json).empty());
}

TEST(Train, StopsAtMinFrequency) {
  BpeTrainOptions options;
  options.vocab_size = 300;
  options.min_frequency = 3;
  EXPECT_TRUE(merges_of(train({"ab ab"}, options)).empty());
  EXPECT_EQ(merges_of(train({"xab yab zab"}, options)), std::vector<std::string>{"a b"});
  EXPECT_TRUE(merges_of(train({}, options)).empty());
}

TEST(Train, RefusesByName) {
  BpeTrainOptions options;
  options.vocab_size = 256;
  EXPECT_THROW(train({"a"}, options), Error);
  options.vocab_size = 257;
  EXPECT_NO_THROW(train({"a"}, options));
  options.vocab_size = 1000;
  for (const std::vector<std::string>& bad :
       {std::vector<std::string>{""}, {"\xff"}, {"a"}, {"<x>", "<x>"}}) {
    options.special_tokens = bad;
    EXPECT_THROW(train({"a"}, options), Error);
  }
  options.special_tokens = {};
  options.pattern = "(";
  EXPECT_THROW(train({"a"}, options), Error);
  options.pattern = "(?:a+)+[bc]";  // gives up inside a thread of the pool
  EXPECT_THROW(train({std::string(60, 'a')}, options, 2), Error);
}

TEST(WordCounts, ForgetsTheRarest) {
  WordCounts counts;
  counts.add("once", 1);
  counts.add("twice", 2);
  counts.add("often", 9);
  counts.forget_rare(2);
  ASSERT_EQ(counts.size(), 2);
  EXPECT_EQ(counts.word(0), "twice");
  counts.add("often", 1);
  EXPECT_EQ(counts.count(1), 10);
}

}  // namespace
}  // namespace moraine
