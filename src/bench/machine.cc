// BenchMachine: measures the limits of the machine, then dense products as a percentage of them.
#include "bench/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/random.h"
#include "bench/put_line.h"
#include "kernels/isa.h"
#include "kernels/linear.h"
#include "kernels/peak.h"
#include "machine/machine.h"

namespace moraine {
namespace {

struct Limit {
  const char* name;
  const char* unit;
  Spread spread;
};

std::vector<Limit> measure_limits(Pool& pool) {
  constexpr double kSeconds = 0.5;
  constexpr int64_t kBufferBytes = int64_t{1} << 30;  // 32 times a 32 MiB cache
  std::vector<Limit> limits = {
      {"f32", "GFLOP/s", measure_peak(pool, PeakKind::kF32, kSeconds)},
      {"bf16", "GFLOP/s", measure_peak(pool, PeakKind::kBf16, kSeconds)},
      {"int8", "Gop/s", measure_peak(pool, PeakKind::kInt8, kSeconds)},
  };
  Arena arena(Arena::Mode::kReal);
  const Tensor buffer = arena.take("bench.stream", "scratch", DType::kU8, {kBufferBytes});
  limits.push_back({"read", "GB/s", measure_stream(pool, StreamKind::kRead, buffer, kSeconds)});
  limits.push_back({"copy", "GB/s", measure_stream(pool, StreamKind::kCopy, buffer, kSeconds)});
  limits.push_back({"copy non-temporal", "GB/s",
                    measure_stream(pool, StreamKind::kCopyNonTemporal, buffer, kSeconds)});
  return limits;
}

Machine machine_of(const std::vector<Limit>& limits, int threads) {
  Machine m;
  m.isa = isa_name(isa());
  m.threads = threads;
  m.f32_gflops = limits[0].spread.median;
  m.bf16_gflops = limits[1].spread.median;
  m.int8_gops = limits[2].spread.median;
  m.read_gb_s = limits[3].spread.median;
  m.copy_gb_s = std::max(limits[4].spread.median, limits[5].spread.median);
  m.measured_utc = utc_now();
  return m;
}

void print_limit(const Limit& limit, const BenchOptions& options) {
  const Spread& s = limit.spread;
  if (options.json) {
    const Json line = {{"bench", "memory"},
                       {"name", limit.name},
                       {"median", s.median},
                       {"p10", s.p10},
                       {"p90", s.p90},
                       {"unit", limit.unit},
                       {"threads", options.threads},
                       {"isa", isa_name(isa())}};
    put_line(json_text(line));
    return;
  }
  if (s.median == 0) {
    put_line(fmt::format("{:<20} no such instruction on {}", limit.name, isa_name(isa())));
  } else {
    put_line(fmt::format("{:<20}{:>10.1f}{:>10.1f}{:>10.1f}  {}", limit.name, s.median, s.p10,
                         s.p90, limit.unit));
  }
}

enum class Op : uint8_t { kForward, kWeight, kSymmetric };

struct ProductCase {
  const char* name;
  Op op;
  int64_t rows, n, k, groups;
};

// Of the operands: what rows are, and how the weight is packed.
struct OperandType {
  const char* name;
  DType dtype;
  WeightFormat format = WeightFormat::kPlain;
};

constexpr OperandType kTypes[] = {{"bf16", DType::kBF16},
                                  {"f32", DType::kF32},
                                  {"q8", DType::kBF16, WeightFormat::kQ8},
                                  {"q6", DType::kBF16, WeightFormat::kQ6},
                                  {"q4", DType::kBF16, WeightFormat::kQ4}};

// The products of a training step (T = 2048), the vocabulary head, large squares, decoding (from cache, and from
// memory), Newton-Schulz.
constexpr ProductCase kProductCases[] = {
    {"square", Op::kForward, 512, 512, 512, 1},
    {"square", Op::kForward, 1024, 1024, 1024, 1},
    {"square", Op::kForward, 2048, 2048, 2048, 1},
    {"square", Op::kForward, 4096, 4096, 1024, 1},
    {"forward", Op::kForward, 2048, 256, 256, 1},
    {"forward", Op::kForward, 2048, 384, 384, 1},
    {"forward", Op::kForward, 2048, 512, 512, 1},
    {"forward", Op::kForward, 2048, 1024, 512, 1},
    {"forward", Op::kForward, 2048, 512, 1024, 1},
    {"head", Op::kForward, 2048, 4096, 256, 1},
    {"head", Op::kForward, 2048, 8192, 512, 1},
    {"experts", Op::kForward, 2048, 1024, 512, 8},
    {"experts", Op::kForward, 2048, 512, 256, 16},
    {"prefill", Op::kForward, 64, 1024, 1024, 1},
    {"decode", Op::kForward, 4, 1024, 1024, 1},
    {"decode", Op::kForward, 1, 1024, 1024, 1},
    {"prefill", Op::kForward, 512, 4096, 8192, 1},
    {"decode", Op::kForward, 16, 16384, 8192, 1},
    {"decode", Op::kForward, 4, 16384, 8192, 1},
    {"decode", Op::kForward, 1, 16384, 8192, 1},
    {"weight", Op::kWeight, 2048, 256, 256, 1},
    {"weight", Op::kWeight, 2048, 512, 512, 1},
    {"weight", Op::kWeight, 2048, 1024, 512, 1},
    {"weight", Op::kWeight, 2048, 1024, 1024, 1},
    {"head weight", Op::kWeight, 2048, 4096, 256, 1},
    {"experts weight", Op::kWeight, 2048, 1024, 512, 8},
    {"experts weight", Op::kWeight, 2048, 512, 256, 16},
    {"symmetric", Op::kSymmetric, 512, 512, 512, 1},
    // Narrow ones: routers, and convolutions of a head's width.
    {"router", Op::kForward, 2048, 64, 256, 1},
    {"router", Op::kForward, 2048, 64, 64, 1},
    {"router", Op::kForward, 2048, 9, 64, 1},
    {"router", Op::kForward, 512, 64, 256, 1},
    {"convolution", Op::kForward, 12288, 64, 128, 6},
    {"router weight", Op::kWeight, 2048, 64, 256, 1},
    {"router weight", Op::kWeight, 2048, 64, 64, 1},
    {"convolution weight", Op::kWeight, 12288, 64, 128, 6},
    // Few rows, and blocks of the head.
    {"forward", Op::kForward, 512, 512, 256, 1},
    {"forward", Op::kForward, 512, 256, 256, 1},
    {"head", Op::kForward, 256, 4096, 256, 1},
    {"head input", Op::kForward, 256, 256, 4096, 1},
    {"experts", Op::kForward, 1024, 512, 256, 8},
    {"experts", Op::kForward, 512, 512, 256, 4},
    {"weight", Op::kWeight, 512, 256, 256, 1},
    {"head weight", Op::kWeight, 256, 4096, 256, 1},
    {"experts weight", Op::kWeight, 1024, 512, 256, 8},
};

// Ragged groups: a third, then more than twice that, and uneven numbers.
std::vector<int64_t> ragged_rows(int64_t total, int64_t groups) {
  std::vector<int64_t> rows = {0};
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t even = total * (g + 1) / groups,
                  shift = (g % 4 - 1) * (total / groups / 3) + g % 3;
    rows.push_back(g + 1 == groups ? total : std::clamp(even + shift, rows.back(), total));
  }
  return rows;
}

void fill(const Tensor& t, uint64_t seed) {
  for (int64_t i = 0; i < t.count(); ++i) {
    const uint64_t bits =
        random_below(1 << 16, seed, Stream::kTest, 0, static_cast<uint64_t>(i % 65521));
    const float value = static_cast<float>(bits) / 65536.0f - 0.5f;
    if (t.dtype == DType::kBF16) {
      t.as<BF16>()[i] = to_bf16(value);
    } else {
      t.as<float>()[i] = value;
    }
  }
}

// The tensors of one case, and a way to run it once.
class Product {
 public:
  Product(const ProductCase& c, const OperandType& type, Pool& pool)
      : case_(c),
        dtype_(type.dtype),
        arena_(Arena::Mode::kReal),
        rows_(ragged_rows(c.rows, c.groups)) {
    ctx_ = make_context(Backend::kCpu, pool, arena_);
    const bool symmetric = c.op == Op::kSymmetric;
    const DType dtype = type.dtype;
    x_ = take("x", symmetric ? DType::kF32 : dtype, {c.rows, c.k}, 1);
    if (symmetric) {
      y_ = arena_.take("y", "bench", DType::kF32, {c.rows, c.rows});
      scratch_ =
          arena_.take("scratch", "bench", DType::kU8, {matmul_scratch_bytes(c.rows, c.k, dtype)});
      return;
    }
    y_ = take("y", dtype, {c.rows, c.n}, 2);
    if (c.op == Op::kWeight) {
      dw_ = arena_.take("dw", "bench", DType::kF32, {c.groups, c.n, c.k});
      return;
    }
    packed_ = {.dtype = dtype, .groups = c.groups, .n = c.n, .k = c.k, .format = type.format};
    packed_.data = arena_.take_bytes("w", "bench", packed_bytes(packed_));
    const Tensor w = take("master", DType::kF32, {c.groups * c.n, c.k}, 3);
    pack_matrix(ctx_, {.packed = packed_, .w = w, .transpose = false});
  }

