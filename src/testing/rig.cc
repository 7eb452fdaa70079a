// Deterministic test tensors and element-wise comparison in double.
#include "testing/rig.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/file_system.h"
#include "base/random.h"
#include "kernels/ref/element.h"

namespace moraine::testing {

Rig::Rig(Backend backend, int threads) : pool_(threads), arena_(Arena::Mode::kReal) {
  ctx = make_context(backend, pool_, arena_);
}

Tensor Rig::zeros(std::initializer_list<int64_t> dims, DType dtype) {
  Tensor t = arena_.take("test", "test", dtype, dims);
  if (t.data == nullptr)
    t.data = arena_.take_bytes("test", "test", 64);  // zero rows, still present
  return t;
}

Tensor Rig::normal(std::initializer_list<int64_t> dims, DType dtype, uint64_t seed, double gain) {
  const Tensor t = zeros(dims, dtype);
  for (int64_t i = 0; i < t.count(); ++i) {
    ref::set(t, i, gain * random_normal(seed, Stream::kTest, 0, static_cast<uint64_t>(i)));
  }
  return t;
}

Tensor Rig::integers(std::initializer_list<int64_t> dims, int64_t below, uint64_t seed) {
  const Tensor t = zeros(dims, DType::kI32);
  for (int64_t i = 0; i < t.count(); ++i) {
    t.as<int32_t>()[i] = static_cast<int32_t>(random_below(
        static_cast<uint64_t>(below), seed, Stream::kTest, 1, static_cast<uint64_t>(i)));
  }
  return t;
}

Tensor Rig::copy(const Tensor& t) {
  Tensor c = t;
  c.data = arena_.take_bytes("test", "test", t.bytes() + 64);
  if (t.bytes() > 0) std::memcpy(c.data, t.data, static_cast<size_t>(t.bytes()));
  return c;
}

Tensor Rig::copy_as(const Tensor& t, DType dtype) {
  Tensor c = t;
  c.dtype = dtype;
  c.data = arena_.take_bytes("test", "test", c.bytes() + 64);
  for (int64_t i = 0; i < t.count(); ++i) ref::set(c, i, ref::get(t, i));
  return c;
}

Tensor Rig::int32s(const std::vector<int32_t>& values) {
  const Tensor t = zeros({static_cast<int64_t>(values.size())}, DType::kI32);
  std::copy(values.begin(), values.end(), t.as<int32_t>());
  return t;
}

Tensor Rig::int64s(const std::vector<int64_t>& values) {
  const Tensor t = zeros({static_cast<int64_t>(values.size())}, DType::kI64);
  std::copy(values.begin(), values.end(), t.as<int64_t>());
  return t;
}

double rms(const Tensor& t) {
  double sum = 0;
  for (int64_t i = 0; i < t.count(); ++i) sum += ref::get(t, i) * ref::get(t, i);
  return t.count() == 0 ? 0 : std::sqrt(sum / static_cast<double>(t.count()));
}

Tolerance tolerance(DType output, int64_t terms) {
  constexpr double kSigmas = 6;  // one in 1e9 elements of a correct kernel passes this
  const double output_step = output == DType::kBF16  ? 0x1.0p-8
                             : output == DType::kF32 ? 0x1.0p-24
                                                     : 0x1.0p-53;
  const double sum_step = output == DType::kF64 ? 0x1.0p-53 : 0x1.0p-24;
  return {output_step + kSigmas * sum_step * std::sqrt(static_cast<double>(terms) + 1)};
}

namespace {

// The rms of those elements that are finite.
double finite_rms(const Tensor& t) {
  double sum = 0;
  int64_t count = 0;
  for (int64_t i = 0; i < t.count(); ++i) {
    const double x = ref::get(t, i);
    if (!std::isfinite(x)) continue;
    sum += x * x;
    ++count;
  }
  return count == 0 ? 0 : std::sqrt(sum / static_cast<double>(count));
}

// How many times over what is allowed; 0 if right, infinite where no distance can be told.
double excess(double got, double want, double allowed) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : INFINITY;
  if (!std::isfinite(want) || !std::isfinite(got)) return got == want ? 0 : INFINITY;
  return std::abs(got - want) / (allowed + 1e-300);
}

}  // namespace

void expect_close(const Tensor& got, const Tensor& want, Tolerance tolerance, const char* what) {
  ASSERT_EQ(shape_text(got), shape_text(want)) << what;
  const double scale = finite_rms(want);
  double worst = 0;
  int64_t at = -1;
  for (int64_t i = 0; i < got.count(); ++i) {
    const double w = ref::get(want, i);
    const double over = excess(ref::get(got, i), w, tolerance.relative * (std::abs(w) + scale));
    if (over > worst) {
      worst = over;
      at = i;
    }
  }
  if (worst <= 1) return;
  ADD_FAILURE() << what << " " << shape_text(got) << " at " << at << ": got " << ref::get(got, at)
                << ", want " << ref::get(want, at) << ": " << worst << " times the tolerance "
                << tolerance.relative << " (rms " << scale << ")";
}

double relative_distance(const Tensor& got, const Tensor& want) {
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < want.count(); ++i) {
    const double g = ref::get(got, i), w = ref::get(want, i);
    difference += (g - w) * (g - w);
    norm += w * w;
  }
  return std::sqrt(difference / (norm + 1e-300));
}

void expect_finite(const Tensor& got, const char* what) {
  for (int64_t i = 0; i < got.count(); ++i) {
    if (std::isfinite(ref::get(got, i))) continue;
    ADD_FAILURE() << what << " " << shape_text(got) << " at " << i << ": " << ref::get(got, i);
    return;
  }
}

void expect_same_bits(const Tensor& got, const Tensor& want, const char* what) {
  ASSERT_EQ(shape_text(got), shape_text(want)) << what;
  ASSERT_EQ(got.dtype, want.dtype) << what;
  const int64_t size = dtype_bytes(got.dtype);
  for (int64_t i = 0; i < got.count(); ++i) {
    const char *g = static_cast<const char*>(got.data) + i * size,
               *w = static_cast<const char*>(want.data) + i * size;
    if (std::memcmp(g, w, static_cast<size_t>(size)) != 0) {
      ADD_FAILURE() << what << " " << shape_text(got) << " differs first at " << i;
      return;
    }
  }
}

void report_gradient(const char* what, int64_t index, double numeric, double analytic,
                     double allowed) {
  EXPECT_LE(std::abs(numeric - analytic), allowed)
      << what << "[" << index << "]: finite difference " << numeric << ", backward " << analytic;
}

TempFolder::TempFolder() {
  const char* base = std::getenv("TMPDIR");
  path_ = std::string(base != nullptr ? base : "/tmp") + "/moraine-test-XXXXXX";
  MR_CHECK(mkdtemp(path_.data()) != nullptr, "%s", path_.c_str());
}

TempFolder::~TempFolder() { posix_file_system().remove_all(path_); }

}  // namespace moraine::testing
