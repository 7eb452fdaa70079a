// Finds out what a path is, and reads config, weights and tokenizer from it.
#include "model/model_directory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/file_lock.h"
#include "base/log.h"
#include "base/saturate.h"
#include "checkpoint/history.h"
#include "model/public_layout.h"

namespace moraine {

struct ModelDirectory::State {
  std::string path;
  ModelConfig config;
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

std::string read_if_there(FileSystem& fs, const std::string& path) {
  return fs.exists(path) ? fs.read(path) : "";
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

DType main_dtype(const SafetensorsSet& set) {
  int64_t bf16 = 0, all = 0;
  for (const SafetensorsEntry* entry : set.entries()) {
    all += entry->count;
    if (entry->type == "BF16") bf16 += entry->count;
  }
  return 2 * bf16 > all ? DType::kBF16 : DType::kF32;
}

}  // namespace

ModelDirectory::ModelDirectory(std::unique_ptr<State> state) : state_(std::move(state)) {}
ModelDirectory::ModelDirectory(ModelDirectory&&) noexcept = default;
ModelDirectory::~ModelDirectory() = default;

ModelDirectory ModelDirectory::open(FileSystem& fs, const std::string& path) {
  auto state = std::make_unique<State>();
  state->path = path;
  if (!fs.is_directory(path)) {
    throw_error(Code::kNotFound,
                "open model {}: no such directory; wanted a checkpoint, a run, or a folder with "
                "config.json",
                path);
  }
  if (fs.exists(join_path(path, "manifest.json"))) {
    state->checkpoint = Checkpoint::open(fs, path, /*verify=*/true);
  } else if (fs.exists(join_path(path, "config.json"))) {
    const PublicConfig config =
        read_public_config(fs.read(join_path(path, "config.json")), join_path(path, "config.json"));
    state->config = config.config;
    state->layout = config.layout;
    state->public_set = SafetensorsSet::open(fs, path);
    check_size(*state->public_set, config, path);
    state->dtype = state->compute = main_dtype(*state->public_set);
    for (const char* name : kLanguageFiles) {
      const std::string text = read_if_there(fs, join_path(path, name));
      if (!text.empty()) state->language_files.push_back({name, text});
    }
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
  state->dtype = checkpoint.entry(std::string(kWeightPrefix) + "model.embed_tokens.weight").dtype;
  state->compute = compute_of(checkpoint, state->dtype);
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
const std::string& ModelDirectory::tokenizer_json() const { return state_->tokenizer_json; }
const std::vector<CheckpointFile>& ModelDirectory::language_files() const {
  return state_->language_files;
}

namespace {

// From a buffer of all experts to one of some.
void copy_held(const ParameterTable& whole, const Tensor& from, const ParameterTable& table,
               const Tensor& to) {
  for (const Parameter& p : table.all) {
    const Tensor all = view(*whole.find(p.name), from), held = view(p, to);
    const Tensor rows = all.rows(p.row_begin, p.row_begin + p.dims[0]);
    std::memcpy(held.data, rows.data, static_cast<size_t>(held.bytes()));
  }
}

}  // namespace

void ModelDirectory::read_weights(const Tensor& master) const {
  read_weights(build_parameters(state_->config), master);
}

void ModelDirectory::read_weights(const ParameterTable& table, const Tensor& master) const {
  if (state_->public_set) {
    const ParameterTable whole = build_parameters(state_->config);
    if (whole.total_count == table.total_count) {
      read_public_weights(*state_->public_set, state_->config, state_->layout, table, master);
      return;
    }
    std::vector<float> all(static_cast<size_t>(whole.total_count));
    const Tensor flat = make_tensor(all.data(), DType::kF32, {whole.total_count});
    read_public_weights(*state_->public_set, state_->config, state_->layout, whole, flat);
    copy_held(whole, flat, table, master);
    return;
  }
  std::vector<BF16> narrow;
  for (const Parameter& p : table.all) {
    const std::string name = kWeightPrefix + p.name;
    Tensor out = view(p, master);
    if (state_->checkpoint->entry(name).dtype != DType::kBF16) {
      state_->checkpoint->read_rows(name, p.row_begin, out);
      continue;
    }
    narrow.resize(static_cast<size_t>(out.count()));
    Tensor stored = out;
    stored.dtype = DType::kBF16;
    stored.data = narrow.data();
    state_->checkpoint->read_rows(name, p.row_begin, stored);
    for (int64_t i = 0; i < out.count(); ++i)
      out.as<float>()[i] = to_float(narrow[static_cast<size_t>(i)]);
  }
}

void write_model_directory(FileSystem& fs, const std::string& directory, const ModelConfig& config,
                           const Tensor& master, DType dtype,
                           std::span<const CheckpointFile> language_files) {
  if (fs.exists(directory))
    throw_error(Code::kInvalidArgument,
                "write model {}: it exists already; remove it or choose another name", directory);
  ModelConfig printed = config;
  CheckpointInfo info;
  info.config = "[model]\n" + print_fields(model_fields(printed));
  const ParameterTable table = build_parameters(config);
  std::vector<CheckpointTensor> tensors;
  std::vector<std::vector<BF16>> narrow;
  for (const Parameter& p : table.all) {
    Tensor t = view(p, master);
    if (dtype == DType::kBF16 && p.kind != Parameter::Kind::kBalance) {
      std::vector<BF16>& values = narrow.emplace_back();
      for (int64_t i = 0; i < t.count(); ++i) values.push_back(to_bf16(t.as<float>()[i]));
      t.dtype = DType::kBF16;
      t.data = values.data();
    }
    tensors.push_back({kWeightPrefix + p.name, t});
  }
  // A checkpoint is written under its step's name; a model directory has its own.
  const std::string root = directory + ".partial";
  fs.make_directories(root);
  const std::unique_ptr<FileLock> lock = FileLock::take(root, "write model " + directory);
  for (const std::string& name : fs.list(root)) {  // what a killed one leaves
    if (name.starts_with("step-0") || name == kLockName) continue;
    throw_error(Code::kInvalidArgument,
                "write model {}: {} holds {}, which is none of ours; remove it or choose another "
                "name",
                directory, root, name);
  }
  const CheckpointWritten written = write_checkpoint(fs, root, info, tensors, language_files);
  fs.rename(written.directory, directory);
  fs.sync_directory(parent_path(directory));
  fs.remove_all(root);
}

}  // namespace moraine
