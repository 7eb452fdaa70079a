// CrossEntropy, host side.
#include "kernels/cross_entropy.h"

#include "kernels/gpu/cross_entropy.h"
#include "kernels/gpu/runtime.h"

namespace moraine::gpu {

void cross_entropy(Gpu& gpu, const CrossEntropy& a) {
  const CrossEntropyArgs args = {.loss = a.loss.as<float>(),
                                 .dlogits = a.dlogits.data,
                                 .lse = static_cast<double*>(a.lse.data),
                                 .logits = a.logits.as<float>(),
                                 .target = a.target.as<int32_t>(),
                                 .V = a.logits.dims[1]};
  gpu.launch(a.dlogits.dtype == DType::kBF16 ? "cross_entropy_bf16" : "cross_entropy_f32",
             {.blocks_x = a.logits.dims[0], .blocks_y = 1, .threads = kEntropyThreads}, &args);
}

}  // namespace moraine::gpu
