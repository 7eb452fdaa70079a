// Choice: arg-max by question, then mean and deviation.
#include "eval/choice.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace moraine {
namespace {

double characters(const std::string& text) {
  int64_t n = 0;
  for (const char c : text) n += (static_cast<uint8_t>(c) & 0xC0) != 0x80 ? 1 : 0;
  return static_cast<double>(n);
}

int64_t first_largest(std::span<const double> values) {
  return std::max_element(values.begin(), values.end()) - values.begin();
}

Accuracy accuracy_of(const std::vector<double>& hits) {
  const double n = static_cast<double>(hits.size());
  double sum = 0, squares = 0;
  for (const double x : hits) sum += x;
  const double mean = sum / n;
  for (const double x : hits) squares += (x - mean) * (x - mean);
  return {.mean = mean,
          .stderr_of_mean = hits.size() < 2 ? NAN : std::sqrt(squares / (n - 1)) / std::sqrt(n)};
}

}  // namespace

ChoiceRequests encode_questions(const EncodeRule& rule, std::span<const ChoiceQuestion> questions,
                                const std::string& delimiter) {
  ChoiceRequests requests;
  for (const ChoiceQuestion& question : questions) {
    for (const std::string& choice : question.choices) {
      Continuation c =
          encode_continuation(rule, question.context, delimiter + choice, question.where);
      if (c.tokens_cut > 0 && requests.truncated++ == 0) requests.first_truncated = question.where;
      requests.tokens_max = std::max(requests.tokens_max, static_cast<int64_t>(c.ids.size()));
      requests.continuations.push_back(std::move(c));
    }
  }
  return requests;
}

ChoiceResult choose(std::span<const ChoiceQuestion> questions, std::span<const double> logprobs) {
  MR_CHECK(!questions.empty());
  std::vector<double> hits, hits_norm, by_length;
  size_t at = 0;
  for (const ChoiceQuestion& question : questions) {
    const size_t n = question.choices.size();
    MR_CHECK(at + n <= logprobs.size());
    const std::span<const double> mine = logprobs.subspan(at, n);
    by_length.clear();
    for (size_t i = 0; i < n; ++i) by_length.push_back(mine[i] / characters(question.choices[i]));
    hits.push_back(first_largest(mine) == question.answer ? 1 : 0);
    hits_norm.push_back(first_largest(by_length) == question.answer ? 1 : 0);
    at += n;
  }
  MR_CHECK(at == logprobs.size());
  return {.questions = static_cast<int64_t>(questions.size()),
          .acc = accuracy_of(hits),
          .acc_norm = accuracy_of(hits_norm)};
}

}  // namespace moraine
