// Encoding from text to parts to pieces to ids, and decoding token by token.
#include "tokenizer/tokenizer.h"

#include <utility>

#include "base/error.h"
#include "base/memory_error.h"
#include "base/utf8.h"
#include "tokenizer/parts.h"
#include "tokenizer/unicode.h"

namespace moraine {
namespace {

constexpr int64_t kTextBytesMost = int64_t{1} << 30;

// The ids of one text, gathered in order.
class Encoder {
 public:
  Encoder(const TokenizerParts& parts, bool specials) : parts_(parts), specials_(specials) {}

  void encode(std::string_view text) {
    std::vector<TextPart> found;
    parts_.added.split_raw(text, specials_, &found);
    for (const TextPart& part : found) {
      if (part.id >= 0) {
        ids_.push_back(part.id);
      } else {
        encode_bytes(text, part.range);
      }
    }
  }
  std::vector<int32_t> take() { return std::move(ids_); }

 private:
  // Text that may hold bytes which are not UTF-8.
  void encode_bytes(std::string_view text, TextRange range) {
    bool after_invalid = false;
    for (int64_t at = range.begin; at < range.end;) {
      const std::string_view rest = text.substr(at, range.end - at);
      const int64_t valid = valid_utf8_prefix(rest);
      if (valid > 0) {
        encode_valid({std::string(rest.substr(0, valid)), at == 0, !after_invalid});
        at += valid;
      } else {
        parts_.model.encode_byte(static_cast<uint8_t>(text[at]), &ids_);
        ++at;
        after_invalid = true;
      }
    }
  }

  void encode_valid(NormalizedText text) {
    parts_.normalizer.apply(&text);
    found_.clear();
    parts_.added.split_normalized(text.text, specials_, &found_);
    for (const TextPart& part : found_) {
      if (part.id >= 0) {
        ids_.push_back(part.id);
      } else {
        const TextRange r = part.range;
        const bool first = r.begin == 0;
        encode_pieces({text.text.substr(r.begin, r.end - r.begin), first && text.from_start,
                       !first || text.may_prefix});
      }
    }
  }

  void encode_pieces(NormalizedText text) {
    parts_.pre_tokenizer.apply(std::move(text), &list_);
    for (const TextPiece& piece : list_.pieces) {
      const TextRange r = piece.range;
      parts_.model.encode(std::string_view(list_.text).substr(r.begin, r.end - r.begin), &scratch_,
                          &ids_);
    }
  }

  const TokenizerParts& parts_;
  const bool specials_;
  std::vector<TextPart> found_;
  PieceList list_;
  BpeModel::Scratch scratch_;
  std::vector<int32_t> ids_;
};

int32_t first_known(const TokenizerParts& parts, std::span<const std::string_view> names) {
  for (std::string_view name : names) {
    const int32_t added = parts.added_ids.find(name);
    if (added >= 0) return added;
    const int32_t id = parts.model.vocabulary().find(name);
    if (id >= 0) return id;
  }
  return -1;
}

// 0 for what is not UTF-8.
int64_t bytes_beside_space(std::string_view text) {
  const auto size = static_cast<int64_t>(text.size());
  if (valid_utf8_prefix(text) != size) return 0;
  int64_t bytes = 0;
  for (int64_t at = 0; at < size;) {
    const int64_t character = utf8_bytes_of_lead(text[at]);
    if (!is_white_space(utf8_code_point(text, at))) bytes += character;
    at += character;
  }
  return bytes;
}

// Names of published models, most specific first.
constexpr std::string_view kBosNames[] = {
    "<bos>",           "<|begin_of_text|>",     "<s>",
    "<|startoftext|>", "<|begin▁of▁sentence|>", "<｜begin▁of▁sentence｜>"};
constexpr std::string_view kEosNames[] = {
    "<eos>",         "<|end_of_text|>",     "</s>",
    "<|endoftext|>", "<|end▁of▁sentence|>", "<｜end▁of▁sentence｜>",
    "<|im_end|>"};

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<TokenizerParts> parts) : parts_(std::move(parts)) {}
Tokenizer::~Tokenizer() = default;

std::unique_ptr<Tokenizer> Tokenizer::parse(const std::string& json, const std::string& name) {
  std::unique_ptr<TokenizerParts> parts = read_tokenizer_json(json, name);
  parts->bos_id = first_known(*parts, kBosNames);
  parts->eos_id = first_known(*parts, kEosNames);
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(parts)));
}

