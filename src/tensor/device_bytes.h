// DeviceBytes: how much of an arena's memory is a device's.
#pragma once

#include <cstdint>

#include "tensor/arena.h"

namespace moraine {

constexpr const char* kHostCategory = "host";  // of what is in the host's memory beside a device

// Of arena.bytes(); the rest is the host's.
int64_t device_bytes(const Arena& arena);

}  // namespace moraine
