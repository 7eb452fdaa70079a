// Grammar: which tokens may come next in an answer that must be JSON of a schema or calls of tools.
//
//   GrammarState state(Grammar::of_schema(schema), trie);
//   loop: state.allowed(mask); also the end-of-text ids if state.may_end(); sample;
//         state.accept(token), or stop at an end
//
// What of JSON Schema is taken, what is refused and how answers are spaced:
// docs/structured_output.md. Every state can be completed: a mask is never empty unless must_end().
//
// Errors:  of_schema, of_tool_calls: kInvalidArgument naming the keyword, its place and the limit.
// Cost:    accept: some hundred ns for each byte of a token. allowed: see GrammarState::allowed.
// Threads: a Grammar is immutable and shared. A GrammarState belongs to one answer; copies are
//          independent. The TokenTrie must outlive the state.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "grammar/limits.h"
#include "grammar/stacks.h"
#include "grammar/token_trie.h"

namespace moraine {

struct GrammarNodes;
class MaskCache;  // grammar/mask_cache.h

// How calls of tools are written, and which:
//   open  begin NAME between ARGUMENTS end  (separator begin NAME between ARGUMENTS end)*  close
struct ToolGrammar {
  struct Tool {
    std::string name;
    Json parameters;      // a schema; null or absent: an object without members
    bool strict = false;  // as of_schema
  };
  enum class Choice {
    kAuto,      // free text; once it holds `trigger`, the rest of a call; then free text again
    kRequired,  // nothing but calls, at least one
    kNamed,     // the same, of the tool `name`
  };
  std::vector<Tool> tools;
  Choice choice = Choice::kAuto;
  std::string name{};    // kNamed
  bool parallel = true;  // false: at most one call, and nothing after it

  std::string open{};       // Mistral: [TOOL_CALLS][
  std::string begin{};      // <tool_call>\n{"name": "
  std::string between{};    // ", "arguments":
  std::string end{};        // }\n</tool_call>
  std::string separator{};  // \n
  std::string close{};      // Mistral: ]
  // ARGUMENTS are parameters between tags (grammar/tagged_parameters.h) and not JSON; so is NAME then bare.
  bool tagged = false;
  // How `open` + `begin` starts, long enough that text does not hold it by chance: <tool_call>.
  // Empty: all of it.
  std::string trigger{};

  // kAuto: a schema, of which the answer is a value if it is no calls; there is no free text then. null: none.
  Json answer = nullptr;
  bool answer_strict = false;  // as of_schema
};

class Grammar {
 public:
  // Any JSON object: response_format json_object.
  static std::shared_ptr<const Grammar> any_json();
  // `strict`: oneOf is refused where a value might satisfy two of its alternatives; else it is read as anyOf there.
  static std::shared_ptr<const Grammar> of_schema(const Json& schema, bool strict = false,
                                                  const GrammarLimits& limits = {});
  static std::shared_ptr<const Grammar> of_tool_calls(const ToolGrammar& tools,
                                                      const GrammarLimits& limits = {});
  ~Grammar();
  const GrammarNodes& nodes() const { return *nodes_; }
  int64_t bytes() const;  // of memory, about

 private:
  explicit Grammar(std::unique_ptr<const GrammarNodes> nodes);
  std::unique_ptr<const GrammarNodes> nodes_;
};

// A grammar, and where its answers keep the masks that they share (grammar/grammar_cache.h). All grammars that share
// `masks` are of one TokenTrie and have different numbers.
struct SharedGrammar {
  std::shared_ptr<const Grammar> grammar;
  std::shared_ptr<MaskCache> masks;
  int64_t number = 0;
};

class GrammarState {
 public:
  GrammarState(SharedGrammar grammar, const TokenTrie& trie);
  // With masks of its own.
  GrammarState(std::shared_ptr<const Grammar> grammar, const TokenTrie& trie);

  // Sets mask [trie.mask_words()] to the tokens that may come next, bit id % 64 of word id / 64.
  // End-of-text bits are the caller's, who asks may_end(). Not const: it keeps what it learns.
  // Cost: a copy where an answer of the same schema was at the same place before. Else inside a
  //       string a few masks are combined and the tokens with its end or an escape are walked;
  //       elsewhere the part of the trie that fits is walked.
  void allowed(std::span<uint64_t> mask);
  bool may_end() const;
  bool must_end() const;       // nothing but the end may follow
  bool accept(int32_t token);  // false: not allowed, and the state is as before
  // Bytes that came without a token (an assistant prefix, say). As accept.
  bool accept_bytes(std::string_view bytes);

 private:
  friend class MaskMaker;

  // A mask that was made, with the stacks it was made for; counts that no token can bring to a
  // bound are left out of them, so that it holds for the next token of the same string.
  struct RecentMask {
    std::vector<StackStore::Entry> stacks;
    std::vector<uint64_t> mask;
  };
  StackSet after(int32_t token);
  StackSet after_free(int32_t token);
  std::vector<StackStore::Entry> recent_key() const;
  void remember(std::vector<StackStore::Entry> key, std::span<const uint64_t> mask);
  bool write_place(StackSet set, std::string* place) const;
  Frame shared_frame(Frame frame) const;
  void tidy();  // drops what neither the state nor a recent mask leads to, if it is much

  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<MaskCache> masks_;
  int64_t number_;
  const TokenTrie* trie_;
  StackStore stacks_;
  StackSet now_;
  std::vector<int32_t> holding_trigger_;  // tokens with the whole trigger of kAuto in them
  std::vector<RecentMask> recent_;
};

}  // namespace moraine
