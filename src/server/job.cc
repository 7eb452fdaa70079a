// Job: what each event does.
#include "server/job.h"

#include <algorithm>
#include <iterator>
#include <new>

#include "base/clock.h"
#include "server/grammar_filter.h"

namespace moraine {

HttpFields model_fields(const ServedModel& model) {
  return {{"x-moraine-model", model.fingerprint}};
}

Job::Job(JobParts parts, AnswerPlan plan) : parts_(std::move(parts)), plan_(std::move(plan)) {
  for (size_t p = 0; p < plan_.prompts.size(); ++p) {
    for (int64_t k = 0; k < plan_.best_of; ++k) {
      AnswerChoice& choice = choices_.emplace_back();
      choice.prompt_index = static_cast<int64_t>(p);
      choice.first_token = plan_.prompts[p].prompt.front();
      choice.index = static_cast<int64_t>(choices_.size()) - 1;
      if (plan_.format.parser) choice.parser = plan_.format.parser();
    }
  }
}

void Job::start(JobParts parts, AnswerPlan plan) {
  std::make_shared<Job>(std::move(parts), std::move(plan))->submit();
}

void Job::submit() {
  std::vector<int64_t> ids;
  try {
    for (size_t c = 0; c < choices_.size(); ++c) {
      Request request = plan_.prompts[static_cast<size_t>(choices_[c].prompt_index)];
      request.logprobs = plan_.format.logprobs || plan_.best_of > plan_.n;
      request.sampling.choice = static_cast<int64_t>(c) % plan_.best_of;
      // The first choice computes the prompt, the others find it in the cache.
      if (request.sampling.choice > 0)
        request.follows = ids[c - static_cast<size_t>(request.sampling.choice)];
      request.let_in = c > 0;
      if (c == 0) request.others_tokens = others_tokens(request);
      if (plan_.grammar)
        request.filter = std::make_shared<GrammarFilter>(*plan_.grammar, parts_.model->token_trie);
      ids.push_back(parts_.model->generator->submit(std::move(request), listener_of(c)));
    }
  } catch (...) {
    for (int64_t id : ids) parts_.model->generator->cancel(id);
    parts_.post([self = shared_from_this()] { self->refused(); });
    throw;
  }
  parts_.post([self = shared_from_this(), ids = std::move(ids)] { self->submitted(ids); });
}

// Request::others_tokens of `first`: of each prompt once, unless each choice computes it anew for its scores.
int64_t Job::others_tokens(const Request& first) const {
  int64_t tokens = 0;
  for (const Request& prompt : plan_.prompts) tokens += std::ssize(prompt.prompt);
  if (first.prompt_logprobs) tokens *= plan_.best_of;
  return tokens - std::ssize(first.prompt);
}

Listener Job::listener_of(size_t c) {
  const auto tell = [self = shared_from_this(), c](const auto& what) {
    self->tell({.choice = c, .what = what, .at = now_seconds()});
  };
  return {.on_prompt = tell, .on_token = tell, .on_finish = tell};
}

// A token does not wake the io thread: that is done once for all of a step.
void Job::tell(ChoiceEvent event) {
  const bool token = std::holds_alternative<TokenPiece>(event.what);
  {
    const std::lock_guard lock(told_mutex_);
    told_.push_back(std::move(event));
    if (token && told_.size() > 1) return;  // it is looked at with those before
  }
  (token ? parts_.queue : parts_.post)([self = shared_from_this()] { self->hear(); });
}

void Job::hear() {
  if (!submitted_ && !ended_) return;  // submitted will look
  {
    const std::lock_guard lock(told_mutex_);
    heard_.swap(told_);
  }
  for (ChoiceEvent& event : heard_) {
    if (ended_) break;
    AnswerChoice& choice = choices_[event.choice];
    try {
      std::visit([&](auto& what) { happened(choice, what, event.at); }, event.what);
    } catch (const std::bad_alloc&) {
      fail(
          RequestError("the answer is larger than the memory there is", "", "internal_error", 500));
    }
  }
  heard_.clear();
}

// The engine would not take all choices: what it says of the others is for nobody.
void Job::refused() {
  ended_ = true;
  hear();
}

void Job::submitted(std::vector<int64_t> ids) {
  ids_ = std::move(ids);
  submitted_ = true;
  parts_.exchange->on_gone([self = shared_from_this()](Delivery how) { self->gone(how); });
  if (plan_.stream) {
    HttpResponse head{.content_type = "text/event-stream; charset=utf-8",
                      .fields = model_fields(*parts_.model)};
    head.fields.emplace_back("cache-control", "no-cache");
    parts_.exchange->start_stream(std::move(head), plan_.format.ping);
    parts_.exchange->write(plan_.format.begin());
  }
  hear();
}

void Job::happened(AnswerChoice& choice, PromptDone& prompt, double) {
  if (choice.index % plan_.best_of == 0) {
    const int64_t tokens =
        static_cast<int64_t>(plan_.prompts[static_cast<size_t>(choice.prompt_index)].prompt.size());
    usage_.prompt_tokens += tokens;
    usage_.cached_tokens += prompt.cached_tokens;
    parts_.metrics->prompt(tokens, prompt.cached_tokens);
  }
  choice.prompt = std::move(prompt);
  if (plan_.stream) parts_.exchange->write(plan_.format.prompt(choice));
}

void Job::happened(AnswerChoice& choice, const TokenPiece& piece, double at) {
  if (choice.num_tokens == 0)
    parts_.metrics->first_token(at - parts_.begun);
  else
    parts_.metrics->next_token(at - choice.last_token_seconds);
  choice.last_token_seconds = at;
  ++choice.num_tokens;
  ++usage_.completion_tokens;
  choice.logprob_sum += piece.score.chosen.logprob;
  if (plan_.format.logprobs) choice.tokens.push_back(piece.score);
  took(choice, cut(choice, piece.text));
}

Deltas Job::cut(AnswerChoice& choice, const std::string& text) {
  if (choice.parser != nullptr) return choice.parser->feed(text);
  if (text.empty()) return {};
  return {{ReplyDelta::Kind::kContent, text, -1}};
}

void Job::took(AnswerChoice& choice, const Deltas& deltas) {
  for (const ReplyDelta& delta : deltas) {
    if (delta.kind == ReplyDelta::Kind::kToolBegin) choice.call_ids.push_back(random_id("call_"));
  }
  if (plan_.stream) {
    parts_.exchange->write(plan_.format.delta(choice, deltas));
  } else if (choice.parser != nullptr) {
    add_to_reply(deltas, &choice.reply);
  } else {
    for (const ReplyDelta& delta : deltas) choice.text += delta.text;
  }
}

void Job::happened(AnswerChoice& choice, const Ended& ended, double) {
  if (ended.finish == Finish::kError)
    return fail(RequestError(ended.error, "", "internal_error", 500));
  if (ended.finish == Finish::kCancelled)
    return fail(RequestError("the server ended the request", "", "cancelled", 503));
  if (!ended.text.empty()) took(choice, cut(choice, ended.text));
  if (choice.parser != nullptr) took(choice, choice.parser->finish());
  choice.finish = ended.finish;
  choice.stop = ended.stop;
  choice.ended = true;
  if (plan_.stream) parts_.exchange->write(plan_.format.end_choice(choice));
  if (std::all_of(choices_.begin(), choices_.end(), [](const AnswerChoice& c) { return c.ended; }))
    all_ended();
}

void Job::all_ended() {
  ended_ = true;
  if (!plan_.stream) {
    parts_.worker->post_always([self = shared_from_this()] { self->write_whole(); });
    return;
  }
  parts_.exchange->write(plan_.format.end(usage_));
  parts_.exchange->end(
      [self = shared_from_this()](Delivery how) { self->account(outcome_of(how)); });
}

// On the worker's thread: no event is heard any more.
void Job::write_whole() try {
  keep_best();
  HttpResponse response{.body = json_text(plan_.format.whole(choices_, usage_)),
                        .fields = model_fields(*parts_.model)};
  parts_.exchange->respond(std::move(response), [self = shared_from_this()](Delivery how) {
    self->account(outcome_of(how));
  });
} catch (const std::bad_alloc&) {  // many choices with log-probabilities
  fail(RequestError("there is no memory to write this answer", "", "internal_error", 500));
}

// Of each prompt's choices the n of the largest mean log-probability, numbered anew.
void Job::keep_best() {
  if (plan_.best_of == plan_.n) return;
  const auto mean = [](const AnswerChoice& c) {
    return c.num_tokens == 0 ? 0.0 : c.logprob_sum / static_cast<double>(c.num_tokens);
  };
  std::vector<AnswerChoice> best;
  for (size_t p = 0; p < plan_.prompts.size(); ++p) {
    const auto begin = choices_.begin() + static_cast<int64_t>(p) * plan_.best_of;
    std::stable_sort(
        begin, begin + plan_.best_of,
        [&](const AnswerChoice& a, const AnswerChoice& b) { return mean(a) > mean(b); });
    for (int64_t k = 0; k < plan_.n; ++k) {
      best.push_back(std::move(begin[k]));
      best.back().index = static_cast<int64_t>(best.size()) - 1;
    }
  }
  choices_ = std::move(best);
}

void Job::fail(const RequestError& error) {
  ended_ = true;
  cancel_all();
  if (plan_.stream) {
    parts_.exchange->write(plan_.format.failed(error));
    parts_.exchange->end();
  } else {
    parts_.exchange->respond(error_response(plan_.format.errors, error));
  }
  account(outcome_of_status(error.status()));
}

void Job::gone(Delivery how) {
  if (ended_) return;
  ended_ = true;
  cancel_all();
  account(outcome_of(how));
}

void Job::cancel_all() {
  for (int64_t id : ids_) parts_.model->generator->cancel(id);
}

void Job::account(Outcome outcome) {
  parts_.metrics->ended(parts_.endpoint, outcome, now_seconds() - parts_.begun);
}

}  // namespace moraine
