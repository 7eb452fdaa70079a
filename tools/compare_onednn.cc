// compare_onednn: forward products of bf16 here and in oneDNN, in turn, beside the measured peak.
//
// Built by hand, for oneDNN is no dependency (Debian: libdnnl-dev); one thread of each:
//
//   g++ -std=c++20 -O2 -Isrc tools/compare_onednn.cc -o build/compare_onednn build/release/libmr_kernels.a
//       build/release/libmr_tensor.a build/release/libmr_base.a -ldnnl -lhwy -lfmt -lxxhash -lsimdjson -lpthread
//   OMP_NUM_THREADS=1 build/compare_onednn
//
// Both have their weights packed before. y is f32. Medians of 31 pairs; GFLOP/s.
#include <oneapi/dnnl/dnnl.hpp>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "base/clock.h"
#include "base/pool.h"
#include "base/random.h"
#include "kernels/isa.h"
#include "kernels/linear.h"
#include "kernels/peak.h"
#include "tensor/arena.h"

namespace moraine {
namespace {

struct Shape {
  int64_t rows, n, k;
};
constexpr Shape kShapes[] = {{2048, 256, 256},   {2048, 512, 512},   {2048, 1024, 512},
                             {2048, 512, 1024},  {2048, 1024, 1024}, {2048, 4096, 256},
                             {2048, 1024, 4096}, {256, 512, 512},    {64, 1024, 1024}};

class OneDnn {
 public:
  OneDnn(const Shape& s, void* x, void* w, void* y)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    using dt = dnnl::memory::data_type;
    using tag = dnnl::memory::format_tag;
    const dnnl::memory::desc xd({s.rows, s.k}, dt::bf16, tag::ab),
        yd({s.rows, s.n}, dt::f32, tag::ab), wd({s.k, s.n}, dt::bf16, tag::ba),
        any({s.k, s.n}, dt::bf16, tag::any);
    const dnnl::matmul::primitive_desc pd(dnnl::matmul::desc(xd, any, yd), engine_);
    name_ = pd.impl_info_str();
    dnnl::memory plain(wd, engine_, w);
    packed_ = dnnl::memory(pd.weights_desc(), engine_);
    dnnl::reorder(plain, packed_).execute(stream_, plain, packed_);
    x_ = dnnl::memory(xd, engine_, x);
    y_ = dnnl::memory(yd, engine_, y);
    product_ = dnnl::matmul(pd);
    stream_.wait();
  }
  void run() {
    product_.execute(stream_,
                     {{DNNL_ARG_SRC, x_}, {DNNL_ARG_WEIGHTS, packed_}, {DNNL_ARG_DST, y_}});
    stream_.wait();
  }
  const char* name() const { return name_.c_str(); }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::memory packed_, x_, y_;
  dnnl::matmul product_;
  std::string name_;
};

template <class F>
double seconds_of(const F& f) {
  const double begin = now_seconds();
  f();
  return now_seconds() - begin;
}

void compare(const Shape& s) {
  Arena arena(Arena::Mode::kReal);
  Pool pool(1);
  Context ctx = make_context(Backend::kCpu, pool, arena);
  const Tensor x = arena.take("x", "bench", DType::kBF16, {s.rows, s.k}),
               w = arena.take("w", "bench", DType::kF32, {s.n, s.k}),
               half = arena.take("half", "bench", DType::kBF16, {s.n, s.k}),
               y = arena.take("y", "bench", DType::kF32, {s.rows, s.n}),
               y2 = arena.take("y2", "bench", DType::kF32, {s.rows, s.n});
  for (int64_t i = 0; i < x.count(); ++i)
    x.as<BF16>()[i] =
        to_bf16(static_cast<float>(random_normal(1, Stream::kTest, 0, static_cast<uint64_t>(i))));
  for (int64_t i = 0; i < w.count(); ++i) {
    w.as<float>()[i] =
        static_cast<float>(random_normal(2, Stream::kTest, 0, static_cast<uint64_t>(i)));
    half.as<BF16>()[i] = to_bf16(w.as<float>()[i]);
  }
  const PackedMatrix packed = take_packed(arena, "packed", {.dtype = DType::kBF16, .n = s.n, .k = s.k});
  pack_matrix(ctx, {.packed = packed, .w = w, .transpose = false});
  OneDnn theirs(s, x.data, half.data, y2.data);
  const auto ours = [&] { linear_forward(ctx, {.y = y, .x = x, .w = packed, .bias = Tensor()}); };
  ours();
  theirs.run();
  double worst = 0;
  for (int64_t i = 0; i < y.count(); ++i)
    worst = std::max(worst, std::abs(double{y.as<float>()[i]} - double{y2.as<float>()[i]}));
  const double flops =
      2e-9 * static_cast<double>(s.rows) * static_cast<double>(s.n) * static_cast<double>(s.k);
  std::vector<double> a, b, ratio, peak;
  for (int i = 0; i < 31; ++i) {
    peak.push_back(peak_burst(pool, PeakKind::kBf16, 5000) * 1e-9);
    const double mine = flops / seconds_of(ours), other = flops / seconds_of([&] { theirs.run(); });
    a.push_back(mine), b.push_back(other), ratio.push_back(mine / other);
  }
  const auto median = [](std::vector<double>& v) {
    return spread_of(v.data(), static_cast<int64_t>(v.size())).median;
  };
  std::printf(
      "%5ld %5ld %5ld  peak %6.0f  here %6.0f  oneDNN %6.0f  ratio %5.2f  largest difference %.1e  "
      "%s\n",
      static_cast<long>(s.rows), static_cast<long>(s.n), static_cast<long>(s.k), median(peak),
      median(a), median(b), median(ratio), worst, theirs.name());
}

}  // namespace
}  // namespace moraine

int main() {
  std::printf("%s, one thread, GFLOP/s\n", moraine::isa_name(moraine::isa()));
  for (const moraine::Shape& s : moraine::kShapes) moraine::compare(s);
}
