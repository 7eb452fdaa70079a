// Compare: both passes over some windows, then rows of logits in blocks.
#include "eval/compare.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "model/forward_observer.h"
#include "model/head.h"

namespace moraine {
namespace {

// The experts of each row, layer after layer.
class Routes : public ForwardObserver {
 public:
  void reads(int64_t, ServedMatrix, const Tensor&, std::span<const int64_t>) override {}
  void chooses(int64_t, const Tensor& expert) override {
    const int32_t* from = expert.as<int32_t>();
    layers_.emplace_back(from, from + expert.count());
  }
  bool looks_at_inputs() const override { return false; }
  bool changes_routes() const override { return false; }
  const std::vector<std::vector<int32_t>>& layers() const { return layers_; }

 private:
  std::vector<std::vector<int32_t>> layers_;
};

struct Row {
  double loss_reference = 0, loss = 0, kl = 0;
  bool agrees = false;
};

// log of the sum of exponentials, the largest taken out.
struct Softmax {
  float largest;
  int64_t place;
  double log_sum;
};
Softmax softmax_of(std::span<const float> logits) {
  const auto most = std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit - *most));
  return {*most, most - logits.begin(), std::log(sum)};
}

Row compare_rows(std::span<const float> reference, std::span<const float> other, int32_t target) {
  const Softmax p = softmax_of(reference), q = softmax_of(other);
  const auto log_of = [](const Softmax& s, float logit) {
    return static_cast<double>(logit - s.largest) - s.log_sum;
  };
  Row row;
  for (size_t v = 0; v < reference.size(); ++v) {
    const double log_p = log_of(p, reference[v]);
    row.kl += std::exp(log_p) * (log_p - log_of(q, other[v]));
  }
  const auto t = static_cast<size_t>(target);
  row.loss_reference = -log_of(p, reference[t]);
  row.loss = -log_of(q, other[t]);
  row.agrees = p.place == q.place;
  return row;
}

// Rows whose experts are not the same, in any order.
void add_flips(const Routes& reference, const Routes& other, size_t rows, std::vector<double>& to) {
  to.resize(reference.layers().size());
  for (size_t layer = 0; layer < to.size(); ++layer) {
    const std::vector<int32_t>&a = reference.layers()[layer], &b = other.layers()[layer];
    const auto each = static_cast<int64_t>(a.size() / rows);
    for (auto x = a.begin(), y = b.begin(); x != a.end(); x += each, y += each)
      to[layer] += std::is_permutation(x, x + each, y) ? 0 : 1;
  }
}

}  // namespace

double Comparison::most_flips() const {
  return flips.empty() ? 0 : *std::max_element(flips.begin(), flips.end());
}

ModelComparison::ModelComparison(const EvalModel& reference, const EvalModel& other)
    : reference_(reference), other_(other) {
  const ModelConfig &a = reference.model.config(), &b = other.model.config();
  const auto shape = [](const ModelConfig& c) {
    return fmt::format("{} layers, {} experts, {} of them for a token, and {} tokens", c.layers,
                       c.experts, c.experts_per_token, c.vocab_size);
  };
  if (shape(a) == shape(b)) return;
  throw_error(Code::kInvalidArgument,
              "compare: one model has {}, the other {}; wanted two forms of the same model",
              shape(a), shape(b));
}

void ModelComparison::add(Documents documents) {
  std::vector<std::span<const int32_t>> read;  // the last token of each is only predicted
  std::vector<int32_t> target;
  for (const std::span<const int32_t> ids : documents) {
    MR_CHECK(ids.size() >= 2);
    check_ids(reference_.model, ids.last(1));
    read.push_back(ids.first(ids.size() - 1));
    target.insert(target.end(), ids.begin() + 1, ids.end());
  }
  if (read.empty()) return;
  const int64_t T = static_cast<int64_t>(target.size()), V = reference_.model.config().vocab_size;
  Routes routes, other_routes;
  const Tensor x = observed_pass(reference_, read, routes),
               other_x = observed_pass(other_, read, other_routes);
  std::vector<Row> rows(target.size());
  for (int64_t begin = 0; begin < T; begin += kHeadRows) {
    const int64_t end = std::min(begin + kHeadRows, T);
    const Tensor p = reference_.model.logits(reference_.ctx, x.rows(begin, end)),
                 q = other_.model.logits(other_.ctx, other_x.rows(begin, end));
    const auto row = [&](const Tensor& logits, int64_t i) {
      return std::span<const float>(logits.as<float>() + i * V, static_cast<size_t>(V));
    };
    reference_.ctx.pool->parallel_for(end - begin, [&](int64_t i, int) {
      const auto t = static_cast<size_t>(begin + i);
      rows[t] = compare_rows(row(p, i), row(q, i), target[t]);
    });
  }
  for (const Row& row : rows) {
    sums_.loss_reference += row.loss_reference;
    sums_.loss += row.loss;
    sums_.kl += row.kl;
    sums_.agreement += row.agrees ? 1 : 0;
  }
  sums_.tokens += T;
  add_flips(routes, other_routes, target.size(), sums_.flips);
}

Comparison ModelComparison::finish() const {
  Comparison mean = sums_;
  const double n = static_cast<double>(std::max<int64_t>(1, sums_.tokens));
  for (double* sum : {&mean.loss_reference, &mean.loss, &mean.kl, &mean.agreement}) *sum /= n;
  for (double& flips : mean.flips) flips /= n;
  return mean;
}

}  // namespace moraine
