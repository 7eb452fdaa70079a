// Choice: which choice of each question a model finds likeliest, and how often that is the right one.
//
//   acc       share of questions whose answer has the largest log-probability
//   acc_norm  the same for log-probability / characters of the choice
//   stderr    sqrt(sum (x - mean)^2 / (n - 1)) / sqrt(n), x in {0, 1}
//
// Of equal ones the first choice counts. Source: lm-evaluation-harness, output_type multiple_choice.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "eval/choice_question.h"
#include "eval/continuation.h"

namespace moraine {

struct ChoiceRequests {
  std::vector<Continuation> continuations;  // of all choices of all questions, in order
  int64_t truncated = 0;                    // of them
  std::string first_truncated;              // where that is
  int64_t tokens_max = 0;                   // of the longest
};

// `delimiter` is put between context and choice; it does not count as characters of the choice.
// Errors: those of encode_continuation, before anything is computed.
ChoiceRequests encode_questions(const EncodeRule& rule, std::span<const ChoiceQuestion> questions,
                                const std::string& delimiter);

struct Accuracy {
  double mean = 0;
  double stderr_of_mean = 0;  // NaN for a single question
};

struct ChoiceResult {
  int64_t questions = 0;
  Accuracy acc, acc_norm;
};

// logprobs: of all choices, as in ChoiceRequests.
ChoiceResult choose(std::span<const ChoiceQuestion> questions, std::span<const double> logprobs);

}  // namespace moraine
