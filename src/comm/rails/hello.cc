// Hello: compares what was said with what fits.
#include "comm/rails/hello.h"

#include <array>
#include <cstring>

namespace moraine {

HelloFault check_hello(const Hello& h, const HelloPlace& place) {
  if (h.magic != Hello::kMagic) return HelloFault::kGarbage;
  if (h.run != place.run) return HelloFault::kOtherRun;
  if (h.generation != place.generation) return HelloFault::kOldGeneration;
  const bool fits = h.to == place.rank && h.from >= 0 && h.from < place.ranks &&
                    h.from != place.rank && h.rail >= 0 && h.rail < place.rails;
  return fits ? HelloFault::kNone : HelloFault::kOtherRank;
}

RailProof prove_hello(const std::string& secret, HelloPart part, const Hello& connector,
                      const Hello& acceptor) {
  std::array<std::byte, 1 + 2 * sizeof(Hello)> said;
  said[0] = static_cast<std::byte>(part);
  std::memcpy(said.data() + 1, &connector, sizeof connector);
  std::memcpy(said.data() + 1 + sizeof connector, &acceptor, sizeof acceptor);
  return prove(secret, said);
}

}  // namespace moraine
