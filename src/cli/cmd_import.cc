// `moraine import` and `moraine export`: model directories from public layouts or random weights, and back.
#include "base/error.h"
#include "base/log.h"
#include "base/named_file.h"
#include "base/pool.h"
#include "checkpoint/history.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/interrupts.h"
#include "cli/progress.h"
#include "cli/tokens_flag.h"
#include "model/model_directory.h"
#include "model/parameters.h"
#include "model/public_layout.h"
#include "model/write_model.h"
#include "tensor/arena.h"
#include "tokenizer/tokenizer.h"
#include "train/run_config.h"

namespace moraine {
namespace {

// As the field of [model] calls it.
std::string skip_name(SkipKind skip) {
  ModelConfig config;
  for (const Field& field : model_fields(config)) {
    if (field.name == "skip") return field.choices.at(static_cast<size_t>(skip));
  }
  return "";
}

DType dtype_flag(const std::string& text, DType stored) {
  return text.empty() ? stored : text == "bf16" ? DType::kBF16 : DType::kF32;
}

struct ImportFlags {
  std::string from, random, out, dtype, tokenizer;
  std::vector<std::string> assignments;
  int64_t seed = 1;
  bool seed_given = false;
};

void print_imported(const std::string& out, const ModelConfig& config) {
  fmt::print("model={} parameters={} skip={}\n", out, count_parameters(config).total,
             skip_name(config.skip));
}

// A tokenizer that can not be read would stop every later command, also those that need no text.
void check_language(const ModelDirectory& directory) {
  std::unique_ptr<Tokenizer> tokenizer;
  try {
    tokenizer = tokenizer_of(directory.tokenizer_json());
  } catch (const Error& e) {
    throw_error(e.code(),
                "import --from {}: {}; to import the model without text, remove its tokenizer.json",
                directory.path(), e.what());
  }
  const int64_t most = directory.config().vocab_size;
  if (tokenizer == nullptr || tokenizer->vocabulary_size() <= most) return;
  throw_error(Code::kInvalidArgument,
              "import --from {}: its tokenizer has {} tokens, the model {}; wanted as many at "
              "most: another tokenizer.json, or none",
              directory.path(), tokenizer->vocabulary_size(), most);
}

void import_public(const ImportFlags& f) {
  FileSystem& fs = posix_file_system();
  const ModelDirectory directory =
      ModelDirectory::open(fs, f.from, ModelDirectory::Verify::kAsRead);
  directory.check_weights();
  check_language(directory);
  const ParameterTable table = build_parameters(directory.config());
  ProgressLine progress("import");
  write_model_directory(
      fs, f.out,
      {.config = directory.config(),
       .weights = [&](int64_t begin,
                      const Tensor& out) { directory.read_elements(table, begin, out); },
       .dtype = dtype_flag(f.dtype, directory.stored_dtype()),
       .language_files = directory.language_files(),
       .progress = [&](int64_t done, int64_t total) { progress.update(done, total, "B"); }});
  print_imported(f.out, directory.config());
}

// The seed with which `train` would begin: its own key, unless the flag says another.
uint64_t seed_of(const ImportFlags& f, const SettingsTable& settings) {
  int64_t seed = f.seed;
  const SettingsTable train = settings.table("train");
  if (!f.seed_given && train.has("seed"))
    train.read({{"seed", &seed, "", "", 0, 9e18}}, train.keys());
  return static_cast<uint64_t>(seed);
}

// The folder or file of --tokenizer, or else the one that the run would take; empty: none.
std::string tokenizer_path(FileSystem& fs, const ImportFlags& f, const SettingsTable& settings) {
  std::string path = f.tokenizer;
  const SettingsTable data = settings.table("data");
  if (path.empty() && data.has("tokenizer")) data.read({{"tokenizer", &path, "", ""}}, data.keys());
  const std::string file = fs.is_directory(path) ? join_path(path, "tokenizer.json") : path;
  if (path.empty() || (fs.exists(file) && !fs.is_directory(file))) return path;
  throw_error(Code::kNotFound,
              "import --random {}: {} is {}, and there is no {}; name another --tokenizer{}",
              f.random, f.tokenizer.empty() ? "data.tokenizer" : "--tokenizer", path, file,
              f.tokenizer.empty() ? ", or none: --set data.tokenizer=" : "");
}

// With what is beside it.
std::vector<CheckpointFile> read_tokenizer_files(FileSystem& fs, const std::string& path) {
  if (fs.is_directory(path)) return read_language_files(fs, path);
  std::vector<CheckpointFile> files = read_language_files(fs, parent_path(path));
  std::erase_if(files, [](const CheckpointFile& f) { return f.name == "tokenizer.json"; });
  files.push_back({"tokenizer.json", fs.read(path)});
  return files;
}

// The tokenizer that a random model carries along: it may have fewer tokens than the model, not more.
std::vector<CheckpointFile> random_language(FileSystem& fs, const ImportFlags& f,
                                            const SettingsTable& settings, ModelConfig& config) {
  const std::string tokenizer = tokenizer_path(fs, f, settings);
  if (tokenizer.empty()) {
    if (config.vocab_size > 0) return {};
    throw_error(Code::kInvalidArgument,
                "import --random {}: neither model.vocab_size nor data.tokenizer is given; set "
                "one, or name "
                "a --tokenizer",
                f.random);
  }
  const int64_t tokens = Tokenizer::load(fs, tokenizer)->vocabulary_size();
  if (config.vocab_size == 0) config.vocab_size = tokens;
  if (tokens > config.vocab_size) {
    throw_error(
        Code::kInvalidArgument,
        "import --random {}: the tokenizer {} has {} tokens, model.vocab_size is {}; wanted "
        "at least as many",
        f.random, tokenizer, tokens, config.vocab_size);
  }
  return read_tokenizer_files(fs, tokenizer);
}

// What nobody would heed is refused.
void check_is_heeded(const std::string& assignment) {
  const std::string key = assignment.substr(0, assignment.find('='));
  if (key.starts_with("model.") || key == "data.tokenizer" || key == "train.seed") return;
  throw_error(Code::kInvalidArgument,
              "import --random --set {}: a model is made of model.*, data.tokenizer and train.seed "
              "alone; leave it out",
              assignment);
}

void import_random(const ImportFlags& f) {
  FileSystem& fs = posix_file_system();
  SettingsTable settings =
      SettingsTable::parse(read_named_file(fs, "import --random", f.random), f.random);
  for (const std::string& assignment : f.assignments) {
    check_is_heeded(assignment);
    settings.set(assignment);
  }
  check_run_keys(settings);
  ModelConfig config = read_model_config(settings.table("model"));
  const std::vector<CheckpointFile> files = random_language(fs, f, settings, config);
  check_model_config(config, f.random + ": model");  // its size may be the tokenizer's
  const ParameterTable table = build_parameters(config);
  const InitialValues values{table, config, seed_of(f, settings)};
  Pool pool(usable_cores());
  const auto weights = [&](int64_t begin, const Tensor& out) {
    initialize_elements(pool, values, begin, out);
  };
  ProgressLine progress("import");
  write_model_directory(
      fs, f.out,
      {.config = config,
       .weights = weights,
       .dtype = dtype_flag(f.dtype, DType::kF32),
       .language_files = files,
       .seed = values.seed,
       .progress = [&](int64_t done, int64_t total) { progress.update(done, total, "B"); }});
  print_imported(f.out, config);
}

struct Loaded {
  ModelDirectory directory;
  Arena arena{Arena::Mode::kReal};
  ParameterTable table;
  Tensor master;

