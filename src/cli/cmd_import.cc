// `moraine import` and `moraine export`: between public layouts and model directories.
#include "base/error.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "model/model_directory.h"
#include "model/public_layout.h"
#include "tensor/arena.h"

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

DType dtype_flag(const std::string& text, DType stored) {
  return text.empty() ? stored : text == "bf16" ? DType::kBF16 : DType::kF32;
}

}  // namespace

void cmd_import(const CommandLine& line) {
  std::string from, out, dtype;
  Flags flags("import",
              "Turn a public ZAYA checkpoint (native or legacy layout) into a self-contained model "
              "directory.");
  flags
      .required("from", &from,
                "Folder with config.json and safetensors (one file, or indexed shards).")
      .required("out", &out, "Model directory to make.")
      .choice("dtype", &dtype, {"", "f32", "bf16"},
              "Of the stored weights; default: as they come.");
  if (!flags.parse(line)) return;
  const Loaded model(from);
  write_model_directory(posix_file_system(), out, model.directory.config(), model.master,
                        dtype_flag(dtype, model.directory.stored_dtype()),
                        model.directory.language_files());
  fmt::print("model={} parameters={} skip={}\n", out, model.table.total_count,
             skip_name(model.directory.config().skip));
}

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
  if (fs.exists(join_path(out, "config.json")))
    throw_error(Code::kInvalidArgument,
                "export to {}: it holds a model already; remove it or choose another name", out);
  const Loaded model(from);
  options.layout = layout == "native" ? Layout::kNative : Layout::kLegacy;
  options.dtype = dtype_flag(dtype, model.directory.stored_dtype());
  options.shard_bytes = shard_mib << 20;
  const SkipKind skip = model.directory.config().skip;
  const SkipKind expressed =
      options.layout == Layout::kNative ? SkipKind::kZero : SkipKind::kIdentity;
  if (skip != expressed) {
    say("export: the model was made with skip = \"{}\"; code for the {} layout computes "
        "\"{}\" for skipped tokens\n",
        skip_name(skip), layout, skip_name(expressed));
  }
  write_public_model(fs, out, model.directory.config(), model.table, model.master,
                     model.directory.language_files(), options);
  fmt::print("model={} layout={} dtype={}\n", out, layout, dtype_name(options.dtype));
}

}  // namespace moraine
