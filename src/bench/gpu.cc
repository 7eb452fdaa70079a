// Asks the drivers, measures what is there, and says what is known.
#include "bench/gpu.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
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
#include "kernels/gpu/vendor_matmul.h"
#include "kernels/linear.h"
#include "kernels/peak.h"  // spread_of

namespace moraine {
namespace {

constexpr int kTimes = 5;

struct GpuMeasured {
  std::string kernel, shape;
  double seconds = 0, flops = 0;
  std::optional<double> library_seconds;  // the vendor's

  double tflops() const { return 1e-12 * flops / seconds; }
};

struct GpuAnswer {
  std::string device, why, library, library_why;
  std::vector<GpuMeasured> measured;
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

std::vector<float> numbers_of(gpu::Gpu& gpu, const Tensor& bf16) {
  std::vector<BF16> there(static_cast<size_t>(bf16.count()));
  gpu.copy_out(there.data(), bf16.data, bf16.bytes());
  std::vector<float> numbers;
  for (const BF16 value : there) numbers.push_back(to_float(value));
  return numbers;
}

// A time of another product would say nothing. Both outputs are rounded to bf16, half of
// 2^-8 at most; a sum of k terms in f32 that a matrix unit cuts off is at most k 2^-23 of the terms' sizes away, which
// come to sqrt(k) times the result where signs are drawn.
void check_same_product(const std::vector<float>& ours, const std::vector<float>& theirs,
                        double k) {
  double apart = 0, size = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    apart += std::pow(double{ours[i]} - double{theirs[i]}, 2);
    size += std::pow(double{ours[i]}, 2);
  }
  const double distance = std::sqrt(apart / size);
  const double bound = std::exp2(-8) + 2 * k * std::sqrt(k) * std::exp2(-23);
  if (!(distance <= bound))
    throw_error(Code::kDevice,
                "the library's product is {:.2g} of its norm away from ours; wanted {:.2g} at most",
                distance, bound);
}

// The vendor's library beside ours, until something of it fails; then the answer says why.
class LibraryBeside {
 public:
  LibraryBeside(gpu::Gpu& gpu, GpuAnswer* answer) : gpu_(gpu), answer_(*answer) {
    try {
      library_ = gpu::load_matmul_library_of(gpu);
      answer_.library = library_->file;
    } catch (const Error& error) {
      answer_.library_why = error.what();
    }
  }

  std::optional<double> seconds(const gpu::VendorProduct& ours, const Tensor& y) {
    if (!answer_.library_why.empty()) return std::nullopt;
    try {
      gpu::VendorMatmul product(*library_, gpu_, {.y = y, .x = ours.x, .w = ours.w});
      const double seconds = median_seconds(gpu_, [&] { product.run(); });
      check_same_product(numbers_of(gpu_, ours.y), numbers_of(gpu_, y),
                         static_cast<double>(ours.x.dims[1]));
      return seconds;
    } catch (const Error& error) {
      answer_.library_why = error.what();
      return std::nullopt;
    }
  }

