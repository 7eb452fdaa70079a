// StreamFuzz: a compressed stream, read in pieces of a size that the input's first byte chooses.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "testing/fuzz.h"

namespace moraine::testing {

// Reader: GzipReader or ZstdReader.
template <class Reader>
void read_stream(std::string_view input) {
  if (input.empty()) return;
  std::vector<uint8_t> out(size_t{1} + static_cast<uint8_t>(input[0]) * 16);
  input.remove_prefix(1);
  const std::vector<uint8_t> file(input.begin(),
                                  input.end());  // of its own: no byte may be read behind it
  parses_or_throws_error([&] {
    Reader reader(file, "fuzz");
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

}  // namespace moraine::testing
