// Engine: receive, plan, forward, score, conclude.
#include "infer/engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <future>
#include <numeric>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "infer/token_filter.h"
#include "kernels/cross_entropy.h"
#include "kernels/gpu/runtime.h"
#include "kernels/move_rows.h"
#include "model/head.h"

namespace moraine {

const char* finish_name(Finish finish) {
  constexpr const char* kNames[] = {"stop", "length", "cancelled", "error"};
  return kNames[static_cast<int>(finish)];
}

namespace {

constexpr std::chrono::seconds kIdleInterval{1};

size_t index_of(Finish finish) { return static_cast<size_t>(finish); }

// The most likely tokens, by falling logit, ties by rising id.
std::vector<int32_t> most_likely(const float* logits, int64_t V, int64_t n) {
  std::vector<int32_t> ids(static_cast<size_t>(V));
  std::iota(ids.begin(), ids.end(), 0);
  const auto before = [&](int32_t a, int32_t b) {
    const float x = std::isnan(logits[a]) ? -INFINITY : logits[a],
                y = std::isnan(logits[b]) ? -INFINITY : logits[b];
    return x != y ? x > y : a < b;
  };
  const auto end = ids.begin() + std::min(n, V);
  std::partial_sort(ids.begin(), end, ids.end(), before);
  ids.erase(end, ids.end());
  return ids;
}

// Tokens that may come next: the filter's, and the ends where it may end.
std::vector<uint64_t> allowed_tokens(const Sequence& sequence, int64_t V) {
  std::vector<uint64_t> mask(static_cast<size_t>((V + 63) / 64), 0);
  TokenFilter& filter = *sequence.request.filter;
  filter.allowed(mask);
  for (const int32_t id : sequence.request.end_ids) {
    const uint64_t bit = uint64_t{1} << (id % 64);
    uint64_t& word = mask[static_cast<size_t>(id / 64)];
    word = filter.may_end() ? word | bit : word & ~bit;
  }
  return mask;
}

}  // namespace

Engine::Engine(Context& ctx, Model& model, Cache& cache, const Tokenizer* tokenizer,
               const EngineOptions& options)
    : ctx_(ctx),
      model_(model),
      cache_(cache),
      tokenizer_(tokenizer),
      options_(options),
      leader_(options.ranks),
      gpu_memory_(ctx.gpu == nullptr ? nullptr : std::make_unique<gpu::GpuArenaMemory>(*ctx.gpu)),
      arena_(Arena::Mode::kReal, gpu_memory_.get()),
      head_(arena_, ctx, model),
      scheduler_({.rows = model.options().tokens,
                  .interleave_rows = options.interleave_rows,
                  .sequences = options.sequences,
                  .tpot_seconds = options.tpot_seconds},
                 cache) {
  MR_CHECK(options.sequences <= cache.segments, "%ld sequences, %ld segments",
           long(options.sequences), long(cache.segments));
  const int64_t rows = std::min(kHeadRows, model.options().tokens);
  hidden_ = arena_.take("engine.hidden", "scratch", model.options().compute,
                        {rows, model.config().hidden});
  lse_ = arena_.take_host("engine.lse", "scratch", DType::kF64, {rows});
  loss_ = arena_.take_host("engine.loss", "scratch", DType::kF32, {rows});
  arena_.seal();
  count_queue();
}

Engine::~Engine() = default;

void Engine::check(const Request& r) const {
  const int64_t V = model_.config().vocab_size, n = static_cast<int64_t>(r.prompt.size());
  check_sampling(r.sampling, V);
  if (n == 0) throw_error(Code::kInvalidArgument, "the prompt is empty; wanted at least one token");
  if (r.max_tokens < 0)
    throw_error(Code::kInvalidArgument, "max_tokens = {}: wanted 0 or more", r.max_tokens);
  if (r.top_logprobs < 0 || r.top_logprobs > kMostTopLogprobs)
    throw_error(Code::kInvalidArgument, "top_logprobs = {}: wanted 0 to {}", r.top_logprobs,
                kMostTopLogprobs);
  for (const std::vector<int32_t>* ids : {&r.prompt, &r.end_ids}) {
    for (const int32_t id : *ids) {
      if (id < 0 || id >= V)
        throw_error(Code::kInvalidArgument, "token {} is not in the vocabulary of {}", id, V);
    }
  }
  const int64_t room = std::min(model_.options().positions, cache_.positions());
  if (n > room || r.max_tokens > room - n) {
    throw_error(Code::kInvalidArgument,
                "{} prompt tokens and {} new ones are more than the {} positions there are", n,
                r.max_tokens, room);
  }
  for (const std::string& stop : r.stop) {
    if (stop.empty()) throw_error(Code::kInvalidArgument, "a stop string is empty");
    if (tokenizer_ == nullptr)
      throw_error(Code::kInvalidArgument, "stop strings need a tokenizer, and the model has none");
  }
}

int64_t Engine::submit(Request request, Listener listener) {
  check(request);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (stopping_) throw_error(Code::kOverloaded, "the engine is stopping");
  const auto tokens = static_cast<int64_t>(request.prompt.size());
  check_queue({.requests = options_.waiting_requests,
               .tokens = options_.waiting_tokens,
               .seconds = options_.waiting_seconds},
              {.requests = stats_.waiting,
               .tokens = stats_.waiting_tokens,
               .prompt_work = stats_.prompt_work,
               .tokens_per_second = stats_.prompt_rate},
              tokens + request.others_tokens, request.let_in);
  if (!request.shares_prompt()) {
    stats_.prompt_work += tokens;
    stats_.waiting_tokens += tokens;
  }
  const int64_t id = next_id_++;
  auto sequence =
      std::make_unique<Sequence>(id, std::move(request), std::move(listener), tokenizer_);
  arrived_.push_back(std::move(sequence));
  ++stats_.waiting;
  ++stats_.requests;
  changed_.notify_one();
  return id;
}

void Engine::cancel(int64_t id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  cancelled_.push_back(id);
  changed_.notify_one();
}

EngineStats Engine::stats() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stats_;
}

