// Tiles of quantised products with vpdpbusd: four products of a byte each a lane. A block's sums are in registers, as
// many as those hold, and are then added to floats in memory.
#include "kernels/cpu/linear_quantised.h"
#include "kernels/cpu/linear_quantised_lanes.h"
#include "kernels/isa.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstring>
#include <utility>

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma,avx2,bmi,bmi2")

namespace moraine::cpu {
namespace {

constexpr int kFew = 4;  // rows that take all blocks of a panel, or of several, one after the other
constexpr int kFewFar = 6;  // the same, of panels from memory where the tile asks for none
constexpr int kMany = 14;   // at a time otherwise: with two weights and a mask or two all registers
static_assert((kMany + 1) / 2 > kFew, "all parts of many rows are many");

// What a tile asks for between its products.
enum class AsksFor { kNothing, kFurtherIntoL2, kFurtherIntoL1, kNextBlock };

// Panels at once, each a stream of its own: few rows wait for memory, which gives one stream 85 to 95 % of what it
// gives four (Zen 4, a file's pages), and two as much where lines come into L1 (Zen 5). More rows would have no
// registers for their sums.
template <AsksFor kAsks>
constexpr int panels_for(int rows) {
  return rows == 1 && kAsks != AsksFor::kFurtherIntoL1 ? 4 : rows <= 4 ? 2 : 1;
}

// A block of some panels.
struct Weights {
  const uint8_t* integers;
  const uint8_t* scales;
  int64_t stride;                  // bytes from a panel to the next
  const uint8_t* next = nullptr;   // of many rows: the block behind it in the pack
  const uint8_t* later = nullptr;  // and of the panel behind, the same block; or null
};

// The same block of some rows, and their floats: there are none yet in the first block of a product.
struct Rows {
  const QuantisedRow* rows;
  int64_t block;
  float* c;
  int64_t c_stride;
  bool add;
};
constexpr int64_t kRow = sizeof(QuantisedRow);

// Four inputs of a row, in every lane.
HWY_INLINE __m512i four(const int8_t* r) {
  int32_t word;
  std::memcpy(&word, r, sizeof word);
  return _mm512_set1_epi32(word);
}

// sum + products of four. In assembly: with the intrinsic, gcc 12 moves sums from register to register.
HWY_INLINE void add_products(__m512i& sum, __m512i q, __m512i x) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(q), "v"(x));
}

// Asks for lines [begin, end) of a step of a run.
enum Into { kIntoL2 = 2, kIntoL1 = 3 };
template <int kBits>
constexpr int64_t kLines = kRunBytes<kBits> / kSteps<kBits> / 64;  // of a step
template <int kBits, Into kInto>
HWY_INLINE void ask_for_lines(const uint8_t* run, int64_t step, int64_t begin, int64_t end) {
  HWY_UNROLL(6)
  for (int64_t line = begin; line < end; ++line)
    __builtin_prefetch(run + (step * kLines<kBits> + line) * 64, 0, kInto);
}

// Lines of P panels that are further on, where nobody else asks: few rows wait for memory less by it than by the
// machine's own prefetch alone. 4 KiB into L2 (one row Zen 4, one to six Emerald Rapids, all lines of a step at once),
// 2 KiB into L1 (Zen 5). Some between the products of each part: in one go requests waited for one another on a Zen 5,
// and then none was on its way while the products went on.
template <int kBits, int kPart, Into kInto, int P>
HWY_INLINE void ask_further_on(const Weights& w, int64_t step) {
  constexpr int64_t kFurther = kInto == kIntoL1 ? 2048 : 4096;
  HWY_UNROLL(4)
  for (int p = 0; p < P; ++p)
    ask_for_lines<kBits, kInto>(w.integers + p * w.stride + kFurther, step,
                                kLines<kBits> * kPart / kParts<kBits>,
                                kLines<kBits> * (kPart + 1) / kParts<kBits>);
}

