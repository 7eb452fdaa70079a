// The lower half of a symmetric matrix from its upper half.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/linear_mirror.cc"
#include "hwy/foreach_target.h"

#include <algorithm>

#include "hwy/highway.h"
#include "kernels/cpu/linear_rows.h"
#include "kernels/cpu/linear_transpose.h"

HWY_BEFORE_NAMESPACE();
namespace moraine::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kBlock = 32;  // source and destination blocks of 4 KiB each: L1

#if HWY_TARGET == HWY_AVX3
// A whole block.
HWY_INLINE void copy_whole_block(uint32_t* words, int64_t n, int64_t j0, int64_t i0) {
  for (int64_t j = j0; j < j0 + kBlock; j += 16) {
    for (int64_t i = i0; i < i0 + kBlock; i += 16) {
      __m512i row[16];
      HWY_UNROLL(16)
      for (int r = 0; r < 16; ++r) row[r] = _mm512_loadu_si512(words + (i + r) * n + j);
      moraine::HWY_NAMESPACE::transpose_16x16(row);
      HWY_UNROLL(16)
      for (int r = 0; r < 16; ++r) _mm512_storeu_si512(words + (j + r) * n + i, row[r]);
    }
  }
}
#endif

// c[j,i] = c[i,j] for j0 <= j < j1 and i0 <= i < i1; whole 4 x 4 blocks in registers.
HWY_INLINE void copy_block(float* c, int64_t n, int64_t j0, int64_t j1, int64_t i0, int64_t i1) {
  int64_t j = j0;
#if HWY_TARGET != HWY_SCALAR
  using namespace moraine::HWY_NAMESPACE;
  const U4 d;
  uint32_t* words = reinterpret_cast<uint32_t*>(c);
#if HWY_TARGET == HWY_AVX3
  if (j1 - j0 == kBlock && i1 - i0 == kBlock) return copy_whole_block(words, n, j0, i0);
#endif
  for (; j + 4 <= j1; j += 4) {
    int64_t i = i0;
    for (; i + 4 <= i1; i += 4) {
      V4 row0 = hn::LoadU(d, words + i * n + j), row1 = hn::LoadU(d, words + (i + 1) * n + j);
      V4 row2 = hn::LoadU(d, words + (i + 2) * n + j), row3 = hn::LoadU(d, words + (i + 3) * n + j);
      transpose_4x4(row0, row1, row2, row3);
      hn::StoreU(row0, d, words + j * n + i);
      hn::StoreU(row1, d, words + (j + 1) * n + i);
      hn::StoreU(row2, d, words + (j + 2) * n + i);
      hn::StoreU(row3, d, words + (j + 3) * n + i);
    }
    for (; i < i1; ++i) {
      for (int64_t r = j; r < j + 4; ++r) c[r * n + i] = c[i * n + r];
    }
  }
#endif
  for (; j < j1; ++j) {
    for (int64_t i = i0; i < i1; ++i) c[j * n + i] = c[i * n + j];
  }
}

// Rows of block `block`, left of the diagonal.
void mirror_rows(float* c, int64_t n, int64_t block) {
  const int64_t j0 = block * kBlock, j1 = std::min(j0 + kBlock, n);
  for (int64_t i0 = 0; i0 < j0; i0 += kBlock) copy_block(c, n, j0, j1, i0, i0 + kBlock);
  for (int64_t j = j0; j < j1; ++j) {
    for (int64_t i = j0; i < j; ++i) c[j * n + i] = c[i * n + j];
  }
}

int64_t mirror_blocks(int64_t n) { return (n + kBlock - 1) / kBlock; }

}  // namespace HWY_NAMESPACE
}  // namespace moraine::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moraine::cpu {
HWY_EXPORT(mirror_rows);
HWY_EXPORT(mirror_blocks);

void mirror(Context& ctx, const Tensor& c) {
  const int64_t n = c.dims[0];
  float* data = c.as<float>();
  const auto rows = HWY_DYNAMIC_DISPATCH(mirror_rows);
  ctx.pool->parallel_for(HWY_DYNAMIC_DISPATCH(mirror_blocks)(n),
                         [&](int64_t block, int) { rows(data, n, block); });
}
}  // namespace moraine::cpu
#endif  // HWY_ONCE
