// BenchGpu: `moraine bench gpu`: which GPU a driver of this machine has, how far its kernels are proven, and what
// products and attention reach on it.
//
// Kernels are measured on a device that is there and has an image in this program, or on one that is named
// (kernels/gpu/open_device.h). An emulated one gets small shapes: its times are a CPU's, and it says so. Beside
// products of bf16 stand those of the vendor's library (kernels/gpu/vendor_matmul.h), if they are the same ones.
//
// Output: lines on stdout, or with `json` {"bench":"gpu","device":... or null,"why":... or null,"kernels":...,
//         "images":...,"library":... or null,"library_why":... or null,
//         "measured":[{"kernel":...,"shape":...,"ms":...,"tflops":...,"library_ms":... or null}]}
// Errors: none for a machine without a driver, or without a library: that is an answer. Of a named device: those of
//         open_device.
#pragma once

#include <string>

namespace moraine {

struct BenchGpuOptions {
  std::string device = "gpu";
  bool json = false;
};

void bench_gpu(const BenchGpuOptions& options);

}  // namespace moraine
