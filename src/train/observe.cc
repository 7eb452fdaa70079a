// Validation over fixed sequences, and one sampled continuation.
#include "train/observe.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/fault_point.h"
#include "train/run_memory.h"

namespace moraine {

Observer::Observer(Run& run) : run_(run) {
  const RunConfig& c = run.config;
  if (!c.data.valid.empty() && c.report.valid_every_steps > 0) {
    valid_ = std::make_unique<Loader>(run.fs, LoaderOptions{.sources = {{c.data.valid, 1}},
                                                            .sequence = c.train.sequence,
                                                            .seed = 0,
                                                            .start_epochs = {},
                                                            .pack = true});
    // Tokens of another tokenizer may be rows that the model does not have.
    const TokenMeaning &valid = valid_->meaning(), &train = run.data->meaning();
    if (!(valid == train)) {
      throw_error(Code::kInvalidArgument,
                  "open data.valid {}: it was made with another tokenizer than the training data "
                  "({} tokens, and {}); build it again with the same one, or leave it out",
                  c.data.valid, valid.vocabulary_size, train.vocabulary_size);
    }
  }
  if (run.tokenizer == nullptr) return;
  cache_ = make_sample_cache(run.arena, c, *run.trainer);
  for (int64_t id = 0; id < c.model.vocab_size; ++id) {
    const int32_t token = static_cast<int32_t>(id);
    token_bytes_.push_back(static_cast<int64_t>(
        run.tokenizer->decode(std::span<const int32_t>(&token, 1), true).size()));
  }
}

// Batches are dealt out to the ranks; every rank runs equally many (experts may be elsewhere), a
// rank without one repeats the last. Sums are taken batch after batch, whoever computed them.
Observer::Validation Observer::validate() {
  Trainer& trainer = *run_.trainer;
  const Mesh& mesh = trainer.ranks().mesh;
  const int64_t S = run_.config.train.sequence;
  const int64_t at_once = std::max<int64_t>(1, trainer.model().options().tokens / S);
  const int64_t sequences =
      std::max<int64_t>(1, std::min(run_.config.report.valid_tokens, valid_->total_tokens()) / S);
  const int64_t batches = (sequences + at_once - 1) / at_once;
  std::vector<double> nll(static_cast<size_t>(batches), 0.0);
  std::vector<int64_t> counts = {0, 0};  // targets, bytes
  for (int64_t round = 0; round < batches; round += mesh.ranks) {
    fault_point("validate.batch");
    const int64_t mine = round + mesh.rank, batch = std::min(mine, batches - 1);
    const int64_t first = batch * at_once;
    valid_->read(first, std::min(at_once, sequences - first), &data_);
    const double sum = batch_loss(data_);
    if (mine != batch) continue;
    nll[static_cast<size_t>(batch)] = sum;
    counts[0] += data_.num_targets;
    for (const int32_t target : data_.targets) {
      if (target >= 0 && !token_bytes_.empty())
        counts[1] += token_bytes_[static_cast<size_t>(target)];
    }
  }
  all_reduce_disjoint(trainer.ranks().world, nll);
  all_reduce_sum(trainer.ranks().world, counts);
  double total = 0;
  for (const double sum : nll) total += sum;
  const double bytes = static_cast<double>(counts[1]);
  return {.loss = counts[0] > 0 ? total / static_cast<double>(counts[0]) : NAN,
          .bits_per_byte = counts[1] > 0 ? total / std::log(2.0) / bytes : NAN};
}

double Observer::batch_loss(SequenceBatch& data) {
  Trainer& trainer = *run_.trainer;
  const int64_t T = static_cast<int64_t>(data.tokens.size());
  position_.resize(data.tokens.size());
  Batch batch{.token = make_tensor(data.tokens.data(), DType::kI32, {T}),
              .position = make_tensor(position_.data(), DType::kI32, {T}),
              .segments = {}};
  set_documents(batch, data.segment_begin);
  return trainer.model().loss(trainer.ctx(), batch,
                              make_tensor(data.targets.data(), DType::kI32, {T}));
}

// Deterministic: with experts on other ranks, every rank draws the same text with them.
std::string Observer::sample() {
  const RunConfig& c = run_.config;
  if (!run_.first() && run_.ranks.mesh.expert == 1) return "";
  Request request;
  std::string prompt = c.report.sample_prompt;
  if (!prompt.empty()) {
    request.prompt = run_.tokenizer->encode(prompt, false);
  } else {
    const Dataset& data = valid_ != nullptr ? valid_->dataset(0) : run_.data->loader(0).dataset(0);
    std::vector<int32_t> document;
    data.read_document(0, &document);
    constexpr size_t kPromptTokens = 16;
    document.resize(std::min(document.size(), kPromptTokens));
    request.prompt = document;
    prompt = run_.tokenizer->decode(document, true);
  }
  const int64_t room =
      run_.trainer->model().options().positions - static_cast<int64_t>(request.prompt.size());
  if (request.prompt.empty() || room <= 0) return prompt;
  request.max_tokens = std::min(c.report.sample_tokens, room);
  request.sampling.temperature = 0.8;
  request.sampling.top_p = 0.95;
  request.sampling.seed = static_cast<uint64_t>(c.train.seed);
  if (c.model.eos_id >= 0) request.end_ids = {static_cast<int32_t>(c.model.eos_id)};
  Trainer& trainer = *run_.trainer;
  return prompt +
         generate({trainer.ctx(), trainer.model(), cache_, run_.tokenizer.get()}, request).text;
}

}  // namespace moraine
