// Embedding, host side.
#include "kernels/embedding.h"

#include "kernels/gpu/element_grid.h"
#include "kernels/gpu/embedding.h"
#include "kernels/gpu/runtime.h"

namespace moraine::gpu {

void embedding_forward(Gpu& gpu, const EmbeddingForward& a) {
  const EmbeddingArgs args = {.x = a.x.data,
                              .table = a.table.as<float>(),
                              .token = a.token.as<int32_t>(),
                              .T = a.x.dims[0],
                              .D = a.x.dims[1]};
  gpu.launch(a.x.dtype == DType::kBF16 ? "embedding_bf16" : "embedding_f32",
             element_grid(args.T * args.D), &args);
}

}  // namespace moraine::gpu
