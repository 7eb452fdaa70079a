// PeakLoop: the inner loops of the peak measurement.
#pragma once

#include <cstdint>

#include "kernels/peak.h"

namespace moraine::cpu {

struct PeakLoop {
  void (*run)(int64_t iterations) = nullptr;  // null: the Isa has no such instruction
  double operations = 0;                      // of one iteration
};

PeakLoop peak_loop(PeakKind kind);

// Reads `bytes` at `from`, or copies them to `to` (both 4 KiB-aligned, bytes a multiple of 4 KiB).
void run_stream(StreamKind kind, uint8_t* to, const uint8_t* from, int64_t bytes);

// By file: peak_f32.cc for any Isa (vectors of the current target), peak_dot.cc for x86 with the
// instructions, peak_amx.cc for x86 with tiles.
PeakLoop f32_peak_loop();
PeakLoop bf16_peak_loop();
PeakLoop int8_peak_loop();
PeakLoop amx_bf16_loop();  // the caller has asked isa()
PeakLoop amx_int8_loop();  // and amx_has_int8()

}  // namespace moraine::cpu
