// MaskMaker: the tokens that may come next, for each stack of a state by what its top frame is.
//
//   inside a string   masks by length (StringTokens), then the tokens that close it, by their tail,
//                     and the odd ones; of many that go on alike those of the widest bounds
//   in an automaton   the trie is walked with the automaton alone, which is shared (MaskCache); where it
//                     ends inside a token, the walk goes on with what is below. Many automata are
//                     walked together (grammar/joint_walk.h)
//   name of a member  as a string, less the tokens that spell a declared name
//   free text         all tokens, less those in which a call begins and goes wrong; of the special ones, those that
//                     are named for it
//   elsewhere         the trie is walked with the stacks; few bytes fit there
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "grammar/grammar.h"
#include "grammar/mask_cache.h"
#include "grammar/step.h"

namespace moraine {

class MaskMaker {
 public:
  MaskMaker(GrammarState* state, std::span<uint64_t> mask);
  void make();

 private:
  enum class Way { kString, kAutomaton, kKey, kFreeText, kWalk };
  Way way_of(const Frame& frame) const;
  void add_string(const StackStore::Entry& entry);
  void add_strings(const GrammarStep::Entries& entries);
  void add_automaton(const StackStore::Entry& entry);
  void add_automata(const GrammarStep::Entries& entries);
  void add_key(const StackStore::Entry& entry);
  void add_free_text(const StackStore::Entry& entry);
  void add_special_tokens();

  // Tokens of `trie` below `root` that fit `set`.
  void walk(const ByteTrie& trie, StackSet set, int32_t root);
  // Closing tokens whose characters are `least` to `most` and whose tail fits `set`.
  void add_closing(StackSet set, int64_t least, int64_t most);
  template <class F>
  void walk_each(const ByteTrie& trie, StackSet set, int32_t root, const F& each);
  void add_bodies(int64_t characters_most);
  void take_back_names(const ByteTrie& names, int32_t name, int32_t token);
  // Characters that a text must and may still have, as far as a token can matter.
  struct Length {
    int64_t least, most;
  };
  Length length_left(const Frame& frame) const;
  std::shared_ptr<const SharedMask> walked(const Frame& frame);
  StackSet one(const StackStore::Entry& entry);
  void set(int32_t id) { mask_[id >> 6] |= uint64_t{1} << (id & 63); }
  void clear(int32_t id) { mask_[id >> 6] &= ~(uint64_t{1} << (id & 63)); }

  struct PathPart {
    int32_t end;
    StackSet set;
  };
  GrammarState& state_;
  const TokenTrie& tokens_;
  const GrammarNodes& grammar_;
  StackStore& stacks_;
  GrammarStep step_;
  std::span<uint64_t> mask_;
  std::vector<StackSet> held_;  // still needed: what is tidied away must not be in use
  std::vector<PathPart> path_;
};

}  // namespace moraine
