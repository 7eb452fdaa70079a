// Merges round by round, then everything written as JSON.
#include "tokenizer/train.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/token_table.h"
#include "tokenizer/word_counts.h"
#include "tokenizer/word_merger.h"

namespace moraine {

const char* const kTrainPattern =
    "(?i:['’](?:s|t|re|ve|m|ll|d)(?!\\p{L}))| ?\\p{L}[\\p{L}\\p{M}]*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+|"
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

namespace {

constexpr int64_t kBytes = 256;
constexpr int64_t kProgressEvery = 256;  // merges

// The tokens so far, in order of id, written in the byte alphabet.
struct Vocabulary {
  std::vector<std::string> texts;
  TokenTable ids;
  int32_t byte_ids[kBytes];

  int32_t add(const std::string& text) {
    const int32_t there = ids.find(text);
    if (there >= 0) return there;
    const int32_t id = static_cast<int32_t>(texts.size());
    ids.insert(text, id);
    texts.push_back(text);
    return id;
  }
};

void check_options(const BpeTrainOptions& options) {
  const int64_t least = static_cast<int64_t>(options.special_tokens.size()) + kBytes;
  if (options.vocab_size < least || options.vocab_size > INT32_MAX) {
    throw_error(Code::kInvalidArgument,
                "train tokenizer: the vocabulary size is {}, wanted at least {}: {} special tokens "
                "and 256 bytes",
                options.vocab_size, least, options.special_tokens.size());
  }
  for (const std::string& token : options.special_tokens) {
    std::string bytes;
    if (token.empty() || valid_utf8_prefix(token) != static_cast<int64_t>(token.size())) {
      throw_error(Code::kInvalidArgument, "train tokenizer: a special token is empty or not UTF-8");
    }
    if (append_character_bytes(token, &bytes) && bytes.size() == 1) {
      throw_error(Code::kInvalidArgument,
                  "train tokenizer: the special token «{}» is the token of a byte; choose a longer "
                  "one",
                  token);
    }
    if (std::count(options.special_tokens.begin(), options.special_tokens.end(), token) > 1) {
      throw_error(Code::kInvalidArgument, "train tokenizer: the special token «{}» is there twice",
                  token);
    }
  }
}

Vocabulary first_tokens(const BpeTrainOptions& options) {
  Vocabulary vocabulary;
  for (const std::string& token : options.special_tokens) vocabulary.add(token);
  std::vector<int32_t> characters;
  for (int byte = 0; byte < kBytes; ++byte) {
    characters.push_back(character_of_byte(static_cast<uint8_t>(byte)));
  }
  std::sort(characters.begin(), characters.end());
  for (const int32_t character : characters) {
    std::string text;
    append_utf8(character, &text);
    vocabulary.byte_ids[byte_of_character(character)] = vocabulary.add(text);
  }
  return vocabulary;
}

Json added_token(const std::string& content, int32_t id) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

std::string to_json(const Vocabulary& vocabulary, const Json& merges,
                    const BpeTrainOptions& options) {
  Json added = Json::array();
  for (const std::string& token : options.special_tokens) {
    added.push_back(added_token(token, vocabulary.ids.find(token)));
  }
  Json ids = Json::object();
  for (size_t i = 0; i < vocabulary.texts.size(); ++i) ids[vocabulary.texts[i]] = i;
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", options.pattern}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  const auto byte_level = [](bool prefix_space, bool regex) {
    return Json{{"type", "ByteLevel"},
                {"add_prefix_space", prefix_space},
                {"trim_offsets", true},
                {"use_regex", regex}};
  };
  const Json root = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer", nullptr},
      {"pre_tokenizer",
       {{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level(false, false)})}}},
      {"post_processor", nullptr},
      {"decoder", byte_level(true, true)},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", false},
        {"vocab", ids},
        {"merges", merges}}}};
  return json_text(root, 2) + "\n";
}

}  // namespace

std::string train_bpe(const std::function<bool(std::string* text)>& next,
                      const BpeTrainOptions& options, Pool& pool,
                      const std::function<void(const BpeTrainProgress&)>& progress) {
  check_options(options);
  PreTokenizer pre_tokenizer;
  PreTokenizerStep split{.kind = PreTokenizerStep::Kind::kRegex};
  split.regex = std::make_unique<Regex>(options.pattern, "train tokenizer");
  pre_tokenizer.add(std::move(split));
  std::vector<std::pair<std::string, int32_t>> specials;
  for (const std::string& token : options.special_tokens) specials.emplace_back(token, 0);
  Trie special_tokens;
  special_tokens.build(std::move(specials));

  const auto counted = [&](int64_t bytes) { progress({true, bytes, 0}); };
  const WordCounts counts = count_words(next, {pre_tokenizer, special_tokens}, pool, counted);

  Vocabulary vocabulary = first_tokens(options);
  WordMerger merger(counts, vocabulary.byte_ids);
  Json merges = Json::array();
  CountedPair pair;
  const auto size = [&] { return static_cast<int64_t>(vocabulary.texts.size()); };
  while (size() < options.vocab_size && merger.most_frequent(&pair)) {
    if (pair.count < options.min_frequency) break;
    const std::string& left = vocabulary.texts[pair.left];
    const std::string& right = vocabulary.texts[pair.right];
    merges.push_back(left + " " + right);
    merger.merge(&pair, vocabulary.add(left + right));
    if (merges.size() % kProgressEvery == 0) progress({false, size(), options.vocab_size});
  }
  progress({false, size(), options.vocab_size});
  return to_json(vocabulary, merges, options);
}

}  // namespace moraine
