// Place: shares of cores, and links from the measured curves.
#include "plan/place.h"

#include <algorithm>

namespace moraine {
namespace {

// Without a measured curve: a message between processes of one host.
constexpr Link kNominalNear = {.latency_seconds = 5e-6, .bytes_per_second = 5e9};
constexpr Link kNominalBucket = {.latency_seconds = 20e-6, .bytes_per_second = 2.5e9};
constexpr double kNominalGflops = 50, kNominalMemory = 10;  // of a core, of a host

}  // namespace

double Place::share() const {
  return std::min(static_cast<double>(threads),
                  static_cast<double>(cores) / static_cast<double>(ranks_per_host));
}

double Place::crowding() const {
  return std::max(1.0, static_cast<double>(ranks_per_host * threads) / static_cast<double>(cores));
}

Place place_on_machine(const Machine& machine, int64_t ranks, int64_t threads) {
  const int64_t cores = std::max(1, machine.threads);
  Place place{.ranks_per_host = ranks,
              .cores = cores,
              .threads = threads > 0 ? threads : std::max<int64_t>(1, cores / ranks),
              .near = kNominalNear,
              .bucket = kNominalBucket};
  const CommLimits& c = machine.comm;
  if (c.ranks < 2 || c.message_gb_s <= 0 || c.bucket_gb_s <= 0) return place;
  place.near = {c.message_latency_us * 1e-6, c.message_gb_s * 1e9};
  // Of a bucket of m bytes a rank receives (P-1)/P.
  const double received = static_cast<double>(c.ranks - 1) / c.ranks;
  place.bucket = {c.bucket_latency_us * 1e-6, c.bucket_gb_s * 1e9 * received};
  return place;
}

Machine nominal_machine(int threads) {
  return {.isa = "",
          .threads = threads,
          .f32_gflops = kNominalGflops * threads,
          .bf16_gflops = 2 * kNominalGflops * threads,
          .int8_gops = 0,
          .read_gb_s = kNominalMemory,
          .copy_gb_s = kNominalMemory,
          .measured_utc = ""};
}

}  // namespace moraine