 private:
  gpu::Gpu& gpu_;
  GpuAnswer& answer_;
  std::optional<gpu::MatmulLibrary> library_;
};

struct GpuProduct {
  DType dtype;
  int64_t T, n, k;
};

GpuMeasured measure_product(gpu::Gpu& gpu, LibraryBeside& library, const GpuProduct& s) {
  GpuTensors take(gpu);
  const gpu::VendorProduct p = {.y = take(s.dtype, {s.T, s.n}),
                                .x = take(s.dtype, {s.T, s.k}),
                                .w = take(s.dtype, {s.n, s.k})};
  PackedMatrix pack;
  pack.data = p.w.data, pack.dtype = s.dtype, pack.groups = 1, pack.n = s.n, pack.k = s.k;
  GpuMeasured m = {
      .kernel = fmt::format("product {}", dtype_name(s.dtype)),
      .shape = fmt::format("{} x {} x {}", s.T, s.n, s.k),
      .seconds = median_seconds(
          gpu, [&] { gpu::linear_forward(gpu, {.y = p.y, .x = p.x, .w = pack, .bias = {}}); }),
      .flops = 2.0 * static_cast<double>(s.T * s.n * s.k),
      .library_seconds = {}};
  if (s.dtype == DType::kBF16) m.library_seconds = library.seconds(p, take(s.dtype, {s.T, s.n}));
  return m;
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
          .flops = 2.0 * static_cast<double>(T * (T + 1) * H * d),
          .library_seconds = {}};
}

// What was measured stays if a later one fails.
void measure(gpu::Gpu& gpu, bool emulated, GpuAnswer* answer) {
  LibraryBeside library(gpu, answer);
  std::vector<GpuMeasured>* const into = &answer->measured;
  const std::vector<GpuProduct> products =
      emulated ? std::vector<GpuProduct>{{DType::kBF16, 64, 96, 80}, {DType::kF32, 64, 64, 64}}
               : std::vector<GpuProduct>{{DType::kBF16, 4096, 4096, 4096},
                                         {DType::kBF16, 8192, 2048, 2048},
                                         {DType::kBF16, 16, 4096, 4096},
                                         {DType::kF32, 2048, 2048, 2048}};
  for (const GpuProduct& shape : products) into->push_back(measure_product(gpu, library, shape));
  if (emulated) {
    into->push_back(measure_attention(gpu, 64, 2, 1, 64));
    return;
  }
  into->push_back(measure_attention(gpu, 4096, 8, 2, 128));
  into->push_back(measure_attention(gpu, 4096, 16, 4, 64));
}

GpuAnswer ask_gpu(const std::string& name, bool emulated) {
  GpuAnswer a;
  try {
    const std::unique_ptr<gpu::Gpu> gpu = gpu::open_device(name);
    if (gpu == nullptr)
      throw_error(Code::kInvalidArgument,
                  "bench gpu --device cpu: wanted a GPU, or an emulated one");
    a.device = gpu->name();
    measure(*gpu, emulated, &a);
  } catch (const Error& error) {
    if (error.code() != Code::kDevice) throw;
    a.why = error.what();
    // This goes on, and there is nothing to choose.
    if (a.why.ends_with(gpu::kWithoutGpu))
      a.why.resize(a.why.size() - std::strlen(gpu::kWithoutGpu));
  }
  return a;
}

Json gpu_json(const GpuAnswer& a) {
  const auto text = [](const std::string& t) { return t.empty() ? Json() : Json(t); };
  Json rows = Json::array();
  for (const GpuMeasured& m : a.measured)
    rows.push_back(Json::object(
        {{"kernel", m.kernel},
         {"shape", m.shape},
         {"ms", 1e3 * m.seconds},
         {"tflops", m.tflops()},
         {"library_ms", m.library_seconds ? Json(1e3 * *m.library_seconds) : Json()}}));
  return Json::object({{"bench", "gpu"},
                       {"device", text(a.device)},
                       {"why", text(a.why)},
                       {"kernels", gpu::kKernelsState},
                       {"images", gpu::kernel_images_text()},
                       {"library", text(a.library)},
                       {"library_why", text(a.library_why)},
                       {"measured", rows}});
}

}  // namespace

void bench_gpu(const BenchGpuOptions& o) {
  const bool emulated = !gpu::has_own_memory(o.device);
  const GpuAnswer a = ask_gpu(o.device, emulated);
  if (o.json) {
    fmt::print("{}\n", json_text(gpu_json(a)));
    return;
  }
  fmt::print("device   {}\nkernels  {}\nimages   {}\n",
             a.device.empty() ? "none: " + a.why : a.device, gpu::kKernelsState,
             gpu::kernel_images_text());
  if (!a.device.empty())
    fmt::print("library  {}{}{}\n", a.library.empty() ? "none" : a.library,
               a.library_why.empty() ? "" : ": ", a.library_why);
  if (!a.device.empty() && !a.why.empty()) fmt::print("not measured: {}\n", a.why);
  if (a.measured.empty()) return;
  fmt::print("\n{}{:<16} {:<38} {:>10} {:>9} {:>12}\n", emulated ? "a CPU plays it:\n" : "",
             "kernel", "shape", "ms", "TFLOP/s", "library, ms");
  for (const GpuMeasured& m : a.measured)
    fmt::print("{:<16} {:<38} {:>10.3f} {:>9.4g} {:>12}\n", m.kernel, m.shape, 1e3 * m.seconds,
               m.tflops(),
               m.library_seconds ? fmt::format("{:.3f}", 1e3 * *m.library_seconds) : "");
}

}  // namespace moraine