std::unique_ptr<Tokenizer> Tokenizer::load(FileSystem& fs, const std::string& path) {
  const std::string file = fs.is_directory(path) ? join_path(path, "tokenizer.json") : path;
  std::unique_ptr<Tokenizer> tokenizer =
      with_memory_for(file, [&] { return parse(fs.read(file), file); });
  TokenizerParts& parts = *tokenizer->parts_;
  bool bos_found = false, eos_found = false;
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const std::string beside = join_path(parent_path(file), name);
    if (!fs.exists(beside)) continue;
    const std::string json = fs.read(beside);
    if (!bos_found) bos_found = read_special_token(json, beside, "bos_token", parts, &parts.bos_id);
    if (!eos_found) eos_found = read_special_token(json, beside, "eos_token", parts, &parts.eos_id);
  }
  return tokenizer;
}

std::vector<int32_t> Tokenizer::encode_text(std::string_view text, bool specials, bool add) const {
  if (static_cast<int64_t>(text.size()) > kTextBytesMost) {
    throw_error(Code::kInvalidArgument, "encode text: it has {} bytes, at most {} at a time",
                text.size(), kTextBytesMost);
  }
  Encoder encoder(*parts_, specials);
  encoder.encode(text);
  std::vector<int32_t> ids = encoder.take();
  if (add) {
    ids.insert(ids.begin(), parts_->before.begin(), parts_->before.end());
    ids.insert(ids.end(), parts_->after.begin(), parts_->after.end());
  }
  return ids;
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  return encode_text(text, true, add_special_tokens);
}

std::vector<int32_t> Tokenizer::encode_ordinary(std::string_view text,
                                                bool add_special_tokens) const {
  return encode_text(text, false, add_special_tokens);
}

bool Tokenizer::exceeds(std::string_view text, int64_t tokens) const {
  const int64_t each = parts_->token_text_most;
  if (each == 0 || tokens > INT64_MAX / each) return false;
  const int64_t most = tokens * each;
  if (static_cast<int64_t>(text.size()) <= most) return false;
  return !parts_->takes_space || bytes_beside_space(text) > most;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string out;
  DecoderState state;
  for (int32_t id : ids) decode_next(id, skip_special, &state, &out);
  return out;
}

void Tokenizer::decode_next(int32_t id, bool skip_special, DecoderState* state,
                            std::string* out) const {
  if (id < 0 || id >= vocabulary_size() || !parts_->known[id]) return;
  if (skip_special && parts_->special[id]) return;
  parts_->decoder.decode(parts_->texts[id], state, out);
}

DecoderState Tokenizer::state_after(std::span<const int32_t> text, bool skip_special) const {
  DecoderState state;
  std::string unused;
  for (size_t i = 0; i < text.size() && !parts_->decoder.settled(state); ++i) {
    decode_next(text[i], skip_special, &state, &unused);
    unused.clear();
  }
  return state;
}

std::string Tokenizer::token_bytes(int32_t id) const {
  DecoderState begun;
  begun.tokens = 1;
  begun.at_start = false;
  std::string out;
  decode_next(id, /*skip_special=*/false, &begun, &out);
  return out + begun.held;
}

int64_t Tokenizer::vocabulary_size() const { return static_cast<int64_t>(parts_->texts.size()); }

int32_t Tokenizer::id_of(std::string_view token) const {
  const std::string_view names[] = {token};
  return first_known(*parts_, names);
}

std::string_view Tokenizer::token_text(int32_t id) const {
  return id < 0 || id >= vocabulary_size() ? std::string_view() : parts_->texts[id];
}

bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 && id < vocabulary_size() && parts_->special[id];
}

int32_t Tokenizer::bos_id() const { return parts_->bos_id; }
int32_t Tokenizer::eos_id() const { return parts_->eos_id; }
const std::string& Tokenizer::json() const { return parts_->json; }

}  // namespace moraine
