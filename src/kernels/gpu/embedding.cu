// Embedding, device side.
#include "kernels/gpu/element.h"
#include "kernels/gpu/embedding.h"

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

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
