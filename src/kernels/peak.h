// Peak: what this machine can do at most, measured: arithmetic from registers, memory by long streams.
//
//   arithmetic  independent chains of multiply-adds on registers only, of the widest vectors of the
//               current Isa, on every thread of the pool. A multiply-add counts as two operations.
//   memory      every thread streams its own part of buffers far larger than the caches (huge pages)
//
// Types:   f32 fused multiply-add; bf16 pair dot product (f32 sums); int8 dot product (i32 sums).
//          An Isa without an instruction for a type reports 0.
// Units:   1e9 operations per second (gops), 1e9 bytes per second (gb_s). A copy counts its read
//          and its write.
// Cost:    about `seconds` of wall time per call.
// Threads: as Pool::parallel_for.
#pragma once

#include <cstdint>
#include <vector>

#include "base/pool.h"
#include "tensor/tensor.h"

namespace moraine {

struct Spread {
  double median = 0, p10 = 0, p90 = 0;
};
Spread spread_of(double* values, int64_t count);  // sorts the values
Spread spread_of(std::vector<double> values);     // all 0 if there are none

enum class PeakKind : uint8_t { kF32, kBf16, kInt8 };

// Whether the Isa has an instruction for the type.
bool has_peak(PeakKind kind);

Spread measure_peak(Pool& pool, PeakKind kind, double seconds);
// All that was done over all the time, with what others took of it. A median of bursts, which fit between two of their
// turns, is a whole core even to several threads that share it.
double sustained_peak(Pool& pool, PeakKind kind, double seconds);

enum class StreamKind : uint8_t { kRead, kCopy, kCopyNonTemporal };

// `buffer` is u8 memory to stream over: the upper half is the destination of copies. Take it from
// an arena (zeroed, huge pages), at least 8 times the last-level cache for a DRAM number.
// Reads are eight streams a thread: one alone does not get all that memory can give.
Spread measure_stream(Pool& pool, StreamKind kind, const Tensor& buffer, double seconds);

// One burst of the arithmetic loop: operations per second of this call. For paired measurements.
double peak_burst(Pool& pool, PeakKind kind, int64_t iterations);

}  // namespace moraine
