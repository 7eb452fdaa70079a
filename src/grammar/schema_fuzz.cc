// Fuzz: a JSON Schema on the first line, then an answer; masks and acceptance agree, and nothing is a dead end.
#include <algorithm>
#include <cstdlib>

#include "base/json_quote.h"
#include "grammar/grammar.h"
#include "testing/fuzz.h"

namespace moraine {
namespace {

// Bytes as tokens, and a few longer ones that cross what a grammar keeps apart.
std::unique_ptr<Tokenizer> small_tokenizer() {
  Json vocabulary = Json::object();
  const auto add = [&](const std::string& token) { vocabulary[token] = vocabulary.size(); };
  for (int byte = 0; byte < 256; ++byte) {
    constexpr char kDigits[] = "0123456789ABCDEF";
    add(std::string("<0x") + kDigits[byte / 16] + kDigits[byte % 16] + ">");
  }
  for (const char* token : {"\"a", "a\"", "\",", "\": ", "\":\"", "{\"", "[1", "1,", "]}", "\\u00",
                            "\\\"", "ab", "tru", "null}", "\n  ", "aa\", \"b\": "}) {
    add(token);
  }
  const Json file = {{"model",
                      {{"type", "BPE"},
                       {"byte_fallback", true},
                       {"unk_token", nullptr},
                       {"vocab", vocabulary},
                       {"merges", Json::array()}}},
                     {"decoder", {{"type", "ByteFallback"}}}};
  return Tokenizer::parse(json_text(file), "fuzz");
}

void follow(const std::shared_ptr<const Grammar>& grammar, const TokenTrie& trie,
            std::string_view answer) {
  GrammarState state(grammar, trie);
  std::vector<uint64_t> mask(trie.mask_words());
  for (size_t i = 0; i < std::min<size_t>(answer.size(), 64); ++i) {
    state.allowed(mask);
    const bool none =
        std::all_of(mask.begin(), mask.end(), [](uint64_t word) { return word == 0; });
    if (none != state.must_end()) std::abort();
    for (int32_t id = 0; i % 8 == 0 && id < trie.vocab_size(); ++id) {
      GrammarState tried = state;
      if (tried.accept(id) != ((mask[id >> 6] >> (id & 63)) & 1)) std::abort();
    }
    const bool allowed = state.accept_bytes(answer.substr(i, 1));
    if (!allowed) break;
  }
}

}  // namespace

void fuzz_one(std::string_view input) {
  static const std::unique_ptr<Tokenizer> tokenizer = small_tokenizer();
  static const TokenTrie trie(*tokenizer, tokenizer->vocabulary_size());
  const size_t line = std::min(input.find('\n'), input.size());
  testing::parses_or_throws_error([&] {
    const Json schema = parse_json(std::string(input.substr(0, line)), "fuzz");
    const std::string_view answer = input.substr(std::min(line + 1, input.size()));
    GrammarLimits limits;
    limits.schema_bytes = 8192;
    limits.automaton_states = 1024;
    limits.nodes = 2048;
    follow(Grammar::of_schema(schema, /*strict=*/answer.size() % 2 == 1, limits), trie, answer);
  });
}

}  // namespace moraine
