// QkNormRope, host side.
#include "kernels/qk_norm_rope.h"

#include <vector>

#include "kernels/gpu/qk_norm_rope.h"
#include "kernels/gpu/runtime.h"
#include "kernels/gpu/tensor_floats.h"

namespace moraine::gpu {
void qk_norm_rope_forward(Gpu& gpu, const QkNormRopeForward& a) {
  const int64_t T = a.q.dims[0], H = a.q.dims[1], K = a.k.dims[1];
  const QkNormRopeArgs args = {.q = a.q.data,
                               .k = a.k.data,
                               .nq = floats_of(a.nq),
                               .nk = floats_of(a.nk),
                               .qkv = a.qkv.data,
                               .z = a.z.data,
                               .temp = floats_of(a.temp),
                               .position = a.position.as<int32_t>(),
                               .rope = a.rope.as<float>(),
                               .T = T,
                               .H = H,
                               .K = K,
                               .d = a.q.dims[2],
                               .N = a.qkv.dims[1],
                               .half = a.rope.dims[1]};
  gpu.launch(a.q.dtype == DType::kBF16 ? "qk_norm_rope_bf16" : "qk_norm_rope_f32",
             {.blocks_x = T, .blocks_y = H + K, .threads = kHeadThreads}, &args);
}

void rope_table(Gpu& gpu, const RopeTable& a) {
  std::vector<float> table(static_cast<size_t>(a.table.count()));
  Tensor host = a.table;
  host.data = table.data();
  ref::rope_table({.table = host, .theta = a.theta});
  gpu.copy_in(a.table.data, table.data(), a.table.bytes());
}

}  // namespace moraine::gpu