// Before the products of part kPart of a step of run number `run`, at which `w.integers` is. Of many rows all at the
// first part: at others that makes gcc 12 keep sums in memory.
template <int kBits, int kPart, AsksFor kAsks, int P>
HWY_INLINE void ask_ahead(const Weights& w, int64_t run, int64_t step) {
  if constexpr (kAsks == AsksFor::kFurtherIntoL2) ask_further_on<kBits, kPart, kIntoL2, P>(w, step);
  if constexpr (kAsks == AsksFor::kFurtherIntoL1) ask_further_on<kBits, kPart, kIntoL1, P>(w, step);
  if constexpr (kAsks == AsksFor::kNextBlock && kPart == 0) {
    const int64_t at = run * kRunBytes<kBits>;
    ask_for_lines<kBits, kIntoL1>(w.next + at, step, 0, kLines<kBits>);
    if (w.later != nullptr) ask_for_lines<kBits, kIntoL2>(w.later + at, step, 0, kLines<kBits>);
  }
}

struct Nothing {
  HWY_INLINE void operator()(int) const {}
};

// A step of a block.
struct Place {
  int64_t run, step;
};

// sums[i][v] += products of one part of a step, and then_row(i).
template <int kBits, int kPart, AsksFor kAsks, int M, int V, class ThenRow>
HWY_INLINE void add_part(__m512i (&sums)[M][V], const Weights& w, const int8_t* r, Place at,
                         const ThenRow& then_row) {
  const int64_t step = at.step;
  ask_ahead<kBits, kPart, kAsks, V / 2>(w, at.run, step);
  __m512i q[V];
  HWY_UNROLL(8)
  for (int v = 0; v < V; ++v)
    q[v] = integers_of<kBits, kPart>(w.integers + v / 2 * w.stride + v % 2 * 64, step);
  HWY_UNROLL(16)
  for (int i = 0; i < M; ++i) {
    const __m512i x = four(r + i * kRow + 4 * (step + kPart * kSteps<kBits>));
    HWY_UNROLL(8)
    for (int v = 0; v < V; ++v) add_products(sums[i][v], q[v], x);
    then_row(i);
  }
}

// The same of a whole step, and then_row(i) behind the last part.
template <int kBits, AsksFor kAsks, int M, int V, class ThenRow>
HWY_INLINE void add_step(__m512i (&sums)[M][V], const Weights& w, const int8_t* r, Place at,
                         const ThenRow& then_row) {
  constexpr int kParted = kParts<kBits>;
  if constexpr (kParted > 1) add_part<kBits, 0, kAsks>(sums, w, r, at, Nothing());
  if constexpr (kParted > 2) add_part<kBits, 1, kAsks>(sums, w, r, at, Nothing());
  if constexpr (kParted > 2) add_part<kBits, 2, kAsks>(sums, w, r, at, Nothing());
  add_part<kBits, kParted - 1, kAsks>(sums, w, r, at, then_row);
}

// The same of a block, and then_row(i) once its products are all there. The last step of many rows asks for nothing, as
// that makes gcc 12 keep sums in memory; add_block does it before.
template <int kBits, AsksFor kAsks, int M, int V, class ThenRow>
HWY_INLINE void add_steps(__m512i (&sums)[M][V], Weights w, const int8_t* r,
                          const ThenRow& then_row) {
  constexpr int64_t kLast = kSteps<kBits> - 1;
  constexpr AsksFor kAsksLast = kAsks == AsksFor::kNextBlock ? AsksFor::kNothing : kAsks;
  for (int64_t run = 0; run < kRuns; ++run) {
    const bool last = run + 1 == kRuns;
    for (int64_t step = 0; step < kSteps<kBits> - (last ? 1 : 0); ++step)
      add_step<kBits, kAsks>(sums, w, r, {run, step}, Nothing());
    if (last) break;
    w.integers += kRunBytes<kBits>, r += kQuantisedRun;
  }
  add_step<kBits, kAsksLast>(sums, w, r, {kRuns - 1, kLast}, then_row);
}

