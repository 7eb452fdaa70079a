// Tensors that are made while a checkpoint is written.
#include "model/write_model.h"

#include <cstring>

#include "model/model_directory.h"  // kWeightPrefix
#include "model/model_place.h"

namespace moraine {
namespace {

// One parameter, in the stored type.
TensorBytes stored_bytes(const ModelToWrite& model, const Parameter& p, DType dtype) {
  return [&model, begin = p.offset, dtype](int64_t offset, int64_t bytes, void* out) {
    const int64_t width = dtype_bytes(dtype), count = bytes / width;
    MR_CHECK(offset % width == 0 && bytes % width == 0, "[%ld, +%ld)", long(offset), long(bytes));
    if (dtype == DType::kF32)
      return model.weights(begin + offset / width, make_tensor(out, dtype, {count}));
    std::vector<float> wide(static_cast<size_t>(count));
    model.weights(begin + offset / width, make_tensor(wide.data(), DType::kF32, {count}));
    for (int64_t i = 0; i < count; ++i)
      static_cast<BF16*>(out)[i] = to_bf16(wide[static_cast<size_t>(i)]);
  };
}

}  // namespace

void write_model_directory(FileSystem& fs, const std::string& directory,
                           const ModelToWrite& model) {
  ModelConfig printed = model.config;
  DirectoryContent content{.info = {}, .tensors = {}, .files = model.language_files, .options = {}};
  content.info.seed = model.seed;
  content.info.config = "[model]\n" + print_fields(model_fields(printed));
  const ParameterTable table = build_parameters(model.config);
  for (const Parameter& p : table.all) {
    Tensor t = view(p, make_tensor(nullptr, DType::kF32, {table.total_count}));
    if (p.kind != Parameter::Kind::kBalance) t.dtype = model.dtype;
    content.tensors.push_back({kWeightPrefix + p.name, t, stored_bytes(model, p, t.dtype)});
  }
  count_progress(content, model.progress);
  write_directory(fs, directory, content);
}

WeightSource weights_in(const Tensor& master) {
  return [from = master.as<float>()](int64_t begin, const Tensor& out) {
    std::memcpy(out.data, from + begin, static_cast<size_t>(out.bytes()));
  };
}

}  // namespace moraine
