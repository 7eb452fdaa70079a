// Blocks of 128 inputs: Cholesky's factor from the first to the last, rounding from the last to the first; products
// between blocks are matmul_nt's.
#include "kernels/error_feedback.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/ceil_div.h"
#include "kernels/check_tensor.h"
#include "kernels/cpu/rounding.h"
#include "kernels/quantised.h"

namespace moraine {
namespace {

constexpr int64_t kSlabInputs = kQuantisedBlock;
constexpr int64_t kRowsAtOnce = cpu::kRoundedRows;  // of a task
// Mean square of an input that was never seen, over that of all.
constexpr double kUnseen = 0x1p-20;
constexpr double kLeastShrinkage = 0x1p-14;  // far above what f32 loses of a pivot
constexpr double kMoreShrinkage = 4;         // times as much, where that was not enough

// A block of inputs of a factor.
struct Slab {
  int64_t begin, width;  // inputs [begin, begin + width)
  float* data;           // [k - begin, width]

  float* row(int64_t input) const { return data + (input - begin) * width; }
};

Slab slab_of(const Tensor& factor, int64_t k, int64_t block) {
  const int64_t begin = block * kSlabInputs;
  // Blocks before it are of full width.
  const int64_t before = kSlabInputs * (block * k - kSlabInputs * (block * (block - 1) / 2));
  return {begin, std::min(kSlabInputs, k - begin), factor.as<float>() + before};
}

Tensor rows_of(const Slab& slab, int64_t begin, int64_t end) {
  return make_tensor(slab.row(begin), DType::kF32, {end - begin, slab.width});
}

// c += alpha a b^T, or a b: sums of at most a block's width.
struct Update {
  Tensor c, a, b;
  float alpha;
  bool b_is_kn;
  Tensor scratch;
};
void add_product(Context& ctx, const Update& u) {
  const int64_t n = u.c.dims[1], k = u.a.dims[1];
  const Tensor scratch =
      make_tensor(u.scratch.data, DType::kU8, {matmul_scratch_bytes(n, k, DType::kF32)});
  matmul_nt(ctx, {.c = u.c,
                  .c0 = u.c,
                  .a = u.a,
                  .b = u.b,
                  .alpha = u.alpha,
                  .beta = 1,
                  .symmetric = false,
                  .compute = DType::kF32,
                  .b_is_kn = u.b_is_kn,
                  .scratch = scratch});
}

// Roots of mean squares of the inputs.
std::vector<float> sizes_of(const FeedbackFactor& a, int64_t k) {
  const float* moments = a.moments.as<float>();
  std::vector<double> squares(static_cast<size_t>(k));
  double mean = 0;
  for (int64_t i = 0; i < k; ++i) {
    const double square = static_cast<double>(moments[i * k + i]);
    squares[static_cast<size_t>(i)] = square / static_cast<double>(std::max<int64_t>(1, a.rows));
    mean += squares[static_cast<size_t>(i)] / static_cast<double>(k);
  }
  std::vector<float> sizes;
  for (const double square : squares)
    sizes.push_back(mean > 0 ? static_cast<float>(std::sqrt(std::max(square, kUnseen * mean))) : 1);
  return sizes;
}

// Correlation of inputs i and j, from their moment.
struct Correlations {
  const float* moments;
  int64_t k, rows;
  std::vector<float> inverse;  // of sizes

