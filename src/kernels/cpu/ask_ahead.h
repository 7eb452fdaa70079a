// AskAhead: memory that is needed next, asked for into L2 while something else is computed.
//
// In several places at once: memory gives one stream of lines 13 GB/s where it gives eight 20 (2 threads of a
// Sapphire Rapids, products of 32 rows and fewer). Tiles of bf16 on a Zen 4 and a Zen 5 get more from one stream,
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
  bool part = false;   // other tiles ask for the rest
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

// A part of some panels, asked for while the part before it is multiplied: a line of every panel, then the next one of
// every panel. One row on a Zen 3 gets 1.5 to 2 times as much from memory with eight panels asked for in this way, and
// with the same lines one panel after another a tenth more than without. Each is a long stream, which the hardware's
// own prefetchers then follow, and it must not wait for the others.
class AskPanels {
 public:
  static constexpr int64_t kPanels = 8;
  AskPanels(const uint8_t* part, int64_t stride, int64_t panels, int64_t bytes)
      : part_(part), stride_(stride), panels_(panels), lines_((bytes + kLine - 1) / kLine) {}
  // Asks for share i of n; of none for nothing. In line by force, as above.
  [[gnu::always_inline]] void share(int64_t i, int64_t n) const {
    if (n == 0) return;
    for (int64_t line = lines_ * i / n; line < lines_ * (i + 1) / n; ++line) {
      for (int64_t p = 0; p < panels_; ++p)
        __builtin_prefetch(part_ + p * stride_ + line * kLine, 0, 2);
    }
  }

 private:
  static constexpr int64_t kLine = Ahead::kLine;
  const uint8_t* const part_;
  const int64_t stride_, panels_, lines_;
};

// Rows that are needed later, and into which cache they are asked for.
struct RowsAhead {
  const uint8_t* first = nullptr;
  int64_t rows = 0, bytes = 0;  // of each row
  int64_t stride = 0;           // bytes from one row to the next
  bool soon = false;            // into L1, else into L2
};

// Asks for them in about `turns` calls of share(), a share at each, row after row: for runs of a few lines, far
// apart, which the machine does not foresee.
class AskRows {
 public:
  AskRows() = default;
  AskRows(const RowsAhead& ahead, int64_t turns)
      : ahead_(ahead),
        lines_((ahead.rows * ((ahead.bytes + kLine - 1) / kLine) + turns - 1) / turns) {}
  bool any() const { return ahead_.rows > 0; }
  [[gnu::always_inline]] void share() {  // as above
    for (int64_t i = 0; i < lines_ && ahead_.rows > 0; ++i) {
      const uint8_t* line = ahead_.first + at_;
      ahead_.soon ? __builtin_prefetch(line) : __builtin_prefetch(line, 0, 2);
      at_ += kLine;
      if (at_ < ahead_.bytes) continue;
      at_ = 0, ahead_.first += ahead_.stride, --ahead_.rows;
    }
  }

 private:
  static constexpr int64_t kLine = Ahead::kLine;
  RowsAhead ahead_;    // what is left of it
  int64_t lines_ = 0;  // at a call
  int64_t at_ = 0;     // bytes into the first row
};

}  // namespace moraine::cpu
