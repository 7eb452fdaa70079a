// QkNormRopeBackward, host side: the plain form, or passes that follow each other.
#include "kernels/gpu/qk_norm_rope_backward.h"

#include "kernels/gpu/element_grid.h"
#include "kernels/gpu/row_sums.h"
#include "kernels/gpu/runtime.h"
#include "kernels/gpu/tensor_floats.h"
#include "kernels/qk_norm_rope.h"

namespace moraine::gpu {
namespace {

QkNormRopeBackwardArgs device_args(const QkNormRopeBackward& a) {
  return {.dqkv = a.dqkv.data,
          .dz = a.dz.data,
          .scale = nullptr,
          .along = nullptr,
          .temp_terms = nullptr,
          .sums = nullptr,
          .dq = a.dq.data,
          .dk = a.dk.data,
          .nq = floats_of(a.nq),
          .nk = floats_of(a.nk),
          .qkv = a.qkv.data,
          .z = a.z.data,
          .temp = floats_of(a.temp),
          .position = a.position.as<int32_t>(),
          .rope = a.rope.as<float>(),
          .T = a.dq.dims[0],
          .H = a.dq.dims[1],
          .K = a.dk.dims[1],
          .d = a.dq.dims[2],
          .N = a.qkv.dims[1],
          .half = a.rope.dims[1]};
}

}  // namespace

void qk_norm_rope_backward(Gpu& gpu, const QkNormRopeBackward& a) {
  QkNormRopeBackwardArgs args = device_args(a);
  const int64_t heads = args.T * (args.H + args.K), blocks = row_blocks(args.T);
  const bool bf16 = a.dq.dtype == DType::kBF16;
  if (a.z.empty()) {
    gpu.launch(bf16 ? "qk_rope_backward_bf16" : "qk_rope_backward_f32",
               element_grid(heads * args.d), &args);
    return;
  }
  constexpr auto kBytes = static_cast<int64_t>(sizeof(float));
  const GpuMemory scale(gpu, heads * kBytes), along(gpu, heads * kBytes),
      terms(gpu, args.T * args.K * kBytes), sums(gpu, blocks * args.K * kBytes);
  args.scale = scale.as<float>();
  args.along = along.as<float>();
  args.temp_terms = terms.as<float>();
  args.sums = sums.as<float>();
  gpu.launch(bf16 ? "qk_norm_along_bf16" : "qk_norm_along_f32",
             {.blocks_x = args.T, .blocks_y = args.H + args.K, .threads = kHeadThreads}, &args);
  gpu.launch(bf16 ? "qk_norm_rope_backward_bf16" : "qk_norm_rope_backward_f32",
             element_grid(args.T * args.K * args.d), &args);
  gpu.launch("qk_norm_temp_rows", element_grid(blocks * args.K), &args);
  add_row_sums(gpu, {.y = a.dtemp.as<float>(),
                     .sums = args.sums,
                     .blocks = blocks,
                     .stride = args.K,
                     .count = args.K});
}

}  // namespace moraine::gpu