  float at(int64_t i, int64_t j) const {
    const float mean = moments[i * k + j] / static_cast<float>(std::max<int64_t>(1, rows));
    return mean * inverse[static_cast<size_t>(i)] * inverse[static_cast<size_t>(j)];
  }
};

double shrinkage(Context& ctx, const Correlations& c) {
  std::vector<double> partial(static_cast<size_t>(c.k));
  ctx.pool->parallel_for(c.k, [&](int64_t i, int) {
    double sum = 0;
    for (int64_t j = 0; j < i; ++j) {
      const double value = static_cast<double>(c.at(i, j));
      sum += value * value;
    }
    partial[static_cast<size_t>(i)] = sum;
  });
  double off_diagonal = 0;
  for (const double sum : partial) off_diagonal += 2 * sum;
  if (!(off_diagonal > 0)) return 1;
  const double k = static_cast<double>(c.k), rows = static_cast<double>(c.rows);
  const double above = (1 - 2 / k) * (off_diagonal + k) + k * k;
  const double rho = above / ((rows + 1 - 2 / k) * off_diagonal);
  return std::min(1.0, std::max({rho, kLeastShrinkage, k * 0x1p-24}));
}

void fill_slab(Context& ctx, const Correlations& c, float kept, const Slab& slab) {
  ctx.pool->parallel_for(c.k - slab.begin, [&](int64_t task, int) {
    const int64_t j = slab.begin + task;
    float* row = slab.row(j);
    for (int64_t i = 0; i < slab.width; ++i) {
      const int64_t input = slab.begin + i;
      row[i] = input < j ? kept * c.at(j, input) : input == j ? 1.0f : 0.0f;
    }
  });
}

// The block on the diagonal: what is below it of L L^T becomes L. No pivot is below rho, the least eigenvalue, but for
// what was rounded, of which rho keeps well clear; false if not: sums over thousands of rows that are alike have lost
// more, and what such a pivot divides would grow from input to input.
bool factor_diagonal(const Slab& slab, float rho) {
  const int64_t width = slab.width;
  std::vector<float> column(static_cast<size_t>(width));
  for (int64_t i = 0; i < width; ++i) {
    float* pivot_row = slab.data + i * width;
    if (!(pivot_row[i] > rho / 2)) return false;
    const float pivot = std::sqrt(std::max(pivot_row[i], rho));
    pivot_row[i] = pivot;
    for (int64_t j = i + 1; j < width; ++j) {
      float* row = slab.data + j * width;
      row[i] /= pivot;
      column[static_cast<size_t>(j)] = row[i];
      for (int64_t c = i + 1; c <= j; ++c) row[c] -= row[i] * column[static_cast<size_t>(c)];
    }
  }
  return true;
}

// Rows below that block: a becomes a L^-T.
void solve_below(Context& ctx, const Slab& slab, int64_t k) {
  const int64_t width = slab.width, first = slab.begin + width;
  std::vector<float> columns(static_cast<size_t>(width * width));  // of L, each a run
  for (int64_t j = 0; j < width; ++j)
    for (int64_t i = 0; i <= j; ++i)
      columns[static_cast<size_t>(i * width + j)] = slab.data[j * width + i];
  ctx.pool->parallel_for(ceil_div(k - first, kRowsAtOnce), [&](int64_t task, int) {
    const int64_t begin = first + task * kRowsAtOnce, end = std::min(k, begin + kRowsAtOnce);
    for (int64_t j = begin; j < end; ++j) {
      float* row = slab.row(j);
      for (int64_t i = 0; i < width; ++i) {
        const float* column = columns.data() + i * width;
        row[i] /= column[i];
        for (int64_t c = i + 1; c < width; ++c) row[c] -= row[i] * column[c];
      }
    }
  });
}

// L of the correlations, shrunk by rho; false if that is too little.
bool factor_shrunk(Context& ctx, const FeedbackFactor& a, const Correlations& correlations,
                   double rho) {
  const int64_t k = correlations.k, blocks = ceil_div(k, kSlabInputs);
  for (int64_t b = 0; b < blocks; ++b)
    fill_slab(ctx, correlations, static_cast<float>(1 - rho), slab_of(a.factor, k, b));
  for (int64_t b = 0; b < blocks; ++b) {
    const Slab slab = slab_of(a.factor, k, b);
    if (!factor_diagonal(slab, static_cast<float>(rho))) return false;
    solve_below(ctx, slab, k);
    for (int64_t c = b + 1; c < blocks; ++c) {
      const Slab later = slab_of(a.factor, k, c);
      add_product(ctx, {.c = rows_of(later, later.begin, k),
                        .a = rows_of(slab, later.begin, k),
                        .b = rows_of(slab, later.begin, later.begin + later.width),
                        .alpha = -1,
                        .b_is_kn = false,
                        .scratch = a.scratch});
    }
  }
  return true;
}

// L of the shrunk correlations becomes F and D of the inputs.
void finish_slab(Context& ctx, const std::vector<float>& sizes, const Slab& slab) {
  const auto k = static_cast<int64_t>(sizes.size());
  std::vector<float> divisor(static_cast<size_t>(slab.width));
  for (int64_t i = 0; i < slab.width; ++i)
    divisor[static_cast<size_t>(i)] =
        slab.data[i * slab.width + i] * sizes[static_cast<size_t>(slab.begin + i)];
  ctx.pool->parallel_for(k - slab.begin, [&](int64_t task, int) {
    float* row = slab.data + task * slab.width;
    const float size = sizes[static_cast<size_t>(slab.begin + task)];
    for (int64_t i = 0; i < std::min(task, slab.width); ++i)
      row[i] = row[i] * size / divisor[static_cast<size_t>(i)];
    if (task < slab.width)
      row[task] = divisor[static_cast<size_t>(task)] * divisor[static_cast<size_t>(task)];
  });
}

// Inputs of one slab, all rows of weights.
struct Rounding {
  float* w;       // row 0, the slab's first input
  float* errors;  // [n, width]: u in, e out
  float* scales;  // of row 0
  int64_t n, k, blocks;
  Slab slab;
  WeightFormat format;
};

// Of the rows of a task, side by side: [input][row].
using Lanes = float[kRowsAtOnce];

template <int kBits>
void round_rows(const Rounding& a, int64_t begin, float* scratch) {
  const int64_t width = a.slab.width, rows = std::min(kRowsAtOnce, a.n - begin);
  Lanes* u = reinterpret_cast<Lanes*>(scratch);
  Lanes* w = u + kSlabInputs;
  Lanes scale = {}, inverse = {};
  std::fill_n(scratch, 2 * kSlabInputs * kRowsAtOnce, 0.0f);
  for (int64_t r = 0; r < rows; ++r) {
    WeightBlock block = {};
    std::copy_n(a.errors + (begin + r) * width, width, block.w);
    for (int64_t i = 0; i < width; ++i) {
      block.importance[i] = a.slab.data[i * width + i];
      u[i][r] = block.w[i];
      w[i][r] = a.w[(begin + r) * a.k + i];
    }
    scale[r] = choose_scale(a.format, block);
    inverse[r] = std::abs(scale[r]) > 0 ? 1 / scale[r] : 0;
    a.scales[(begin + r) * a.blocks] = scale[r];
  }
  for (int64_t i = width - 1; i >= 0; --i) {
    for (int64_t r = 0; r < kRowsAtOnce; ++r) {
      const float given = scale[r] * nearest_integer<kBits>(u[i][r] * inverse[r]);
      u[i][r] = w[i][r] - given;
      w[i][r] = given;
    }
    cpu::pass_on_errors(u[i], a.slab.data + i * width, i, u[0]);
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < width; ++i) {
      a.errors[(begin + r) * width + i] = u[i][r];
      a.w[(begin + r) * a.k + i] = w[i][r];
    }
  }
}

void round_block(Context& ctx, const Rounding& a) {
  static_assert(2 * kSlabInputs * sizeof(Lanes) <= kWorkerScratchBytes);
  ctx.pool->parallel_for(ceil_div(a.n, kRowsAtOnce), [&](int64_t task, int worker) {
    float* scratch = ctx.worker_scratch<float>(worker);
    a.format == WeightFormat::kQ6 ? round_rows<6>(a, task * kRowsAtOnce, scratch)
                                  : round_rows<4>(a, task * kRowsAtOnce, scratch);
  });
}

}  // namespace

