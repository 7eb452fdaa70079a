// Peak: medians of many short bursts, which a busy neighbour disturbs one by one.
#include "kernels/peak.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "kernels/cpu/peak_loops.h"

namespace moraine {
namespace {

constexpr int64_t kMinBursts = 11;
constexpr int64_t kMaxBursts = 1000;

// Rates of bursts until the time is over.
template <class F>
Spread repeat(double seconds, const F& burst) {
  std::vector<double> rates;
  burst();  // warm up: clock, pages, threads
  const double start = now_seconds();
  do {
    rates.push_back(burst());
  } while (static_cast<int64_t>(rates.size()) < kMaxBursts &&
           (static_cast<int64_t>(rates.size()) < kMinBursts || now_seconds() - start < seconds));
  return spread_of(std::move(rates));
}

}  // namespace

Spread spread_of(double* values, int64_t count) {
  MR_CHECK(count > 0);
  std::sort(values, values + count);
  return {values[count / 2], values[count / 10], values[count - 1 - count / 10]};
}

Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  return spread_of(values.data(), static_cast<int64_t>(values.size()));
}

bool has_peak(PeakKind kind) { return cpu::peak_loop(kind).run != nullptr; }

double peak_burst(Pool& pool, PeakKind kind, int64_t iterations) {
  const cpu::PeakLoop loop = cpu::peak_loop(kind);
  if (loop.run == nullptr) return 0;
  const double start = now_seconds();
  pool.parallel_for(pool.threads(), [&](int64_t, int) { loop.run(iterations); });
  const double seconds = now_seconds() - start;
  return loop.operations * static_cast<double>(iterations * pool.threads()) / seconds;
}

namespace {

// Bursts of about a millisecond: long against the start of a loop, short against a time slice.
int64_t burst_iterations(Pool& pool, PeakKind kind) {
  constexpr int64_t kProbe = 20000;
  peak_burst(pool, kind, kProbe);
  const double operations = cpu::peak_loop(kind).operations * pool.threads();
  const double rate = peak_burst(pool, kind, kProbe);
  return std::max<int64_t>(kProbe, static_cast<int64_t>(1e-3 * rate / operations));
}

}  // namespace

Spread measure_peak(Pool& pool, PeakKind kind, double seconds) {
  if (!has_peak(kind)) return {};
  const int64_t iterations = burst_iterations(pool, kind);
  const Spread s = repeat(seconds, [&] { return peak_burst(pool, kind, iterations); });
  return {s.median * 1e-9, s.p10 * 1e-9, s.p90 * 1e-9};
}

double sustained_peak(Pool& pool, PeakKind kind, double seconds) {
  if (!has_peak(kind)) return 0;
  const int64_t iterations = burst_iterations(pool, kind);
  const double start = now_seconds();
  double burst_seconds = 0;
  int64_t bursts = 0;
  do {
    burst_seconds += 1 / peak_burst(pool, kind, iterations);  // of one operation
    ++bursts;
  } while (now_seconds() - start < seconds);
  return 1e-9 * static_cast<double>(bursts) / burst_seconds;
}

Spread measure_stream(Pool& pool, StreamKind kind, const Tensor& buffer, double seconds) {
  check_dtype(buffer, "buffer", DType::kU8);
  const int64_t half = buffer.count() / 2, threads = pool.threads();
  constexpr int64_t kPage = 4096;  // threads share no page
  const int64_t whole = kind == StreamKind::kRead ? buffer.count() : half;
  const int64_t part = whole / threads / kPage * kPage;
  MR_CHECK(part > 0, "buffer of %ld bytes", static_cast<long>(buffer.count()));
  uint8_t* data = buffer.as<uint8_t>();
  // Untouched memory reads from one page of zeros that the system shares: a cache, not DRAM.
  for (int64_t at = 0; at < buffer.count(); at += kPage) data[at] = 1;
  const double moved = static_cast<double>(part * threads * (kind == StreamKind::kRead ? 1 : 2));
  return repeat(seconds, [&] {
    const double start = now_seconds();
    pool.parallel_for(threads, [&](int64_t task, int) {
      cpu::run_stream(kind, data + half + task * part, data + task * part, part);
    });
    return moved / (now_seconds() - start) * 1e-9;
  });
}

}  // namespace moraine
