// Api keys: the only file that includes OpenSSL's hashes.
#include "server/api_keys.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <sstream>

#include "base/error.h"

namespace moraine {

ApiKeys::Digest ApiKeys::digest_of(std::string_view text) {
  Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return digest;
}

ApiKeys ApiKeys::load(FileSystem& fs, const std::string& path) {
  constexpr size_t kShortest = 16;
  ApiKeys keys;
  std::istringstream lines(fs.read(path));
  std::string line;
  for (int64_t number = 1; std::getline(lines, line); ++number) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (line.empty() || line[0] == '#') continue;
    bool visible = true;
    for (char c : line) visible = visible && c > ' ' && c < 127;
    if (!visible || line.size() < kShortest)
      throw_error(Code::kInvalidArgument,
                  "read API keys {}: line {} has {} bytes; wanted at least {} visible ASCII "
                  "characters without spaces",
                  path, number, line.size(), kShortest);
    keys.digests_.push_back(digest_of(line));
  }
  if (keys.none())
    throw_error(Code::kInvalidArgument, "read API keys {}: there is none; wanted one on each line",
                path);
  return keys;
}

bool ApiKeys::allow(std::string_view given) const {
  const Digest digest = digest_of(given);
  int same = 0;
  for (const Digest& each : digests_)
    same |= CRYPTO_memcmp(digest.data(), each.data(), digest.size()) == 0;
  return same != 0;
}

std::string ApiKeys::salt_of(std::string_view key) {
  std::string salt;
  for (uint8_t byte : digest_of("moraine prefix cache\n" + std::string(key)))
    salt += fmt::format("{:02x}", byte);
  return salt;
}

}  // namespace moraine
