// Rig: tensors, contexts and comparisons for kernel tests.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "kernels/context.h"
#include "kernels/isa.h"
#include "tensor/arena.h"

namespace moraine::testing {

// A pool, an arena and a context of one backend; tensors live as long as the rig.
class Rig {
 public:
  explicit Rig(Backend backend = Backend::kCpu, int threads = 2);

  Tensor zeros(std::initializer_list<int64_t> dims, DType dtype);
  // Standard normal numbers times `gain`, rounded to dtype; a function of `seed` and the index.
  Tensor normal(std::initializer_list<int64_t> dims, DType dtype, uint64_t seed, double gain = 1);
  Tensor integers(std::initializer_list<int64_t> dims, int64_t below, uint64_t seed);  // i32
  Tensor copy(const Tensor& t);                                                        // same type
  Tensor copy_as(const Tensor& t, DType dtype);  // float types only
  Tensor int32s(const std::vector<int32_t>& values);
  Tensor int64s(const std::vector<int64_t>& values);

  Context ctx;

 private:
  Pool pool_;
  Arena arena_;
};

// Largest difference a correct kernel may show, relative to the scale of the result: one rounding of the
// output plus sqrt(terms) roundings of f32, each at `kSigmas` standard deviations.
struct Tolerance {
  double relative;
};
Tolerance tolerance(DType output, int64_t terms);

// |got - want| <= tolerance * (|want| + rms(want)) for every element. Reports the worst. The rms, over the
// finite elements, stands for the size of the terms of a sum whose result may cancel. An element of `want`
// that is not finite is exact: a NaN must meet a NaN, an infinity the same infinity.
void expect_close(const Tensor& got, const Tensor& want, Tolerance tolerance, const char* what);
void expect_same_bits(const Tensor& got, const Tensor& want, const char* what);
void expect_finite(const Tensor& got, const char* what);
// Norm of got - want over that of want, in double.
double relative_distance(const Tensor& got, const Tensor& want);

#define EXPECT_CLOSE(got, want, tol) ::moraine::testing::expect_close(got, want, tol, #got)
#define EXPECT_SAME_BITS(got, want) ::moraine::testing::expect_same_bits(got, want, #got)

// Runs f once for every instruction set this machine has, with that cap set; restores it after.
template <class F>
void for_each_isa(const F& f) {
  const Isa before = isa();
  for (const Isa cap : supported_isas()) {
    set_isa_cap(cap);
    f(cap);
  }
  set_isa_cap(before);
}

// Runs f once for each way of reading weights from memory (machine_reads_into_l1); restores the machine's after.
template <class F>
void for_each_read(const F& f) {
  const bool before = machine_reads_into_l1();
  for (const bool into_l1 : {false, true}) {
    set_reads_into_l1(into_l1);
    f(into_l1);
  }
  set_reads_into_l1(before);
}

// Compares `gradient` with central differences of `loss()` over the f64 tensor `parameter`, at up to
// `samples` elements: |numeric - gradient| <= 1e-6 * (|gradient| + rms(gradient) + floor).
template <class F>
void expect_gradient(const Tensor& parameter, const Tensor& gradient, const F& loss,
                     const char* what, int64_t samples = 24, double floor = 1e-3);

// A folder that is removed with the object.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// ---------------------------------------------------------------------------------------------

double rms(const Tensor& t);
void report_gradient(const char* what, int64_t index, double numeric, double analytic,
                     double allowed);

template <class F>
void expect_gradient(const Tensor& parameter, const Tensor& gradient, const F& loss,
                     const char* what, int64_t samples, double floor) {
  MR_CHECK(parameter.dtype == DType::kF64 && gradient.dtype == DType::kF64);
  MR_CHECK(parameter.count() == gradient.count());
  const double scale = rms(gradient) + floor;
  double* p = parameter.as<double>();
  const double* g = gradient.as<double>();
  const int64_t n = parameter.count(),
                stride = n <= samples ? 1 : n / samples + (n / samples % 2 == 0);
  for (int64_t i = 0; i < n; i += stride) {
    // Truncation h^2 = 1e-10, rounding 1e-16 / h = 1e-11: both below 1e-6.
    constexpr double kStep = 1e-5;
    const double before = p[i];
    p[i] = before + kStep;
    const double above = loss();
    p[i] = before - kStep;
    const double below = loss();
    p[i] = before;
    report_gradient(what, i, (above - below) / (2 * kStep), g[i], 1e-6 * (std::abs(g[i]) + scale));
  }
}

}  // namespace moraine::testing