  double flops() const {
    const double all = 2.0 * static_cast<double>(case_.rows * case_.n * case_.k);
    return case_.op == Op::kSymmetric ? all / 2 : all;
  }

  // Of the packed weight; 0: there is none.
  double weight_bytes() const {
    return packed_.data == nullptr ? 0 : static_cast<double>(packed_bytes(packed_));
  }

  void run() {
    switch (case_.op) {
      case Op::kForward:
        grouped_linear_forward(ctx_,
                               {.y = y_, .x = x_, .w = packed_, .bias = Tensor(), .rows = rows_});
        return;
      case Op::kWeight:
        grouped_linear_backward_weight(
            ctx_, {.dw = dw_, .dbias = Tensor(), .dy = y_, .x = x_, .rows = rows_});
        return;
      case Op::kSymmetric:
        matmul_nt(ctx_, {.c = y_,
                         .c0 = Tensor(),
                         .a = x_,
                         .b = x_,
                         .alpha = 1,
                         .beta = 0,
                         .symmetric = true,
                         .compute = dtype_,
                         .scratch = scratch_});
        return;
    }
  }

 private:
  Tensor take(const char* name, DType dtype, std::initializer_list<int64_t> dims, uint64_t seed) {
    const Tensor t = arena_.take(name, "bench", dtype, dims);
    fill(t, seed);
    return t;
  }

