// RailSecret: what shows that a peer belongs to this job: a keyed hash over what both sides said.
//
// With an empty secret it still tells a damaged or foreign hello from ours, but keeps nobody out who knows the
// protocol. What is said after the hello is neither signed nor encrypted: who can change packets on the way needs
// another defence (a network of its own, WireGuard).
//
// Source:  HMAC-SHA256 of OpenSSL; proofs are compared in constant time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace moraine {

using RailProof = std::array<std::byte, 32>;
using RailNonce = std::array<std::byte, 16>;

RailNonce make_nonce();  // unpredictable
RailProof prove(const std::string& secret, std::span<const std::byte> said);
bool same_proof(const RailProof& a, const RailProof& b);

}  // namespace moraine
