// DevicePacks: packs of a mapped model into a device's memory, in the order that kernels there read.
//
// Packs of integers are there as they are in the file (kernels/quantised.h); plain ones become row-major
// (kernels/gpu/linear.h).
//
// Cost:     the host's memory for kDevicePackPiece bytes; reads each pack once.
#pragma once

#include "kernels/context.h"
#include "kernels/linear.h"

namespace moraine {

constexpr int64_t kDevicePackPiece = int64_t{8} << 20;  // of rows in their new order, or one row

// `mapped` and `there` are of one shape and type.
void copy_pack_in(Context& ctx, const PackedMatrix& there, const PackedMatrix& mapped);

}  // namespace moraine