void Engine::stop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  stopping_ = true;
  changed_.notify_one();
}

void Engine::run() {
  try {
    while (true) {
      while (step()) {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (stopping_) break;
      }
      if (!wait_for_work()) break;
    }
  } catch (const std::exception& error) {
    stop();
    // What it says of ranks, hosts and files is for the log of who runs it.
    finish_all(Finish::kError, "the engine failed; its log says why");
    throw;
  }
  finish_all(Finish::kCancelled, "");
}

// False: stop() was called.
bool Engine::wait_for_work() {
  const auto ready = [&] { return stopping_ || !arrived_.empty() || !cancelled_.empty(); };
  std::unique_lock<std::mutex> lock(mutex_);
  while (!changed_.wait_for(lock, kIdleInterval, ready)) {
    if (leader_.alone()) continue;
    lock.unlock();
    leader_.tell_idle();
    lock.lock();
  }
  return !stopping_;
}

void Engine::finish_all(Finish reason, const std::string& error) {
  receive();
  for (const int64_t id : scheduler_.ids()) finish(id, reason, error);
  end_telling();
  count_queue();
}

void Engine::receive() {
  std::vector<std::unique_ptr<Sequence>> arrived;
  std::vector<int64_t> cancelled;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    arrived.swap(arrived_);
    cancelled.swap(cancelled_);
  }
  for (auto& sequence : arrived) scheduler_.add(std::move(sequence));
  for (const int64_t id : cancelled) finish(id, Finish::kCancelled);
}

void Engine::end_telling() {
  if (told_ && options_.heard) options_.heard();
  told_ = false;
}

// What the queue looks like to submit, which counts arrivals in between.
void Engine::count_queue() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const PagePool& pool = scheduler_.pool();
  stats_.waiting = scheduler_.waiting();
  stats_.waiting_tokens = scheduler_.waiting_tokens();
  stats_.prompt_work = scheduler_.prompt_work();
  stats_.prompt_rate = scheduler_.prompt_rate();
  for (const auto& sequence : arrived_) {
    ++stats_.waiting;
    if (sequence->waits_for_prompt()) continue;
    stats_.waiting_tokens += sequence->left();
    stats_.prompt_work += sequence->left();
  }
  stats_.running = scheduler_.running();
  stats_.pages = pool.pages();
  stats_.pages_available = pool.available();
  stats_.pages_kept = pool.kept();
  stats_.preemptions = scheduler_.preemptions();
  stats_.evictions = pool.evictions();
}

