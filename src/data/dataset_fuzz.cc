// Fuzz: a dataset's manifest, alone and as the door to shards that are not there.
#include "data/dataset.h"

#include "base/file_system.h"
#include "testing/fuzz.h"

namespace moraine {

void fuzz_one(std::string_view input) {
  static testing::FuzzFile manifest(kDatasetManifestName);
  manifest.write(input);
  testing::parses_or_throws_error([&] { read_manifest(posix_file_system(), manifest.folder()); });
  testing::parses_or_throws_error([&] { Dataset(posix_file_system(), manifest.folder()); });
}

}  // namespace moraine
