// `moraine tokenizer`: text files to a tokenizer.json; text to token ids and back.
#include <fmt/ranges.h>  // fmt::join, in newer versions

#include <algorithm>

#include "base/check_place.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/progress.h"
#include "cli/tokens_flag.h"
#include "data/text_input.h"
#include "tokenizer/train.h"

namespace moraine {
namespace {

struct TokenizerFlags {
  std::string action, out, tokenizer_path, text, tokens;
  std::vector<std::string> inputs, specials;
  int64_t vocab_size = 0, threads = 0;
  bool has_text = false, has_tokens = false, overwrite = false;
  bool ordinary = false, skip_special = false, pieces = false, json = false;
  TextInputOptions input;
};

// Documents of all inputs, one after another.
class Documents {
 public:
  Documents(FileSystem& fs, std::vector<std::string> files, TextInputOptions options)
      : fs_(fs), files_(std::move(files)), options_(std::move(options)) {}
  bool next(std::string* text) {
    while (true) {
      if (!input_) {
        if (index_ == files_.size()) return false;
        input_ = std::make_unique<TextInput>(fs_, files_[index_++], options_);
      }
      if (input_->next(text)) return true;
      input_.reset();
    }
  }

 private:
  FileSystem& fs_;
  std::vector<std::string> files_;
  TextInputOptions options_;
  std::unique_ptr<TextInput> input_;
  size_t index_ = 0;
};

void train_tokenizer(const TokenizerFlags& f) {
  if (f.inputs.empty())
    throw_error(Code::kInvalidArgument, "--input is missing: wanted text files or folders");
  if (f.vocab_size == 0)
    throw_error(Code::kInvalidArgument, "--vocab-size is missing: for example 4096");
  if (f.out.empty())
    throw_error(Code::kInvalidArgument, "--out is missing: wanted a folder for tokenizer.json");
  FileSystem& fs = posix_file_system();
  check_folder_place(fs, "tokenizer train --out", f.out);
  const std::string path = join_path(f.out, "tokenizer.json");
  if (!f.overwrite && fs.exists(path))
    throw_error(
        Code::kInvalidArgument,
        "tokenizer train: {} is there already, and datasets that were made with it would not "
        "fit the new one; choose another folder, or replace it with --overwrite",
        path);
  Pool pool(f.threads > 0 ? static_cast<int>(f.threads) : usable_cores());
  BpeTrainOptions options;
  options.vocab_size = f.vocab_size;
  if (!f.specials.empty()) options.special_tokens = f.specials;
  Documents documents(fs, expand_inputs(fs, f.inputs), f.input);
  std::string json;
  {
    ProgressLine reading("tokenizer: reading"), merging("tokenizer: merging");
    json = train_bpe(
        [&](std::string* document) { return documents.next(document); }, options, pool,
        [&](const BpeTrainProgress& p) {
          if (!p.counting) reading.finish();
          (p.counting ? reading : merging).update(p.done, p.total, p.counting ? "B" : "tokens");
        });
  }
  fs.make_directories(f.out);
  fs.write_atomic(path, json);
  const std::unique_ptr<Tokenizer> made = Tokenizer::parse(json, path);
  const int64_t tokens = made->vocabulary_size();
  if (made->eos_id() < 0)
    say("tokenizer: none of --special ends a document, as <|endoftext|> does: documents will not "
        "be "
        "divided, and a model will not learn to end\n");
  if (tokens < f.vocab_size)
    say("tokenizer: the text has no further pair that comes twice: {} tokens, not {}\n", tokens,
        f.vocab_size);
  fmt::print("tokenizer={} tokens={}\n", path, tokens);
}

// What is to be encoded or decoded: the flag, the one file, or standard input.
std::string content_of(const TokenizerFlags& f, bool given, const std::string& value,
                       const char* flag) {
  if (given && !f.inputs.empty())
    throw_error(Code::kInvalidArgument, "{} and --input: wanted one of them", flag);
  if (given) return value;
  if (f.inputs.size() > 1)
    throw_error(Code::kInvalidArgument, "{}: --input names {} files; wanted one", f.action,
                f.inputs.size());
  return read_stream(f.inputs.empty() ? "/dev/stdin" : f.inputs.front());
}

Json pieces_of(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  Json pieces = Json::array();
  for (const int32_t id : ids) pieces.push_back(std::string(tokenizer.token_text(id)));
  return pieces;
}

void encode(const TokenizerFlags& f, const Tokenizer& tokenizer) {
  const std::string text = content_of(f, f.has_text, f.text, "--text");
  const std::vector<int32_t> ids =
      f.ordinary ? tokenizer.encode_ordinary(text) : tokenizer.encode(text, true);
  if (f.json) {
    fmt::print("{}\n", json_text({{"tokens", ids}, {"pieces", pieces_of(tokenizer, ids)}}));
  } else if (f.pieces) {
    for (const int32_t id : ids)
      fmt::print("{} {}\n", id, json_text(std::string(tokenizer.token_text(id))));
  } else {
    fmt::print("{}\n", fmt::join(ids, " "));
  }
}

void decode(const TokenizerFlags& f, const Tokenizer& tokenizer) {
  const bool flag = f.has_tokens;
  const std::vector<int32_t> ids =
      parse_tokens(content_of(f, flag, f.tokens, "--tokens"), flag ? "--tokens" : "input");
  for (const int32_t id : ids) {
    if (id >= tokenizer.vocabulary_size() || tokenizer.token_text(id).empty())
      throw_error(Code::kInvalidArgument, "token {} is not in the vocabulary of {}", id,
                  tokenizer.vocabulary_size());
  }
  const std::string text = tokenizer.decode(ids, f.skip_special);
  if (f.json) {
    fmt::print("{}\n",
               json_text({{"text", text}, {"tokens", ids}, {"pieces", pieces_of(tokenizer, ids)}}));
  } else if (f.pieces) {
    for (const int32_t id : ids)
      fmt::print("{} {}\n", id, json_text(std::string(tokenizer.token_text(id))));
  } else {
    std::fwrite(text.data(), 1, text.size(), stdout);
  }
}

// Which action takes which flag.
struct OwnFlag {
  const char *name, *actions;
};
constexpr OwnFlag kOwnFlags[] = {
    {"tokenizer", "encode, decode"}, {"text", "encode"},         {"tokens", "decode"},
    {"ordinary", "encode"},          {"skip-special", "decode"}, {"pieces", "encode, decode"},
    {"json", "encode, decode"},      {"vocab-size", "train"},    {"out", "train"},
    {"overwrite", "train"},          {"special", "train"},       {"field", "train"},
    {"keep-invalid-utf8", "train"},  {"threads", "train"},
};

void check_flags(const TokenizerFlags& f, const Flags& flags) {
  for (const OwnFlag& own : kOwnFlags) {
    if (!flags.given(own.name) || std::string_view(own.actions).find(f.action) != std::string::npos)
      continue;
    throw_error(Code::kInvalidArgument, "tokenizer {}: --{} is for {} alone", f.action, own.name,
                own.actions);
  }
}

}  // namespace

void cmd_tokenizer(const CommandLine& line) {
  TokenizerFlags f;
  Flags flags(
      "tokenizer",
      "train: a byte-level BPE tokenizer, written as a Hugging Face tokenizer.json. encode: "
      "text to token ids. decode: token ids to text, byte for byte. Both read standard "
      "input if neither text nor file is given.");
  flags
      .choice_positional("action", &f.action, {"train", "encode", "decode"},
                         "train, encode or decode")
      .text("tokenizer", &f.tokenizer_path, "encode, decode: tokenizer.json, or its folder.")
      .text("text", &f.text, "encode: text.")
      .text("tokens", &f.tokens, "decode: token ids, \"1 2 3\".")
      .list("input", &f.inputs,
            "train: text files or folders, .txt .jsonl, each also .gz or .zst. encode: a file, "
            "taken as it is. decode: a file of ids.")
      .flag("ordinary", &f.ordinary,
            "encode: as `data build`, special tokens inside the text are text and nothing is put "
            "around it; else as `generate --prompt`.")
      .flag("skip-special", &f.skip_special, "decode: leave special tokens out.")
      .flag("pieces", &f.pieces, "encode, decode: a line for each token, id and piece.")
      .flag("json", &f.json, "encode, decode: print {tokens, pieces}, and text.")
      .integer("vocab-size", &f.vocab_size, "train: tokens in all, special ones, bytes and merges.",
               0, 1 << 24)
      .text("out", &f.out, "train: folder for tokenizer.json.")
      .flag("overwrite", &f.overwrite, "train: replace a tokenizer that is there.")
      .list("special", &f.specials,
            "train: special tokens; default <|endoftext|>, which ends a document.")
      .text("field", &f.input.json_field, "train: field of .jsonl lines that holds the text.")
      .flag("keep-invalid-utf8", &f.input.keep_invalid_utf8,
            "train: take bytes that are not UTF-8 as they are.")
      .integer("threads", &f.threads, "train: 0: one per usable core.", 0, 1024);
  if (!flags.parse(line)) return;
  check_flags(f, flags);
  f.has_text = flags.given("text");
  f.has_tokens = flags.given("tokens");
  if (f.action == "train") return train_tokenizer(f);
  if (f.tokenizer_path.empty())
    throw_error(Code::kInvalidArgument,
                "--tokenizer is missing: wanted a tokenizer.json or its folder");
  const std::unique_ptr<Tokenizer> tokenizer =
      Tokenizer::load(posix_file_system(), f.tokenizer_path);
  f.action == "encode" ? encode(f, *tokenizer) : decode(f, *tokenizer);
}

}  // namespace moraine
