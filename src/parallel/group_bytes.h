// GroupBytes: one expert's part of a pack, to be sent or received.
#pragma once

#include "comm/transport.h"
#include "kernels/linear.h"

namespace moraine {

inline Bytes group_bytes(const PackedMatrix& pack, int64_t group) {
  return {packed_group(pack, group), static_cast<size_t>(packed_group_bytes(pack))};
}

// Of a pack in a device's memory: integers as everywhere, else row-major, without padding (kernels/gpu/linear.h).
inline Bytes device_group_bytes(const PackedMatrix& pack, int64_t group) {
  if (pack.format != WeightFormat::kPlain) return group_bytes(pack, group);
  const int64_t bytes = pack.n * pack.k * dtype_bytes(pack.dtype);
  return {static_cast<std::byte*>(pack.data) + group * bytes, static_cast<size_t>(bytes)};
}

}  // namespace moraine
