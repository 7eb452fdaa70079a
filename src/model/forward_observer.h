// ForwardObserver: sees what the products of a forward pass read, and where its router sends rows.
//
// For measurements beside a pass, such as calibrating quantised weights, or of a pass whose routes are given. Called
// by the thread that runs the pass, in the order of the model; tensors are valid during the call only. Inputs of
// experts on other ranks are not seen.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/tensor.h"

namespace moraine {

// The weights that a served model may have quantised. kEmbedding: rows of tokens, where the head has too few bits to be
// both; no product reads it.
enum class ServedMatrix : uint8_t { kQkv, kOutput, kGateUp, kDown, kHead, kEmbedding };
constexpr int kServedMatrices = 6;

class ForwardObserver {
 public:
  virtual ~ForwardObserver() = default;
  // Rows [rows[g], rows[g+1]) of x are what group g multiplies; layer: -1 for the head.
  virtual void reads(int64_t layer, ServedMatrix matrix, const Tensor& x,
                     std::span<const int64_t> rows) = 0;
  virtual void chooses(int64_t layer, const Tensor& expert) = 0;  // [T, n] i32
  // May put other experts in place before rows leave for them; gates stay those of the router's choice.
  virtual void route(int64_t, const Tensor&) {}  // [T, n] i32
  // On a GPU, where looking is copying (model/host_observer.h): whether `reads` and `route` are called.
  virtual bool looks_at_inputs() const { return true; }
  virtual bool changes_routes() const { return true; }
  // With experts on other ranks: a pass through those that are served here took so long. Time spent here counts
  // as theirs: who sleeps makes the rank a slow one.
  virtual void computed(int64_t, double) {}  // seconds
};

}  // namespace moraine