bool Engine::step() {
  const double begin = now_seconds();
  receive();
  const std::vector<Scheduler::Piece>& plan = scheduler_.plan();
  if (plan.empty() && scheduler_.copies().empty()) {
    end_telling();
    count_queue();
    return false;
  }
  forward(plan);
  const StepCost::Work work = scheduler_.work();
  conclude(plan);
  end_telling();
  const double seconds = now_seconds() - begin;
  scheduler_.took(seconds);
  tell_placement();
  count_queue();
  const std::lock_guard<std::mutex> lock(mutex_);
  ++stats_.steps;
  stats_.rows += work.rows;
  stats_.step_seconds += seconds;
  stats_.model_seconds = model_seconds_;
  stats_.head = head_.stats();
  if (const ServingPlacer* placer = model_.options().serving_placer)
    stats_.experts = placer->load();
  return true;
}

// Which experts are now on further ranks.
void Engine::tell_placement() {
  ServingPlacer* placer = model_.options().serving_placer;
  if (placer == nullptr) return;
  const std::optional<PlacementChange> placed = placer->take_change();
  if (!placed) return;
  log_event(Level::kInfo, "experts.placed",
            "step={} reason={} layers={} guests={} new_guests={} over_mean_before={:.3f} "
            "over_mean_after={:.3f} gain_ms={:.3f} bytes={}",
            stats_.steps + 1, placed->reason, placed->layers, placed->guests, placed->new_guests,
            placed->over_mean_before, placed->over_mean_after, placed->gain_seconds * 1e3,
            placed->bytes);
}

void Engine::forward(const std::vector<Scheduler::Piece>& plan) {
  step_.clear();
  step_.copies = scheduler_.copies();
  wanted_.clear();
  for (const auto& [sequence, rows] : plan) {
    const int64_t row_begin = step_.rows();
    step_.segments.push_back({.row_begin = row_begin,
                              .rows = rows,
                              .position_begin = sequence->computed,
                              .key_begin = static_cast<int64_t>(step_.pages.size())});
    step_.pages.insert(step_.pages.end(), sequence->pages.begin(), sequence->pages.end());
    for (int64_t p = sequence->computed; p < sequence->computed + rows; ++p) {
      step_.token.push_back(sequence->tokens[static_cast<size_t>(p)]);
      step_.position.push_back(static_cast<int32_t>(p));
    }
    want_rows({sequence, rows}, row_begin);
  }
  // Masks are made while the model computes.
  std::future<void> masks;
  const bool filtered = std::any_of(wanted_.begin(), wanted_.end(), [](const Row& row) {
    return row.draws && row.sequence->request.filter != nullptr;
  });
  if (filtered) {
    masks = std::async(std::launch::async, [this] {
      for (Row& row : wanted_) {
        if (row.draws && row.sequence->request.filter != nullptr)
          row.mask = allowed_tokens(*row.sequence, model_.config().vocab_size);
      }
    });
  }
  Tensor hidden;
  timed([&] {
    leader_.tell(step_);
    hidden = compute_step(ctx_, model_, cache_, step_);
    // Logits wait for a GPU; without any, so that the step's time and its faults are its own.
    if (wanted_.empty() && ctx_.gpu != nullptr) ctx_.gpu->wait();
  });
  if (masks.valid()) masks.get();
  score_rows(hidden);
}

void Engine::timed(const std::function<void()>& model_work) {
  const double begin = now_seconds();
  model_work();
  model_seconds_ += now_seconds() - begin;
}

// The last row draws, if it ends what is known and something is still to come; the others score the prompt's
// next token, if that is asked for.
void Engine::want_rows(const Scheduler::Piece& piece, int64_t row_begin) {
  Sequence& s = *piece.sequence;
  for (int64_t i = 0; i < piece.rows; ++i) {
    const int64_t position = s.computed + i;
    const bool last = position + 1 == static_cast<int64_t>(s.tokens.size());
    const bool draws = last && s.request.max_tokens > 0;
    const bool scores =
        !last && s.request.prompt_logprobs && !s.prompt_done && position + 1 < s.prompt_tokens();
    if (draws || scores) wanted_.push_back({&s, row_begin + i, position, draws, {}});
  }
}

bool Engine::wants_logprobs(const Row& row) {
  const Request& request = row.sequence->request;
  return !row.draws || request.logprobs || request.top_logprobs > 0;
}

