// Fuzz: a zstd stream, read in pieces of a size that the first byte chooses.
#include <algorithm>
#include <vector>

#include "data/zstd_reader.h"
#include "testing/fuzz.h"

namespace moraine {

void fuzz_one(std::string_view input) {
  if (input.empty()) return;
  std::vector<uint8_t> out(size_t{1} + static_cast<uint8_t>(input[0]) * 16);
  input.remove_prefix(1);
  const std::vector<uint8_t> file(input.begin(),
                                  input.end());  // of its own: no byte may be read behind it
  testing::parses_or_throws_error([&] {
    ZstdReader reader(file, "fuzz");
    constexpr int64_t kMost =
        1 << 22;  // small streams may hold much: what follows is no other code
    for (int64_t total = 0; total < kMost;) {
      const int64_t n = reader.read(out.data(), static_cast<int64_t>(out.size()));
      if (n == 0) break;
      if (n < 0 || n > static_cast<int64_t>(out.size())) std::abort();
      if (reader.file_offset() > static_cast<int64_t>(file.size())) std::abort();
      total += n;
    }
  });
}

}  // namespace moraine
