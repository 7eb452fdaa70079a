// `moraine data build`: text files or conversations to token shards.
#include "base/error.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/conversation_line.h"
#include "cli/flags.h"
#include "cli/progress.h"
#include "data/build_dataset.h"
#include "model/model_directory.h"
#include "tokenizer/tokenizer.h"
#include "train/metrics.h"

namespace moraine {
namespace {

struct DataFlags {
  std::string action, tokenizer_path, model_path, chat_template, field;
  int64_t threads = 0, seed = 0, shard_mib = 256;
};

void print_dataset(const std::string& folder, const DatasetManifest& m) {
  if (m.shards.empty()) return;
  fmt::print(
      "dataset={} documents={} tokens={} targets={} bytes={} shards={} bytes_per_token={:.3f}\n",
      folder, m.documents, m.tokens, m.targets, m.source_bytes, m.shards.size(),
      static_cast<double>(m.source_bytes) / static_cast<double>(std::max<int64_t>(1, m.tokens)));
}

// Folder of the tokenizer's files, and of the chat template beside them.
std::string source_folder(FileSystem& fs, const DataFlags& f) {
  if (f.model_path.empty() && f.tokenizer_path.empty()) {
    throw_error(Code::kInvalidArgument,
                "--tokenizer is missing: wanted a folder with tokenizer.json, or --model DIR");
  }
  if (f.model_path.empty()) return f.tokenizer_path;
  return ModelDirectory::open(fs, f.model_path).path();
}

std::unique_ptr<ChatTemplate> load_template(FileSystem& fs, const std::string& folder,
                                            const DataFlags& f, const Tokenizer& tokenizer) {
  try {
    return ChatTemplate::load(fs, folder, f.chat_template, tokenizer);
  } catch (const Error& e) {
    if (e.code() != Code::kNotFound || f.model_path.empty() || !f.chat_template.empty()) throw;
    throw_error(e.code(), "{}; --model is for conversations: for plain text give --tokenizer {}",
                e.what(), f.model_path);
  }
}

void build(const DataFlags& f, BuildOptions& options) {
  FileSystem& fs = posix_file_system();
  const std::string folder = source_folder(fs, f);
  const std::unique_ptr<Tokenizer> tokenizer =
      Tokenizer::load(fs, f.tokenizer_path.empty() ? folder : f.tokenizer_path);
  options.seed = static_cast<uint64_t>(f.seed);
  options.shard_bytes = f.shard_mib << 20;
  options.meaning = {.vocabulary_size = tokenizer->vocabulary_size(),
                     .eos_id = tokenizer->eos_id(),
                     .tokenizer_hash = hash_bytes(tokenizer->json().data(),
                                                  static_cast<int64_t>(tokenizer->json().size()))};
  const bool conversations =
      !f.model_path.empty() || !f.chat_template.empty() || f.field == "messages";
  std::unique_ptr<ChatTemplate> chat;
  if (conversations) {
    chat = load_template(fs, folder, f, *tokenizer);
    // It goes with the data: a model that is trained on it is asked in the same form.
    options.chat_template = chat->source();
    options.encode_line = [&](std::string_view line, EncodedLine* encoded) {
      const ConversationRule rule{
          .chat = *chat, .tokenizer = *tokenizer, .field = f.field.empty() ? "messages" : f.field};
      *encoded = encode_conversation(rule, line);
    };
  } else {
    if (!f.field.empty()) options.text.json_field = f.field;
    options.encode = [&](std::string_view text, std::vector<int32_t>* tokens) {
      *tokens = tokenizer->encode_ordinary(text);
    };
  }
  ProgressLine progress("data");
  options.progress = [&](const BuildProgress& p) {
    progress.update(p.bytes_done, p.bytes_total, "B");
  };
  Pool pool(f.threads > 0 ? static_cast<int>(f.threads) : usable_cores());
  const BuildResult result = build_dataset(fs, pool, options);
  const bool split = options.valid_fraction > 0;
  const std::string train = split ? join_path(options.out, "train") : options.out,
                    valid = join_path(options.out, "valid");
  print_dataset(train, result.train);
  print_dataset(valid, result.valid);
  if (options.meaning.eos_id < 0)
    say("data: the tokenizer has no token that ends a document: documents are not divided, and a "
        "model will not learn to end\n");
  if (result.empty_documents > 0)
    say("data: {} empty documents left out\n", result.empty_documents);
  if (result.documents_without_target > 0)
    say("data: {} conversations without a turn of the assistant left out\n",
        result.documents_without_target);
  if (result.invalid_utf8_bytes > 0)
    say("data: {} bytes are not UTF-8, kept as they are\n", result.invalid_utf8_bytes);
}

}  // namespace

void cmd_data(const CommandLine& line) {
  DataFlags f;
  BuildOptions options;
  Flags flags("data",
              "Turn text or conversations into token shards: OUT, or OUT/train and OUT/valid with "
              "--valid-fraction.");
  flags.choice_positional("action", &f.action, {"build"}, "build")
      .text("tokenizer", &f.tokenizer_path, "Folder with tokenizer.json; default: the model's.")
      .text("model", &f.model_path,
            "Conversations: model whose chat template and tokenizer are taken.")
      .text("chat-template", &f.chat_template,
            "Conversations: \"chatml\", \"plain\" or a file of Jinja; default: the model's own.")
      .list("input", &options.inputs, "Text files or folders: .txt .jsonl, each also .gz or .zst.")
      .required("out", &options.out, "Folder for the dataset.")
      .text(
          "field", &f.field,
          "Field of .jsonl lines that holds the text (\"text\") or, \"messages\", a conversation, "
          "of which only the assistant's turns are learnt.")
      .text(
          "separator", &options.text.separator,
          "Line, without its end, that divides the documents of a .txt file; empty: a file is one.")
      .flag("keep-invalid-utf8", &options.text.keep_invalid_utf8,
            "Take bytes that are not UTF-8 as they are, and count them.")
      .number("valid-fraction", &options.valid_fraction,
              "Share of documents held out, chosen by hash.")
      .integer("seed", &f.seed, "Of the held-out split.", 0, INT64_MAX)
      .integer("shard-mib", &f.shard_mib, "Size at which a shard ends.", 1, 1 << 20)
      .flag("overwrite", &options.overwrite,
            "Replace a dataset that is there when the new one is whole: room for both.")
      .integer("threads", &f.threads, "0: one per usable core.", 0, 1024);
  if (!flags.parse(line)) return;
  if (options.inputs.empty())
    throw_error(Code::kInvalidArgument, "--input is missing: wanted text files or folders");
  build(f, options);
}

}  // namespace moraine
