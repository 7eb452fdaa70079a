// CcaConv, host side.
#include "kernels/cca_conv.h"

#include "kernels/gpu/cca_conv.h"
#include "kernels/gpu/element_grid.h"
#include "kernels/gpu/row_places.h"

namespace moraine::gpu {

void cca_conv_forward(Gpu& gpu, const CcaConvForward& a) {
  const int64_t d = a.pair.dims[2] / 2, T = a.qkv.dims[0];
  const CcaConvArgs args = {.pair = a.pair.data,
                            .qkv = a.qkv.data,
                            .halo = a.halo.data,
                            .w = a.w.as<float>(),
                            .b = a.b.as<float>(),
                            .place = row_places(gpu, {T, a.segments, !a.halo.empty(), a.halo_row}),
                            .T = T,
                            .N = a.qkv.dims[1],
                            .C = a.pair.dims[0] * d,
                            .d = d};
  gpu.launch(a.qkv.dtype == DType::kBF16 ? "cca_conv_bf16" : "cca_conv_f32",
             element_grid(args.T * args.C), &args);
}

}  // namespace moraine::gpu
