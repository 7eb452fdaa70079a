// Fails if a product, a coefficient, the norm or the transpose is wrong, or a bit depends on
// threads.
#include "optim/newton_schulz.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "testing/rig.h"

namespace moraine {
namespace {

using namespace testing;

constexpr NewtonSchulzKind kKinds[] = {NewtonSchulzKind::kClassic, NewtonSchulzKind::kPolarExpress};

using Matrix = std::vector<double>;  // row-major

double rounded(double x, DType compute) {
  return compute == DType::kBF16 ? static_cast<double>(round_bf16(static_cast<float>(x))) : x;
}

struct ProductShape {
  int64_t m, k, n;
};

// c [m, n] = a [m, k] b [k, n], operands rounded to `compute`.
Matrix product(const Matrix& a, const Matrix& b, const ProductShape& shape, DType compute) {
  const auto [m, k, n] = shape;
  Matrix c(static_cast<size_t>(m * n), 0.0);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t l = 0; l < k; ++l) {
      const double x = rounded(a[size_t(i * k + l)], compute);
      for (int64_t j = 0; j < n; ++j)
        c[size_t(i * n + j)] += x * rounded(b[size_t(l * n + j)], compute);
    }
  }
  return c;
}

Matrix transposed(const Matrix& a, int64_t m, int64_t n) {
  Matrix t(a.size());
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) t[size_t(j * m + i)] = a[size_t(i * n + j)];
  }
  return t;
}

double frobenius(const Matrix& a) {
  double sum = 0;
  for (const double x : a) sum += x * x;
  return std::sqrt(sum);
}

struct Reference {
  Matrix x;
  double gain = 1;  // what a small singular value is multiplied by
};

// The header's formulas in double.
Reference reference(Matrix x, int64_t m, int64_t n, NewtonSchulzKind kind, DType compute) {
  constexpr double kPolar[5][3] = {{8.156554524902461, -22.48329292557795, 15.878769915207462},
                                   {4.042929935166739, -2.808917465908714, 0.5000178451051316},
                                   {3.8916678022926607, -2.772484153217685, 0.5060648178503393},
                                   {3.285753657755655, -2.3681294933425376, 0.46449024233003106},
                                   {2.3465413258596377, -1.7097828382687081, 0.42323551169305323}};
  const bool classic = kind == NewtonSchulzKind::kClassic;
  const double norm = classic ? frobenius(x) + 1e-7 : 1.02 * frobenius(x) + 1e-6;
  for (double& v : x) v /= norm;
  double gain = 1;
  for (int step = 0; step < 5; ++step) {
    const double a = classic ? 3.4445 : kPolar[step][0], b = classic ? -4.7750 : kPolar[step][1],
                 c = classic ? 2.0315 : kPolar[step][2];
    const Matrix gram = product(x, transposed(x, m, n), {m, n, m}, compute);
    Matrix poly = product(gram, gram, {m, m, m}, compute);
    for (size_t i = 0; i < poly.size(); ++i) poly[i] = b * gram[i] + c * poly[i];
    const Matrix moved = product(poly, x, {m, m, n}, compute);
    for (size_t i = 0; i < x.size(); ++i) x[i] = a * x[i] + moved[i];
    gain *= a;
  }
  return {.x = std::move(x), .gain = gain};
}

// Singular values by one-sided Jacobi rotations of the rows, ascending.
std::vector<double> singular_values(Matrix a, int64_t m, int64_t n) {
  for (int sweep = 0; sweep < 30; ++sweep) {
    double worst = 0;
    for (int64_t p = 0; p < m; ++p) {
      for (int64_t q = p + 1; q < m; ++q) {
        double pp = 0, qq = 0, pq = 0;
        for (int64_t j = 0; j < n; ++j) {
          const double x = a[size_t(p * n + j)], y = a[size_t(q * n + j)];
          pp += x * x, qq += y * y, pq += x * y;
        }
        if (pq == 0) continue;
        worst = std::max(worst, std::abs(pq) / std::sqrt(pp * qq));
        const double tau = (qq - pp) / (2 * pq);
        const double t = (tau >= 0 ? 1.0 : -1.0) / (std::abs(tau) + std::sqrt(1 + tau * tau));
        const double c = 1 / std::sqrt(1 + t * t), s = c * t;
        for (int64_t j = 0; j < n; ++j) {
          const double x = a[size_t(p * n + j)], y = a[size_t(q * n + j)];
          a[size_t(p * n + j)] = c * x - s * y;
          a[size_t(q * n + j)] = s * x + c * y;
        }
      }
    }
    if (worst < 1e-12) break;
  }
  std::vector<double> values;
  for (int64_t p = 0; p < m; ++p) {
    double sum = 0;
    for (int64_t j = 0; j < n; ++j) sum += a[size_t(p * n + j)] * a[size_t(p * n + j)];
    values.push_back(std::sqrt(sum));
  }
  std::sort(values.begin(), values.end());
  return values;
}

Matrix to_doubles(const Tensor& t) { return Matrix(t.as<float>(), t.as<float>() + t.count()); }

void run(Rig& rig, const Tensor& x, NewtonSchulzKind kind, DType compute, int steps = 5) {
  const int64_t m = x.dims[0], n = x.dims[1];
  newton_schulz(rig.ctx,
                {.x = x,
                 .scratch = rig.zeros({newton_schulz_scratch_bytes(m, n, compute)}, DType::kU8),
                 .kind = kind,
                 .steps = steps,
                 .compute = compute});
}

