// ContentHash: the lines that are hashed.
#include "checkpoint/content_hash.h"

#include <fmt/format.h>

#include "base/json_quote.h"
#include "checkpoint/safetensors/file.h"

namespace moraine {

void ContentHash::add_step(int64_t step) { hasher_.add_text(fmt::format("step {}\n", step)); }

void ContentHash::add_tensor(std::string_view name, std::string_view type,
                             std::span<const int64_t> shape, const Hash128& bytes_hash) {
  hasher_.add_text(fmt::format("{} {} {} {}\n", json_quote(name), type, shape_text(shape),
                               hash_hex(bytes_hash)));
}

}  // namespace moraine