int64_t feedback_factor_count(int64_t k) {
  const int64_t blocks = ceil_div(k, kSlabInputs);
  int64_t count = 0;
  for (int64_t b = 0; b < blocks; ++b)
    count += (k - b * kSlabInputs) * std::min(kSlabInputs, k - b * kSlabInputs);
  return count;
}

int64_t feedback_scratch_bytes() {
  return matmul_scratch_bytes(kSlabInputs, kSlabInputs, DType::kF32);
}

double make_feedback_factor(Context& ctx, const FeedbackFactor& a) {
  MR_CHECK(ctx.backend == Backend::kCpu, "the host quantises");
  MR_CHECK(a.moments.rank == 2, "moments have rank %d", a.moments.rank);
  MR_CHECK(a.rows >= 0, "%ld rows", static_cast<long>(a.rows));
  const int64_t k = a.moments.dims[0], blocks = ceil_div(k, kSlabInputs);
  check_tensor(a.moments, "moments", DType::kF32, {k, k});
  check_tensor(a.factor, "factor", DType::kF32, {feedback_factor_count(k)});
  check_tensor(a.scratch, "scratch", DType::kU8, {feedback_scratch_bytes()});
  const std::vector<float> sizes = sizes_of(a, k);
  Correlations correlations{a.moments.as<float>(), k, a.rows, {}};
  for (const float size : sizes) correlations.inverse.push_back(1 / size);
  double rho = shrinkage(ctx, correlations);
  // At 1 the correlations are gone, and each pivot is 1.
  while (!factor_shrunk(ctx, a, correlations, rho)) rho = std::min(1.0, kMoreShrinkage * rho);
  for (int64_t b = 0; b < blocks; ++b) finish_slab(ctx, sizes, slab_of(a.factor, k, b));
  return rho;
}

