// Score: log-probabilities of given tokens; loss and bits per byte of documents.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "eval/window_batch.h"

namespace moraine {

// logprob[i] = log p(ids[i] | ids[0..i)), i >= 1; logprob[0] is NaN (nothing before it). One document.
// Errors: kInvalidArgument for ids outside the vocabulary or more than the model's rows.
std::vector<double> score_tokens(const EvalModel& model, std::span<const int32_t> ids);

struct Perplexity {
  int64_t documents = 0;
  int64_t tokens = 0;  // scored
  int64_t bytes = 0;   // of the text
  double nll = 0;      // nats, in all
  double loss() const { return tokens == 0 ? 0 : nll / static_cast<double>(tokens); }
  double bits_per_byte() const;
  double perplexity() const;
};

struct PerplexityOptions {
  int64_t context = 512;  // positions of a window, at most the model's tokens
  int64_t stride = 256;   // new positions of each window after the first: 1 .. context
  // Of the document that is being added: tokens that are laid out, of all.
  std::function<void(int64_t done, int64_t total)> progress;
};

struct ScoredDocument {
  std::span<const int32_t> ids;
  int64_t bytes = 0;  // of its text
  // ids[0] says that a text begins: it is not scored, and the first token of the text is, given it.
  bool has_begin = false;
  // As long as ids: only tokens with a 1 are scored; empty: all.
  std::span<const uint8_t> is_target = {};
};

// PerplexityMeter: slides a window over each document; windows of several documents share forward passes.
//
// Each token is scored once, with at least context - stride tokens before it where there are so many. The very first
// token of a document is charged log V nats (nothing predicts it), unless it has_begin.
// Order: the sum runs over a document's tokens, then over documents: its bits do not depend on how many windows are
//        computed at once.
class PerplexityMeter {
 public:
  PerplexityMeter(const EvalModel& model, const PerplexityOptions& options);

  // Errors: kInvalidArgument for ids outside the vocabulary.
  void add(const ScoredDocument& document);
  Perplexity finish();  // of all documents; once

 private:
  void run();

  const Model& model_;
  PerplexityOptions options_;
  WindowBatch batch_;
  std::vector<double> nll_;  // of each document
  Perplexity result_;
};

// Of one document, all of whose tokens are scored.
Perplexity document_perplexity(const EvalModel& model, std::span<const int32_t> ids, int64_t bytes,
                               const PerplexityOptions& options);

}  // namespace moraine
