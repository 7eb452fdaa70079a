// Fails if a mask that answers share differs in a bit from one that is made alone, in whatever order or by however many
// threads they are made, if a cache holds more than it may, or if it drops what was used last.
#include "grammar/grammar_cache.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"
#include "base/random.h"
#include "grammar/test_grammar.h"

namespace moraine {
namespace {

const TokenTrie& trie() {
  static const std::unique_ptr<Tokenizer> tokenizer = testing::json_tokenizer(500);
  static const TokenTrie made(*tokenizer, 503);
  return made;
}

// Bounds near and far, counts in arrays and strings, patterns, alternatives, any value.
const char* const kSharedSchemas[] = {
    R"({"type":"object","properties":{"a":{"type":"string","minLength":2,"maxLength":90},"b":{"type":"array","items":{"type":"integer","minimum":0},"minItems":1,"maxItems":200}},"required":["a","b"],"additionalProperties":false})",
    R"({"type":"array","maxItems":4,"prefixItems":[{"const":"x"}],"items":{"anyOf":[{"type":"string","pattern":"^(\\w| ){0,40}$"},{"type":"string","maxLength":5},{"type":"null"}]}})",
    R"({"type":"object","properties":{"name":{},"day":{"type":"string","format":"date"}},"required":["name"]})"};

// A walk of random tokens; every mask is compared with one of a state that shares with nobody.
void walk(GrammarCache& cache, const char* text, uint64_t seed) {
  const Json schema = parse_json(text, "test");
  GrammarState shared(cache.of_schema(schema), trie());
  const std::shared_ptr<const Grammar> grammar = Grammar::of_schema(schema);
  std::vector<uint64_t> mask(trie().mask_words()), alone(trie().mask_words());
  std::vector<int32_t> tokens;
  for (uint64_t step = 0; step < 60 && !shared.must_end(); ++step) {
    shared.allowed(mask);
    GrammarState fresh(grammar, trie());
    for (const int32_t token : tokens) ASSERT_TRUE(fresh.accept(token));
    fresh.allowed(alone);
    ASSERT_EQ(mask, alone) << text << " seed " << seed << " step " << step;
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < trie().vocab_size(); ++id) {
      if (testing::is_set(mask, id)) ids.push_back(id);
    }
    ASSERT_FALSE(ids.empty());
    tokens.push_back(ids[random_below(ids.size(), seed, Stream::kTest, 1, step)]);
    ASSERT_TRUE(shared.accept(tokens.back()));
  }
}

TEST(GrammarCache, SharedMasksAreThoseMadeAlone) {
  GrammarCache cache({});
  for (uint64_t seed = 0; seed < 12; ++seed) {
    for (const char* text : kSharedSchemas) walk(cache, text, seed);
  }
  EXPECT_EQ(cache.stats().compiled, 3);
  EXPECT_EQ(cache.stats().found, 3 * 11);
  EXPECT_GT(cache.mask_stats().found, 50);
}

TEST(GrammarCache, TinyCachesAndManyThreadsChangeNoMask) {
  GrammarCache cache({.grammars = 6000, .masks = 1500});
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 4; ++i) {
    threads.emplace_back([&cache, i] {
      for (uint64_t seed = 0; seed < 3; ++seed)
        walk(cache, kSharedSchemas[(i + seed) % 3], 10 * i + seed);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(cache.mask_stats().bytes, 1500);
  EXPECT_LE(cache.stats().bytes, 6000);
}

TEST(GrammarCache, GrammarsAreKnownByTheirTextAndBounded) {
  const auto schema = [](int i) {
    return Json{{"type", "string"}, {"maxLength", 10 + i}, {"pattern", "^[a-z]*$"}};
  };
  const int64_t each = Grammar::of_schema(schema(0))->bytes();
  GrammarCache cache({.grammars = 4 * each});
  const SharedGrammar first = cache.of_schema(schema(0));
  EXPECT_EQ(cache.of_schema(schema(0)).grammar, first.grammar);
  EXPECT_EQ(cache.of_schema(schema(0)).number, first.number);
  const SharedGrammar other =
      cache.of_schema({{"maxLength", 10}, {"type", "string"}, {"pattern", "^[a-z]*$"}});
  EXPECT_NE(other.number, first.number) << "members in another order";
  for (int i = 1; i < 20; ++i) {
    cache.of_schema(schema(i));
    EXPECT_EQ(cache.of_schema(schema(0)).number, first.number) << "used all the time";
    EXPECT_LE(cache.stats().bytes, 4 * each);
  }
  EXPECT_NE(
      cache.of_schema({{"maxLength", 10}, {"type", "string"}, {"pattern", "^[a-z]*$"}}).number,
      other.number)
      << "dropped long ago, so its masks are too";
  EXPECT_GE(cache.stats().grammars, 2);
  const int64_t compiled = cache.stats().compiled;
  EXPECT_THROW(cache.of_schema({{"not", Json::object()}}), Error);
  EXPECT_THROW(cache.of_schema({{"not", Json::object()}}), Error) << "and is not kept";
  EXPECT_EQ(cache.stats().compiled, compiled + 2);
  // What tells tools apart.
  ToolGrammar tools{.tools = {{.name = "f", .parameters = nullptr}},
                    .begin = "<call>",
                    .between = ":",
                    .trigger = "<call>"};
  const int64_t number = cache.of_tool_calls(tools).number;
  EXPECT_EQ(cache.of_tool_calls(tools).number, number);
  tools.parallel = false;
  EXPECT_NE(cache.of_tool_calls(tools).number, number);
}

TEST(MaskCache, HoldsWhatItMayAndDropsWhatWasUsedLongestAgo) {
  const auto mask = [](size_t words) {
    auto made = std::make_shared<SharedMask>();
    made->mask.assign(words, 1);
    return made;
  };
  MaskCache one(1 << 20);
  one.add("a", mask(100));
  const int64_t each = one.stats().bytes;
  EXPECT_GT(each, 800);
  MaskCache cache(3 * each);
  for (const char* key : {"a", "b", "c"}) cache.add(key, mask(100));
  EXPECT_EQ(cache.stats().masks, 3);
  EXPECT_NE(cache.find("a"), nullptr);
  cache.add("d", mask(100));
  EXPECT_EQ(cache.find("b"), nullptr) << "used longest ago";
  for (const char* key : {"a", "c", "d"}) EXPECT_NE(cache.find(key), nullptr) << key;
  MaskCache small(each - 1);
  small.add("a", mask(100));
  EXPECT_EQ(small.stats().masks, 0) << "one byte too large";
  EXPECT_EQ(small.stats().bytes, 0);
}

}  // namespace
}  // namespace moraine
