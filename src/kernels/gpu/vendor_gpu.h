// VendorGpu: a device behind a driver's table, with the kernels that are in this program.
//
// The first launch loads the first image of the vendor that the device takes. What is copied in goes through pinned
// memory, so that the host does not wait until that is full: then it waits for all that the stream has to do.
//
// Errors:   kDevice, with the vendor, what was asked for and the driver's own name of the error; no kernels in this
//           program, or none for this device: what would be needed.
// Threads:  any, one at a time; wait_for beside others. A driver's context is a thread's: each call that reaches the
//           driver makes the device's the thread's own, if the last one that this thread made was another.
// Memory:   kPinnedBytes of pinned host memory, from the first copy on. Context, module, stream and events stay until
//           the process ends.
#pragma once

#include <memory>
#include <span>

#include "kernels/gpu/driver_table.h"
#include "kernels/gpu/kernel_images.h"
#include "kernels/gpu/runtime.h"

namespace moraine::gpu {

constexpr int64_t kPinnedBytes = int64_t{32} << 20;

// Device `number` of the driver's. The images outlive it. Errors: also kDevice: the driver has none, or not so many.
std::unique_ptr<Gpu> make_vendor_gpu(const DriverVendor& vendor, const DriverTable& table,
                                     std::span<const KernelImage> images, int number = 0);

}  // namespace moraine::gpu
