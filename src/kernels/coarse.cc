// Coarse: lengths of errors, and intervals from them.
#include "kernels/coarse.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/check_tensor.h"
#include "kernels/quantised.h"
#include "kernels/round_to_even.h"
#include "kernels/widened.h"

namespace moraine {
namespace {

constexpr double kUnit = 0x1p-24;      // of a rounding to nearest f32
constexpr double kInDouble = 0x1p-30;  // what a sum of 2^20 squares in double may be off, and more
constexpr double kLongest =
    0x1p50;  // of a row or a word: products of sums stay far below f32's largest
constexpr int64_t kMostInputs = int64_t{1} << 20;  // of which kInDouble holds

// Error of a sum relative to the sum of its terms' sizes.
double rounding_of(int64_t roundings) {
  const double sum = static_cast<double>(roundings) * kUnit;
  return sum / (1 - sum);
}
double exact_rounding(int64_t k) { return rounding_of(2 * k + 8); }
double coarse_rounding(int64_t k) {
  return rounding_of(2 * ((k + kQuantisedBlock - 1) / kQuantisedBlock) + 8);
}

// The least float from `value` on; infinity above all.
float float_from(double value) {
  const float rounded = static_cast<float>(value);
  return static_cast<double>(rounded) < value
             ? std::nextafter(rounded, std::numeric_limits<float>::infinity())
             : rounded;
}

double length_from(double squares) { return std::sqrt(squares) * (1 + kInDouble); }

// Of one word, from its exact and coarse weights: eight sums in turn, since a chain of additions waits for each.
struct WordLengths {
  double error, size;
};
WordLengths word_lengths(const float* exact, const float* coarse, int64_t k) {
  constexpr int64_t kLanes = 8;
  double error[kLanes] = {}, size[kLanes] = {};
  const auto add = [&](int64_t i, int64_t lane) {
    const auto rounded = static_cast<double>(coarse[i]);
    const double lost = static_cast<double>(exact[i]) - rounded;
    error[lane] += lost * lost;
    size[lane] += rounded * rounded;
  };
  int64_t i = 0;
  for (; i + kLanes <= k; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) add(i + lane, lane);
  }
  for (; i < k; ++i) add(i, 0);
  return {length_from(std::accumulate(error, error + kLanes, 0.0)),
          length_from(std::accumulate(size, size + kLanes, 0.0))};
}

// Rounds the words of a panel and says what is lost.
class PanelCopy {
 public:
  PanelCopy(const PackedMatrix& exact, const CoarseMatrix& coarse)
      : exact_(exact), coarse_(coarse) {}

  void run(int64_t panel) const {
    const int64_t k = exact_.k, begin = panel * kPackPanel,
                  words = std::min(kPackPanel, exact_.n - begin);
    std::vector<float> rows(static_cast<size_t>(words * k)), rounded(static_cast<size_t>(k));
    for (int64_t j = 0; j < words; ++j) read_packed_row(exact_, 0, begin + j, rows.data() + j * k);
    PackedMatrix here = coarse_.pack;
    here.n = words;
    here.data = static_cast<uint8_t*>(here.data) + panel * packed_bytes(here);
    quantise_panel({.packed = here,
                    .w = make_tensor(rows.data(), DType::kF32, {words, k}),
                    .transpose = false},
                   0, 0);
    const double g = exact_rounding(k), h = coarse_rounding(k);
    for (int64_t j = 0; j < words; ++j) {
      read_packed_row(here, 0, j, rounded.data());
      const WordLengths word = word_lengths(rows.data() + j * k, rounded.data(), k);
      coarse_.error.as<float>()[begin + j] = float_from(word.error * (1 + g) + word.size * (g + h));
      coarse_.norm.as<float>()[begin + j] = float_from(word.size * (1 + h));
    }
  }

