// AskedFlip: looks at the page where the memory is.
#include "base/asked_flip.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/fault_point.h"
#include "base/heartbeat.h"
#include "base/log.h"

namespace moraine {
namespace {

constexpr int kWhereBits = 32;

bool is_zero(std::byte b) { return b == std::byte{0}; }

std::string_view point_of(uint64_t asked) {
  switch (static_cast<FlipPlace>(asked >> kWhereBits)) {
    case FlipPlace::kWeights:
      return "step.weights";
    case FlipPlace::kGradients:
      return "step.slot_gradients";
    default:
      return "";
  }
}

void flip(const char* name, std::span<std::byte> bytes) {
  uint64_t asked = heartbeat().asked_flip.load();
  if (asked == 0 || bytes.empty() || point_of(asked) != name) return;
  if (!heartbeat().asked_flip.compare_exchange_strong(asked, 0)) return;  // taken back
  const double share = static_cast<double>(static_cast<uint32_t>(asked)) / 4294967296.0;
  auto bit = static_cast<uint64_t>(share * static_cast<double>(8 * bytes.size()));
  const std::span<std::byte> word = bytes.subspan(bit / 32 * 4);
  // Gradients begin with zeros, which they are added to: a small number there would be rounded away. This is 2.
  if (word.size() >= 4 && std::all_of(word.begin(), word.begin() + 4, is_zero))
    bit = bit / 32 * 32 + 30;
  bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
  log_event(Level::kWarning, "chaos.flipped", "point={} bit={} bytes={}", name, bit, bytes.size());
}

}  // namespace

uint64_t asked_flip(FlipPlace place, double where) {
  return uint64_t{static_cast<uint8_t>(place)} << kWhereBits |
         static_cast<uint32_t>(where * 4294967296.0);
}

void obey_flips() {
  const char* text = std::getenv(kFlipsVariable);
  if (text != nullptr && *text != '\0') set_fault_bytes(flip);
}

}  // namespace moraine
