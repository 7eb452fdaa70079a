// Fails if automata that are walked together take another token than each alone, end elsewhere, or forget where they
// are when the sets get many; or if a mask of many alternatives differs in a bit from what is accepted.
#include "grammar/joint_walk.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "base/random.h"
#include "grammar/nodes.h"
#include "grammar/test_grammar.h"

namespace moraine {
namespace {

const TokenTrie& joint_trie() {
  static const std::unique_ptr<Tokenizer> tokenizer = testing::json_tokenizer(700);
  static const TokenTrie trie(*tokenizer, 700);
  return trie;
}

// Patterns that part ways soon, late and never, numbers that may end anywhere, and each with another end behind it.
Json schemas_of_automata() {
  Json choices = Json::array();
  for (int i = 0; i < 12; ++i) {
    const Json text = {{"type", "string"},
                       {"pattern", fmt::format("^[^{}]{{{},30}}$", "abdeginorst"[i % 11], i % 3)}},
               number = {{"type", i % 2 == 0 ? "integer" : "number"},
                         {"minimum", 7 * i - 30},
                         {"maximum", 11 * i + 3}};
    choices.push_back(text);
    choices.push_back(number);
    choices.push_back(
        {{"type", "array"}, {"items", i % 2 == 0 ? text : number}, {"maxItems", 1 + i % 3}});
  }
  return {{"anyOf", choices}};
}

TEST(JointWalk, FindsWhatEachAutomatonTakes) {
  const std::shared_ptr<const Grammar> grammar = Grammar::of_schema(schemas_of_automata());
  const ByteTrie& trie = joint_trie().trie();
  std::vector<JointStart> starts;
  std::vector<uint64_t> each(joint_trie().mask_words());
  std::set<std::pair<int32_t, int32_t>> ends_of_each;
  for (const Automaton& automaton : grammar->nodes().automata) {
    const int32_t group = static_cast<int32_t>(starts.size() % 5);
    starts.push_back({.automaton = &automaton, .state = 0, .group = group});
    for (const auto& [node, groups] : walk_jointly(trie, {starts.back()}, each).ends)
      ends_of_each.emplace(node, group);
  }
  EXPECT_GT(ends_of_each.size(), 10u);
  for (const int64_t sets_most : {1, 3, 4096}) {
    std::vector<uint64_t> mask(each.size());
    const JointEnds found = walk_jointly(trie, starts, mask, {.sets = sets_most});
    std::set<std::pair<int32_t, int32_t>> ends;
    for (const auto& [node, groups] : found.ends) {
      for (const int32_t group : found.groups[groups]) ends.emplace(node, group);
    }
    EXPECT_EQ(mask, each);
    EXPECT_EQ(ends, ends_of_each);
  }
}

// Then a mask has less, and never nothing.
TEST(JointWalk, GoesOnWithTheFirstAfterManySteps) {
  const std::shared_ptr<const Grammar> grammar = Grammar::of_schema(schemas_of_automata());
  const ByteTrie& trie = joint_trie().trie();
  std::vector<JointStart> starts;
  for (const Automaton& automaton : grammar->nodes().automata)
    starts.push_back({.automaton = &automaton, .state = 0, .group = 0});
  std::vector<uint64_t> all(joint_trie().mask_words()), first(all.size());
  walk_jointly(trie, starts, all);
  walk_jointly(trie, {starts[0]}, first);
  for (const int64_t steps : {0, 1, 100, 1000}) {
    std::vector<uint64_t> mask(all.size());
    walk_jointly(trie, starts, mask, {.steps = steps});
    for (size_t word = 0; word < all.size(); ++word) {
      EXPECT_EQ(mask[word] & ~all[word], 0u) << steps;
      EXPECT_EQ(first[word] & ~mask[word], 0u) << steps;
    }
  }
}

// A walk of random tokens through masks, each of whose bits is compared.
void walk_exactly(const std::shared_ptr<const Grammar>& grammar, uint64_t seed) {
  GrammarState state(grammar, joint_trie());
  std::vector<uint64_t> mask(joint_trie().mask_words());
  for (uint64_t step = 0; step < 20 && !state.must_end(); ++step) {
    state.allowed(mask);
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < joint_trie().vocab_size(); ++id) {
      GrammarState tried = state;
      ASSERT_EQ(tried.accept(id), testing::is_set(mask, id)) << "seed " << seed << " " << id;
      if (testing::is_set(mask, id)) ids.push_back(id);
    }
    ASSERT_FALSE(ids.empty());
    ASSERT_TRUE(state.accept(ids[random_below(ids.size(), seed, Stream::kTest, 6, step)]));
  }
}

TEST(JointWalk, MasksAreExact) {
  const std::shared_ptr<const Grammar> grammar = Grammar::of_schema(schemas_of_automata());
  for (uint64_t seed = 0; seed < 24 && !HasFatalFailure(); ++seed) walk_exactly(grammar, seed);
}

// Bounds within each other, side by side and apart, with the same and with another end behind them.
TEST(JointWalk, MasksOfManyStringsAreExact) {
  Json choices = Json::array();
  for (int i = 0; i < 14; ++i) {
    const Json text = {
        {"type", "string"}, {"minLength", i * 5 % 13}, {"maxLength", 3 + i * 7 % 17}};
    choices.push_back(text);
    choices.push_back({{"type", "array"}, {"items", text}, {"maxItems", 1 + i % 3}});
  }
  const std::shared_ptr<const Grammar> grammar = Grammar::of_schema({{"anyOf", choices}});
  for (uint64_t seed = 0; seed < 24 && !HasFatalFailure(); ++seed) walk_exactly(grammar, seed);
}

}  // namespace
}  // namespace moraine
