// RailSecret: what shows that a peer belongs to this job: keyed hashes over what both sides said.
//
// With an empty secret a proof still tells a damaged or foreign hello from ours, but keeps nobody out who knows the
// protocol. Nothing is encrypted.
//
// Source:  HMAC-SHA256 and AES-256-GMAC of OpenSSL; proofs and tags are compared in constant time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace moraine {

using RailProof = std::array<std::byte, 32>;
using RailNonce = std::array<std::byte, 16>;

RailNonce make_nonce();  // unpredictable
RailProof prove(const std::string& secret, std::span<const std::byte> said);
bool same_proof(const RailProof& a, const RailProof& b);

using RailTag = std::array<std::byte, 16>;

// Tags of what one end of one connection says. A number is used once for each key; a tag fits no other number.
class RailSealer {
 public:
  explicit RailSealer(const RailProof& key);
  ~RailSealer();
  RailSealer(RailSealer&&) noexcept;
  RailTag tag(uint64_t number, std::span<const std::byte> said);
  bool fits(const RailTag& tag, uint64_t number, std::span<const std::byte> said);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moraine
