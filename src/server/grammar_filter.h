// GrammarFilter: a grammar as the engine asks for it, token by token.
#pragma once

#include <memory>

#include "grammar/grammar.h"
#include "infer/token_filter.h"

namespace moraine {

class GrammarFilter final : public TokenFilter {
 public:
  GrammarFilter(SharedGrammar grammar, std::shared_ptr<const TokenTrie> trie)
      : trie_(std::move(trie)), state_(std::move(grammar), *trie_) {}
  void allowed(std::span<uint64_t> mask) override { state_.allowed(mask); }
  bool may_end() const override { return state_.may_end(); }
  bool must_end() const override { return state_.must_end(); }
  void accept(int32_t token) override { state_.accept(token); }

 private:
  const std::shared_ptr<const TokenTrie> trie_;
  GrammarState state_;
};

}  // namespace moraine
