// Fuzz: one safetensors file: opened, every entry looked at and read.
#include "checkpoint/safetensors/file.h"

#include <vector>

#include "base/file_system.h"
#include "testing/fuzz.h"

namespace moraine {

void fuzz_one(std::string_view input) {
  static testing::FuzzFile file("model.safetensors");
  file.write(input);
  testing::parses_or_throws_error([&] {
    const SafetensorsFile weights = SafetensorsFile::open(posix_file_system(), file.path());
    std::vector<float> values;
    for (const SafetensorsEntry& entry : weights.entries()) {
      if (weights.find(entry.name) != &entry) std::abort();
      if (can_view(entry)) view(entry);
      if (!is_float_type(entry.type)) continue;
      values.resize(static_cast<size_t>(entry.count));
      read_as_f32(entry, values.data());
    }
  });
}

}  // namespace moraine
