// `moraine data build`: text files to token shards.
#include "base/error.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/progress.h"
#include "data/build_dataset.h"
#include "tokenizer/tokenizer.h"
#include "train/metrics.h"

namespace moraine {
namespace {

void print_dataset(const std::string& folder, const DatasetManifest& m) {
  if (m.shards.empty()) return;
  fmt::print(
      "dataset={} documents={} tokens={} bytes={} shards={} bytes_per_token={:.3f}\n", folder,
      m.documents, m.tokens, m.source_bytes, m.shards.size(),
      static_cast<double>(m.source_bytes) / static_cast<double>(std::max<int64_t>(1, m.tokens)));
}

}  // namespace

void cmd_data(const CommandLine& line) {
  std::string action, tokenizer_path;
  int64_t threads = 0, seed = 0, shard_mib = 256;
  BuildOptions options;
  Flags flags(
      "data",
      "Turn text into token shards: OUT, or OUT/train and OUT/valid with --valid-fraction.");
  flags.choice_positional("action", &action, {"build"}, "build")
      .required("tokenizer", &tokenizer_path, "Folder with tokenizer.json.")
      .list("input", &options.inputs, "Text files or folders: .txt .jsonl, each also .gz or .zst.")
      .required("out", &options.out, "Folder for the dataset.")
      .text("field", &options.text.json_field, "Field of .jsonl lines that holds the text.")
      .text("separator", &options.text.separator,
            "Line that divides the documents of a .txt file; empty: a file is one.")
      .flag("keep-invalid-utf8", &options.text.keep_invalid_utf8,
            "Take bytes that are not UTF-8 as they are, and count them.")
      .number("valid-fraction", &options.valid_fraction,
              "Share of documents held out, chosen by hash.")
      .integer("seed", &seed, "Of the held-out split.", 0, INT64_MAX)
      .integer("shard-mib", &shard_mib, "Size at which a shard ends.", 1, 1 << 20)
      .flag("overwrite", &options.overwrite, "Replace a dataset that is there.")
      .integer("threads", &threads, "0: one per usable core.", 0, 1024);
  if (!flags.parse(line)) return;
  if (options.inputs.empty())
    throw_error(Code::kInvalidArgument, "--input is missing: wanted text files or folders");
  FileSystem& fs = posix_file_system();
  const std::unique_ptr<Tokenizer> tokenizer = Tokenizer::load(fs, tokenizer_path);
  options.seed = static_cast<uint64_t>(seed);
  options.shard_bytes = shard_mib << 20;
  options.meaning = {.vocabulary_size = tokenizer->vocabulary_size(),
                     .eos_id = tokenizer->eos_id(),
                     .tokenizer_hash = hash_bytes(tokenizer->json().data(),
                                                  static_cast<int64_t>(tokenizer->json().size()))};
  options.encode = [&](std::string_view text, std::vector<int32_t>* tokens) {
    *tokens = tokenizer->encode_ordinary(text);
  };
  ProgressLine progress("data");
  options.progress = [&](const BuildProgress& p) {
    progress.update(p.bytes_done, p.bytes_total, "B");
  };
  Pool pool(threads > 0 ? static_cast<int>(threads) : usable_cores());
  const BuildResult result = build_dataset(fs, pool, options);
  const bool split = options.valid_fraction > 0;
  print_dataset(split ? join_path(options.out, "train") : options.out, result.train);
  print_dataset(join_path(options.out, "valid"), result.valid);
  if (result.empty_documents > 0)
    say("data: {} empty documents left out\n", result.empty_documents);
  if (result.invalid_utf8_bytes > 0)
    say("data: {} bytes are not UTF-8, kept as they are\n", result.invalid_utf8_bytes);
}

}  // namespace moraine
