// AmxTiles: the eight tile registers of a core, for products of bf16 pairs.
//
//   dot   c[i,j] += sum_p a[i,p] * b[p,j]     i < 16 rows, p < 16 words, j < 16 columns
//
// A tile is up to 16 rows of up to 64 bytes. A word is a pair of bf16, neighbours along the sum, the
// first one low; c is f32. One dot, per element, in exactly this order (testing/emulated_tiles.h is
// the same in scalar code; denormal inputs and results are zeros with their sign):
//
//   E = O = +0
//   E = fma(a[2p], b[2p], E) ;  O = fma(a[2p+1], b[2p+1], O)      p = 0 .. 15
//   c = c + (E + O)
//
// Order:    rows and columns do not meet: an element's bits depend on its row of a and column of b
//           only. A tile that is short along the sum gives the bits of one padded with zeros.
// Aliasing: none: loads and stores are memory to register.
// Threads:  registers are the thread's own. An object configures them and its end releases them:
//           both cost 0.1 us, so a task keeps one. At most one object per thread at a time.
// Errors:   using an unconfigured tile is SIGILL: without permission (amx_permitted) any is.
// Source:   Intel's Software Developer's Manual, TDPBF16PS; flushing as measured (denormal after
//           rounding to an unbounded exponent).
#pragma once

#include <cstdint>

namespace moraine::cpu {

// Whether this machine has tiles for bf16 and the kernel lets this process use them. The first call
// asks for the permission.
bool amx_permitted();
bool amx_has_int8();

constexpr int64_t kAmxRows = 16;   // of a full tile
constexpr int64_t kAmxWords = 16;  // of a full row; also the columns of c, and the steps of a dot
constexpr int64_t kAmxBytes = 1024;

// What ldtilecfg reads.
struct alignas(64) TileShapes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  constexpr TileShapes& set(int tile, int64_t tile_rows, int64_t words) {
    row_bytes[tile] = static_cast<uint16_t>(4 * words);
    rows[tile] = static_cast<uint8_t>(tile_rows);
    return *this;
  }
};
static_assert(sizeof(TileShapes) == 64);

#if defined(__x86_64__)

// Instructions as text: gcc's intrinsics do not tell the compiler which memory they read and write,
// so stores before them get moved behind them. Tile numbers are literals.
class AmxTiles {
 public:
  explicit AmxTiles(const TileShapes& shapes) { asm volatile("ldtilecfg %0" ::"m"(shapes)); }
  ~AmxTiles() { asm volatile("tilerelease"); }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;

  template <int kTile>
  void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }
  // stride: bytes from one row to the next. Rows off 64-byte boundaries load at a fifth of the speed.
  template <int kTile>
  void load(const void* from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  void store(void* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kC, int kA, int kB>
  void dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
  }
  // c[i,j] += sum over four bytes of each word p of a[i,p] * b[p,j], a signed, b unsigned: integers. Needs
  // amx_has_int8.
  template <int kC, int kA, int kB>
  void dot_bytes() {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
  }
};

#endif

}  // namespace moraine::cpu
