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

void embedding_packed_forward(Gpu& gpu, const EmbeddingPackedForward& a) {
  // By the pack's format and x's type.
  static constexpr const char* kKernels[4][2] = {{"embedding_rows_f32", "embedding_rows_bf16"},
                                                 {"embedding_q8_f32", "embedding_q8_bf16"},
                                                 {"embedding_q6_f32", "embedding_q6_bf16"},
                                                 {"embedding_q4_f32", "embedding_q4_bf16"}};
  const EmbeddingPackedArgs args = {.x = a.x.data,
                                    .pack = a.table.data,
                                    .token = a.token.as<int32_t>(),
                                    .T = a.x.dims[0],
                                    .D = a.x.dims[1]};
  gpu.launch(kKernels[static_cast<int>(a.table.format)][a.x.dtype == DType::kBF16],
             element_grid(args.T * args.D), &args);
}

void embedding_backward(Gpu& gpu, const EmbeddingBackward& a) {
  const int64_t T = a.dx.dims[0], words = T + T % 2;  // whole words of 8 bytes
  constexpr auto kBytes = static_cast<int64_t>(sizeof(int32_t));
  const GpuMemory links(gpu, 2 * words * kBytes);
  gpu.clear(links.data(), words * kBytes);
  const EmbeddingBackwardArgs args = {.dtable = a.dtable.as<float>(),
                                      .next = links.as<int32_t>(),
                                      .previous = links.as<int32_t>() + words,
                                      .dx = a.dx.data,
                                      .token = a.token.as<int32_t>(),
                                      .D = a.dx.dims[1]};
  const Grid grid = {.blocks_x = T, .blocks_y = 1, .threads = kEmbeddingThreads};
  gpu.launch("embedding_links", grid, &args);
  gpu.launch(a.dx.dtype == DType::kBF16 ? "embedding_sums_bf16" : "embedding_sums_f32", grid,
             &args);
}

}  // namespace moraine::gpu
