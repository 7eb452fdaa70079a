// Reading a tokenizer.json: the vocabulary, the merges, the added tokens, and the checks that join
// them.
#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/json_document.h"
#include "base/utf8.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/components.h"
#include "tokenizer/parts.h"

namespace moraine {
namespace {

constexpr int64_t kIdMost = int64_t{1} << 22;  // sixteen times the largest published vocabulary

void set_token(int64_t id, std::string_view text, const JsonValue& view, TokenizerParts* parts) {
  if (id < 0 || id > kIdMost) {
    throw_error(Code::kCorrupt, "read {}: the id {} of «{}» is not in [0, {}]", view.place(), id,
                text, kIdMost);
  }
  if (id >= static_cast<int64_t>(parts->texts.size())) {
    parts->texts.resize(id + 1);
    parts->known.resize(id + 1, false);
    parts->special.resize(id + 1, false);
  }
  if (parts->known[id]) {
    throw_error(Code::kCorrupt, "read {}: «{}» and «{}» have the same id {}", view.place(),
                parts->texts[id], text, id);
  }
  parts->texts[id] = std::string(text);
  parts->known[id] = true;
}

TokenTable read_vocabulary(const JsonValue& view, TokenizerParts* parts) {
  TokenTable vocabulary;
  view.members([&](std::string_view text, const JsonValue& value) {
    const int64_t id = value.integer();
    set_token(id, text, value, parts);
    if (!vocabulary.insert(text, static_cast<int32_t>(id))) {
      throw_error(Code::kCorrupt, "read {}: «{}» is there twice", view.place(), text);
    }
  });
  return vocabulary;
}

// Both halves of a merge, written as "a b" or ["a", "b"].
std::pair<std::string_view, std::string_view> halves_of(const JsonValue& view) {
  std::string_view left, right;
  if (view.is_text()) {
    const std::string_view text = view.text();
    const size_t space = text.find(' ');
    if (space != std::string_view::npos && text.find(' ', space + 1) == std::string_view::npos) {
      left = text.substr(0, space);
      right = text.substr(space + 1);
    }
  } else {
    int64_t count = 0;
    view.elements([&](int64_t, const JsonValue& half) {
      (count == 0 ? left : right) = half.text();
      ++count;
    });
    if (count != 2) left = {};
  }
  if (left.empty() || right.empty()) {
    throw_error(Code::kCorrupt, "read {}: a merge must have two halves", view.place());
  }
  return {left, right};
}

std::vector<BpeMerge> read_merges(const JsonValue& view, const TokenTable& vocabulary) {
  std::vector<BpeMerge> merges;
  std::string joined;
  view.elements([&](int64_t, const JsonValue& value) {
    if (value.is_text() && value.text().starts_with("#version")) return;
    const auto [left, right] = halves_of(value);
    joined.assign(left).append(right);
    const auto id_of = [&, left = left, right = right](std::string_view text) {
      const int32_t id = vocabulary.find(text);
      if (id < 0) {
        throw_error(Code::kCorrupt,
                    "read {}: the merge of «{}» and «{}» needs «{}», which the "
                    "vocabulary lacks",
                    value.place(), left, right, text);
      }
      return id;
    };
    merges.push_back({id_of(left), id_of(right), id_of(joined)});
  });
  return merges;
}

void refuse_affix(const JsonValue& model, std::string_view key) {
  JsonValue value;
  if (model.find(key, &value) && !value.text().empty()) {
    throw_error(Code::kInvalidArgument, "read {}: the model option {} = \"{}\" is not supported",
                value.place(), key, value.text());
  }
}

bool flag(const JsonValue& model, std::string_view key) {
  JsonValue value;
  return model.find(key, &value) && value.boolean();
}

// How bytes reach the model. Left as bytes if nothing after the mapping could see the characters.
void choose_byte_level(const TokenTable& vocabulary, bool normalizer_maps, PreTokenizer* pre,
                       BpeOptions* options) {
  const auto maps = [](const PreTokenizerStep& step) {
    return step.kind == PreTokenizerStep::Kind::kByteLevel;
  };
  std::vector<PreTokenizerStep>& steps = pre->steps();
  const int64_t mappings = std::count_if(steps.begin(), steps.end(), maps);
  options->byte_characters = mappings > 0 || normalizer_maps;
  bool all_bytes = true;
  for (int byte = 0; byte < 256; ++byte) {
    std::string text;
    append_utf8(character_of_byte(static_cast<uint8_t>(byte)), &text);
    all_bytes = all_bytes && vocabulary.find(text) >= 0;
  }
  if (mappings == 1 && !normalizer_maps && maps(steps.back()) && all_bytes &&
      !options->byte_fallback) {
    steps.back().keep_bytes = true;
    options->byte_level = true;
    options->byte_characters = false;
  }
}

void read_model(const JsonValue& model, TokenizerParts* parts) {
  JsonValue value;
  if (model.find("type", &value) && value.text() != "BPE") {
    throw_error(Code::kInvalidArgument,
                "read {}: the model \"{}\" is not supported; supported is BPE", value.place(),
                value.text());
  }
  if (model.find("dropout", &value) && value.number() != 0) {
    throw_error(Code::kInvalidArgument,
                "read {}: dropout makes encoding random and is not supported; set it to null",
                value.place());
  }
  refuse_affix(model, "continuing_subword_prefix");
  refuse_affix(model, "end_of_word_suffix");
  TokenTable vocabulary = read_vocabulary(model.at("vocab"), parts);
  const std::vector<BpeMerge> merges = read_merges(model.at("merges"), vocabulary);
  BpeOptions options;
  options.byte_fallback = flag(model, "byte_fallback");
  options.fuse_unknown = flag(model, "fuse_unk");
  options.ignore_merges = flag(model, "ignore_merges");
  choose_byte_level(vocabulary, parts->normalizer.maps_bytes(), &parts->pre_tokenizer, &options);
  if (model.find("unk_token", &value)) {
    options.unknown_id = vocabulary.find(value.text());
    if (options.unknown_id < 0 && !options.byte_level) {
      throw_error(Code::kCorrupt, "read {}: the unknown token «{}» is not in the vocabulary",
                  value.place(), value.text());
    }
  }
  parts->model = BpeModel(options, std::move(vocabulary), merges);
}

AddedToken read_added_token(const JsonValue& view) {
  AddedToken token;
  token.content = std::string(view.at("content").text());
  token.special = flag(view, "special");
  token.normalized = flag(view, "normalized");
  token.single_word = flag(view, "single_word");
  token.lstrip = flag(view, "lstrip");
  token.rstrip = flag(view, "rstrip");
  const int64_t id = view.at("id").integer();
  token.id = static_cast<int32_t>(std::clamp<int64_t>(id, -1, kIdMost + 1));
  return token;
}

// Looking for added tokens takes a step for each byte of the longest, at each place of a text.
void check_length(const std::string& token, const JsonValue& view) {
  constexpr size_t kLongest = 256;  // several times the longest published
  if (token.size() <= kLongest) return;
  throw_error(Code::kInvalidArgument, "read {}: an added token of {} bytes, the limit is {}",
              view.place(), token.size(), kLongest);
}

// A token that the model has keeps its id; the others follow the vocabulary one by one.
void read_added_tokens(const JsonValue& view, TokenizerParts* parts) {
  std::vector<AddedToken> tokens;
  std::vector<std::string> matched;
  int64_t next = parts->model.vocabulary().count();
  view.elements([&](int64_t, const JsonValue& each) {
    AddedToken token = read_added_token(each);
    if (token.content.empty()) return;
    check_length(token.content, each);
    const int32_t in_model = parts->model.vocabulary().find(token.content);
    const int64_t wanted = in_model >= 0 ? in_model : next++;
    if (token.id != wanted) {
      throw_error(Code::kCorrupt, "read {}: the added token «{}» has id {}, wanted {}: {}",
                  each.place(), token.content, token.id, wanted,
                  in_model >= 0 ? "the one in the vocabulary" : "the next free one");
    }
    if (!parts->added_ids.insert(token.content, token.id)) {
      throw_error(Code::kCorrupt, "read {}: the added token «{}» is there twice", each.place(),
                  token.content);
    }
    if (in_model < 0) set_token(token.id, token.content, each, parts);
    parts->special[token.id] = token.special;
    NormalizedText text{.text = token.content};
    if (token.normalized) {
      parts->normalizer.apply(&text);
      check_length(text.text, each);
      parts->texts[token.id] = text.text;
    }
    matched.push_back(std::move(text.text));
    tokens.push_back(std::move(token));
  });
  parts->added.build(std::move(tokens), matched);
}

void check_ids(const std::vector<int32_t>& ids, const TokenizerParts& parts,
               const std::string& name) {
  for (int32_t id : ids) {
    if (id < 0 || id >= static_cast<int32_t>(parts.known.size()) || !parts.known[id]) {
      throw_error(Code::kCorrupt, "read {}: the post-processor adds id {}, which no token has",
                  name, id);
    }
  }
}

// How long a text is, at most, of so many tokens.
void bound_texts(TokenizerParts* parts) {
  const std::vector<AddedToken>& added = parts->added.tokens();
  parts->takes_space = parts->normalizer.strips() ||
                       std::any_of(added.begin(), added.end(), [](const AddedToken& token) {
                         return token.lstrip || token.rstrip;
                       });
  if (parts->pre_tokenizer.removes() || !parts->model.keeps_all()) return;
  size_t longest = 4;  // an unknown character
  for (const std::string& text : parts->texts) longest = std::max(longest, text.size());
  for (const AddedToken& token : added) longest = std::max(longest, token.content.size());
  parts->token_text_most = static_cast<int64_t>(longest) * parts->normalizer.shrinks_most();
}

}  // namespace

std::unique_ptr<TokenizerParts> read_tokenizer_json(const std::string& json,
                                                    const std::string& name) {
  auto parts = std::make_unique<TokenizerParts>();
  parts->json = json;
  const JsonDocument text(json, name);
  const JsonValue& root = text.root();
  JsonValue value;
  if (root.find("version", &value) && value.text() != "1.0") {
    throw_error(Code::kInvalidArgument,
                "read {}: version \"{}\" is not supported; supported is 1.0", name, value.text());
  }
  if (root.find("normalizer", &value)) read_normalizer(value, &parts->normalizer);
  if (root.find("pre_tokenizer", &value)) read_pre_tokenizer(value, &parts->pre_tokenizer);
  if (root.find("decoder", &value)) {
    read_decoder(value, &parts->decoder);
  } else {
    parts->decoder.separate_tokens = true;
  }
  read_model(root.at("model"), parts.get());
  if (root.find("added_tokens", &value)) read_added_tokens(value, parts.get());
  if (root.find("post_processor", &value)) {
    read_post_processor(value, &parts->before, &parts->after);
    check_ids(parts->before, *parts, name);
    check_ids(parts->after, *parts, name);
  }
  bound_texts(parts.get());
  return parts;
}

bool read_special_token(const std::string& json, const std::string& name, std::string_view key,
                        const TokenizerParts& parts, int32_t* id) {
  const JsonDocument text(json, name);
  bool said = false;
  text.root().members([&](std::string_view member, const JsonValue& value) {
    if (member != key) return;
    said = true;
    *id = -1;
    if (value.is_null()) return;
    const std::string_view token = value.is_object() ? value.at("content").text() : value.text();
    *id = parts.added_ids.find(token);
    if (*id < 0) *id = parts.model.vocabulary().find(token);
    if (*id < 0) {
      throw_error(Code::kCorrupt, "read {}: the token «{}» is not in the vocabulary", value.place(),
                  token);
    }
  });
  return said;
}

}  // namespace moraine
