// Observe: looking at a run from outside: validation loss, samples.
//
// Reads the model; changes nothing that training reads.
#pragma once

#include <memory>
#include <string>

#include "infer/generate.h"
#include "train/run.h"

namespace moraine {

class Observer {
 public:
  // Takes the sample's cache from the run's arena, before it is sealed.
  explicit Observer(Run& run);

  struct Validation {
    double loss = 0;           // nats per token
    double bits_per_byte = 0;  // NaN without a tokenizer
  };
  bool can_validate() const { return valid_ != nullptr; }
  // The same tokens each time: the first sequences of the validation data. Collective.
  Validation validate();

  bool can_sample() const { return run_.tokenizer != nullptr; }
  // Prompt and continuation; "" on ranks that are not needed for it. Collective.
  std::string sample();

 private:
  double batch_loss(SequenceBatch& data);

  Run& run_;
  std::unique_ptr<Loader> valid_;
  Cache cache_;
  SequenceBatch data_;
  std::vector<int32_t> position_;
  std::vector<int64_t> token_bytes_;  // [V] bytes of each token's text
};

}  // namespace moraine
