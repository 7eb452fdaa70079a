// AskAhead: memory that is needed next, asked for into L2 while something else is computed.
//
// In several places at once: memory gives one stream of lines 13 GB/s where it gives eight 20 (2 threads of a
// Sapphire Rapids, products of 32 rows and fewer). A Zen 5 gets more from one stream that is asked for into L1
// without a break, from Tile::b on into `data` (linear_bf16.cc).
#pragma once

#include <algorithm>
#include <cstdint>

namespace moraine::cpu {

struct Ahead {
  static constexpr int64_t kStreams = 8, kLine = 64;
  const uint8_t* data = nullptr;
  int64_t stream = 0;  // bytes from one stream to the next
  int64_t lines = 0;   // of each stream
};

// Asks for a share of it at every one of `steps` calls of step(), which may be none.
class AskAhead {
 public:
  AskAhead(const Ahead& ahead, int64_t steps)
      : ahead_(ahead), share_(steps > 0 ? (ahead.lines + steps - 1) / steps : 0) {}
  // In line by force: of a function that only prefetches, gcc 12 drops the calls.
  [[gnu::always_inline]] void step() {
    const int64_t end = std::min(line_ + share_, ahead_.lines);
    for (; line_ < end; ++line_) {
      const uint8_t* at = ahead_.data + line_ * Ahead::kLine;
      for (int64_t s = 0; s < Ahead::kStreams; ++s)
        __builtin_prefetch(at + s * ahead_.stream, 0, 2);
    }
  }

 private:
  const Ahead ahead_;
  const int64_t share_;
  int64_t line_ = 0;
};

}  // namespace moraine::cpu
