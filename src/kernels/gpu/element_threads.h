// ElementThreads: how kernels that treat each element by itself divide them: a thread takes one.
#pragma once

namespace moraine::gpu {

constexpr int kElementThreads = 256;  // of a block

}  // namespace moraine::gpu
