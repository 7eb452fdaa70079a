// Study: a queue of runs, some of them at once.
#include "study/study.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "base/child_process.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/pool.h"
#include "study/study_page.h"
#include "train/config_difference.h"

namespace moraine {
namespace {

constexpr double kPollSeconds = 0.05, kProgressSeconds = 15;

struct StudyRun {
  size_t variant = 0, seed = 0;  // which of each
  std::string name;              // for people
  std::string path;              // OUT/<variant>/seed-<n>
  double flops = 0;
  std::unique_ptr<ChildProcess> process = nullptr;
  double begun = 0;
};

class StudyRuns {
 public:
  StudyRuns(FileSystem& fs, const std::vector<StudyConfig>& studies, const StudyOptions& options)
      : fs_(fs), studies_(studies), o_(options), outcomes_(studies.size()) {
    for (auto& of_seeds : outcomes_) of_seeds.resize(static_cast<size_t>(o_.seeds));
    for (size_t seed = 0; seed < static_cast<size_t>(o_.seeds); ++seed) {
      for (size_t v = 0; v < studies.size(); ++v) prepare(v, seed);
    }
  }

  std::vector<VariantResult> go() {
    begun_ = told_ = now_seconds();
    write();
    while (!waiting_.empty() || !running_.empty()) {
      if (o_.stop_signal != nullptr && o_.stop_signal->load() != 0) interrupt();
      while (!waiting_.empty() && static_cast<int64_t>(running_.size()) < o_.side_by_side)
        start_next();
      std::this_thread::sleep_for(std::chrono::duration<double>(kPollSeconds));
      take_ended();
      if (now_seconds() - told_ >= kProgressSeconds) tell_progress();
    }
    return study_results(studies_, outcomes_);
  }

 private:
  int64_t seed_of(size_t variant, size_t seed) const {
    return studies_[variant].config.train.seed + static_cast<int64_t>(seed);
  }

  // Its config is written, or is there already; it has ended, or waits.
  void prepare(size_t v, size_t seed) {
    const StudyConfig& study = studies_[v];
    RunConfig config = study.config;
    config.train.seed = seed_of(v, seed);
    const std::string folder = join_path(o_.out, variant_folder(study.variant));
    StudyRun run{.variant = v,
                 .seed = seed,
                 .name = fmt::format("{} seed {}", study.variant.name, config.train.seed),
                 .path = join_path(folder, fmt::format("seed-{}", config.train.seed)),
                 .flops = study.total_flops};
    const std::string file = run.path + ".toml", text = print_run_config(config);
    fs_.make_directories(folder);
    if (!fs_.exists(file)) {
      fs_.write_atomic(file, text);
    } else if (fs_.read(file) != text) {
      throw_error(
          Code::kInvalidArgument,
          "study {}: a run of an earlier study is there: {}; give the flags of that one, or "
          "another --out",
          file, first_difference(fs_.read(file), text));
    }
    StudyOutcome& outcome = outcomes_[v][seed];
    outcome = read_outcome(run);
    total_flops_ += run.flops;
    if (outcome.has_ended)
      earlier_flops_ += run.flops;
    else
      waiting_.push_back(std::move(run));
  }

  StudyOutcome read_outcome(const StudyRun& run) const {
    const std::string path = join_path(run.path, "metrics.jsonl");
    StudyOutcome outcome;
    if (fs_.exists(path)) outcome = outcome_of(read_metrics(fs_, path), studies_[run.variant]);
    outcome.seed = seed_of(run.variant, run.seed);
    return outcome;
  }

