// Compare: how far one model's predictions are from another's, on the same text.
//
//   loss          -log p(next token), of both
//   KL            sum over the vocabulary of p (log p - log q), p the reference's
//   agreement     positions whose most probable token is the same
//   flips         positions whose experts differ, in any order, layer by layer (models with experts)
//
// Order: sums in double, positions in order. Log-probabilities are those of `eval score`, but for the order in which a
//        row's exponentials are added.
// Cost:  a forward pass of both models, and 3 exponentials for each entry of the vocabulary.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "eval/observed_pass.h"

namespace moraine {

struct Comparison {
  int64_t tokens = 0;                           // positions compared
  double loss_reference = 0, loss = 0, kl = 0;  // means, nats
  double agreement = 0;                         // share, 0 to 1
  std::vector<double> flips;                    // of each layer, share; empty: dense

  double most_flips() const;
};

// Two models of the same vocabulary, each with its own memory; neither divided among ranks.
class ModelComparison {
 public:
  // Errors: kInvalidArgument if the vocabularies, the layers or the numbers of experts differ.
  ModelComparison(const EvalModel& reference, const EvalModel& other);

  // Compares the predictions of ids[1..] of each document, which has two tokens at least; all but their last tokens are
  // at most the rows of either model. Errors: kInvalidArgument for ids outside the vocabulary.
  void add(Documents documents);
  void add(std::span<const int32_t> ids) { add(Documents(&ids, 1)); }
  Comparison finish() const;

 private:
  EvalModel reference_, other_;
  Comparison sums_;  // not divided yet
};

}  // namespace moraine
