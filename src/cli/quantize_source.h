// QuantizeSource: the weights that are packed, and another form of the same model that stands for them.
#pragma once

#include <memory>
#include <string>

#include "model/model_directory.h"
#include "model/packed_model.h"
#include "model/parameters.h"

namespace moraine {

// Of a model that is packed already, the rounded weights of its packs.
class QuantizeSource {
 public:
  // `directory` outlives it. Errors: kInvalidArgument if it has packs of integers; kCorrupt.
  explicit QuantizeSource(const ModelDirectory& directory);

  // Before read(): mapping packs verifies none; what has checksums otherwise is verified as it is read. Shows progress.
  void verify() const;
  const ModelDirectory& directory() const { return directory_; }
  // Elements from `begin` on of the flat buffer of build_parameters.
  void read(int64_t begin, const Tensor& out) const;

 private:
  const ModelDirectory& directory_;
  const ParameterTable table_;
  const std::unique_ptr<PackedModel> packed_;  // null: it is not packed
};

// What a report tells is the loss against bf16, and packs of integers have losses of their own.
// Errors: kInvalidArgument if `reference`, which is at `path`, is another model, has other weights, or such packs.
void check_reference(const QuantizeSource& model, const ModelDirectory& reference,
                     const std::string& path);

}  // namespace moraine
