// Asks the drivers, measures what is there, and says what is known.
#include "bench/gpu.h"

#include <cmath>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/random.h"
#include "kernels/attention.h"
#include "kernels/gpu/attention.h"
#include "kernels/gpu/kernel_images.h"
#include "kernels/gpu/linear.h"
#include "kernels/gpu/open_device.h"
#include "kernels/linear.h"
#include "kernels/peak.h"  // spread_of

namespace moraine {
namespace {

constexpr int kTimes = 5;

struct GpuMeasured {
  std::string kernel, shape;
  double seconds = 0, flops = 0;

  double tflops() const { return 1e-12 * flops / seconds; }
};

// Memory of a GPU with numbers from 1 to 2 and from -2 to -1: zeros would take less power, and so less time.
class GpuTensors {
 public:
  explicit GpuTensors(gpu::Gpu& gpu) : gpu_(gpu) {}
  Tensor operator()(DType dtype, std::initializer_list<int64_t> dims) {
    Tensor t = make_tensor(nullptr, dtype, dims);
    const int64_t words = (t.bytes() + 7) / 8 * 8;
    t.data = memory_.emplace_back(std::make_unique<gpu::GpuMemory>(gpu_, words))->data();
    std::vector<uint32_t> numbers(static_cast<size_t>(words / 4));
    for (size_t i = 0; i < numbers.size(); ++i) {
      const auto drawn = static_cast<uint32_t>(random_bits(1, Stream::kTest, 0, i));
      numbers[i] = dtype == DType::kF32 ? (drawn & 0x807fffff) | 0x3f800000
                                        : (drawn & 0x807f807f) | 0x3f803f80;
    }
    gpu_.copy_in(t.data, numbers.data(), words);
    return t;
  }

 private:
  gpu::Gpu& gpu_;
  std::vector<std::unique_ptr<gpu::GpuMemory>> memory_;
};

// The median of some, each with the wait for its end; the first is not counted: images are loaded, tables made.
double median_seconds(gpu::Gpu& gpu, const std::function<void()>& run) {
  std::vector<double> seconds;
  for (int i = 0; i <= kTimes; ++i) {
    gpu.wait();
    const double begin = now_seconds();
    run();
    gpu.wait();
    if (i > 0) seconds.push_back(now_seconds() - begin);
  }
  return spread_of(std::move(seconds)).median;
}

GpuMeasured measure_product(gpu::Gpu& gpu, DType dtype, int64_t T, int64_t n, int64_t k) {
  GpuTensors take(gpu);
  const Tensor y = take(dtype, {T, n}), x = take(dtype, {T, k}), w = take(dtype, {n, k});
  PackedMatrix pack;
  pack.data = w.data, pack.dtype = dtype, pack.groups = 1, pack.n = n, pack.k = k;
  const double seconds = median_seconds(
      gpu, [&] { gpu::linear_forward(gpu, {.y = y, .x = x, .w = pack, .bias = {}}); });
  return {.kernel = fmt::format("product {}", dtype_name(dtype)),
          .shape = fmt::format("{} x {} x {}", T, n, k),
          .seconds = seconds,
          .flops = 2.0 * static_cast<double>(T * n * k)};
}

// One document, causal: half of the pairs.
GpuMeasured measure_attention(gpu::Gpu& gpu, int64_t T, int64_t H, int64_t K, int64_t d) {
  GpuTensors take(gpu);
  const DType dtype = DType::kBF16;
  const Segment document = {.row_begin = 0, .rows = T, .position_begin = 0, .key_begin = 0};
  const AttentionForward a = {.o = take(dtype, {T, H, d}),
                              .lse = take(DType::kF32, {T, H}),
                              .q = take(dtype, {T, H, d}),
                              .k = take(dtype, {T, K, d}),
                              .v = take(dtype, {T, K, d}),
                              .segments = {&document, 1},
                              .window = 0,
                              .scale = 1 / std::sqrt(static_cast<float>(d))};
  return {.kernel = "attention bf16",
          .shape = fmt::format("{} positions, {} heads on {}, {}", T, H, K, d),
          .seconds = median_seconds(gpu, [&] { gpu::attention_forward(gpu, a); }),
          .flops = 2.0 * static_cast<double>(T * (T + 1) * H * d)};
}

// What was measured stays if a later one fails.
void measure(gpu::Gpu& gpu, bool emulated, std::vector<GpuMeasured>* into) {
  if (emulated) {
    into->push_back(measure_product(gpu, DType::kBF16, 64, 64, 64));
    into->push_back(measure_product(gpu, DType::kF32, 64, 64, 64));
    into->push_back(measure_attention(gpu, 64, 2, 1, 64));
    return;
  }
  into->push_back(measure_product(gpu, DType::kBF16, 4096, 4096, 4096));
  into->push_back(measure_product(gpu, DType::kBF16, 8192, 2048, 2048));
  into->push_back(measure_product(gpu, DType::kBF16, 16, 4096, 4096));
  into->push_back(measure_product(gpu, DType::kF32, 2048, 2048, 2048));
  into->push_back(measure_attention(gpu, 4096, 8, 2, 128));
  into->push_back(measure_attention(gpu, 4096, 16, 4, 64));
}

}  // namespace

void bench_gpu(const BenchGpuOptions& o) {
  std::string device, why;
  std::vector<GpuMeasured> measured;
  const bool emulated = o.device != "gpu";
  try {
    const std::unique_ptr<gpu::Gpu> gpu = gpu::open_device(o.device);
    if (gpu == nullptr)
      throw_error(Code::kInvalidArgument,
                  "bench gpu --device cpu: wanted a GPU, or an emulated one");
    device = gpu->name();
    measure(*gpu, emulated, &measured);
  } catch (const Error& error) {
    if (error.code() != Code::kDevice) throw;
    why = error.what();
  }
  if (o.json) {
    const auto text = [](const std::string& t) { return t.empty() ? Json() : Json(t); };
    Json rows = Json::array();
    for (const GpuMeasured& m : measured)
      rows.push_back(Json::object({{"kernel", m.kernel},
                                   {"shape", m.shape},
                                   {"ms", 1e3 * m.seconds},
                                   {"tflops", m.tflops()}}));
    fmt::print("{}\n", json_text(Json::object({{"bench", "gpu"},
                                               {"device", text(device)},
                                               {"why", text(why)},
                                               {"kernels", gpu::kKernelsState},
                                               {"images", gpu::kernel_images_text()},
                                               {"measured", rows}})));
    return;
  }
  fmt::print("device   {}\nkernels  {}\nimages   {}\n", device.empty() ? "none: " + why : device,
             gpu::kKernelsState, gpu::kernel_images_text());
  if (!device.empty() && !why.empty()) fmt::print("not measured: {}\n", why);
  if (measured.empty()) return;
  fmt::print("\n{}{:<16} {:<38} {:>10} {:>9}\n", emulated ? "a CPU plays it:\n" : "", "kernel",
             "shape", "ms", "TFLOP/s");
  for (const GpuMeasured& m : measured)
    fmt::print("{:<16} {:<38} {:>10.3f} {:>9.4g}\n", m.kernel, m.shape, 1e3 * m.seconds,
               m.tflops());
}

}  // namespace moraine