// Of the wanted rows, one behind the other.
Tensor Engine::gather_rows(const Tensor& hidden, std::span<const Row> rows) {
  const int64_t D = hidden.dims[1];
  std::vector<RowMove> moves;
  for (const Row& row : rows) {
    const auto to = static_cast<int64_t>(moves.size());
    moves.push_back({.to = to * D, .from = row.row * D, .count = D});
  }
  const Tensor gathered = hidden_.rows(0, static_cast<int64_t>(rows.size()));
  move_rows(ctx_, {.to = gathered, .from = hidden, .moves = moves});
  return gathered;
}

void Engine::score_rows(const Tensor& hidden) {
  scored_.assign(wanted_.size(), Scored());
  const int64_t most = hidden_.dims[0];
  std::vector<int32_t> none(static_cast<size_t>(most), -1);
  for (size_t begin = 0; begin < wanted_.size(); begin += static_cast<size_t>(most)) {
    const int64_t n = std::min(most, static_cast<int64_t>(wanted_.size() - begin));
    const auto rows = std::span(wanted_).subspan(begin, static_cast<size_t>(n));
    std::vector<HeadRow> head_rows;
    for (const Row& row : rows) {
      head_rows.push_back({.all = wants_logprobs(row),
                           .position = row.position + 1,
                           .sampling = &row.sequence->request.sampling,
                           .counts = &row.sequence->counts,
                           .mask = row.mask});
    }
    Tensor logits;
    timed([&] { logits = head_.run(gather_rows(hidden, rows), head_rows); });
    const bool wanted = std::any_of(rows.begin(), rows.end(), wants_logprobs);
    if (wanted && ctx_.backend == Backend::kGpu) {
      model_.log_sums(ctx_, lse_.rows(0, n));
    } else if (wanted) {
      cross_entropy(ctx_, {.loss = loss_.rows(0, n),
                           .dlogits = {},
                           .logits = logits,
                           .target = make_tensor(none.data(), DType::kI32, {n}),
                           .lse = lse_.rows(0, n)});
    } else {
      std::fill_n(lse_.as<double>(), n, NAN);
    }
    const int64_t V = logits.dims[1];
    ctx_.pool->parallel_for(n, [&](int64_t i, int) {
      const size_t at = begin + static_cast<size_t>(i);
      TokenScore score = score_row(wanted_[at], logits.as<float>() + i * V, lse_.as<double>()[i],
                                   head_.candidates(i));
      const double lse = lse_.as<double>()[i];
      const bool is_number = !std::isnan(logits.as<float>()[i * V + score.chosen.token]) &&
                             !(wants_logprobs(wanted_[at]) && std::isnan(lse));
      scored_[at] = add_token(wanted_[at], std::move(score), is_number);
    });
  }
}

// `among`: of a row that draws, and of whose logits these are known; empty: all are.
TokenScore Engine::score_row(const Row& row, const float* logits, double lse,
                             std::span<const int32_t> among) const {
  TokenScore score;
  const Sequence& s = *row.sequence;
  const int64_t V = model_.config().vocab_size;
  const auto scored = [&](int32_t token) {
    // The difference rounded once, as the loss is (kernels/cross_entropy.h).
    const float loss = static_cast<float>(lse - static_cast<double>(logits[token]));
    return TokenLogprob{token, -static_cast<double>(loss)};
  };
  for (const int32_t token : s.request.top_logprobs > 0
                                 ? most_likely(logits, V, s.request.top_logprobs)
                                 : std::vector<int32_t>())
    score.top.push_back(scored(token));
  if (!row.draws) {
    score.chosen = scored(s.tokens[static_cast<size_t>(row.position + 1)]);
    return score;
  }
  const SamplingOptions& sampling = s.request.sampling;
  std::span<const float> values(logits, static_cast<size_t>(V));
  std::vector<float> changed;
  if (sampling.adjusts() || !row.mask.empty()) {
    changed.assign(values.begin(), values.end());
    adjust_logits(changed, sampling, s.counts);
    if (!row.mask.empty()) mask_logits(changed, row.mask);
    values = changed;
  }
  const int64_t position = row.position + 1;
  score.chosen = scored(among.empty() ? sample_token(values, sampling, position)
                                      : sample_among(among, values, sampling, position));
  if (!wants_logprobs(row)) score.chosen.logprob = NAN;  // whatever others of the step want
  return score;
}

