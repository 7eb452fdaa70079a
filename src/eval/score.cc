// Score: lays the windows of a document out as rows of a batch.
#include "eval/score.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace moraine {
namespace {

void check_ids(const Model& model, std::span<const int32_t> ids) {
  const int64_t V = model.config().vocab_size;
  for (const int32_t id : ids) {
    if (id < 0 || id >= V)
      throw_error(Code::kInvalidArgument, "score: token {} is not in the vocabulary of {}", id, V);
  }
}

double loss_at(const Tensor& losses, int64_t t) {
  return losses.dtype == DType::kF64 ? losses.as<double>()[t]
                                     : static_cast<double>(losses.as<float>()[t]);
}

// Rows of windows, filled until the model's row limit.
struct Rows {
  std::vector<int32_t> token, position, target;
  std::vector<int64_t> segment_begin;

  void clear() {
    for (std::vector<int32_t>* v : {&token, &position, &target}) v->clear();
    segment_begin.clear();
  }
  // Inputs ids[begin, end), of which targets from `scored` on count.
  void add_window(std::span<const int32_t> ids, int64_t begin, int64_t end, int64_t scored) {
    segment_begin.push_back(static_cast<int64_t>(token.size()));
    for (int64_t i = begin; i < end; ++i) {
      token.push_back(ids[static_cast<size_t>(i)]);
      target.push_back(i + 1 >= scored ? ids[static_cast<size_t>(i + 1)] : -1);
    }
  }
  // Adds the losses of all rows to `nll`, one by one: the grouping into batches leaves no trace in the sum.
  void add_losses(Context& ctx, Model& model, double* nll) {
    const int64_t T = static_cast<int64_t>(token.size());
    position.resize(token.size());
    Batch batch{.token = make_tensor(token.data(), DType::kI32, {T}),
                .position = make_tensor(position.data(), DType::kI32, {T}),
                .segments = {}};
    set_documents(batch, segment_begin);
    Tensor losses;
    model.loss(ctx, batch, make_tensor(target.data(), DType::kI32, {T}), &losses);
    for (int64_t t = 0; t < T; ++t) *nll += loss_at(losses, t);
  }
};

}  // namespace

double Perplexity::bits_per_byte() const {
  return bytes == 0 ? 0 : nll / std::log(2.0) / static_cast<double>(bytes);
}

double Perplexity::perplexity() const { return std::exp(loss()); }

std::vector<double> score_tokens(Context& ctx, Model& model, std::span<const int32_t> ids) {
  check_ids(model, ids);
  const int64_t n = static_cast<int64_t>(ids.size());
  if (n - 1 > model.options().tokens) {
    throw_error(Code::kInvalidArgument, "score: {} tokens are more than {}", n,
                model.options().tokens + 1);
  }
  std::vector<double> logprobs(ids.size(), NAN);
  if (n < 2) return logprobs;
  Rows rows;
  rows.add_window(ids, 0, n - 1, 1);
  const int64_t T = n - 1;
  rows.position.resize(static_cast<size_t>(T));
  Batch batch{.token = make_tensor(rows.token.data(), DType::kI32, {T}),
              .position = make_tensor(rows.position.data(), DType::kI32, {T}),
              .segments = {}};
  set_documents(batch, rows.segment_begin);
  Tensor losses;
  model.loss(ctx, batch, make_tensor(rows.target.data(), DType::kI32, {T}), &losses);
  for (int64_t t = 0; t < T; ++t) logprobs[static_cast<size_t>(t + 1)] = -loss_at(losses, t);
  return logprobs;
}

Perplexity document_perplexity(Context& ctx, Model& model, std::span<const int32_t> ids,
                               int64_t bytes, const PerplexityOptions& options) {
  check_ids(model, ids);
  const int64_t n = static_cast<int64_t>(ids.size()), S = options.context;
  MR_CHECK(S >= 1 && options.stride >= 1 && options.stride <= S && S <= model.options().tokens);
  Perplexity result{.tokens = n, .bytes = bytes, .nll = 0};
  if (n == 0) return result;
  result.nll = std::log(static_cast<double>(model.config().vocab_size));
  const int64_t windows_at_once = std::max<int64_t>(1, model.options().tokens / S);
  Rows rows;
  int64_t scored = 1, windows = 0;  // ids [0, scored) are done or in `rows`
  while (scored < n) {
    // The first window is full of new tokens; later ones end `stride` tokens further.
    const int64_t end = std::min(n - 1, scored == 1 ? S : scored - 1 + options.stride);
    rows.add_window(ids, std::max<int64_t>(0, end - S), end, scored);
    scored = end + 1;
    if (++windows < windows_at_once && scored < n) continue;
    rows.add_losses(ctx, model, &result.nll);
    rows.clear();
    windows = 0;
    if (options.progress) options.progress(scored, n);
  }
  return result;
}

}  // namespace moraine
