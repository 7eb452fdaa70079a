// BenchGpu: `moraine bench gpu`: which GPU a driver of this machine has, and how far its kernels are proven.
//
// Nothing is measured yet: the kernels of kernels/gpu are compiled and emulated, never run on hardware (docs/gpu.md).
//
// Output: two lines on stdout, or with `json` {"bench":"gpu","device":... or null,"why":... or null,"kernels":...}
// Errors: none for a machine without a driver: that is an answer.
#pragma once

namespace moraine {

void bench_gpu(bool json);

}  // namespace moraine
