// Score: cuts documents into windows, and adds up what they come to.
#include "eval/score.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/error.h"

namespace moraine {

double Perplexity::bits_per_byte() const {
  return bytes == 0 ? 0 : nll / std::log(2.0) / static_cast<double>(bytes);
}

double Perplexity::perplexity() const { return std::exp(loss()); }

std::vector<double> score_tokens(const EvalModel& with, std::span<const int32_t> ids) {
  const Model& model = with.model;
  check_ids(model, ids);
  const int64_t n = static_cast<int64_t>(ids.size());
  if (n - 1 > model.options().tokens) {
    throw_error(Code::kInvalidArgument, "score: {} tokens are more than {}", n,
                model.options().tokens + 1);
  }
  std::vector<double> logprobs(ids.size(), NAN);
  if (n < 2) return logprobs;
  WindowBatch batch(with);
  batch.add({.ids = ids});
  size_t i = 1;
  batch.run([&](int64_t, double loss) { logprobs[i++] = -loss; });
  return logprobs;
}

PerplexityMeter::PerplexityMeter(const EvalModel& with, const PerplexityOptions& options)
    : model_(with.model), options_(options), batch_(with) {
  MR_CHECK(options.context >= 1 && options.stride >= 1 && options.stride <= options.context);
  MR_CHECK(options.context <= model_.options().tokens);
}

void PerplexityMeter::add(const ScoredDocument& document) {
  check_ids(model_, document.ids);
  const int64_t n = static_cast<int64_t>(document.ids.size()), S = options_.context;
  const auto is_target = [&](int64_t i) {
    if (i == 0 && document.has_begin) return false;
    return document.is_target.empty() || document.is_target[static_cast<size_t>(i)] != 0;
  };
  MR_CHECK(document.is_target.empty() || document.is_target.size() == document.ids.size());
  MR_CHECK(!document.has_begin || n >= 1);
  result_.documents += 1;
  result_.bytes += document.bytes;
  for (int64_t i = 0; i < n; ++i) result_.tokens += is_target(i) ? 1 : 0;
  const int64_t owner = static_cast<int64_t>(nll_.size());
  nll_.push_back(n > 0 && is_target(0) ? std::log(static_cast<double>(model_.config().vocab_size))
                                       : 0);
  for (int64_t scored = 1; scored < n;) {
    // The first window is full of new tokens; later ones end `stride` tokens further.
    const int64_t end = std::min(n - 1, scored == 1 ? S : scored - 1 + options_.stride);
    const int64_t begin = std::max<int64_t>(0, end - S), rows = end - begin;
    if (!batch_.fits(rows)) run();
    const auto part = [&](auto all) {
      return all.empty() ? all
                         : all.subspan(static_cast<size_t>(begin), static_cast<size_t>(rows + 1));
    };
    batch_.add({.ids = part(document.ids),
                .scored = scored - begin,
                .is_target = part(document.is_target),
                .owner = owner});
    scored = end + 1;
    if (options_.progress) options_.progress(scored, n);
  }
}

void PerplexityMeter::run() {
  batch_.run([&](int64_t owner, double loss) { nll_[static_cast<size_t>(owner)] += loss; });
}

Perplexity PerplexityMeter::finish() {
  run();
  for (const double nll : nll_) result_.nll += nll;
  return result_;
}

Perplexity document_perplexity(const EvalModel& model, std::span<const int32_t> ids, int64_t bytes,
                               const PerplexityOptions& options) {
  PerplexityMeter meter(model, options);
  meter.add({.ids = ids, .bytes = bytes});
  return meter.finish();
}

}  // namespace moraine
