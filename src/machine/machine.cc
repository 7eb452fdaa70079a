// The machine file in JSON, and a brief measurement for when there is none.
#include "machine/machine.h"

#include <algorithm>
#include <cmath>

#include "base/check_place.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "kernels/isa.h"
#include "kernels/peak.h"
#include "tensor/arena.h"

namespace moraine {
namespace {

constexpr const char* kRemedy =
    "run `moraine bench memory` and `moraine bench gemm` to write a new one";

const Json& field(const Json& json, const char* name, const std::string& path) {
  if (!json.is_object() || !json.contains(name)) {
    throw_error(Code::kCorrupt, "read machine file {}: no field \"{}\"; {}", path, name, kRemedy);
  }
  return json.at(name);
}

std::string text(const Json& json, const char* name, const std::string& path) {
  const Json& value = field(json, name, path);
  if (!value.is_string()) {
    throw_error(Code::kCorrupt, "read machine file {}: \"{}\" is not text; {}", path, name,
                kRemedy);
  }
  return value.get<std::string>();
}

// A rate above 1e9 (an exaflop in GFLOP/s) is a damaged file, not a machine.
double number(const Json& json, const char* name, const std::string& path, double least) {
  constexpr double kMost = 1e9;
  const Json& value = field(json, name, path);
  const double n = value.is_number() ? value.get<double>() : -1;
  if (!std::isfinite(n) || n < least || n > kMost) {
    throw_error(Code::kCorrupt,
                "read machine file {}: \"{}\" is {}, wanted a number from {} to {}; {}", path, name,
                json_text(value).substr(0, 40), least, kMost, kRemedy);
  }
  return n;
}

int64_t bytes_field(const Json& json, const char* name, const std::string& path) {
  const Json& value = field(json, name, path);
  const int64_t n = value.is_number_integer() ? value.get<int64_t>() : -1;
  if (n < 0)
    throw_error(Code::kCorrupt, "read machine file {}: \"{}\" is {}, wanted a number of bytes; {}",
                path, name, json_text(value).substr(0, 40), kRemedy);
  return n;
}

std::vector<CommPoint> points(const Json& json, const char* name, const std::string& path) {
  const Json& list = field(json, name, path);
  if (!list.is_array())
    throw_error(Code::kCorrupt, "read machine file {}: \"{}\" is not a list; {}", path, name,
                kRemedy);
  std::vector<CommPoint> out;
  for (const Json& p : list)
    out.push_back({bytes_field(p, "bytes", path), number(p, "us", path, 0)});
  return out;
}

CommLimits comm_limits(const Json& json, const std::string& path) {
  CommLimits c;
  c.ranks = static_cast<int32_t>(number(json, "ranks", path, 1));
  c.transport = text(json, "transport", path);
  c.message_latency_us = number(json, "message_latency_us", path, 0);
  c.message_gb_s = number(json, "message_gb_s", path, 0);
  c.bucket_latency_us = number(json, "bucket_latency_us", path, 0);
  c.bucket_gb_s = number(json, "bucket_gb_s", path, 0);
  c.messages = points(json, "messages", path);
  c.buckets = points(json, "buckets", path);
  return c;
}

Json points_json(const std::vector<CommPoint>& points) {
  Json list = Json::array();
  for (const CommPoint& p : points) list.push_back({{"bytes", p.bytes}, {"us", p.us}});
  return list;
}

Json comm_json(const CommLimits& c) {
  return {{"ranks", c.ranks},
          {"transport", c.transport},
          {"message_latency_us", c.message_latency_us},
          {"message_gb_s", c.message_gb_s},
          {"bucket_latency_us", c.bucket_latency_us},
          {"bucket_gb_s", c.bucket_gb_s},
          {"messages", points_json(c.messages)},
          {"buckets", points_json(c.buckets)}};
}

bool truth(const Json& json, const char* name, const std::string& path) {
  const Json& value = field(json, name, path);
  if (!value.is_boolean())
    throw_error(Code::kCorrupt, "read machine file {}: \"{}\" is not true or false; {}", path, name,
                kRemedy);
  return value.get<bool>();
}

const Json& list_field(const Json& json, const char* name, const std::string& path) {
  const Json& list = field(json, name, path);
  if (!list.is_array())
    throw_error(Code::kCorrupt, "read machine file {}: \"{}\" is not a list; {}", path, name,
                kRemedy);
  return list;
}

std::vector<ProductPoint> product_points(const Json& json, const std::string& path) {
  std::vector<ProductPoint> points;
  const auto extent = [&](const Json& p, const char* name) {
    return static_cast<int64_t>(number(p, name, path, 1));
  };
  for (const Json& p : list_field(json, "products", path))
    points.push_back({.is_weight = truth(p, "is_weight", path),
                      .bf16 = truth(p, "bf16", path),
                      .rows = extent(p, "rows"),
                      .n = extent(p, "n"),
                      .k = extent(p, "k"),
                      .groups = extent(p, "groups"),
                      .gflops = number(p, "gflops", path, 1e-6)});
  return points;
}

std::vector<OperationFit> operation_fits(const Json& json, const std::string& path) {
  std::vector<OperationFit> fits;
  for (const Json& o : list_field(json, "operations", path))
    fits.push_back({.name = text(o, "name", path),
                    .bf16 = truth(o, "bf16", path),
                    .threads = static_cast<int32_t>(number(o, "threads", path, 1)),
                    .call_us = number(o, "call_us", path, 0),
                    .factor = number(o, "factor", path, 0)});
  return fits;
}

Calibration calibration_of(const Json& json, const std::string& path) {
  return {.plans = static_cast<int64_t>(number(json, "plans", path, 1)),
          .ranks_most = static_cast<int64_t>(number(json, "ranks_most", path, 1)),
          .rank_correlation = number(json, "rank_correlation", path, -1),
          .error_median = number(json, "error_median", path, 0),
          .error_largest = number(json, "error_largest", path, 0)};
}

Json calibration_json(const Calibration& c) {
  return {{"plans", c.plans},
          {"ranks_most", c.ranks_most},
          {"rank_correlation", c.rank_correlation},
          {"error_median", c.error_median},
          {"error_largest", c.error_largest}};
}

Json products_json(const std::vector<ProductPoint>& points) {
  Json list = Json::array();
  for (const ProductPoint& p : points)
    list.push_back({{"is_weight", p.is_weight},
                    {"bf16", p.bf16},
                    {"rows", p.rows},
                    {"n", p.n},
                    {"k", p.k},
                    {"groups", p.groups},
                    {"gflops", p.gflops}});
  return list;
}

Json operations_json(const std::vector<OperationFit>& fits) {
  Json list = Json::array();
  for (const OperationFit& o : fits)
    list.push_back({{"name", o.name},
                    {"bf16", o.bf16},
                    {"threads", o.threads},
                    {"call_us", o.call_us},
                    {"factor", o.factor}});
  return list;
}

// The file that is about to be replaced; nothing measured if there is no readable one.
Machine machine_of_file(FileSystem& fs, const std::string& path) {
  try {
    return fs.exists(path) ? load_machine(fs, path) : Machine();
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

Machine load_machine(FileSystem& fs, const std::string& path) {
  const Json json = parse_json(fs.read(path), path);
  constexpr double kSlowest = 1e-3;  // of a rate that something is divided by
  Machine m;
  m.isa = text(json, "isa", path);
  m.threads = static_cast<int32_t>(number(json, "threads", path, 1));
  m.f32_gflops = number(json, "f32_gflops", path, kSlowest);
  m.bf16_gflops = number(json, "bf16_gflops", path, 0);
  m.int8_gops = number(json, "int8_gops", path, 0);
  m.read_gb_s = number(json, "read_gb_s", path, kSlowest);
  m.copy_gb_s = number(json, "copy_gb_s", path, kSlowest);
  m.measured_utc = text(json, "measured_utc", path);
  if (json.contains("comm")) m.comm = comm_limits(json.at("comm"), path);
  if (json.contains("products")) m.products = product_points(json, path);
  if (json.contains("operations")) m.operations = operation_fits(json, path);
  if (json.contains("calibration")) m.calibration = calibration_of(json.at("calibration"), path);
  return m;
}

void check_machine_place(FileSystem& fs, const std::string& what, const std::string& path) {
  check_file_place(fs, what, path);
  if (!fs.exists(path) || fs.file_bytes(path) == 0) return;
  try {
    (void)load_machine(fs, path);
  } catch (const Error& e) {
    if (e.code() != Code::kCorrupt) throw;
    throw_error(Code::kInvalidArgument,
                "{} {}: what is there is no whole machine file; remove it, or choose another name",
                what, path);
  }
}

void save_machine(FileSystem& fs, const std::string& path, const Machine& m) {
  Json json = {{"isa", m.isa},
               {"threads", m.threads},
               {"f32_gflops", m.f32_gflops},
               {"bf16_gflops", m.bf16_gflops},
               {"int8_gops", m.int8_gops},
               {"read_gb_s", m.read_gb_s},
               {"copy_gb_s", m.copy_gb_s},
               {"measured_utc", m.measured_utc}};
  const Machine before = machine_of_file(fs, path);
  const CommLimits& comm = m.comm.ranks > 0 ? m.comm : before.comm;
  const auto& products = m.products.empty() ? before.products : m.products;
  const auto& operations = m.operations.empty() ? before.operations : m.operations;
  if (comm.ranks > 0) json["comm"] = comm_json(comm);
  if (!products.empty()) json["products"] = products_json(products);
  if (!operations.empty()) json["operations"] = operations_json(operations);
  const Calibration& calibration = m.calibration.plans > 0 ? m.calibration : before.calibration;
  if (calibration.plans > 0) json["calibration"] = calibration_json(calibration);
  fs.write_atomic(path, json_text(json, 2) + "\n");
}

Machine measure_machine_quick(Pool& pool) {
  constexpr double kSecondsEach = 0.06;
  // Neighbours on the machine only lower a burst, so its limit is near the best: the 90th percentile.
  constexpr int64_t kBufferBytes = int64_t{256} << 20;  // 8 times a 32 MiB cache
  Arena arena(Arena::Mode::kReal);
  const Tensor buffer = arena.take("machine.stream", "scratch", DType::kU8, {kBufferBytes});
  Machine m;
  m.isa = isa_name(isa());
  m.threads = pool.threads();
  m.f32_gflops = measure_peak(pool, PeakKind::kF32, kSecondsEach).p90;
  m.bf16_gflops = measure_peak(pool, PeakKind::kBf16, kSecondsEach).p90;
  m.int8_gops = measure_peak(pool, PeakKind::kInt8, kSecondsEach).p90;
  m.read_gb_s = measure_stream(pool, StreamKind::kRead, buffer, kSecondsEach).p90;
  m.copy_gb_s =
      std::max(measure_stream(pool, StreamKind::kCopy, buffer, kSecondsEach).p90,
               measure_stream(pool, StreamKind::kCopyNonTemporal, buffer, kSecondsEach).p90);
  m.measured_utc = utc_now();
  return m;
}

double matmul_gflops(const Machine& machine, bool bf16) {
  return bf16 && machine.bf16_gflops > 0 ? machine.bf16_gflops : machine.f32_gflops;
}

double measure_matmul_gflops(Pool& pool, bool bf16, double seconds) {
  const PeakKind kind = bf16 && has_peak(PeakKind::kBf16) ? PeakKind::kBf16 : PeakKind::kF32;
  return sustained_peak(pool, kind, seconds);
}

double product_gflops(const Machine& machine, const ProductPoint& shape) {
  const auto log2 = [](int64_t n) {
    return std::log2(static_cast<double>(std::max<int64_t>(1, n)));
  };
  double weights = 0, sum = 0;
  for (const ProductPoint& p : machine.products) {
    if (p.is_weight != shape.is_weight || p.bf16 != shape.bf16) continue;
    const double rows = log2(p.rows) - log2(shape.rows), n = log2(p.n) - log2(shape.n),
                 k = log2(p.k) - log2(shape.k),
                 groups = (p.groups > 1) == (shape.groups > 1) ? 0 : 1;
    const double distance = rows * rows + n * n + k * k + groups;
    const double weight = 1 / std::max(distance, 1e-9);
    weights += weight;
    sum += weight * std::log(p.gflops);
  }
  return weights > 0 ? std::exp(sum / weights) : matmul_gflops(machine, shape.bf16);
}

bool bf16_is_faster(const Machine& machine) {
  if (machine.bf16_gflops > 0) return machine.bf16_gflops > machine.f32_gflops;
  return machine.isa == isa_name(Isa::kAvx512);
}

int64_t suggested_bucket_bytes(const Machine& machine) {
  constexpr double kLatencyShare = 0.05;
  constexpr int64_t kDefault = 4 << 20, kLeast = 64 << 10, kMost = 64 << 20;
  const CommLimits& c = machine.comm;
  if (c.ranks == 0 || c.bucket_gb_s <= 0) return kDefault;
  const double bytes = (1 / kLatencyShare - 1) * c.bucket_latency_us * 1e3 * c.bucket_gb_s;
  return std::clamp(static_cast<int64_t>(std::ceil(std::min(bytes, double{kMost}))), kLeast, kMost);
}

}  // namespace moraine