struct Case {
  int64_t m, n;
};
constexpr Case kCases[] = {{1, 1}, {1, 9}, {7, 7}, {16, 48}, {37, 101}, {64, 64}, {80, 96}};

TEST(NewtonSchulz, MatchesTheFormulasInDouble) {
  for (const Case& c : kCases) {
    for (const NewtonSchulzKind kind : kKinds) {
      for (const DType compute : {DType::kF32, DType::kBF16}) {
        Rig rig;
        const Tensor start = rig.normal({c.m, c.n}, DType::kF32, 3, 0.02);
        const Reference wanted = reference(to_doubles(start), c.m, c.n, kind, compute);
        const Matrix& want = wanted.x;
        const double gain = wanted.gain;
        // A rounding made early is multiplied by up to `gain` where singular values are small;
        // fifteen products round sqrt(n) times. With bf16 operands, an f32 rounding may tip an
        // operand over to its neighbour: about one operand in 2^12 moves by 2^-8.
        const double f32_error = 15 * 0x1p-24 * std::sqrt(static_cast<double>(c.n)) * gain;
        const double flips = compute == DType::kBF16 ? 0x1p-8 * std::sqrt(0x1p-12) * gain : 0;
        for_each_isa([&](Isa cap) {
          const Tensor x = rig.copy(start);
          run(rig, x, kind, compute);
          Matrix difference = to_doubles(x);
          for (size_t i = 0; i < want.size(); ++i) difference[i] -= want[i];
          EXPECT_LE(frobenius(difference), (f32_error + flips) * frobenius(want))
              << c.m << " x " << c.n << " " << newton_schulz_name(kind) << " "
              << dtype_name(compute) << " " << isa_name(cap);
        });
      }
    }
  }
}

TEST(NewtonSchulz, SingularValuesEndInTheKnownBand) {
  for (const NewtonSchulzKind kind : kKinds) {
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      Rig rig;
      const int64_t m = 40, n = 120;
      const Tensor x = rig.normal({m, n}, DType::kF32, 5);
      const std::vector<double> before = singular_values(to_doubles(x), m, n);
      EXPECT_GT(before.front(), 0.02 * frobenius(to_doubles(x)));  // the input has nothing tiny
      run(rig, x, kind, compute);
      const std::vector<double> after = singular_values(to_doubles(x), m, n);
      const bool classic = kind == NewtonSchulzKind::kClassic;
      const double slack = compute == DType::kBF16 ? 0.03 : 1e-4;
      EXPECT_GE(after.front(), (classic ? 0.68 : 0.84) - slack) << newton_schulz_name(kind);
      EXPECT_LE(after.back(), (classic ? 1.21 : 1.15) + slack) << newton_schulz_name(kind);
    }
  }
}

TEST(NewtonSchulz, ZeroAndRankDeficientStayFinite) {
  for (const NewtonSchulzKind kind : kKinds) {
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      Rig rig;
      const Tensor zero = rig.zeros({12, 20}, DType::kF32);
      run(rig, zero, kind, compute);
      EXPECT_EQ(frobenius(to_doubles(zero)), 0);
      for (const double gain : {1e-30, 1.0, 1e30}) {
        const int64_t m = 24, n = 31;
        const Tensor x = rig.zeros({m, n}, DType::kF32);  // rank one
        const Tensor u = rig.normal({m}, DType::kF32, 8), v = rig.normal({n}, DType::kF32, 9);
        for (int64_t i = 0; i < m * n; ++i) {
          x.as<float>()[i] = static_cast<float>(gain) * u.as<float>()[i / n] * v.as<float>()[i % n];
        }
        run(rig, x, kind, compute);
        const std::vector<double> values = singular_values(to_doubles(x), m, n);
        EXPECT_TRUE(std::isfinite(values.back()));
        if (gain >= 1) {
          EXPECT_NEAR(values.back(), 0.95, 0.3);
          EXPECT_LT(values[values.size() - 2], 0.35)
              << dtype_name(compute);  // rounding noise, grown by the gain
        }
      }
    }
  }
}

TEST(NewtonSchulz, ThreadsDoNotChangeABit) {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    Rig one(Backend::kCpu, 1), two(Backend::kCpu, 2);
    for (const Case& c : {Case{37, 101}, Case{256, 256}, Case{130, 300}}) {
      const Tensor x = one.normal({c.m, c.n}, DType::kF32, 3), y = two.copy(x);
      run(one, x, NewtonSchulzKind::kClassic, compute);
      run(two, y, NewtonSchulzKind::kClassic, compute);
      EXPECT_SAME_BITS(y, x);
    }
  }
}

TEST(NewtonSchulz, TransposeIsExact) {
  for_each_isa([](Isa) {
    for (const Case& c : {Case{1, 1}, Case{3, 5}, Case{4, 4}, Case{17, 130}, Case{200, 67}}) {
      Rig rig;
      const Tensor in = rig.normal({c.m, c.n}, DType::kF32, 1),
                   out = rig.zeros({c.n, c.m}, DType::kF32);
      transpose(rig.ctx, out, in);
      EXPECT_EQ(to_doubles(out), transposed(to_doubles(in), c.m, c.n));
    }
  });
}

}  // namespace
}  // namespace moraine
