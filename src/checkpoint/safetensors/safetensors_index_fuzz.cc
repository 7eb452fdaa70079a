// Fuzz: the index of a public model folder, beside one good part.
#include <string>

#include "base/file_system.h"
#include "checkpoint/safetensors/set.h"
#include "testing/fuzz.h"

namespace moraine {

void fuzz_one(std::string_view input) {
  static testing::FuzzFile index("model.safetensors.index.json");
  static const bool part_there = [] {
    const std::string header = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
    std::string part(8, '\0');
    part[0] = static_cast<char>(header.size());
    part += header + std::string(8, '\0');
    posix_file_system().write_atomic(join_path(index.folder(), "a.safetensors"), part);
    return true;
  }();
  if (!part_there) return;
  index.write(input);
  testing::parses_or_throws_error([&] {
    const SafetensorsSet set = SafetensorsSet::open(posix_file_system(), index.folder());
    for (const SafetensorsEntry* entry : set.entries()) set.get(entry->name);
  });
}

}  // namespace moraine
