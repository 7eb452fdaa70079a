// Fuzz: a checkpoint's manifest; the hash at its end is made to fit, or nothing else would be looked at.
#include "checkpoint/manifest.h"

#include "base/hash.h"
#include "testing/fuzz.h"

namespace moraine {

void fuzz_one(std::string_view input) {
  testing::parses_or_throws_error([&] { parse_manifest(input); });
  constexpr std::string_view kKey = "\n\"manifest_hash\": \"";
  std::string text(input.substr(0, input.rfind(kKey)));
  const Hash128 hash = hash_bytes(text.data(), static_cast<int64_t>(text.size()));
  text.append(kKey).append(hash_hex(hash)).append("\"\n}\n");
  testing::parses_or_throws_error([&] {
    // What is accepted is written again, and that is accepted as well.
    const std::string again = manifest_text(parse_manifest(text));
    if (manifest_text(parse_manifest(again)) != again) std::abort();
  });
}

}  // namespace moraine