  const ProductCase case_;
  const DType dtype_;
  Arena arena_;
  const std::vector<int64_t> rows_;
  Context ctx_;
  Tensor x_, y_, dw_, scratch_;
  PackedMatrix packed_;
};

struct Paired {
  double gflops;      // median
  double weight_gbs;  // GB/s of packed weights; 0: none
  Spread percent;     // of the peak measured right before and after
};

// Of the type's instruction; where there is none, products run at the rate of f32.
PeakKind peak_of(const OperandType& type) {
  const PeakKind own = type.format != WeightFormat::kPlain ? PeakKind::kInt8
                       : type.dtype == DType::kBF16        ? PeakKind::kBf16
                                                           : PeakKind::kF32;
  return has_peak(own) ? own : PeakKind::kF32;
}

Paired measure_pairs(Product& product, Pool& pool, PeakKind kind) {
  constexpr double kRunSeconds = 2e-3, kSeconds = 0.25;
  constexpr int64_t kPairs = 11, kPeakIterations = 50000;
  product.run();
  const double before = now_seconds();
  product.run();
  const int64_t repeats =
      std::max<int64_t>(1, static_cast<int64_t>(kRunSeconds / (now_seconds() - before + 1e-9)));
  std::vector<double> rates, percents;
  const double start = now_seconds();
  while (static_cast<int64_t>(rates.size()) < kPairs || now_seconds() - start < kSeconds) {
    const double peak_before = peak_burst(pool, kind, kPeakIterations);
    const double run_start = now_seconds();
    for (int64_t i = 0; i < repeats; ++i) product.run();
    const double seconds = (now_seconds() - run_start) / static_cast<double>(repeats);
    const double peak = 0.5 * (peak_before + peak_burst(pool, kind, kPeakIterations));
    rates.push_back(product.flops() / seconds);
    percents.push_back(100 * rates.back() / peak);
  }
  const int64_t count = static_cast<int64_t>(rates.size());
  const double rate = spread_of(rates.data(), count).median;
  return {rate * 1e-9, rate / product.flops() * product.weight_bytes() * 1e-9,
          spread_of(percents.data(), count)};
}

void print_product(const ProductCase& c, const OperandType& type, const Paired& p,
                   const BenchOptions& options) {
  if (options.json) {
    const Json line = {{"bench", "gemm"},
                       {"name", c.name},
                       {"rows", c.rows},
                       {"n", c.n},
                       {"k", c.k},
                       {"groups", c.groups},
                       {"dtype", type.name},
                       {"gflops", p.gflops},
                       {"weight_gbs", p.weight_gbs},
                       {"percent", p.percent.median},
                       {"p10", p.percent.p10},
                       {"p90", p.percent.p90},
                       {"threads", options.threads},
                       {"isa", isa_name(isa())}};
    put_line(json_text(line));
    return;
  }
  put_line(fmt::format("{:<20}{:<6}{:>6}{:>6}{:>6}{:>8}{:>10.1f}{:>9.1f}{:>8.1f}{:>8.1f}{:>8.1f}",
                       c.name, type.name, c.rows, c.n, c.k, c.groups, p.gflops, p.percent.median,
                       p.percent.p10, p.percent.p90, p.weight_gbs));
}

// Its rate as the share of the peak measured beside it times the machine's peak: neighbours that slow both leave it.
ProductPoint point_of(const ProductCase& c, const OperandType& type, const Paired& p,
                      const Machine& machine) {
  return {.is_weight = c.op == Op::kWeight,
          .bf16 = type.dtype == DType::kBF16,
          .rows = c.rows / c.groups,
          .n = c.n,
          .k = c.k,
          .groups = c.groups,
          .gflops = p.percent.median / 100 * matmul_gflops(machine, type.dtype == DType::kBF16)};
}

void check_options(const BenchOptions& options) {
  if (options.threads < 1 || options.threads > 1024) {
    throw_error(Code::kInvalidArgument, "bench: --threads {}: wanted 1 to 1024", options.threads);
  }
  if (!options.machine_file.empty())
    check_machine_place(posix_file_system(), "bench --machine", options.machine_file);
}

}  // namespace