  explicit Loaded(const std::string& path)
      : directory(ModelDirectory::open(posix_file_system(), path)),
        table(build_parameters(directory.config())) {
    master = arena.take("weights.master", "weights", DType::kF32, {table.total_count});
    directory.read_weights(master);
  }
};

}  // namespace

void cmd_import(const CommandLine& line) {
  ImportFlags f;
  Flags flags("import",
              "Make a self-contained model directory: from a public ZAYA checkpoint (native or "
              "legacy layout), or of random weights. The model is never held in memory.");
  flags
      .text("from", &f.from,
            "Folder with config.json and safetensors (one file, or indexed shards).")
      .text("random", &f.random,
            "Config file whose [model] is the shape: initial weights, those that `train` begins "
            "with.")
      .list("set", &f.assignments,
            "Of --random: key=value that wins over the file, as model.layers=8.")
      .required("out", &f.out, "Model directory to make.")
      .choice("dtype", &f.dtype, {"", "f32", "bf16"},
              "Of the stored weights; default: as they come, f32 for --random.")
      .integer("seed", &f.seed, "Of --random; default: train.seed of the config.", 0, INT64_MAX)
      .text("tokenizer", &f.tokenizer,
            "Folder with tokenizer.json, or that file, that --random carries along with what is "
            "beside it; default: data.tokenizer of the config.");
  if (!flags.parse(line)) return;
  f.seed_given = flags.given("seed");
  if (f.from.empty() == f.random.empty())
    throw_error(Code::kInvalidArgument, "wanted either --from FOLDER or --random CONFIG");
  if (f.random.empty() && (f.seed_given || !f.tokenizer.empty() || !f.assignments.empty()))
    throw_error(Code::kInvalidArgument, "--seed, --set and --tokenizer belong to --random");
  const Interrupts interrupts("import --out " + f.out);
  f.random.empty() ? import_public(f) : import_random(f);
}

namespace {

// A public model beside a run's checkpoints would be taken for what the run has come to.
void check_export_folder(FileSystem& fs, const std::string& out) {
  const char* held = fs.exists(join_path(out, "config.json"))                     ? "a model"
                     : fs.exists(join_path(out, "manifest.json"))                 ? "a checkpoint"
                     : fs.is_directory(out) && !list_checkpoints(fs, out).empty() ? "a run"
                     : fs.is_directory(out) && !fs.list(out).empty()              ? "other files"
                                                                                  : nullptr;
  if (held != nullptr)
    throw_error(Code::kInvalidArgument,
                "export to {}: it holds {} already; remove it or choose another name", out, held);
}

}  // namespace

void cmd_export(const CommandLine& line) {
  std::string from, out, dtype, layout = "native";
  ExportOptions options;
  int64_t shard_mib = options.shard_bytes >> 20;
  Flags flags("export",
              "Write a model in a public layout, for Hugging Face transformers and its ports.");
  flags.required("model", &from, "Checkpoint, run directory, or folder in a public layout.")
      .choice("layout", &layout, {"native", "legacy"},
              "native: block layout; legacy: alternating layers.")
      .required("out", &out, "Folder to make.")
      .choice("dtype", &dtype, {"", "f32", "bf16"},
              "Of the written weights; default: as they are stored.")
      .integer("shard-mib", &shard_mib, "Size above which weights are split into indexed shards.",
               1, 1 << 24);
  if (!flags.parse(line)) return;
  FileSystem& fs = posix_file_system();
  check_export_folder(fs, out);
  const Loaded model(from);
  options.layout = layout == "native" ? Layout::kNative : Layout::kLegacy;
  options.dtype = dtype_flag(dtype, model.directory.stored_dtype());
  options.shard_bytes = shard_mib << 20;
  const SkipKind skip = model.directory.config().skip;
  const SkipKind expressed =
      options.layout == Layout::kNative ? SkipKind::kZero : SkipKind::kIdentity;
  if (skip != expressed) {
    say("export: the model was made with skip = \"{}\"; code for the {} layout computes "
        "\"{}\" for skipped tokens, so its answers differ; --layout {} keeps them\n",
        skip_name(skip), layout, skip_name(expressed), layout == "native" ? "legacy" : "native");
  }
  const Interrupts interrupts("export --out " + out);
  ProgressLine progress("export");
  write_public_model(
      fs, out,
      {.config = model.directory.config(),
       .table = model.table,
       .master = model.master,
       .language_files = model.directory.language_files(),
       .progress = [&](int64_t done, int64_t total) { progress.update(done, total, "B"); }},
      options);
  progress.finish();
  fmt::print("model={} layout={} dtype={}\n", out, layout, dtype_name(options.dtype));
}

}  // namespace moraine
