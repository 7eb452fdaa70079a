// GivenRoutes: draws from running sums.
#include "bench/given_routes.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <thread>

#include "base/random.h"

namespace moraine {
namespace {

std::vector<double> running_sums(const std::vector<double>& weights) {
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<double> sums;
  double sum = 0;
  for (const double w : weights) sums.push_back((sum += w) / all);
  sums.back() = 1;
  return sums;
}

}  // namespace

std::vector<double> zipf_weights(int64_t experts, double s) {
  std::vector<double> weights;
  for (int64_t k = 1; k <= experts; ++k) weights.push_back(std::pow(static_cast<double>(k), -s));
  return weights;
}

GivenRoutes::GivenRoutes(int64_t layers, int64_t experts, int rank) : rank_(rank) {
  until_.assign(static_cast<size_t>(layers),
                running_sums(std::vector<double>(static_cast<size_t>(experts), 1)));
}

void GivenRoutes::set_ordered_weights(const std::vector<double>& weights) {
  for (std::vector<double>& until : until_) until = running_sums(weights);
}

void GivenRoutes::set_weights(const std::vector<double>& weights) {
  for (size_t l = 0; l < until_.size(); ++l) {
    std::vector<double> shuffled = weights;
    for (size_t e = shuffled.size(); e > 1; --e)
      std::swap(shuffled[e - 1], shuffled[random_below(e, 1, Stream::kTest, 10 + l, e)]);
    until_[l] = running_sums(shuffled);
  }
}

std::vector<double> GivenRoutes::shares(int64_t layer) const {
  std::vector<double> of = until_[static_cast<size_t>(layer)];
  std::adjacent_difference(of.begin(), of.end(), of.begin());
  return of;
}

double GivenRoutes::floor_over_mean(int64_t ranks) const {
  double sum = 0;
  for (int64_t l = 0; l < std::ssize(until_); ++l) {
    const std::vector<double> of = shares(l);
    sum += std::max(1.0, *std::max_element(of.begin(), of.end()) * static_cast<double>(ranks));
  }
  return sum / static_cast<double>(until_.size());
}

void GivenRoutes::route(int64_t layer, const Tensor& expert) {
  const std::vector<double>& until = until_[static_cast<size_t>(layer)];
  const int64_t T = expert.dims[0], n = expert.count() / std::max<int64_t>(1, T);
  const uint64_t stream = static_cast<uint64_t>((step_ * 1000 + layer) * 1000 + rank_);
  int32_t* out = expert.as<int32_t>();
  for (int64_t t = 0; t < T; ++t) {
    int32_t* const row = out + t * n;
    uint64_t draw = static_cast<uint64_t>(t) << 20;
    for (int64_t j = 0; j < n; ++j) {
      do {
        const double x = random_uniform(2, Stream::kTest, stream, draw++);
        row[j] =
            static_cast<int32_t>(std::lower_bound(until.begin(), until.end(), x) - until.begin());
      } while (std::find(row, row + j, row[j]) != row + j);
    }
  }
}

void GivenRoutes::computed(int64_t, double seconds) {
  if (slowness_ > 1)
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds * (slowness_ - 1)));
}

}  // namespace moraine