void feed_back_errors(Context& ctx, const FeedBackErrors& a) {
  MR_CHECK(ctx.backend == Backend::kCpu, "the host quantises");
  MR_CHECK(has_few_bits(a.format), "format is %s", weight_format_name(a.format));
  MR_CHECK(a.w.rank == 2, "w has rank %d", a.w.rank);
  const int64_t n = a.w.dims[0], k = a.w.dims[1], blocks = ceil_div(k, kSlabInputs);
  check_dtype(a.w, "w", DType::kF32);
  check_tensor(a.scales, "scales", DType::kF32, {n, blocks});
  check_tensor(a.factor, "factor", DType::kF32, {feedback_factor_count(k)});
  check_tensor(a.errors, "errors", DType::kF32, {n * k});
  check_tensor(a.scratch, "scratch", DType::kU8, {feedback_scratch_bytes()});
  float* w = a.w.as<float>();
  // Block by block, [n, width] each.
  const auto errors_of = [&](const Slab& slab) {
    return make_tensor(a.errors.as<float>() + n * slab.begin, DType::kF32, {n, slab.width});
  };
  for (int64_t b = blocks - 1; b >= 0; --b) {
    const Slab slab = slab_of(a.factor, k, b);
    const Tensor u = errors_of(slab);
    for (int64_t row = 0; row < n; ++row)
      std::copy_n(w + row * k + slab.begin, slab.width, u.as<float>() + row * slab.width);
    for (int64_t c = b + 1; c < blocks; ++c) {
      const Slab later = slab_of(a.factor, k, c);
      add_product(ctx, {.c = u,
                        .a = errors_of(later),
                        .b = rows_of(slab, later.begin, later.begin + later.width),
                        .alpha = 1,
                        .b_is_kn = true,
                        .scratch = a.scratch});
    }
    round_block(ctx, {.w = w + slab.begin,
                      .errors = u.as<float>(),
                      .scales = a.scales.as<float>() + b,
                      .n = n,
                      .k = k,
                      .blocks = blocks,
                      .slab = slab,
                      .format = a.format});
  }
}

}  // namespace moraine
