// Embedding, device side.
#include "kernels/gpu/block_sum.h"
#include "kernels/gpu/element.h"
#include "kernels/gpu/embedding.h"
#include "kernels/gpu/quantised_pack.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

template <class E>
MR_DEVICE void embedding_channel(const EmbeddingArgs& a) {
  const int64_t i = element();
  if (i >= a.T * a.D) return;
  const int64_t row = load(a.token + i / a.D);
  store(static_cast<E*>(a.x) + i, narrow_to<E>(load(a.table + (row * a.D + i % a.D))));
}

MR_KERNEL(embedding_f32, kElementThreads, EmbeddingArgs a) { embedding_channel<float>(a); }
MR_KERNEL(embedding_bf16, kElementThreads, EmbeddingArgs a) { embedding_channel<BF16>(a); }

template <class E>
MR_DEVICE void embedding_row_channel(const EmbeddingPackedArgs& a) {
  const int64_t i = element();
  if (i >= a.T * a.D) return;
  const int64_t row = load(a.token + i / a.D);
  store(static_cast<E*>(a.x) + i, load(static_cast<const E*>(a.pack) + (row * a.D + i % a.D)));
}

template <class E, int kBits>
MR_DEVICE void embedding_integer_channel(const EmbeddingPackedArgs& a) {
  const int64_t i = element();
  if (i >= a.T * a.D) return;
  const int64_t row = load(a.token + i / a.D), d = i % a.D;
  const uint32_t* const block =
      quantised_block<kBits>(a.pack, a.D, row / kQuantisedColumns, d / kQuantisedInputs);
  const auto column = static_cast<int>(row % kQuantisedColumns);
  const auto four = static_cast<int>(d % kQuantisedInputs / 4), byte = static_cast<int>(d % 4);
  const int32_t q = quantised_four<kBits>(block, four, column) << (24 - 8 * byte) >> 24;
  store(static_cast<E*>(a.x) + i,
        narrow_to<E>(quantised_scale<kBits>(block, column) * static_cast<float>(q)));
}

MR_KERNEL(embedding_rows_f32, kElementThreads, EmbeddingPackedArgs a) {
  embedding_row_channel<float>(a);
}
MR_KERNEL(embedding_rows_bf16, kElementThreads, EmbeddingPackedArgs a) {
  embedding_row_channel<BF16>(a);
}
MR_KERNEL(embedding_q8_f32, kElementThreads, EmbeddingPackedArgs a) {
  embedding_integer_channel<float, 8>(a);
}
MR_KERNEL(embedding_q8_bf16, kElementThreads, EmbeddingPackedArgs a) {
  embedding_integer_channel<BF16, 8>(a);
}
MR_KERNEL(embedding_q6_f32, kElementThreads, EmbeddingPackedArgs a) {
  embedding_integer_channel<float, 6>(a);
}
MR_KERNEL(embedding_q6_bf16, kElementThreads, EmbeddingPackedArgs a) {
  embedding_integer_channel<BF16, 6>(a);
}
MR_KERNEL(embedding_q4_f32, kElementThreads, EmbeddingPackedArgs a) {
  embedding_integer_channel<float, 4>(a);
}
MR_KERNEL(embedding_q4_bf16, kElementThreads, EmbeddingPackedArgs a) {
  embedding_integer_channel<BF16, 4>(a);
}

// Back from the token before, as many at a time as the block has threads: how near a match is, is exact in f32.
MR_KERNEL(embedding_links, kEmbeddingThreads, EmbeddingBackwardArgs a) {
  const int64_t t = block_x();
  const int32_t id = load(a.token + t);
  int64_t found = -1;
  for (int64_t last = t - 1; last >= 0 && found < 0; last -= kEmbeddingThreads) {
    const int64_t mine = last - thread();
    const bool match = mine >= 0 && load(a.token + mine) == id;
    const int near = kEmbeddingThreads - thread();
    const float nearest = block_max<kEmbeddingThreads>(match ? static_cast<float>(near) : 0.0f);
    if (nearest > 0) found = last - kEmbeddingThreads + static_cast<int64_t>(nearest);
    sync_block();
  }
  if (thread() > 0) return;
  store(a.previous + t, static_cast<int32_t>(found));
  if (found >= 0) store(a.next + found, static_cast<int32_t>(t));
}

template <class E>
MR_DEVICE void embedding_sums(const EmbeddingBackwardArgs& a) {
  const int64_t first = block_x(), row = load(a.token + first);
  if (load(static_cast<const int32_t*>(a.previous) + first) >= 0) return;
  for (int64_t d = thread(); d < a.D; d += kEmbeddingThreads) {
    float sum = load(static_cast<const float*>(a.dtable) + (row * a.D + d));
    int64_t t = first;
    do {
      sum += widen(load(static_cast<const E*>(a.dx) + (t * a.D + d)));
      t = load(static_cast<const int32_t*>(a.next) + t);
    } while (t > 0);
    store(a.dtable + (row * a.D + d), sum);
  }
}

MR_KERNEL(embedding_sums_f32, kEmbeddingThreads, EmbeddingBackwardArgs a) {
  embedding_sums<float>(a);
}
MR_KERNEL(embedding_sums_bf16, kEmbeddingThreads, EmbeddingBackwardArgs a) {
  embedding_sums<BF16>(a);
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
