// Tokenizer: text to token ids and back, as a published tokenizer.json says.
//
//   encode  added tokens are cut out; the rest is normalized and cut into pieces; each piece is
//           merged (tokenizer/bpe_model.h)
//   decode  the tokens' texts through the file's decoder
//
// Agrees with the Hugging Face tokenizers library, which takes only valid UTF-8. Here text is
// bytes: a byte that belongs to no UTF-8 sequence cuts the text, and is encoded as its own byte
// token (of the byte alphabet, or <0xHH>); nothing is put in front of the text after it. So every
// byte string survives encode and decode wherever the vocabulary has all bytes and the normalizer
// changes nothing. "truncation" and "padding" of the file are not applied. Details:
// docs/formats/tokenizer.md.
//
// Errors:  load: kNotFound; kCorrupt for a damaged file; kInvalidArgument for a component that is
//          not supported, by its name. encode: kInvalidArgument above 1 GiB, or when a regex of the
//          file gives up. decode: none; ids that the vocabulary lacks add nothing.
// Threads: immutable; any thread may call anything.
// Cost:    encode 10 MB/s of English and more for each thread; loading a 33 MB file half a second.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"

namespace moraine {

struct DecoderState;  // tokenizer/decoder.h
struct TokenizerParts;

class Tokenizer {
 public:
  // A tokenizer.json or a folder that holds one. tokenizer_config.json and special_tokens_map.json
  // beside it, if there, name the tokens of bos_id and eos_id.
  static std::unique_ptr<Tokenizer> load(FileSystem& fs, const std::string& path);
  // `name` is for messages.
  static std::unique_ptr<Tokenizer> parse(const std::string& json, const std::string& name);
  ~Tokenizer();

  // `add_special_tokens`: also what the file's post-processor puts around a text (a <bos>, say).
  // The text of a special token inside `text` becomes that token.
  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens) const;
  // The same, but special tokens inside `text` are ordinary text: for text of strangers.
  std::vector<int32_t> encode_ordinary(std::string_view text,
                                       bool add_special_tokens = false) const;

  // True only if `text` has more tokens than that, told by its bytes: none stands for so many. Not told
  // where the file has a step that drops text.
  // Cost: none, or that of a walk over the text; encoding takes a hundred times as long.
  bool exceeds(std::string_view text, int64_t tokens) const;

  // Bytes; may end inside a character. For complete characters one by one:
  // tokenizer/stream_decoder.h.
  std::string decode(std::span<const int32_t> ids, bool skip_special) const;
  // What one more token adds to the output that `state` remembers.
  void decode_next(int32_t id, bool skip_special, DecoderState* state, std::string* out) const;
  // The state behind a text: what decode_next adds from there is what the whole has more than `text`.
  // Cost: as a rule, of the first token.
  DecoderState state_after(std::span<const int32_t> text, bool skip_special) const;
  // What a token is within a text, wherever that begins: " the", where as a first one it is "the".
  std::string token_bytes(int32_t id) const;

  int64_t vocabulary_size() const;                // the largest id + 1
  int32_t id_of(std::string_view token) const;    // -1 if there is no such token
  std::string_view token_text(int32_t id) const;  // as in the file; empty if there is no such id
  bool is_special(int32_t id) const;

  // The tokens that begin and end a text; -1 if there is none. From the files beside
  // tokenizer.json, else by the names that are in use.
  int32_t bos_id() const;
  int32_t eos_id() const;

  // The file's text, so that a checkpoint can carry it.
  const std::string& json() const;

 private:
  explicit Tokenizer(std::unique_ptr<TokenizerParts> parts);
  std::vector<int32_t> encode_text(std::string_view text, bool specials, bool add) const;
  std::unique_ptr<TokenizerParts> parts_;
};

}  // namespace moraine