 private:
  const PackedMatrix& exact_;
  const CoarseMatrix& coarse_;
};

template <class E>
RowLengths lengths_of(const E* row, int64_t k) {
  double size = 0, rest = 0;
  for (int64_t begin = 0; begin < k; begin += kQuantisedBlock) {
    const int64_t end = std::min(begin + kQuantisedBlock, k);
    float largest = 0;
    for (int64_t i = begin; i < end; ++i) {
      const float value = widened(row[i]);
      if (!std::isfinite(value)) return {std::numeric_limits<double>::infinity(), 0};
      largest = std::max(largest, std::abs(value));
    }
    const QuantisedStep step = quantised_step(largest);
    for (int64_t i = begin; i < end; ++i) {
      const float value = widened(row[i]);
      const auto kept =
          static_cast<double>(step.step) * static_cast<double>(round_to_even(value * step.inverse));
      const double lost = static_cast<double>(value) - kept;
      size += static_cast<double>(value) * static_cast<double>(value);
      rest += lost * lost;
    }
  }
  return {length_from(size), length_from(rest)};
}

}  // namespace

bool can_be_coarse(const PackedMatrix& exact) {
  return exact.format == WeightFormat::kPlain && exact.groups == 1 && exact.k <= kMostInputs &&
         (exact.dtype == DType::kF32 || exact.dtype == DType::kBF16);
}

CoarseMatrix take_coarse(Arena& arena, const std::string& name, const PackedMatrix& exact) {
  MR_CHECK(can_be_coarse(exact), "%s", name.c_str());
  CoarseMatrix coarse;
  coarse.pack = exact;
  coarse.pack.format = WeightFormat::kQ8;
  coarse.pack.data = arena.take_bytes(name, "copy", packed_bytes(coarse.pack));
  coarse.error = arena.take(name + ".error", "copy", DType::kF32, {exact.n});
  coarse.norm = arena.take(name + ".norm", "copy", DType::kF32, {exact.n});
  return coarse;
}

void make_coarse(Context& ctx, const PackedMatrix& exact, CoarseMatrix& coarse) {
  MR_CHECK(ctx.backend != Backend::kRef, "packs of ref/ lie in another order");
  MR_CHECK(can_be_coarse(exact) && exact.n == coarse.pack.n && exact.k == coarse.pack.k,
           "%ld x %ld", long(exact.n), long(exact.k));
  OpTimer timer(ctx.profile, "make_coarse", 0,
                static_cast<double>(packed_bytes(exact) + packed_bytes(coarse.pack)));
  const PanelCopy copy(exact, coarse);
  ctx.pool->parallel_for(packed_panels(exact.n), [&](int64_t panel, int) { copy.run(panel); });
  coarse.norm_most = 0;
  for (int64_t v = 0; v < exact.n; ++v) {
    // A NaN or an infinity of one word stays.
    const float error = coarse.error.as<float>()[v], norm = coarse.norm.as<float>()[v];
    const double most =
        std::isfinite(error) ? static_cast<double>(norm) : std::numeric_limits<double>::infinity();
    if (!(most <= coarse.norm_most)) coarse.norm_most = most;
    if (!std::isfinite(most)) return;
  }
}

RowLengths row_lengths(const Tensor& x, int64_t row) {
  MR_CHECK(x.rank == 2 && (x.dtype == DType::kF32 || x.dtype == DType::kBF16), "x is %s",
           dtype_name(x.dtype));
  const int64_t k = x.dims[1];
  return x.dtype == DType::kBF16 ? lengths_of(x.as<BF16>() + row * k, k)
                                 : lengths_of(x.as<float>() + row * k, k);
}

bool has_reach(const CoarseMatrix& w, const RowLengths& row) {
  return w.norm_most < kLongest && row.size < kLongest;
}

void coarse_interval(const CoarseMatrix& w, const RowLengths& row, const CoarseInterval& a) {
  const int64_t n = w.pack.n;
  const float size = float_from(row.size), rest = float_from(row.rest);
  const float floor =
      float_from(static_cast<double>(kLeastBlock) * static_cast<double>(w.pack.k + 64) *
                 (1 + 2 * w.norm_most + row.size));
  // Five roundings of the sum and one of each difference: 2^-20 of the reach and 2^-22 of the number are more.
  const float more = 1 + 0x1p-20f, of_coarse = 0x1p-22f;
  const float *error = w.error.as<float>(), *norm = w.norm.as<float>();
  for (int64_t v = 0; v < n; ++v) {
    const float center = a.coarse[v];
    const float reach =
        (size * error[v] + rest * norm[v] + floor) * more + std::abs(center) * of_coarse;
    a.lower[v] = center - reach;
    a.upper[v] = center + reach;
  }
}

}  // namespace moraine
