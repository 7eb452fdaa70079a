// GroupBytes: one expert's part of a pack, to be sent or received.
#pragma once

#include "comm/transport.h"
#include "kernels/linear.h"

namespace moraine {

inline Bytes group_bytes(const PackedMatrix& pack, int64_t group) {
  return {packed_group(pack, group), static_cast<size_t>(packed_group_bytes(pack))};
}

}  // namespace moraine
