// Machine: the measured limits of this machine, the denominator of every "percent of possible".
//
// File: one JSON object with exactly these names; docs/formats/machine.md. `moraine bench memory`
// and `bench gemm` write it (gemm: with `products`), `bench comm` adds `comm`, `bench step` adds
// `operations`; without one, training measures briefly at the start.
//
// Errors:  load_machine: kNotFound; kCorrupt if a field is missing, of the wrong type, or
//          out of range.
// Threads: measure_machine_quick runs loops on the pool: nothing else may use it meanwhile.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/pool.h"

namespace moraine {

struct CommPoint {
  int64_t bytes = 0;
  double us = 0;  // median
};

// How long messages take: us = latency_us + bytes / (1e3 * gb_s), fitted to relative errors.
struct CommLimits {
  int32_t ranks = 0;                                // 0: not measured
  std::string transport = "";                       // as Transport::name
  double message_latency_us = 0, message_gb_s = 0;  // one message between two ranks
  double bucket_latency_us = 0, bucket_gb_s = 0;    // a reduce-scatter of a bucket of f32
  std::vector<CommPoint> messages, buckets;         // what was fitted, by size
};

// One measured product: rows [rows, k] of each of `groups` groups times its weight [n, k]; `is_weight`: the product
// of backward that sums over rows.
struct ProductPoint {
  bool is_weight = false, bf16 = false;
  int64_t rows = 0;  // of a group, the mean
  int64_t n = 0, k = 0, groups = 1;
  double gflops = 0;  // of all threads
};

// How an operation of a profile compares with what the machine could do (plan/step_time.h):
// seconds = calls * call_us + factor * base.
struct OperationFit {
  std::string name = {};
  bool bf16 = false;
  int32_t threads = 0;  // of the rank that was measured
  double call_us = 0, factor = 0;
};

// How well steps were predicted with this file, on plans that it was not fitted to (`bench plan`).
struct Calibration {
  int64_t plans = 0, ranks_most = 0;  // 0: not measured
  double rank_correlation = 0, error_median = 0, error_largest = 0;
};

struct Machine {
  std::string isa;         // isa_name, when measured
  int32_t threads = 0;     // the rates are those of all threads together
  double f32_gflops = 0;   // 1e9 operations per second, a multiply-add counts two
  double bf16_gflops = 0;  // 0: no such instruction, f32 does the work
  double int8_gops = 0;    // 0: no such instruction
  double read_gb_s = 0;    // 1e9 bytes per second from memory
  double copy_gb_s = 0;    // read plus written, the better of normal and non-temporal stores
  CommLimits comm = {};
  std::vector<ProductPoint> products = {};    // empty: not measured
  std::vector<OperationFit> operations = {};  // empty: not measured
  Calibration calibration = {};
  std::string measured_utc;  // 2026-01-02T03:04:05Z
};

Machine load_machine(FileSystem& fs, const std::string& path);
// Before what save_machine will be given is measured: check_file_place, and no file of another kind is there.
void check_machine_place(FileSystem& fs, const std::string& what, const std::string& path);
// A file's comm limits, products, operations and calibration stay if `machine` has none.
void save_machine(FileSystem& fs, const std::string& path, const Machine& machine);

// About half a second, and 256 MiB for the time being.
Machine measure_machine_quick(Pool& pool);

// The rate that products of this machine are held against: bf16_gflops if `bf16` and there is one,
// else f32.
double matmul_gflops(const Machine& machine, bool bf16);
// The same, measured for `seconds`: what was done in all that time, as of a step beside it, with what
// neighbours and other threads of this program took of the processors meanwhile.
double measure_matmul_gflops(Pool& pool, bool bf16, double seconds);

// The rate of a product of this shape and type: of the measured ones of its kind and type the mean of the logarithms,
// weighted by 1 / distance^2 in log2(rows, n, k), where grouped or not counts one; a shape that was measured has
// its own rate. Without a table: matmul_gflops. Cost: one pass over the table.
double product_gflops(const Machine& machine, const ProductPoint& shape);

// Whether a step in bf16 is faster than in f32: where there is an instruction for it, if its products are. Without
// one both have the same products; AVX-512 widens faster than memory would bring twice the bytes (a step of the demo
// model 4 to 9 % shorter on a Xeon), AVX2 does not (5 to 7 % longer).
bool bf16_is_faster(const Machine& machine);

// The smallest bucket of gradients whose reduce-scatter spends at most 5 % of its time on latency:
// latency / (latency + m / rate) <= 0.05. Between 64 KiB and 64 MiB; 4 MiB if comm was not
// measured.
int64_t suggested_bucket_bytes(const Machine& machine);

}  // namespace moraine
