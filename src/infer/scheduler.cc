// Scheduler: decoding rows, then chunks, then admissions.
#include "infer/scheduler.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace moraine {
namespace {

// Rows by which a prompt goes on even where the latency target is passed already.
constexpr int64_t kLeastRows = 16;

// (row, key) pairs of `rows` rows behind `computed` positions.
double keys_of(int64_t computed, int64_t rows) {
  return static_cast<double>(rows) *
         (static_cast<double>(computed) + static_cast<double>(rows + 1) / 2);
}

void insert_by_arrival(std::list<std::unique_ptr<Sequence>>& list,
                       std::unique_ptr<Sequence> sequence) {
  auto at = list.end();
  while (at != list.begin() && (*std::prev(at))->id > sequence->id) --at;
  list.insert(at, std::move(sequence));
}

// Rows of prompts, or of what is computed again, that it has before it draws its next token.
int64_t prompt_rows_left(const Sequence& s) {
  return s.left() > 1 || !s.prompt_done ? s.left() : 0;
}

// What may come from the prefix cache. The last token is computed in any case: its logits are wanted. Scores of a
// prompt want all of them.
std::span<const int32_t> findable(const Sequence& s) {
  const bool scores = s.request.prompt_logprobs && !s.prompt_done;
  return std::span<const int32_t>(s.tokens).first(scores ? 0 : s.tokens.size() - 1);
}

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options, const Cache& cache)
    : options_(options), page_rows_(cache.page_rows), pool_(cache.pages, cache.page_rows) {
  MR_CHECK(options.rows > 0 && options.sequences > 0 && options.sequences <= options.rows);
}

int64_t Scheduler::pages_for(int64_t positions) const {
  return (positions + page_rows_ - 1) / page_rows_;
}

int64_t Scheduler::waiting_tokens() const {
  int64_t tokens = 0;
  for (const auto& sequence : waiting_)
    tokens += sequence->waits_for_prompt() ? 0 : sequence->left();
  return tokens;
}

int64_t Scheduler::prompt_work() const {
  int64_t rows = 0;
  for (const auto& sequence : running_) rows += prompt_rows_left(*sequence);
  for (const auto& sequence : waiting_) {
    if (!sequence->waits_for_prompt()) rows += sequence->left() - sequence->known;
  }
  return rows;
}

double Scheduler::prompt_rate() const {
  if (rate_.known()) return rate_.tokens_per_second();
  const StepCost::Work full = {.rows = options_.rows, .keys = keys_of(0, options_.rows)};
  const double seconds = cost_.known() ? cost_.expected(full) : 0;
  return seconds > 0 ? static_cast<double>(full.rows) / seconds : 0;
}

void Scheduler::took(double seconds) {
  if (decoding_ > 0 && cost_.known()) margin_.add(seconds > options_.tpot_seconds);
  cost_.add(work_, seconds);
  rate_.add(prompt_rows_, seconds, prompts_left_);
}

void Scheduler::add(std::unique_ptr<Sequence> sequence) { wait(std::move(sequence)); }

void Scheduler::wait(std::unique_ptr<Sequence> sequence) {
  Sequence& s = *sequence;
  const PagePool::Prefix prefix = pool_.look(s.request.salt, findable(s));
  s.known = static_cast<int64_t>(prefix.full.size()) * page_rows_ + prefix.rows;
  insert_by_arrival(waiting_, std::move(sequence));
}

const std::vector<Scheduler::Piece>& Scheduler::plan() {
  plan_.clear();
  copies_.clear();
  work_ = {};
  plan_decoding();
  decoding_ = static_cast<int64_t>(plan_.size());
  plan_prompts();
  admit();
  prompt_rows_ = 0;
  for (const Piece& piece : plan_) {
    if (prompt_rows_left(*piece.sequence) > 0) prompt_rows_ += piece.rows;
  }
  prompts_left_ = prompt_work() > prompt_rows_;
  return plan_;
}

