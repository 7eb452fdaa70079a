// ApiKeys: who may ask, by the keys of a file.
//
//   one key on a line; empty lines and lines that begin with # are none
//
// Keys are kept as SHA-256 and compared in a time that does not depend on them; none is ever logged.
// Errors:  load: those of reading the file; kInvalidArgument for a file without a key, and for keys
//          shorter than 16 bytes or with others than visible ASCII characters.
// Threads: immutable.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"

namespace moraine {

class ApiKeys {
 public:
  ApiKeys() = default;  // none: everybody may ask
  static ApiKeys load(FileSystem& fs, const std::string& path);

  bool none() const { return digests_.empty(); }
  // `given` is one of the keys.
  bool allow(std::string_view given) const;
  // What keeps the cache of one key from the others': it can not be turned back into the key.
  static std::string salt_of(std::string_view key);

 private:
  using Digest = std::array<uint8_t, 32>;
  static Digest digest_of(std::string_view text);
  std::vector<Digest> digests_;
};

}  // namespace moraine
