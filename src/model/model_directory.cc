// Finds out what a path is, and reads config, weights and tokenizer from it.
#include "model/model_directory.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/saturate.h"
#include "checkpoint/history.h"
#include "checkpoint/safetensors/file.h"
#include "model/packed_model.h"
#include "model/public_layout.h"

namespace moraine {

struct ModelDirectory::State {
  FileSystem* fs = nullptr;
  std::string path;
  ModelConfig config;
  bool packed = false;
  DType dtype = DType::kF32, compute = DType::kF32;
  std::string tokenizer_json;
  std::vector<CheckpointFile> language_files;
  std::optional<Checkpoint> checkpoint;  // one of these two
  std::optional<SafetensorsSet> public_set;
  Layout layout = Layout::kNative;

  void find_tokenizer() {
    for (const CheckpointFile& file : language_files) {
      if (file.name == "tokenizer.json") tokenizer_json = file.content;
    }
  }
};

namespace {

// What a model's folder says about text, as public ones name it.
constexpr const char* kLanguageFiles[] = {"tokenizer.json", "tokenizer_config.json",
                                          "special_tokens_map.json", "generation_config.json",
                                          "chat_template.jinja"};

SettingsTable settings_of(const Checkpoint& checkpoint) {
  return SettingsTable::parse(checkpoint.info().config, checkpoint.directory() + ": config");
}

// A value of a checkpoint is text that may say anything; [model] knows what is allowed.
double rope_theta_of(const Checkpoint& checkpoint, const std::string& text) {
  ModelConfig c;
  try {
    SettingsTable::parse("rope_theta = " + text, "values").read(model_fields(c));
  } catch (const Error& e) {
    throw_error(Code::kCorrupt, "open model {}: value rope_theta is \"{}\": {}",
                checkpoint.directory(), text, e.what());
  }
  return c.rope_theta;
}

ModelConfig config_of(const Checkpoint& checkpoint) {
  ModelConfig config = read_model_config(settings_of(checkpoint).table("model"));
  // A phase of the run may have changed the base.
  const auto theta = checkpoint.info().values.find("rope_theta");
  if (theta != checkpoint.info().values.end())
    config.rope_theta = rope_theta_of(checkpoint, theta->second);
  return config;
}

DType compute_of(const Checkpoint& checkpoint, DType stored) {
  const SettingsTable train = settings_of(checkpoint).table("train");
  std::string dtype;
  if (train.has("dtype")) train.read({{"dtype", &dtype, "", ""}}, train.keys());
  return dtype.empty() ? stored : dtype == "bf16" ? DType::kBF16 : DType::kF32;
}

// A config of a few bytes can describe a model that takes minutes to name: the files say how large
// it can be.
void check_size(const SafetensorsSet& set, const PublicConfig& p, const std::string& path) {
  const int64_t each = p.layout == Layout::kLegacy && !p.config.dense() ? 2 * p.config.experts : 1;
  const int64_t least = multiply_saturated(p.config.layers, each);
  const int64_t found = static_cast<int64_t>(set.entries().size());
  if (found < least) {
    throw_error(
        Code::kInvalidArgument,
        "open model {}: config.json describes {} layers of {} experts, at least {} tensors; "
        "the files hold {}",
        path, p.config.layers, p.config.experts, least, found);
  }
}

// Elements of a checkpoint's tensor, f32 or bf16, as f32.
void read_stored(const Checkpoint& checkpoint, const std::string& name, int64_t begin,
                 const Tensor& out) {
  if (checkpoint.entry(name).dtype != DType::kBF16)
    return checkpoint.read_elements(name, begin, out);
  constexpr int64_t kBlock = int64_t{1} << 20;
  const int64_t all = out.count();
  std::vector<BF16> narrow(static_cast<size_t>(std::min(kBlock, all)));
  for (int64_t at = 0; at < all; at += kBlock) {
    const int64_t count = std::min(kBlock, all - at);
    checkpoint.read_elements(name, begin + at, make_tensor(narrow.data(), DType::kBF16, {count}));
    for (int64_t i = 0; i < count; ++i)
      out.as<float>()[at + i] = to_float(narrow[static_cast<size_t>(i)]);
  }
}

// FP8 and MXFP4 (two values in a byte) count as bf16: models in them are made of such, and computed in it.
DType main_dtype(const SafetensorsSet& set) {
  int64_t bf16 = 0, all = 0;
  for (const SafetensorsEntry* entry : set.entries()) {
    if (entry->name.ends_with(".weight_scale")) continue;
    const int64_t weights = entry->type == "U8" ? 2 * entry->count : entry->count;
    all += weights;
    if (entry->type == "BF16" || !is_float_type(entry->type)) bf16 += weights;
  }
  return 2 * bf16 > all ? DType::kBF16 : DType::kF32;
}

}  // namespace

ModelDirectory::ModelDirectory(std::unique_ptr<State> state) : state_(std::move(state)) {}
ModelDirectory::ModelDirectory(ModelDirectory&&) noexcept = default;
ModelDirectory::~ModelDirectory() = default;

ModelDirectory ModelDirectory::open(FileSystem& fs, const std::string& path, Verify verify) {
  auto state = std::make_unique<State>();
  state->fs = &fs;
  state->path = path;
  if (!fs.is_directory(path)) {
    throw_error(Code::kNotFound,
                "open model {}: no such directory; wanted a checkpoint, a run, or a folder with "
                "config.json",
                path);
  }
  if (fs.exists(join_path(path, "manifest.json"))) {
    state->checkpoint = Checkpoint::open(fs, path, /*verify=*/false);
    // Of a packed model only what is read: it is mapped, and would start at the disk's speed.
    if (verify == Verify::kNow && !is_packed(*state->checkpoint)) state->checkpoint->verify();
  } else if (fs.exists(join_path(path, "config.json"))) {
    const PublicConfig config =
        read_public_config(fs.read(join_path(path, "config.json")), join_path(path, "config.json"));
    state->config = config.config;
    state->layout = config.layout;
    state->public_set = SafetensorsSet::open(fs, path);
    check_size(*state->public_set, config, path);
    state->dtype = state->compute = main_dtype(*state->public_set);
    state->language_files = read_language_files(fs, path);
    state->find_tokenizer();
    return ModelDirectory(std::move(state));
  } else {
    state->checkpoint =
        newest_good(fs, path, [](const std::string& directory, const std::string& reason) {
          log_event(Level::kWarning, "checkpoint.bad", "directory={} reason=\"{}\"", directory,
                    reason);
        });
    if (!state->checkpoint) {
      throw_error(Code::kNotFound,
                  "open model {}: it holds neither manifest.json (a checkpoint), config.json (a "
                  "public model) nor a good step-<n> (a run)",
                  path);
    }
    state->path = state->checkpoint->directory();
  }
  const Checkpoint& checkpoint = *state->checkpoint;
  state->config = config_of(checkpoint);
  state->packed = is_packed(checkpoint);
  state->dtype =
      state->packed
          ? packed_type(checkpoint).compute
          : checkpoint.entry(std::string(kWeightPrefix) + "model.embed_tokens.weight").dtype;
  state->compute = state->packed ? state->dtype : compute_of(checkpoint, state->dtype);
  const std::vector<std::string> names = checkpoint.file_names();
  for (const char* name : kLanguageFiles) {
    if (std::find(names.begin(), names.end(), name) != names.end())
      state->language_files.push_back({name, checkpoint.file(name)});
  }
  state->find_tokenizer();
  return ModelDirectory(std::move(state));
}

const std::string& ModelDirectory::path() const { return state_->path; }
const ModelConfig& ModelDirectory::config() const { return state_->config; }
DType ModelDirectory::stored_dtype() const { return state_->dtype; }
DType ModelDirectory::compute_dtype() const { return state_->compute; }
bool ModelDirectory::packed() const { return state_->packed; }
int64_t ModelDirectory::step() const {
  return state_->checkpoint ? state_->checkpoint->info().step : 0;
}
const std::string& ModelDirectory::tokenizer_json() const { return state_->tokenizer_json; }
const std::vector<CheckpointFile>& ModelDirectory::language_files() const {
  return state_->language_files;
}

std::vector<CheckpointFile> read_language_files(FileSystem& fs, const std::string& folder) {
  std::vector<CheckpointFile> files;
  for (const char* name : kLanguageFiles) {
    const std::string path = join_path(folder, name);
    if (!fs.exists(path)) continue;
    const std::string text = fs.read(path);
    if (!text.empty()) files.push_back({name, text});
  }
  return files;
}

void ModelDirectory::check_weights() const {
  if (state_->public_set)
    return check_public_weights(*state_->public_set, state_->config, state_->layout);
  if (state_->packed) {
    throw_error(
        Code::kInvalidArgument,
        "open model {}: this is a packed model, for generate, chat, eval and serve, and of bf16 "
        "for quantize; use the directory that it was made from",
        state_->path);
  }
  for (const Parameter& p : build_parameters(state_->config).all) {
    const CheckpointEntry& entry = state_->checkpoint->entry(kWeightPrefix + p.name);
    if (entry.shape == p.dims && (entry.dtype == DType::kF32 || entry.dtype == DType::kBF16))
      continue;
    throw_error(Code::kInvalidArgument,
                "load checkpoint {}: '{}' is {} {}, wanted f32 or bf16 {} by its config",
                state_->path, entry.name, dtype_name(entry.dtype), shape_text(entry.shape),
                shape_text(p.dims));
  }
}

std::unique_ptr<PackedModel> ModelDirectory::open_packed() const {
  MR_CHECK(state_->packed);
  return std::make_unique<PackedModel>(*state_->fs, state_->path, state_->config);
}

void ModelDirectory::read_weights(const Tensor& master) const {
  read_weights(build_parameters(state_->config), master);
}

void ModelDirectory::read_weights(const ParameterTable& table, const Tensor& master) const {
  check_weights();
  read_elements(table, 0, master);
}

void ModelDirectory::read_elements(const ParameterTable& table, int64_t begin,
                                   const Tensor& out) const {
  for_each_parameter(table, begin, out, [&](const Parameter& p, int64_t from, const Tensor& t) {
    if (state_->public_set) {
      read_public_elements({*state_->public_set, state_->config, state_->layout}, p, from, t);
    } else {
      read_stored(*state_->checkpoint, kWeightPrefix + p.name, from, t);
    }
  });
}

}  // namespace moraine
