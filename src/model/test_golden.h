// TestGolden: a golden model's file (tests/golden): its weights, its ids as documents, and what the public
// implementation makes of them.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/safetensors/file.h"
#include "model/model.h"
#include "model/model_directory.h"
#include "testing/places.h"
#include "testing/rig.h"

namespace moraine::testing {

// The golden files are f32 runs: their own distance from a true f64 run is at most 1.4e-5 in a logit and 1.3e-5
// in a gradient's norm (their README). Ours is another draw of the same spread: three of it on top of theirs.
inline constexpr double kF32Gradient = 4 * 1.3e-5, kF32Logit = 4 * 1.4e-5;

struct GoldenFile {
  explicit GoldenFile(const std::string& name, Backend backend = Backend::kCpu)
      : rig(backend),
        path(source_path("tests/golden/" + name)),
        expected(SafetensorsFile::open(posix_file_system(), path + "/expected.safetensors")),
        directory(ModelDirectory::open(posix_file_system(), path)) {
    weights = rig.zeros({build_parameters(directory.config()).total_count}, DType::kF32);
    directory.read_weights(weights);
    const SafetensorsEntry& ids = expected.get("input_ids");
    rows = ids.shape[0], length = ids.shape[1];
    token = rig.zeros({rows * length}, DType::kI32);
    target = rig.zeros({rows * length}, DType::kI32);
    const int64_t* values = static_cast<const int64_t*>(view(ids).data);
    for (int64_t i = 0; i < rows * length; ++i) {
      token.as<int32_t>()[i] = static_cast<int32_t>(values[i]);
      target.as<int32_t>()[i] = (i + 1) % length == 0 ? -1 : static_cast<int32_t>(values[i + 1]);
    }
  }

  // The first `documents` rows of ids; 0: all.
  Batch batch(int64_t documents = 0) {
    const int64_t n = documents > 0 ? documents : rows;
    Batch b{.token = token.rows(0, n * length),
            .position = rig.zeros({n * length}, DType::kI32),
            .segments = {}};
    std::vector<int64_t> begins;
    for (int64_t r = 0; r < n; ++r) begins.push_back(r * length);
    set_documents(b, begins);
    return b;
  }
  int64_t targets() const { return rows * (length - 1); }
  Tensor want(const std::string& key) {
    const SafetensorsEntry& entry = expected.get(key);
    Tensor t = rig.zeros({entry.count}, DType::kF32);
    read_as_f32(entry, t.as<float>());
    return t;
  }

  Rig rig;
  const std::string path;
  SafetensorsFile expected;
  ModelDirectory directory;
  Tensor weights, token, target;  // weights: flat, f32
  int64_t rows = 0, length = 0;
};

}  // namespace moraine::testing