void Scheduler::plan_decoding() {
  for (auto it = running_.begin(); it != running_.end();) {
    Sequence& sequence = **it;
    if (sequence.left() > 1) {
      ++it;
      continue;
    }
    // Making room may preempt younger ones, which stand behind, but not the next one that is looked at.
    const bool room = make_room(sequence, 1, /*decoding=*/true) == 1;
    const auto next = std::next(it);
    if (room) {
      add_piece(sequence, 1);
    } else {
      preempt(it);
    }
    it = next;
  }
}

void Scheduler::plan_prompts() {
  for (auto it = running_.begin(); it != running_.end(); ++it) {
    Sequence& sequence = **it;
    if (sequence.left() == 1 || planned(sequence)) continue;
    const int64_t rows = make_room(sequence, affordable(sequence, sequence.left()), false);
    if (rows > 0) add_piece(sequence, rows);
  }
}

void Scheduler::admit() {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (running() == options_.sequences || rows_left() == 0) return;
    Sequence& sequence = **it;
    if (!may_start(sequence)) {
      ++it;
      continue;
    }
    if (affordable(sequence, sequence.left()) == 0 || !start(sequence)) return;  // in their order
    const auto next = std::next(it);
    insert_by_arrival(running_, std::move(*it));
    waiting_.erase(it);
    it = next;
    const int64_t rows = make_room(sequence, affordable(sequence, sequence.left()), false);
    if (rows > 0) add_piece(sequence, rows);
  }
}

// A request that follows another waits until that one's prompt can be found.
bool Scheduler::may_start(const Sequence& sequence) const {
  const auto unfinished = [&](const std::unique_ptr<Sequence>& other) {
    return other->id == sequence.request.follows && !other->prompt_done;
  };
  return std::none_of(running_.begin(), running_.end(), unfinished) &&
         std::none_of(waiting_.begin(), waiting_.end(), unfinished);
}

// Takes up the known prefix. False, and nothing taken, if the pages of the rest are not there.
bool Scheduler::start(Sequence& sequence) {
  const std::span<const int32_t> tokens(sequence.tokens);
  PagePool::Prefix prefix = pool_.find(sequence.request.salt, findable(sequence));
  const auto full = static_cast<int64_t>(prefix.full.size());
  const int64_t wanted = pages_for(static_cast<int64_t>(tokens.size())) - full;
  if (pool_.available() < wanted && prefix.partial >= 0) {
    // Who needs every page can not have one of them twice.
    pool_.leave(prefix.partial);
    prefix.partial = -1;
  }
  if (pool_.available() < wanted) {
    for (size_t i = prefix.full.size(); i-- > 0;) pool_.leave(prefix.full[i]);
    return false;
  }
  sequence.pages = std::move(prefix.full);
  sequence.keys = std::move(prefix.keys);
  sequence.computed = full * page_rows_;
  if (prefix.partial >= 0) {
    const int32_t copy = pool_.take();
    copies_.push_back({.from = prefix.partial, .to = copy});
    pool_.leave(prefix.partial);
    sequence.pages.push_back(copy);
    sequence.computed += prefix.rows;
  }
  if (!sequence.admitted) {
    sequence.admitted = true;
    sequence.cached = sequence.computed;
  }
  return true;
}

// Of the step, for prompts.
int64_t Scheduler::rows_left() const {
  const int64_t left = options_.rows - work_.rows, prompts = work_.rows - decoding_;
  const bool fewer = decoding_ > 0 && options_.interleave_rows > 0;
  return fewer ? std::min(left, options_.interleave_rows - prompts) : left;
}

// How many of `rows` rows fit the step and the latency target.
int64_t Scheduler::affordable(const Sequence& sequence, int64_t rows) const {
  rows = std::min(rows, rows_left());
  if (options_.tpot_seconds <= 0 || decoding_ == 0 || !cost_.known()) return rows;
  const auto fits = [&](int64_t n) {
    const StepCost::Work work = {.rows = work_.rows + n,
                                 .keys = work_.keys + keys_of(sequence.computed, n)};
    return cost_.bound(work) * margin_.factor() <= options_.tpot_seconds;
  };
  if (fits(rows)) return rows;
  int64_t low = 0, high = rows;  // fits(low) or low is 0; not fits(high)
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (fits(middle) ? low : high) = middle;
  }
  // One that runs goes on, however slowly; a new one waits unless it has its chunk's worth.
  const bool runs = !sequence.pages.empty();
  const bool alone = work_.rows == decoding_;
  if (low < kLeastRows) return runs && alone ? std::min(rows, kLeastRows) : 0;
  return low;
}

