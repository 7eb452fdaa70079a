// TokenFilter: which tokens may come next in one answer.
//
// The engine asks before it draws, and tells what was drawn. Grammars of JSON schemas and tool calls are behind
// it (grammar/grammar.h); the engine knows none of them.
// Threads: one at a time; `allowed` runs beside the forward pass, on another thread than `accept`.
#pragma once

#include <cstdint>
#include <span>

namespace moraine {

class TokenFilter {
 public:
  virtual ~TokenFilter() = default;
  // Sets bit i of `mask` ([ceil(V / 64)] words, zero before) if token i may come next.
  virtual void allowed(std::span<uint64_t> mask) = 0;
  virtual bool may_end() const = 0;   // the answer may end here
  virtual bool must_end() const = 0;  // and nothing else may follow
  virtual void accept(int32_t token) = 0;
};

}  // namespace moraine
