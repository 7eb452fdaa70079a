// OptimizerPasses, device side.
#include "kernels/gpu/element.h"
#include "kernels/gpu/optimizer_passes.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

// The first piece that ends behind element i.
MR_DEVICE int64_t piece_of(const AdamWPassArgs& a, int64_t i) {
  int64_t low = 0, high = a.num_pieces - 1;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (load(a.pieces + middle).end <= i) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

MR_KERNEL(adamw, kElementThreads, AdamWPassArgs a) {
  if (element() >= a.count) return;
  const int64_t piece = piece_of(a, element());
  const AdamWPiece p = load(a.pieces + piece);
  const int64_t i = element() - (piece == 0 ? 0 : load(a.pieces + (piece - 1)).end);
  const float g = load(p.g + i) * a.g_scale;
  const float m = fused(a.beta1, load(p.m + i), a.one_minus_beta1 * g);
  const float v = fused(a.beta2, load(p.v + i), a.one_minus_beta2 * (g * g));
  const float move = m * a.m_correction / (root(v * a.v_correction) + a.eps);
  store(p.m + i, m);
  store(p.v + i, v);
  store(p.w + i, fused(-move, p.rate, load(p.w + i) * p.keep));
}

template <class E>
MR_DEVICE void add_momentum(const MomentumPassArgs& a) {
  const int64_t i = element();
  if (i >= a.n) return;
  E* const momentum = static_cast<E*>(a.momentum) + i;
  const float g = load(a.g + i) * a.g_scale, kept = fused(a.mu, widen(load(momentum)), g);
  store(momentum, narrow_to<E>(kept));
  store(a.out + i, a.nesterov ? fused(a.mu, kept, g) : kept);
}

MR_KERNEL(momentum_f32, kElementThreads, MomentumPassArgs a) { add_momentum<float>(a); }
MR_KERNEL(momentum_bf16, kElementThreads, MomentumPassArgs a) { add_momentum<BF16>(a); }

MR_KERNEL(decay, kElementThreads, DecayPassArgs a) {
  const int64_t i = element();
  if (i >= a.n) return;
  store(a.w + i, fused(-load(a.x + i), a.rate, load(a.w + i) * a.keep));
}

MR_KERNEL(normalise, kElementThreads, NormalisePassArgs a) {
  const int64_t i = element();
  if (i >= a.n) return;
  double sum = 0;
  for (int64_t j = 0; j * kNormalisePiece < a.n; ++j) sum += load(a.sums + j);
  const auto factor = static_cast<float>(1.0 / (a.gain * root(sum) + a.eps));
  store(a.x + i, load(static_cast<const float*>(a.x) + i) * factor);
}

// By way of shared memory, so that both sides are read and written along rows.
MR_KERNEL(transpose, kTransposeThreads, TransposePassArgs a) {
  constexpr int kStride = kTransposeTile + 1, kRows = kTransposeThreads / kTransposeTile;
  MR_SHARED(float, tile, kTransposeTile* kStride);
  const int64_t row = block_y() * kTransposeTile, column = block_x() * kTransposeTile;
  const int x = thread() % kTransposeTile, y = thread() / kTransposeTile;
  for (int r = y; r < kTransposeTile; r += kRows) {
    if (row + r >= a.rows || column + x >= a.cols) continue;
    store(tile + (r * kStride + x), load(a.in + ((row + r) * a.cols + column + x)));
  }
  sync_block();
  for (int c = y; c < kTransposeTile; c += kRows) {
    if (column + c >= a.cols || row + x >= a.rows) continue;
    store(a.out + ((column + c) * a.rows + row + x), load(tile + (x * kStride + c)));
  }
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
