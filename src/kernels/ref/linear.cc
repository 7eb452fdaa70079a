// Dense products in double, one row and one column at a time. A pack is a row-major copy.
#include "kernels/linear.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/quantised.h"
#include "kernels/ref/element.h"

namespace moraine::ref {
namespace {

// The pack as a tensor [G*n, k].
Tensor weights(const PackedMatrix& w) {
  return make_tensor(w.data, w.dtype, {w.groups * w.n, w.k});
}

// Row t of x as the integers of a quantised product, times their steps.
std::vector<double> quantised_row(const Tensor& x, int64_t t, int64_t k) {
  std::vector<double> row(static_cast<size_t>(k));
  for (int64_t begin = 0; begin < k; begin += kQuantisedBlock) {
    const int64_t end = std::min(begin + kQuantisedBlock, k);
    float largest = 0;
    for (int64_t i = begin; i < end; ++i) {
      const float size = std::abs(static_cast<float>(get(x, t * k + i)));
      if (!(size <= largest)) largest = size;  // a NaN stays
      if (std::isnan(size)) break;
    }
    const QuantisedStep step = quantised_step(largest);
    for (int64_t i = begin; i < end; ++i) {
      const float r = step.inverse == 0
                          ? 0
                          : std::nearbyintf(static_cast<float>(get(x, t * k + i)) * step.inverse);
      row[static_cast<size_t>(i)] = static_cast<double>(step.step) * static_cast<double>(r);
    }
  }
  return row;
}

void quantised_product(const Tensor& y, const Tensor& x, const PackedMatrix& packed,
                       const Tensor& bias, std::span<const int64_t> rows) {
  const int64_t n = packed.n, k = packed.k;
  std::vector<float> w(static_cast<size_t>(k));
  for (int64_t g = 0; g < packed.groups; ++g) {
    for (int64_t t = rows[g]; t < rows[g + 1]; ++t) {
      const std::vector<double> row = quantised_row(x, t, k);
      for (int64_t j = 0; j < n; ++j) {
        read_packed_row(packed, g, j, w.data());
        double sum = bias.empty() ? 0 : get(bias, g * n + j);
        for (size_t i = 0; i < row.size(); ++i) sum += row[i] * static_cast<double>(w[i]);
        set(y, t * n + j, sum);
      }
    }
  }
}

// y[t,n] = sum_k x[t,k] * w[g,n,k] + bias[g,n] for the rows t of each group.
void product(const Tensor& y, const Tensor& x, const PackedMatrix& packed, const Tensor& bias,
             std::span<const int64_t> rows) {
  if (packed.format != WeightFormat::kPlain) return quantised_product(y, x, packed, bias, rows);
  const int64_t n = packed.n, k = packed.k;
  const Tensor w = weights(packed);
  for (int64_t g = 0; g < packed.groups; ++g) {
    for (int64_t t = rows[g]; t < rows[g + 1]; ++t) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = bias.empty() ? 0 : get(bias, g * n + j);
        for (int64_t i = 0; i < k; ++i) sum += get(x, t * k + i) * get(w, (g * n + j) * k + i);
        set(y, t * n + j, sum);
      }
    }
  }
}

double rounded(double value, DType dtype) {
  return dtype == DType::kBF16 ? round_bf16(static_cast<float>(value)) : value;
}

}  // namespace

void pack_matrix(const PackMatrix& a) {
  const PackedMatrix& p = a.packed;
  const Tensor w = weights(p);
  for (int64_t g = 0; g < p.groups; ++g) {
    for (int64_t j = 0; j < p.n; ++j) {
      for (int64_t i = 0; i < p.k; ++i) {
        const int64_t from = a.transpose ? (g * p.k + i) * p.n + j : (g * p.n + j) * p.k + i;
        set(w, (g * p.n + j) * p.k + i, get(a.w, from));
      }
    }
  }
}

void grouped_linear_forward(const GroupedLinearForward& a) {
  product(a.y, a.x, a.w, a.bias, a.rows);
}

// All columns, of which the panels' are kept.
void linear_forward_panels(const LinearForwardPanels& a) {
  const int64_t T = a.x.dims[0], n = a.w.n, rows[2] = {0, T};
  std::vector<double> all(static_cast<size_t>(T * n));
  const Tensor y = make_tensor(all.data(), DType::kF64, {T, n});
  product(y, a.x, a.w, {}, rows);
  for (const int32_t panel : a.panels) {
    const int64_t begin = panel * kPackPanel, end = std::min(begin + kPackPanel, n);
    for (int64_t t = 0; t < T; ++t) {
      for (int64_t j = begin; j < end; ++j)
        set(a.y, t * n + j, all[static_cast<size_t>(t * n + j)]);
    }
  }
}

void grouped_linear_backward_input(const GroupedLinearBackwardInput& a) {
  product(a.dx, a.dy, a.w, Tensor(), a.rows);
}

void grouped_linear_backward_weight(const GroupedLinearBackwardWeight& a) {
  const int64_t groups = static_cast<int64_t>(a.rows.size()) - 1;
  const int64_t n = a.dy.dims[1], k = a.x.dims[1];
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < k; ++i) {
        double sum = 0;
        for (int64_t t = a.rows[g]; t < a.rows[g + 1]; ++t) {
          sum += get(a.dy, t * n + j) * get(a.x, t * k + i);
        }
        add(a.dw, (g * n + j) * k + i, sum);
      }
      if (a.dbias.empty()) continue;
      double sum = 0;
      for (int64_t t = a.rows[g]; t < a.rows[g + 1]; ++t) sum += get(a.dy, t * n + j);
      add(a.dbias, g * n + j, sum);
    }
  }
}

void matmul_nt(const MatmulNT& a) {
  const int64_t m = a.c.dims[0], n = a.c.dims[1], k = a.a.dims[1];
  const auto b = [&](int64_t j, int64_t l) { return get(a.b, a.b_is_kn ? l * n + j : j * k + l); };
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = a.symmetric ? i : 0; j < n; ++j) {
      double sum = 0;
      for (int64_t l = 0; l < k; ++l) {
        sum += rounded(get(a.a, i * k + l), a.compute) * rounded(b(j, l), a.compute);
      }
      const double old = a.beta == 0 ? 0 : static_cast<double>(a.beta) * get(a.c0, i * n + j);
      set(a.c, i * n + j, static_cast<double>(a.alpha) * sum + old);
      if (a.symmetric) set(a.c, j * n + i, get(a.c, i * n + j));
    }
  }
}

}  // namespace moraine::ref
