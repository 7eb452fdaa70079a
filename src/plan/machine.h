// Machine: the measured limits of this machine, the denominator of every "percent of possible".
//
// File: one JSON object with exactly these names; docs/formats/machine.md. `moraine bench memory`
// and `bench gemm` write it; without one, training measures briefly at the start.
//
// Errors:  load_machine: kNotFound; kCorrupt if a field is missing, of the wrong type, or no sane
// number. Threads: measure_machine_quick runs loops on the pool: nothing else may use it meanwhile.
#pragma once

#include <cstdint>
#include <string>

#include "base/file_system.h"
#include "base/pool.h"

namespace moraine {

struct Machine {
  std::string isa;           // isa_name, when measured
  int32_t threads = 0;       // the rates are those of all threads together
  double f32_gflops = 0;     // 1e9 operations per second, a multiply-add counts two
  double bf16_gflops = 0;    // 0: no such instruction, f32 does the work
  double int8_gops = 0;      // 0: no such instruction
  double read_gb_s = 0;      // 1e9 bytes per second from memory
  double copy_gb_s = 0;      // read plus written, the better of normal and non-temporal stores
  std::string measured_utc;  // 2026-01-02T03:04:05Z
};

Machine load_machine(FileSystem& fs, const std::string& path);
void save_machine(FileSystem& fs, const std::string& path, const Machine& machine);

// About half a second, and 256 MiB for the time being.
Machine measure_machine_quick(Pool& pool);

// The rate that products of this machine are held against: bf16_gflops if `bf16` and there is one,
// else f32.
double matmul_gflops(const Machine& machine, bool bf16);

std::string utc_now();  // to the second

}  // namespace moraine
