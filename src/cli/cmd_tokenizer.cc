// `moraine tokenizer train`: text files to a tokenizer.json.
#include "base/error.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/progress.h"
#include "data/text_input.h"
#include "tokenizer/train.h"

namespace moraine {
namespace {

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

}  // namespace

void cmd_tokenizer(std::span<char*> args) {
  std::string action, out;
  std::vector<std::string> inputs, specials;
  int64_t vocab_size = 0, threads = 0;
  TextInputOptions text;
  Flags flags("tokenizer",
              "Train a byte-level BPE tokenizer, written as a Hugging Face tokenizer.json.");
  flags.choice_positional("action", &action, {"train"}, "train")
      .list("input", &inputs, "Text files or folders: .txt .jsonl, each also .gz or .zst.")
      .integer("vocab-size", &vocab_size, "Tokens in all: special ones, bytes and merges.", 0,
               1 << 24)
      .required("out", &out, "Folder for tokenizer.json.")
      .list("special", &specials, "Special tokens; default <|endoftext|>, which ends a document.")
      .text("field", &text.json_field, "Field of .jsonl lines that holds the text.")
      .flag("keep-invalid-utf8", &text.keep_invalid_utf8,
            "Take bytes that are not UTF-8 as they are.")
      .integer("threads", &threads, "0: one per usable core.", 0, 1024);
  if (!flags.parse(args)) return;
  if (inputs.empty())
    throw_error(Code::kInvalidArgument, "--input is missing: wanted text files or folders");
  if (vocab_size == 0)
    throw_error(Code::kInvalidArgument, "--vocab-size is missing: for example 4096");
  FileSystem& fs = posix_file_system();
  Pool pool(threads > 0 ? static_cast<int>(threads) : usable_cores());
  BpeTrainOptions options;
  options.vocab_size = vocab_size;
  if (!specials.empty()) options.special_tokens = specials;
  Documents documents(fs, expand_inputs(fs, inputs), text);
  std::string json;
  {
    ProgressLine reading("tokenizer: reading"), merging("tokenizer: merging");
    json = train_bpe(
        [&](std::string* document) { return documents.next(document); }, options, pool,
        [&](const BpeTrainProgress& p) {
          (p.counting ? reading : merging).update(p.done, p.total, p.counting ? "B" : "tokens");
        });
  }
  fs.make_directories(out);
  fs.write_atomic(join_path(out, "tokenizer.json"), json);
  fmt::print("tokenizer={} tokens={}\n", join_path(out, "tokenizer.json"), vocab_size);
}

}  // namespace moraine