// c[i] (+)= M rows times a block of P panels.
template <int kBits, AsksFor kAsks, int M, int P>
HWY_INLINE void add_block(const Rows& at, const Weights& block) {
  constexpr int V = 2 * P;
  if constexpr (kAsks == AsksFor::kNextBlock)
    ask_ahead<kBits, 0, kAsks, P>(block, kRuns - 1, kSteps<kBits> - 1);
  __m512i sums[M][V];
  HWY_UNROLL(16)
  for (int i = 0; i < M; ++i) {
    const __m512i all = _mm512_set1_epi32(at.rows[i].minus[at.block]);
    const __m512i offset = kBits == 8 ? all : _mm512_maskz_srai_epi32(0xffff, all, 8 - kBits);
    HWY_UNROLL(8)
    for (int v = 0; v < V; ++v) sums[i][v] = offset;
  }
  // A condition for each in place of the mask makes gcc 12 keep sums in memory.
  const __mmask16 before = at.add ? 0xffff : 0;
  const int64_t c_stride = at.c_stride;
  const QuantisedRow* rows = at.rows;
  float* c = at.c;
  // With addresses that it knows, gcc 12 keeps all of them, and what they point to, in memory.
  if constexpr (M > kFew) asm volatile("" : "+r"(c), "+r"(rows));
  // Row by row, while products of the rows behind it go on: 11 rows and more of q8 and q4 take 1.02 to 1.05 times as
  // long if all sums become floats at the end (Zen 5).
  __m512 scales[V];
  const auto finish_row = [&](int i) HWY_ATTR __attribute__((always_inline)) {
    const __m512 step = _mm512_set1_ps(rows[i].step[at.block]);
    HWY_UNROLL(8)
    for (int v = 0; v < V; ++v) {
      if (i == 0) scales[v] = load_scales(block.scales + v / 2 * block.stride + v % 2 * 32);
      float* const to = c + i * c_stride + 16 * v;
      const __m512 y = _mm512_maskz_loadu_ps(before, to);
      _mm512_storeu_ps(to, add_scaled(y, sums[i][v], step, scales[v]));
    }
  };
  add_steps<kBits, kAsks>(sums, block, at.rows->r + at.block * kQuantisedBlock, finish_row);
}

// --------------------------------------------------------------------------------------------- few rows

// All rows of a tile x P panels from `panel` on.
template <int kBits, AsksFor kAsks, int M, int P>
void few_rows_panels(const Tile& t, int64_t panel) {
  const uint8_t* w = static_cast<const uint8_t*>(t.b) + panel * t.b_stride;
  for (int64_t b = 0; b < t.steps; ++b, w += kBlockBytes<kBits>) {
    add_block<kBits, kAsks, M, P>({.rows = static_cast<const QuantisedRow*>(t.a),
                                   .block = b,
                                   .c = t.c + panel * kPanel,
                                   .c_stride = t.c_stride,
                                   .add = b > 0 || t.add},
                                  {w, scales_of<kBits>(w), t.b_stride});
  }
}

template <int kBits, AsksFor kAsks, int M>
void few_rows(const Tile& t) {
  constexpr int P = panels_for<kAsks>(M);
  // Two streams of one row of q8 get 91 % of memory without being asked, 88 with (Zen 5).
  constexpr bool kUnasked = kBits == 8 && M == 1 && kAsks == AsksFor::kFurtherIntoL1;
  constexpr AsksFor kHere = kUnasked ? AsksFor::kNothing : kAsks;
  int64_t panel = 0;
  for (; panel + P <= t.panels; panel += P) few_rows_panels<kBits, kHere, M, P>(t, panel);
  for (; panel < t.panels; ++panel) few_rows_panels<kBits, kHere, M, 1>(t, panel);
}

// For 1 .. kFew or, of panels from memory, kFewFar rows.
template <int kBits, AsksFor kAsks, int... M>
void few_rows_of(const Tile& t, std::integer_sequence<int, M...>) {
  static constexpr void (*kTiles[])(const Tile&) = {few_rows<kBits, kAsks, M + 1>...};
  kTiles[t.rows - 1](t);
}

// -------------------------------------------------------------------------------------------- many rows

// M of a tile's rows, whose sums of this panel are at `sums`, [M][32].
template <int kBits, int M>
void many_rows(const QuantisedRow* rows, int64_t block, float* sums, const Weights& weights) {
  add_block<kBits, AsksFor::kNextBlock, M, 1>({rows, block, sums, kPanel, /*add=*/true}, weights);
}