void bench_memory(const BenchOptions& options) {
  check_options(options);
  Pool pool(options.threads);
  const std::vector<Limit> limits = measure_limits(pool);
  if (!options.json) {
    put_line(fmt::format("{}, {} threads{:>13}{:>10}{:>10}", isa_name(isa()), options.threads,
                         "median", "p10", "p90"));
  }
  for (const Limit& limit : limits) print_limit(limit, options);
  if (options.machine_file.empty()) return;
  save_machine(posix_file_system(), options.machine_file, machine_of(limits, options.threads));
}

void bench_gemm(const BenchOptions& options) {
  check_options(options);
  Pool pool(options.threads);
  Machine machine;
  if (!options.machine_file.empty()) machine = machine_of(measure_limits(pool), options.threads);
  if (!options.json) {
    put_line(
        fmt::format("{}, {} threads; percent of the register-only peak measured beside each run "
                    "(where no instruction has that type: of f32's); GB/s of packed weights",
                    isa_name(isa()), options.threads));
    put_line(fmt::format("{:<20}{:<6}{:>6}{:>6}{:>6}{:>8}{:>10}{:>9}{:>8}{:>8}{:>8}", "product",
                         "type", "rows", "n", "k", "groups", "GFLOP/s", "percent", "p10", "p90",
                         "GB/s"));
  }
  for (const OperandType& type : kTypes) {
    const PeakKind peak = peak_of(type);
    for (const ProductCase& c : kProductCases) {
      if (type.format != WeightFormat::kPlain && c.op != Op::kForward) continue;
      Product product(c, type, pool);
      const Paired p = measure_pairs(product, pool, peak);
      print_product(c, type, p, options);
      std::fflush(stdout);
      if (!options.machine_file.empty() && type.format == WeightFormat::kPlain &&
          c.op != Op::kSymmetric)
        machine.products.push_back(point_of(c, type, p, machine));
    }
    if (!options.machine_file.empty())
      save_machine(posix_file_system(), options.machine_file, machine);
  }
}

ProductShares compare_products(const ProductPoint& first, const ProductPoint& second, Pool& pool) {
  constexpr double kSeconds = 1;
  constexpr int64_t kPeakIterations = 50000;
  const auto case_of = [](const ProductPoint& p) {
    return ProductCase{.name = "",
                       .op = Op::kForward,
                       .rows = p.rows * p.groups,
                       .n = p.n,
                       .k = p.k,
                       .groups = p.groups};
  };
  const OperandType& type = kTypes[first.bf16 ? 0 : 1];
  const PeakKind kind = peak_of(type);
  Product products[2] = {{case_of(first), type, pool}, {case_of(second), type, pool}};
  double best[2] = {0, 0}, peak = 0;
  for (Product& product : products) product.run();
  for (const double start = now_seconds(); now_seconds() - start < kSeconds;) {
    for (int i = 0; i < 2; ++i) {
      const double begin = now_seconds();
      products[i].run();
      best[i] = std::max(best[i], products[i].flops() / (now_seconds() - begin));
    }
    peak = std::max(peak, peak_burst(pool, kind, kPeakIterations));
  }
  return {100 * best[0] / peak, 100 * best[1] / peak};
}

}  // namespace moraine