  void start_next() {
    StudyRun run = std::move(waiting_.front());
    waiting_.erase(waiting_.begin());
    std::vector<std::string> words = {o_.program, "train",  "--config", run.path + ".toml",
                                      "--out",    run.path, "--resume", "auto"};
    if (!o_.machine_file.empty()) words.insert(words.end(), {"--machine", o_.machine_file});
    if (o_.side_by_side > 1) {
      const int64_t cores = usable_cores();
      words.insert(words.end(),
                   {"--set", fmt::format("train.threads={}",
                                         std::max<int64_t>(1, cores / o_.side_by_side))});
    }
    run.begun = now_seconds();
    run.process = std::make_unique<ChildProcess>(words, run.path);
    o_.tell(fmt::format("{} begins: {} steps, {:.3g} flops", run.name, studies_[run.variant].steps,
                        run.flops));
    running_.push_back(std::move(run));
  }

  void take_ended() {
    for (size_t i = 0; i < running_.size();) {
      if (!running_[i].process->has_ended()) {
        ++i;
        continue;
      }
      StudyRun run = std::move(running_[i]);
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
      end(run, run.process->wait());
    }
  }

  void end(const StudyRun& run, int code) {
    StudyOutcome& outcome = outcomes_[run.variant][run.seed];
    outcome = read_outcome(run);
    outcome.code = code;
    if (code != 0 || !outcome.has_ended) {
      outcome.has_ended = false;
      outcome.why = fmt::format("exit code {}; {}.err says why", code, run.path);
    }
    ended_flops_ += run.flops;
    const std::string took = format_duration(now_seconds() - run.begun);
    if (outcome.has_ended) {
      o_.tell(fmt::format("{} ended: held-out loss {:.4f}, {}", run.name, outcome.loss, took));
    } else {
      o_.tell(fmt::format("{} FAILED: {}", run.name, outcome.why));
    }
    write();
    tell_progress();
  }

  // Flops done in this sitting, those of runs that are under way included.
  double done_flops() const {
    double done = ended_flops_;
    for (const StudyRun& run : running_) {
      const std::string path = join_path(run.path, "metrics.jsonl");
      if (!fs_.exists(path)) continue;
      const std::vector<StepMetrics> metrics = read_metrics(fs_, path);
      if (!metrics.empty())
        done += studies_[run.variant].token_flops * static_cast<double>(metrics.back().tokens_seen);
    }
    return done;
  }

  void tell_progress() {
    told_ = now_seconds();
    const double done = done_flops(), left = total_flops_ - earlier_flops_ - done,
                 rate = done / (told_ - begun_);
    std::string text;
    for (const StudyRun& run : running_) text += (text.empty() ? "" : ", ") + run.name;
    if (rate <= 0) return;
    o_.tell(fmt::format("{:.0f}% of the flops{}{}, {:.3g} flops/s, about {} left",
                        100 * (1 - left / total_flops_), text.empty() ? "" : "; now ", text, rate,
                        format_duration(std::max(0.0, left) / rate)));
  }

  [[noreturn]] void interrupt() {
    for (const StudyRun& run : running_) run.process->kill(SIGTERM);
    for (const StudyRun& run : running_) run.process->wait();
    throw_error(
        Code::kInterrupted,
        "study: signal; runs that were under way have saved; run the same command again to go on");
  }

  void write() {
    const std::vector<VariantResult> results = study_results(studies_, outcomes_);
    fs_.write_atomic(join_path(o_.out, "study.json"), study_json(results) + "\n");
    fs_.write_atomic(join_path(o_.out, "study.html"), study_page(results));
  }

  FileSystem& fs_;
  const std::vector<StudyConfig>& studies_;
  const StudyOptions& o_;
  std::vector<std::vector<StudyOutcome>> outcomes_;  // [variant][seed]
  std::vector<StudyRun> waiting_, running_;
  double total_flops_ = 0, earlier_flops_ = 0, ended_flops_ = 0;
  double begun_ = 0, told_ = 0;
};

}  // namespace

std::vector<VariantResult> run_study(FileSystem& fs, const std::vector<StudyConfig>& studies,
                                     const StudyOptions& options) {
  fs.make_directories(options.out);
  return StudyRuns(fs, studies, options).go();
}

}  // namespace moraine