// For kFew + 1 .. kMany rows.
template <int kBits, int... M>
auto many_rows_of(int64_t rows, std::integer_sequence<int, M...>) {
  static constexpr void (*kTiles[])(const QuantisedRow*, int64_t, float*,
                                    const Weights&) = {many_rows<kBits, kFew + 1 + M>...};
  return kTiles[rows - kFew - 1];
}

// A block of a panel stays in L1 until all rows have taken it, and so do the panel's sums.
template <int kBits>
class ManyRows {
 public:
  explicit ManyRows(const Tile& t)
      : t_(t), parts_((t.rows + kMany - 1) / kMany), next_(t.ahead, t.panels * t.steps * parts_) {
    for (int64_t i = 0; i < parts_; ++i) {
      const int64_t begin = even_begin(t.rows, parts_, i);
      begin_[i] = begin;
      multiply_[i] = many_rows_of<kBits>(even_begin(t.rows, parts_, i + 1) - begin,
                                         std::make_integer_sequence<int, kMany - kFew>());
    }
  }

  void run() {
    for (int64_t panel = 0; panel < t_.panels; ++panel) {
      float* const c = t_.c + panel * kPanel;
      t_.add ? copy_sums(sums_, kPanel, c, t_.c_stride, t_.rows)
             : void(std::memset(sums_, 0, sizeof(float) * static_cast<size_t>(t_.rows * kPanel)));
      const uint8_t* w = static_cast<const uint8_t*>(t_.b) + panel * t_.b_stride;
      for (int64_t b = 0; b + 1 < t_.steps; ++b, w += kBlockBytes<kBits>)
        add(b, w, w + kBlockBytes<kBits>);
      add(t_.steps - 1, w, static_cast<const uint8_t*>(t_.b) + (panel + 1) * t_.b_stride);
      copy_sums(c, t_.c_stride, sums_, kPanel, t_.rows);
    }
  }

 private:
  void add(int64_t block, const uint8_t* w, const uint8_t* next) {
    if (t_.next != nullptr) t_.next->turn();
    // Step by step, but for q4: in eight places 5 to 10 rows of q8 take 1.07 to 1.17 times as long, of q4 0.95 to 0.99.
    const bool whole = kBits > 4 && t_.ahead.lines > 0 && !t_.ahead.part;
    const uint8_t* later = whole ? t_.ahead.data + block * kBlockBytes<kBits> : nullptr;
    for (int64_t i = 0; i < parts_; ++i, later = nullptr) {
      if (!whole) next_.step();
      multiply_[i](static_cast<const QuantisedRow*>(t_.a) + begin_[i], block,
                   sums_ + begin_[i] * kPanel, {w, scales_of<kBits>(w), 0, next, later});
    }
  }

  static constexpr int64_t kMostParts = (kQuantisedRows + kMany - 1) / kMany;
  alignas(64) float sums_[kQuantisedRows * kPanel];
  const Tile& t_;
  const int64_t parts_;
  AskAhead next_;
  // A division takes up to 90 cycles, a block of a part 500.
  int64_t begin_[kMostParts];
  void (*multiply_[kMostParts])(const QuantisedRow*, int64_t, float*, const Weights&);
};

template <int kBits>
void vnni_tile(const Tile& t) {
  const bool far = t.far && t.ahead.lines == 0;
  if (t.rows > (far ? kFewFar : kFew)) return ManyRows<kBits>(t).run();
  if (!far)
    return few_rows_of<kBits, AsksFor::kNothing>(t, std::make_integer_sequence<int, kFew>());
  constexpr auto kRowsFar = std::make_integer_sequence<int, kFewFar>();
  machine_reads_into_l1() ? few_rows_of<kBits, AsksFor::kFurtherIntoL1>(t, kRowsFar)
                          : few_rows_of<kBits, AsksFor::kFurtherIntoL2>(t, kRowsFar);
}

}  // namespace

QuantisedTiles vnni_tiles() { return {vnni_tile<8>, vnni_tile<6>, vnni_tile<4>}; }

}  // namespace moraine::cpu

HWY_POP_ATTRIBUTES

#else

namespace moraine::cpu {
QuantisedTiles vnni_tiles() { return {}; }
}  // namespace moraine::cpu

#endif
