// ServedModel: one version of the model, with all that turns requests into its tokens and back.
//
// An answer holds the version that it began with until it is complete, so none is of two.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "chat/chat_template.h"
#include "chat/tool_calls.h"
#include "grammar/grammar_cache.h"
#include "grammar/token_trie.h"
#include "infer/request.h"
#include "parallel/serving_placer.h"
#include "server/special_texts.h"
#include "tokenizer/tokenizer.h"

namespace moraine {

struct GeneratorStats {
  int64_t queued = 0, running = 0;          // requests
  int64_t queued_tokens = 0;                // of the prompts of those in the queue
  double prompt_rate = 0;                   // tokens of prompts per second; 0: not known yet
  double prompt_seconds = 0;                // until the prompts that are there are computed, about
  int64_t pages_used = 0, pages_total = 0;  // of the cache
  int64_t steps = 0, preemptions = 0;       // since the start
  double step_seconds = 0;                  // in steps
  double model_seconds = 0;                 // of these in the model
  // Of the head: rows whose token was drawn in two stages, and the others; first stages that decided nothing; panels
  // that second stages read, as a part of all (infer/head_pass.h).
  int64_t head_rows_two_stage = 0, head_rows_full = 0, head_abandoned = 0;
  double head_panel_share = 0;
  ServingLoad experts = {};  // of several ranks
};

// Generator: what the server asks of an engine; the seam that tests replace.
class Generator {
 public:
  virtual ~Generator() = default;
  // Any thread. The listener is called on the generator's thread, and must only queue; after the listeners of a step
  // the generator wakes those who read (HttpServer::wake).
  // Errors: kInvalidArgument; QueueFull.
  virtual int64_t submit(Request request, Listener listener) = 0;
  // Frees at once what the request holds; its listener hears kCancelled. An id that has ended: nothing.
  virtual void cancel(int64_t id) = 0;
  virtual GeneratorStats stats() const = 0;
  // Ends all requests and the generator's thread; listeners are not called after it. Not from
  // a listener.
  virtual void stop() = 0;
};

struct ServedModel {
  std::string id;           // in /v1/models
  std::string fingerprint;  // of the weights that answer: "step-1200-5f0c..."
  int64_t created = 0;      // seconds since 1970
  int64_t context = 0;      // positions of prompt and answer
  std::shared_ptr<const Tokenizer> tokenizer;
  std::vector<int32_t> end_ids;              // tokens that end an answer
  int32_t start_id = -1;                     // what an empty prompt is; -1: there is none
  std::shared_ptr<const ChatTemplate> chat;  // null: no conversations
  std::string no_chat;                       // then: why, and the remedy
  ToolFormat tool_format = ToolFormat::kNone;
  SpecialTexts special_texts;                   // of the tokenizer
  std::shared_ptr<const TokenTrie> token_trie;  // for grammars
  std::shared_ptr<GrammarCache> grammars =      // of that trie
      std::make_shared<GrammarCache>(GrammarCacheBytes{});
  std::string turn_end;  // text that ends a turn where no token does; empty: a token does
  std::shared_ptr<Generator> generator;
};

// The version that new requests get.
class CurrentModel {
 public:
  explicit CurrentModel(std::shared_ptr<const ServedModel> model) : model_(std::move(model)) {}
  std::shared_ptr<const ServedModel> get() const {
    std::lock_guard lock(mutex_);
    return model_;
  }
  // Returns the one before.
  std::shared_ptr<const ServedModel> replace(std::shared_ptr<const ServedModel> model) {
    std::lock_guard lock(mutex_);
    std::swap(model, model_);
    return model;
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const ServedModel> model_;
};

}  // namespace moraine
