// Generate: feeds the prompt in chunks, then one token at a time.
#include "infer/generate.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "kernels/cross_entropy.h"
#include "tokenizer/stream_decoder.h"

namespace moraine {
namespace {

// Rows that continue slot 0.
class Feeder {
 public:
  Feeder(Context& ctx, Model& model, Cache& cache, int64_t chunk)
      : ctx_(ctx), model_(model), cache_(cache), chunk_(std::min(chunk, model.options().tokens)) {
    clear_slot(cache_, 0);
  }

  // Logits [1, V] after the last of `ids`.
  Tensor feed(std::span<const int32_t> ids) {
    Tensor hidden;
    for (size_t begin = 0; begin < ids.size(); begin += static_cast<size_t>(chunk_)) {
      const auto part =
          ids.subspan(begin, std::min(static_cast<size_t>(chunk_), ids.size() - begin));
      hidden = run(part);
      hidden = hidden.rows(hidden.dims[0] - 1, hidden.dims[0]);
    }
    return model_.logits(ctx_, hidden);
  }

 private:
  Tensor run(std::span<const int32_t> ids) {
    const int64_t T = static_cast<int64_t>(ids.size()), position = cache_.lengths[0];
    token_.assign(ids.begin(), ids.end());
    position_.resize(ids.size());
    for (int64_t t = 0; t < T; ++t)
      position_[static_cast<size_t>(t)] = static_cast<int32_t>(position + t);
    Batch batch{.token = make_tensor(token_.data(), DType::kI32, {T}),
                .position = make_tensor(position_.data(), DType::kI32, {T}),
                .segments = {{.row_begin = 0,
                              .rows = T,
                              .position_begin = position,
                              .key_begin = cache_.key_begin(0)}}};
    constexpr int64_t kSlot = 0;
    const Tensor hidden = model_.forward(ctx_, batch, &cache_, std::span<const int64_t>(&kSlot, 1));
    cache_.lengths[0] += T;
    return hidden;
  }

  Context& ctx_;
  Model& model_;
  Cache& cache_;
  int64_t chunk_;
  std::vector<int32_t> token_, position_;
};

double token_logprob(Context& ctx, const Tensor& logits, int32_t token) {
  float loss = 0;
  cross_entropy(ctx, {.loss = make_tensor(&loss, DType::kF32, {1}),
                      .dlogits = {},
                      .logits = logits,
                      .target = make_tensor(&token, DType::kI32, {1})});
  return -static_cast<double>(loss);
}

// Text that grows token by token, held back while it may be the start of a stop string.
class TextStream {
 public:
  TextStream(const Tokenizer* tokenizer, const GenerateRequest& request) : request_(request) {
    if (tokenizer != nullptr) decoder_.emplace(*tokenizer, /*skip_special=*/true);
  }

  // True if a stop string is complete; the text then ends before it.
  bool add(int32_t token) {
    if (!decoder_) return false;
    text_ += decoder_->push(token);
    return cut();
  }
  bool finish() {
    if (!decoder_) return false;
    text_ += decoder_->finish();
    const bool stopped = cut();
    emit(text_.size());
    return stopped;
  }
  const std::string& text() const { return text_; }

 private:
  bool cut() {
    size_t hold = 0;  // bytes at the end that may begin a stop string
    for (const std::string& stop : request_.stop) {
      const size_t at = text_.find(stop, emitted_);
      if (at != std::string::npos) {
        text_.resize(at);
        emit(at);
        return true;
      }
      for (size_t n = std::min(stop.size() - 1, text_.size() - emitted_); n > hold; --n) {
        if (text_.compare(text_.size() - n, n, stop, 0, n) == 0) hold = n;
      }
    }
    emit(text_.size() - hold);
    return false;
  }
  void emit(size_t end) {
    if (end <= emitted_) return;
    if (request_.on_text) request_.on_text(text_.substr(emitted_, end - emitted_));
    emitted_ = end;
  }

  const GenerateRequest& request_;
  std::optional<StreamDecoder> decoder_;
  std::string text_;
  size_t emitted_ = 0;
};

void check_request(const Model& model, const Cache& cache, const Tokenizer* tokenizer,
                   const GenerateRequest& r) {
  check_sampling(r.sampling);
  const int64_t V = model.config().vocab_size, n = static_cast<int64_t>(r.prompt.size());
  if (n == 0)
    throw_error(Code::kInvalidArgument, "generate: the prompt is empty; wanted at least one token");
  if (r.max_tokens < 0)
    throw_error(Code::kInvalidArgument, "generate: max_tokens = {}: wanted 0 or more",
                r.max_tokens);
  for (const int32_t id : r.prompt) {
    if (id < 0 || id >= V)
      throw_error(Code::kInvalidArgument, "generate: token {} is not in the vocabulary of {}", id,
                  V);
  }
  if (r.max_tokens > cache.positions - n) {
    throw_error(
        Code::kInvalidArgument,
        "generate: {} prompt tokens and {} new ones are more than the {} positions there are", n,
        r.max_tokens, cache.positions);
  }
  for (const std::string& stop : r.stop) {
    if (stop.empty()) throw_error(Code::kInvalidArgument, "generate: a stop string is empty");
    if (tokenizer == nullptr)
      throw_error(Code::kInvalidArgument,
                  "generate: stop strings need a tokenizer, and the model has none");
  }
}

}  // namespace

GenerateResult generate(Context& ctx, Model& model, Cache& cache, const Tokenizer* tokenizer,
                        const GenerateRequest& request, int64_t chunk) {
  check_request(model, cache, tokenizer, request);
  GenerateResult result;
  result.finish_reason = "length";
  if (request.max_tokens == 0) return result;
  Feeder feeder(ctx, model, cache, chunk);
  TextStream stream(tokenizer, request);
  Tensor logits = feeder.feed(request.prompt);
  while (true) {
    const std::span<const float> values(logits.as<float>(), static_cast<size_t>(logits.dims[1]));
    const int32_t token = sample_token(values, request.sampling, cache.lengths[0]);
    if (token == request.eos_id) {
      result.finish_reason = "stop";
      break;
    }
    result.tokens.push_back(token);
    result.logprobs.push_back(token_logprob(ctx, logits, token));
    if (stream.add(token)) {
      result.finish_reason = "stop";
      break;
    }
    if (static_cast<int64_t>(result.tokens.size()) == request.max_tokens) break;
    logits = feeder.feed(std::span<const int32_t>(&token, 1));
  }
  if (stream.finish()) result.finish_reason = "stop";
  result.text = stream.text();
  return result;
}

}  // namespace moraine
