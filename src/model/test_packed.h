// TestPacked: packs a model of a folder, for tests.
#pragma once

#include <string>

#include "model/model_directory.h"
#include "model/packed_model.h"
#include "model/write_packed.h"
#include "testing/rig.h"

namespace moraine::testing {

inline void pack_model(FileSystem& fs, const ModelDirectory& from, const std::string& out,
                       const char* type = "bf16") {
  Rig rig(Backend::kCpu, 2);
  const ParameterTable table = build_parameters(from.config());
  write_packed_model(
      rig.ctx, fs, out,
      {.config = from.config(),
       .weights = [&](int64_t begin, const Tensor& t) { from.read_elements(table, begin, t); },
       .type = *find_pack_type(type),
       .step = from.step(),
       .language_files = from.language_files()});
}

}  // namespace moraine::testing
