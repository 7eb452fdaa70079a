// ModelDirectory: a model on disk, whatever wrote it: our checkpoint, a run, or a public folder.
//
//   checkpoint  step-<n>/ or an imported model: manifest.json, weights, config, tokenizer
//   run         a training output: its newest checkpoint that verifies
//   public      config.json and safetensors in the native or legacy layout
//   packed      a checkpoint of packs, to compute with (model/packed_model.h); weights are read of packs of bf16 alone,
//               by PackedModel::read_elements
//
// Errors: kNotFound if the path is none of these; else those of the formats.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "checkpoint/checkpoint.h"
#include "model/parameters.h"

namespace moraine {

class PackedModel;  // model/packed_model.h

constexpr const char* kWeightPrefix = "weights.";  // of parameter names in checkpoints

class ModelDirectory {
 public:
  // kAsRead: of a checkpoint, what is read is checked then, not every byte now.
  enum class Verify : uint8_t { kNow, kAsRead };
  static ModelDirectory open(FileSystem& fs, const std::string& path, Verify verify = Verify::kNow);
  ModelDirectory(ModelDirectory&&) noexcept;
  ~ModelDirectory();

  const std::string& path() const;  // the directory that was chosen
  const ModelConfig& config() const;
  DType stored_dtype() const;  // bf16 if most weights are stored so, else f32
  // What the model computes in if nobody says: a training run's own type (its validation loss and this
  // directory's answers are then the same bits), else stored_dtype().
  DType compute_dtype() const;
  int64_t step() const;  // of the checkpoint; 0: a public folder
  bool packed() const;
  std::unique_ptr<PackedModel> open_packed() const;  // if packed
  const std::string& tokenizer_json() const;         // "" if the model came without
  // All that came with the weights about text: tokenizer.json and, where they are, the files beside it that
  // name special tokens, ends of generation and the chat template.
  const std::vector<CheckpointFile>& language_files() const;
  // Every weight is there in its shape and a type that can be read. kInvalidArgument: packed, there are none.
  // Cost: names; of a public model with a head of its own, that.
  void check_weights() const;
  // Fills the flat f32 buffer, [build_parameters(config()).total_count], or that of a table with only some of
  // the experts. Checks the weights first.
  void read_weights(const Tensor& master) const;
  void read_weights(const ParameterTable& table, const Tensor& master) const;
  // Elements [begin, begin + out.count()) of the table's flat buffer alone, as f32. After check_weights.
  void read_elements(const ParameterTable& table, int64_t begin, const Tensor& out) const;

 private:
  struct State;
  explicit ModelDirectory(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// What a model's folder says about text: tokenizer.json and the files that public folders have beside it.
std::vector<CheckpointFile> read_language_files(FileSystem& fs, const std::string& folder);

}  // namespace moraine
