// CcaConvBackward, host side: the rows, then the sums over their blocks.
#include "kernels/gpu/cca_conv_backward.h"

#include "kernels/cca_conv.h"
#include "kernels/gpu/row_places.h"
#include "kernels/gpu/row_sums.h"

namespace moraine::gpu {

void cca_conv_backward(Gpu& gpu, const CcaConvBackward& a) {
  const int64_t d = a.dpair.dims[2] / 2, T = a.qkv.dims[0], C = a.dpair.dims[0] * d;
  const int64_t blocks = row_blocks(T);
  const bool has_halo = !a.halo.empty() || !a.dhalo.empty();
  const GpuMemory sums(gpu, blocks * 3 * C * static_cast<int64_t>(sizeof(float)));
  const CcaConvBackwardArgs args = {.dqkv = a.dqkv.data,
                                    .dhalo = static_cast<float*>(a.dhalo.data),
                                    .sums = sums.as<float>(),
                                    .dpair = a.dpair.data,
                                    .qkv = a.qkv.data,
                                    .halo = a.halo.data,
                                    .w = a.w.as<float>(),
                                    .place = row_places(gpu, {T, a.segments, has_halo, a.halo_row}),
                                    .T = T,
                                    .N = a.qkv.dims[1],
                                    .C = C,
                                    .d = d};
  if (C == 0) return;
  gpu.launch(a.qkv.dtype == DType::kBF16 ? "cca_conv_backward_bf16" : "cca_conv_backward_f32",
             {.blocks_x = (C + kConvThreads - 1) / kConvThreads,
              .blocks_y = blocks,
              .threads = kConvThreads},
             &args);
  const auto add = [&](const Tensor& to, int64_t begin) {
    add_row_sums(gpu, {.y = to.as<float>(),
                       .sums = args.sums + begin,
                       .blocks = blocks,
                       .stride = 3 * C,
                       .count = to.count()});
  };
  add(a.dw, 0);
  add(a.db, 2 * C);
}

}  // namespace moraine::gpu
