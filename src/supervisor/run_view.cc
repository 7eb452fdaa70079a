// From events to a line a second and a page.
#include "supervisor/run_view.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/saturate.h"
#include "supervisor/incident_page.h"
#include "supervisor/run_metrics.h"
#include "supervisor/state_json.h"

namespace moraine {

template <class Body>
void RunView::attempt(const char* file, bool* told, const Body& body) {
  try {
    body();
    *told = false;
  } catch (const Error& e) {
    if (!*told)
      log_event(Level::kWarning, "supervise.show_failed", "file={} reason=\"{}\"", file, e.what());
    *told = true;
  }
}

RunView::RunView(FileSystem& fs, const std::string& folder, const ShowOptions& options)
    : fs_(fs),
      folder_(folder),
      timeline_(fs, folder),
      to_unix_(unix_seconds() - now_seconds()),
      expect_useful_(options.expect_useful) {
  if (options.metrics_port > 0)
    server_ = std::make_unique<RunMetricsHttp>(static_cast<int>(options.metrics_port));
  if (!options.webhook.empty())
    webhook_ = std::make_unique<Webhook>(parse_webhook(options.webhook));
  const std::string path = join_path(folder, "ledger.jsonl");
  attempt("ledger.jsonl", &told_.ledger, [&] {
    if (fs.exists(path)) entries_ = read_ledger(fs.read(path), path);
  });
  attempt("timeline.jsonl", &told_.timeline, [&] { timeline_.read(); });
}

Json RunView::left() const { return state_to_json(useful_); }

void RunView::go_on(const Json& left) { state_from_json(left, &useful_); }

// Where the beats of a rank are kept; there is none while it has no process with a page.
BeatSnapshot* RunView::beat_of(int rank) {
  const auto r = static_cast<size_t>(rank);
  if (beats_.size() <= r) beats_.resize(r + 1);
  if (!beats_[r]) beats_[r] = BeatSnapshot{};
  return &*beats_[r];
}

RunView::Counted& RunView::counted_of(int rank) {
  const auto r = static_cast<size_t>(rank);
  if (counted_.size() <= r) counted_.resize(r + 1);
  return counted_[r];
}

void RunView::hear(const RunEvent& event) {
  if (const auto* e = std::get_if<RankBeat>(&event)) {
    *beat_of(e->rank) = e->beat;
    Counted& counted = counted_of(e->rank);
    const int64_t strangers = std::max<int64_t>(0, e->beat.strangers);  // a host may say anything
    strangers_ = add_saturated(strangers_, std::max<int64_t>(0, strangers - counted.strangers));
    counted.strangers = strangers;
  } else if (const auto* started = std::get_if<RankStarted>(&event)) {
    beat_of(started->rank);
    beats_[static_cast<size_t>(started->rank)].reset();
    Counted& counted = counted_of(started->rank);
    if (counted.pid != started->pid) counted = {.pid = started->pid};  // else it was found again
  } else if (const auto* logged = std::get_if<RankLogged>(&event)) {
    const bool lost = logged->line.name == "rails.lost";
    if (lost || logged->line.name == "rails.back")
      rails_.push_back(
          {logged->rank, logged->line.field("peer"), logged->line.field("rail"), lost});
  }
}

void RunView::see(double now, const RunEffect& effect) {
  if (const auto* e = std::get_if<WriteLedger>(&effect)) {
    LedgerEntry entry = e->entry;
    entry.begin_unix = unix_seconds() - (now - entry.begin);
    entry.end_unix = unix_seconds() - (now - entry.end);
    entries_.push_back(std::move(entry));
    news_ = true;
  } else if (const auto* raised = std::get_if<RaiseAlert>(&effect)) {
    alert(fault_name(raised->fault), raised->text);
  } else if (const auto* f = std::get_if<FinishRun>(&effect)) {
    const bool asked = f->exit_code == exit_code(Code::kInterrupted);
    if (f->exit_code != kExitOk && !asked)
      alert("end", fmt::format("ended with {}: {}", f->exit_code, f->reason));
  }
}

void RunView::alert(const std::string& fault, const std::string& text) {
  if (webhook_ == nullptr) return;
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  const std::string run = printable(parent_path(folder_));
  webhook_->post(json_text(
      Json::object({{"text", fmt::format("moraine {}: {}: {}", run, fault, printable(text, 2000))},
                    {"fault", fault},
                    {"run", run},
                    {"host", printable(host)},
                    {"time", utc_now()}})));
}

std::vector<std::optional<Activity>> RunView::activities() const {
  std::vector<std::optional<Activity>> all;
  for (const std::optional<BeatSnapshot>& beat : beats_)
    all.push_back(beat ? std::optional(beat->activity) : std::nullopt);
  return all;
}

// What the last step said, for as long as there are steps.
double RunView::speed(double now) const {
  constexpr double kSoon = 2, kSteps = 3;
  for (const std::optional<BeatSnapshot>& beat : beats_) {
    if (!beat || beat->tokens_per_second <= 0) continue;
    const bool moves = now - moved_at_ < std::max(kSoon, kSteps * beat->step_seconds);
    return moves ? beat->tokens_per_second : 0;
  }
  return 0;
}

std::string RunView::metrics(double now, const SupervisedRun& run) {
  constexpr double kKeptSeconds = 0.5;
  if (metrics_at_ >= 0 && now - metrics_at_ < kKeptSeconds) return metrics_;
  metrics_at_ = now;
  RunMetrics m{.run = run,
               .letters = rank_letters(run, activities()),
               .tokens_per_second = speed(now),
               .strangers = strangers_,
               .entries = entries_};
  for (const std::optional<BeatSnapshot>& beat : beats_) {
    if (!beat) continue;
    m.generation = std::max(m.generation, beat->generation);
    if (!m.loss && beat->step_seconds > 0) m.loss = beat->loss;
  }
  return metrics_ = run_metrics_text(m);
}

void RunView::add_descriptors(std::vector<pollfd>* polled) const {
  if (server_ != nullptr) server_->add_descriptors(polled);
}

void RunView::add_second(double now, const SupervisedRun& run) {
  const double passed = second_at_ < 0 ? 1 : now - second_at_, end = unix_seconds();
  second_at_ = now;
  const TimelinePoint point{end - passed, end, run.step, speed(now), std::exchange(letters_, "")};
  attempt("timeline.jsonl", &told_.timeline, [&] { timeline_.add(point, rails_); });
  rails_.clear();
}

void RunView::show(double now, const SupervisedRun& run) {
  if (run.step != step_) moved_at_ = now;
  step_ = run.step;
  for (const std::optional<BeatSnapshot>& beat : beats_)
    if (beat) useful_.hear(now + to_unix_, *beat);
  if (server_ != nullptr) server_->serve(now, [&] { return metrics(now, run); });
  letters_ = worse_letters(std::move(letters_), rank_letters(run, activities()));
  if (second_at_ < 0 || now - second_at_ >= 1) add_second(now, run);
  if (page_at_ >= 0 && now - page_at_ < (news_ ? kPageSeconds : kCalmPageSeconds)) return;
  write_page(now, run, "");
}

void RunView::end(double now, const SupervisedRun& run, const std::string& outcome) {
  letters_ = worse_letters(std::move(letters_), rank_letters(run, activities()));
  add_second(now, run);
  write_page(now, run, outcome);
}

void RunView::write_page(double now, const SupervisedRun& run, const std::string& outcome) {
  page_at_ = now;
  news_ = false;
  int64_t steps_total = 0;
  for (const std::optional<BeatSnapshot>& beat : beats_)
    if (beat) steps_total = std::max(steps_total, beat->steps_total);
  const UsefulShare useful = useful_.share(now + to_unix_, entries_);
  const bool asked = expect_useful_ && useful.interruptions > 0;
  attempt("incidents.html", &told_.page, [&] {
    fs_.write_atomic(join_path(folder_, "incidents.html"),
                     incident_page({.title = parent_path(folder_),
                                    .outcome = outcome,
                                    .step = run.step,
                                    .steps_total = steps_total,
                                    .useful = useful,
                                    .useful_expected = asked ? expect_useful_(useful) : -1,
                                    .entries = entries_,
                                    .points = timeline_.points(),
                                    .outages = timeline_.outages()}));
  });
}

}  // namespace moraine
