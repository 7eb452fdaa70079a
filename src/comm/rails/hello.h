// Hello: how both ends of a new connection find out that they belong together.
//
//   connector -> acceptor   its hello
//   acceptor -> connector   its own hello, and a proof over both
//   connector -> acceptor   a proof over both
//
// An acceptor says nothing before it has seen a hello that fits: run, generation, ranks, rail. Each proof is keyed
// with the job's secret and names its sender's part, so that neither can be sent back or used twice. With a secret
// every frame that follows has tags (rail_connection.h).
//
// Errors:  none; what does not fit is a value, counted by its kind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "comm/rails/secret.h"

namespace moraine {

struct Hello {
  static constexpr uint64_t kMagic = 0x31656e6961726f6d;  // "moraine1"
  uint64_t magic = kMagic;
  uint64_t run = 0;         // of the job
  uint64_t connection = 0;  // chosen by the connector, repeated by the acceptor
  uint32_t generation = 0;
  int32_t from = 0, to = 0, rail = 0;
  RailNonce nonce = {};
};
static_assert(sizeof(Hello) == 56);

enum class HelloFault : uint8_t { kNone, kGarbage, kOtherRun, kOldGeneration, kOtherRank };

// Who we are and whom we may meet.
struct HelloPlace {
  uint64_t run = 0;
  uint32_t generation = 0;
  int32_t rank = 0, ranks = 0, rails = 0;
};
HelloFault check_hello(const Hello& hello, const HelloPlace& place);

// The last two make keys: of the frames that each says.
enum class HelloPart : uint8_t {
  kConnector = 'C',
  kAcceptor = 'A',
  kConnectorFrames = 'c',
  kAcceptorFrames = 'a',
};
RailProof prove_hello(const std::string& secret, HelloPart part, const Hello& connector,
                      const Hello& acceptor);

}  // namespace moraine