// Here, where all threads are, because the text of a token waits for memory.
Engine::Scored Engine::add_token(const Row& row, TokenScore score, bool is_number) {
  Scored scored{.piece = {.score = std::move(score), .text = ""}};
  if (!row.draws) return scored;
  Sequence& s = *row.sequence;
  const int32_t token = scored.piece.score.chosen.token;
  const auto word = static_cast<size_t>(token / 64);
  const std::vector<int32_t>& ends = s.request.end_ids;
  if (!row.mask.empty() && (row.mask[word] >> (token % 64) & 1) == 0) {
    scored.token = Token::kImpossible;
  } else if (!is_number) {
    scored.token = Token::kNotANumber;
  } else if (std::find(ends.begin(), ends.end(), token) != ends.end()) {
    scored.token = Token::kEnds;
  } else {
    scored.stopped = s.text.add(token, &scored.piece.text);
  }
  return scored;
}

void Engine::conclude(const std::vector<Scheduler::Piece>& plan) {
  for (const Scheduler::Piece& piece : plan) scheduler_.advance(piece);
  count_queue();  // before anybody hears an end: who asks again at once finds what that has freed
  for (size_t i = 0; i < wanted_.size(); ++i) {
    Sequence& s = *wanted_[i].sequence;
    if (wanted_[i].draws) continue;
    s.prompt_scores.resize(static_cast<size_t>(s.prompt_tokens() - 1));
    s.prompt_scores[static_cast<size_t>(wanted_[i].position)] = std::move(scored_[i].piece.score);
  }
  std::vector<Sequence*> done;  // prompts that need no token
  for (const auto& [sequence, rows] : plan) {
    Sequence& s = *sequence;
    if (s.prompt_done || s.computed < s.prompt_tokens()) continue;
    s.prompt_done = true;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stats_.prompt_tokens += s.prompt_tokens();
      stats_.cached_tokens += s.cached;
    }
    told_ = true;
    if (s.listener.on_prompt)
      s.listener.on_prompt({.cached_tokens = s.cached, .scores = std::move(s.prompt_scores)});
    if (s.request.max_tokens == 0) done.push_back(&s);
  }
  for (const Sequence* s : done) finish(s->id, Finish::kLength);
  int64_t tokens = 0;
  for (size_t i = 0; i < wanted_.size(); ++i)
    tokens += wanted_[i].draws && scored_[i].token == Token::kGoesOn;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stats_.answer_tokens += tokens;
  }
  for (size_t i = 0; i < wanted_.size(); ++i) {
    if (wanted_[i].draws) take_token(wanted_[i], scored_[i]);
  }
}

void Engine::take_token(const Row& row, const Scored& scored) {
  Sequence& s = *row.sequence;
  const int32_t token = scored.piece.score.chosen.token;
  const Request& r = s.request;
  if (scored.token == Token::kImpossible)
    return finish(s.id, Finish::kError, "no token of the vocabulary continues the answer");
  if (scored.token == Token::kNotANumber)
    return finish(s.id, Finish::kError,
                  fmt::format("the model's prediction of position {} is not a number: it has "
                              "diverged, or its weights are damaged; take another checkpoint",
                              row.position + 1));
  if (scored.token == Token::kEnds) return finish(s.id, Finish::kStop);
  s.tokens.push_back(token);
  if (r.sampling.penalizes()) s.counts.add_answer(token);
  if (r.filter != nullptr) r.filter->accept(token);
  told_ = true;
  if (s.listener.on_token) s.listener.on_token(scored.piece);
  if (scored.stopped || (r.filter != nullptr && r.filter->must_end()))
    return finish(s.id, Finish::kStop);
  if (s.answer_tokens() == r.max_tokens) finish(s.id, Finish::kLength);
}

void Engine::finish(int64_t id, Finish reason, const std::string& error) {
  const std::unique_ptr<Sequence> sequence = scheduler_.remove(id);
  if (sequence == nullptr) return;  // it has ended
  Ended ended{.finish = reason, .error = error};
  if (sequence->text.finish(&ended.text) && reason == Finish::kLength) ended.finish = Finish::kStop;
  if (ended.finish == Finish::kStop) ended.stop = sequence->text.stopped_by();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++stats_.finished[index_of(ended.finish)];
  }
  told_ = true;
  if (sequence->listener.on_finish) sequence->listener.on_finish(ended);
}

}  // namespace moraine