// Takes the pages for the next rows, as many as there can be; returns the rows that they hold. Pages come
// from free and kept ones, then from younger sequences that are not in the plan.
int64_t Scheduler::make_room(Sequence& sequence, int64_t rows, bool decoding) {
  const int64_t wanted = pages_for(sequence.computed + rows);
  while (static_cast<int64_t>(sequence.pages.size()) < wanted) {
    const int32_t page = pool_.take();
    if (page >= 0) {
      sequence.pages.push_back(page);
      continue;
    }
    const auto youngest = std::prev(running_.end());
    if ((*youngest)->id <= sequence.id || planned(**youngest)) break;
    if (!decoding && (*youngest)->left() == 1) break;  // it ends by itself
    preempt(youngest);
  }
  const int64_t room = static_cast<int64_t>(sequence.pages.size()) * page_rows_ - sequence.computed;
  return std::min(rows, room);
}

bool Scheduler::planned(const Sequence& sequence) const {
  return std::any_of(plan_.begin(), plan_.end(),
                     [&](const Piece& piece) { return piece.sequence == &sequence; });
}

void Scheduler::add_piece(Sequence& sequence, int64_t rows) {
  plan_.push_back({&sequence, rows});
  work_.rows += rows;
  work_.keys += keys_of(sequence.computed, rows);
}

void Scheduler::advance(const Piece& piece) {
  Sequence& s = *piece.sequence;
  s.computed += piece.rows;
  const auto rows = static_cast<size_t>(page_rows_);
  while (static_cast<int64_t>(s.keys.size()) <= s.computed / page_rows_) {
    const size_t page = s.keys.size() - 1;
    const auto tokens = std::span<const int32_t>(s.tokens).subspan(page * rows, rows);
    pool_.publish(s.pages[page], s.keys.back(), tokens);
    s.keys.push_back(PagePool::next_key(s.keys.back(), tokens));
  }
}

// Its pages can be found, also the one that is not full, until somebody needs them. Later pages go first: a
// prefix without its beginning is of no use.
void Scheduler::let_go(Sequence& s) {
  const int64_t rest = s.computed % page_rows_;
  if (rest > 0) {
    const int64_t begin = s.computed - rest;
    pool_.publish(s.pages[static_cast<size_t>(begin / page_rows_)], s.keys.back(),
                  std::span<const int32_t>(s.tokens).subspan(static_cast<size_t>(begin),
                                                             static_cast<size_t>(rest)));
  }
  for (size_t i = s.pages.size(); i-- > 0;) pool_.leave(s.pages[i]);
  s.pages.clear();
  s.computed = 0;
}

void Scheduler::preempt(List::iterator victim) {
  std::unique_ptr<Sequence> sequence = std::move(*victim);
  running_.erase(victim);
  let_go(*sequence);
  ++preemptions_;
  wait(std::move(sequence));
}

std::unique_ptr<Sequence> Scheduler::remove(int64_t id) {
  for (List* list : {&running_, &waiting_}) {
    for (auto it = list->begin(); it != list->end(); ++it) {
      if ((*it)->id != id) continue;
      std::unique_ptr<Sequence> sequence = std::move(*it);
      list->erase(it);
      let_go(*sequence);
      return sequence;
    }
  }
  return nullptr;
}

std::vector<int64_t> Scheduler::ids() const {
  std::vector<int64_t> ids;
  for (const List* list : {&running_, &waiting_}) {
    for (const auto& sequence : *list) ids.push_back(sequence->id);
  }
  return ids;
}

}  // namespace moraine
