// OpenDevice: what computes, by its name on a command line.
//
//   cpu            no GPU: null
//   gpu            a device of a vendor's driver (runtime.h): the first; ranks of a host take turns. Without one, that
//                  is said
//   gpu:N          device N, 0 for the first
//   emulated:RULE  a CPU that plays a GPU of a generation: plain, cdna2, cdna3, sm_80, sm_90. The bits of that
//                  generation, a hundred times slower than the CPU: to look at an answer, or to test
#pragma once

#include <memory>
#include <string>

#include "kernels/gpu/runtime.h"

namespace moraine::gpu {

inline constexpr const char kDeviceHelp[] =
    "cpu; gpu, or gpu:1 for the second: run on an H100; for other devices compiled and emulated; "
    "or emulated:RULE, a CPU that plays a GPU of a generation (plain, cdna2, cdna3, sm_80, "
    "sm_90), slowly.";

bool is_device(const std::string& name);
// What computes, wherever it is: "gpu" for gpu:1.
std::string device_kind(const std::string& name);
// Whether its memory is another than the host's; not of one that the CPU plays.
bool has_own_memory(const std::string& name);

// rank_of_host: which of the ranks of this host asks.
// Errors: kInvalidArgument for another name; those of open_gpu.
std::unique_ptr<Gpu> open_device(const std::string& name, int rank_of_host = 0);

}  // namespace moraine::gpu
