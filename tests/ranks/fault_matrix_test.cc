// Fault matrix: every state of the protocols that ranks go through together (base/fault_points.h) x every rank x
// {killed, stopped}, and a second fault on the way back: survivors keep their process, and the run ends in the hash of
// one that nothing happened to.
//
// A seeded sample of the cases, unless MORAINE_FAULT_MATRIX is `all`; MORAINE_FAULT_MATRIX_SEED is another sample.
//
// Breaks if there is a state in which a rank may not be lost, if a state is in the list and nobody comes there, or if
// who wakes up late spoils what others have done meanwhile.
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>

#include "base/test_folder.h"
#include "tests/ranks/kept_job.h"

namespace moraine {
namespace {

using namespace testing;

constexpr size_t kPlaces = std::size(kFaultPlaces);

size_t place_index(std::string_view name) {
  size_t i = 0;
  while (kFaultPlaces[i].name != name) ++i;
  return i;
}

bool is_of(std::string_view place, std::initializer_list<std::string_view> operations) {
  return std::any_of(operations.begin(), operations.end(),
                     [&](std::string_view o) { return place.starts_with(o); });
}

// How often each rank comes to each place; shared by all processes.
class Passes {
 public:
  Passes()
      : counts_(static_cast<std::atomic<int>*>(
            mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~Passes() { munmap(counts_, kBytes); }
  Passes(const Passes&) = delete;
  Passes& operator=(const Passes&) = delete;
  std::atomic<int>& of(int rank, size_t place) const {
    return counts_[static_cast<size_t>(rank) * kPlaces + place];
  }

 private:
  static constexpr size_t kBytes = sizeof(std::atomic<int>) * kPlaces * 4;
  std::atomic<int>* const counts_;
};

// What all cases of a test have in common.
struct QuietRun {
  RunConfig config;
  int ranks;
  std::string hash;
};

struct Case {
  std::string state, text;
  std::array<Deaths, 4> deaths;
  Stopped stopped = Stopped::kIsKilled;
  int faults = 1;                // that are to be met
  bool may_begin_again = false;  // more processes than those of the faults are started
  int turn = 0;                  // how many cases of the same state come before
};

const char* fate_name(Fate fate) { return fate == Fate::kDies ? "killed" : "stopped"; }

class FaultMatrix : public ::testing::Test {
 protected:
  static bool all() {
    const char* which = std::getenv("MORAINE_FAULT_MATRIX");
    return which != nullptr && std::string(which) == "all";
  }
  static uint64_t seed() {
    const char* text = std::getenv("MORAINE_FAULT_MATRIX_SEED");
    return text != nullptr ? std::stoull(text) : 1;
  }
  uint64_t draw(uint64_t below) { return random_below(below, seed(), Stream::kTest, 7, drawn_++); }

  // Experts elsewhere, guests, saves to disk and memory, verified steps, another mesh from the second phase on.
  RunConfig run_config() const {
    RunConfig config = tiny.config(tiny.rich("bf16"));
    config.parallel.expert = 2;
    config.parallel.placement = PlacementMode::kShuffled;
    config.parallel.deadline_seconds = 60;
    config.checkpoint.every_steps = 4;
    config.checkpoint.memory_every_steps = 1;
    config.train.verify_every_steps = 3;
    config.phases[1].expert = 1;
    return config;
  }

  // What is wrong with how one case ends; "": nothing.
  std::string problem_of(const Case& c, const QuietRun& quiet) {
    RunConfig config = quiet.config;
    if (c.stopped == Stopped::kIsForgotten) config.parallel.deadline_seconds = 2;
    Job job(tiny, fmt::format("case{}", cases_++), config, quiet.ranks);
    if (c.stopped == Stopped::kIsForgotten) job.replace_seconds = 10;
    const Kept kept = KeptJob(job, quiet.ranks, c.deaths, c.stopped).keep();
    std::string problem = kept.why;
    if (problem.empty()) problem = problem_of_end(c, quiet, kept, job);
    for (int m = 0; m < quiet.ranks && !problem.empty(); ++m)
      problem += fmt::format("\n--- member {}\n{}", m, job.log(m));
    std::filesystem::remove_all(job.out());
    return problem;
  }

  static std::string problem_of_end(const Case& c, const QuietRun& quiet, const Kept& kept,
                                    const Job& job) {
    if (kept.faults != c.faults)
      return fmt::format("{} faults were met, {} were planned", kept.faults, c.faults);
    int started = 0;
    for (int m = 0; m < quiet.ranks; ++m) {
      started += kept.starts[static_cast<size_t>(m)];
      // Each fault costs one group, but where a meeting is cut before there is one.
      const bool any_group = c.may_begin_again || is_of(c.state, {"group."});
      const std::string want = fmt::format("{} {}", quiet.hash, 1 + c.faults), said = job.said(m);
      if (any_group ? !said.starts_with(quiet.hash + " ") : said != want)
        return fmt::format("member {} ends with hash and group '{}', wanted '{}'", m, said, want);
    }
    if (!c.may_begin_again && started != quiet.ranks + c.faults)
      return fmt::format("{} processes were started, wanted one more for each fault", started);
    if (c.stopped == Stopped::kIsForgotten && kept.stray_code <= 0)
      return fmt::format("who woke up late ended with {}", kept.stray_code);
    return "";
  }

  // All cases, or some of them: of as many states as that gives.
  void walk(std::vector<Case> cases, size_t sample, const QuietRun& quiet) {
    walk(std::move(cases), sample, [&](const Case& c) { return problem_of(c, quiet); });
  }
  template <class ProblemOf>
  void walk(std::vector<Case> cases, size_t sample, ProblemOf problem_of_case) {
    for (size_t i = cases.size(); i > 1; --i) std::swap(cases[i - 1], cases[draw(i)]);
    std::map<std::string, int> seen;
    for (Case& c : cases) c.turn = seen[c.state]++;
    std::stable_sort(cases.begin(), cases.end(),
                     [](const Case& a, const Case& b) { return a.turn < b.turn; });
    if (!all()) cases.resize(std::min(cases.size(), sample));
    int bad = 0;
    for (const Case& c : cases) {
      const double begin = now_seconds();
      const std::string problem = problem_of_case(c);
      if (all())
        fmt::print("{:<70} {:6.2f} s  {}\n", c.text, now_seconds() - begin,
                   problem.empty() ? "equal" : "BAD");
      std::fflush(stdout);
      EXPECT_EQ(problem, "") << c.text;
      bad += !problem.empty();
    }
    fmt::print("{} cases, {} bad\n", cases.size(), bad);
  }

  // Nothing happens; who comes where is counted.
  void count_passes(const Passes& passes, const QuietRun& quiet) {
    Job job(tiny, "quiet", quiet.config, quiet.ranks);
    job.on_point = [&](int member, const char* point) { ++passes.of(member, place_index(point)); };
    const Kept kept = KeptJob(job, quiet.ranks, {}, Stopped::kIsKilled).keep();
    EXPECT_EQ(kept.why, "");
    EXPECT_TRUE(job.said(0).starts_with(quiet.hash)) << job.said(0) << job.log(0);
  }

  // On one rank.
  std::string hash_alone(RunConfig config) const {
    config.parallel.expert = 1;
    config.parallel.placement = PlacementMode::kStatic;
    for (PhaseConfig& phase : config.phases) phase.expert = 0;
    config.checkpoint.memory_every_steps = 0;
    return tiny.train(config, tiny.out("alone")).hash();
  }

  TestFolder folder;
  TinyRun tiny{folder.path()};
  int cases_ = 0;

 private:
  uint64_t drawn_ = 0;
};

// Of copies in memory the first: one that is due while the one before is being written is left out.
int some_pass(std::string_view name, int passes, uint64_t drawn) {
  if (is_of(name, {"memory.", "save.copy"})) return 1;
  return 1 + static_cast<int>(drawn % static_cast<uint64_t>(passes));
}

TEST_F(FaultMatrix, AnyRankAtAnyStateOfARun) {
  const QuietRun quiet{run_config(), 2, hash_alone(run_config())};
  const Passes passes;
  count_passes(passes, quiet);
  std::vector<Case> cases;
  const auto add = [&](const std::string& name, int rank, Fate fate) {
    const int nth = some_pass(name, passes.of(rank, place_index(name)), draw(1000));
    Case c{.state = name,
           .text = fmt::format("{} {}: rank {} {}", name, nth, rank, fate_name(fate)),
           .deaths = {}};
    c.deaths[static_cast<size_t>(rank)] = {Death{name, nth, fate}};
    c.may_begin_again = is_of(name, {"end."});
    cases.push_back(c);
    // If its host can not be reached: in a meeting rank 0 waits for as long as a start may take.
    if (fate == Fate::kDies || rank == 0 || is_of(name, {"group.", "end.", "resume."})) return;
    c.text += ", forgotten, awake too late";
    c.stopped = Stopped::kIsForgotten;
    cases.push_back(c);
  };
  for (size_t i = 0; i < kPlaces; ++i) {
    const FaultPlace& place = kFaultPlaces[i];
    const std::string name(place.name);
    if (place.who != FaultWho::kEveryRank && place.who != FaultWho::kRankZero) continue;
    if (is_of(name, {"rollback.", "diverged."})) continue;
    for (int rank = 0; rank < quiet.ranks; ++rank) {
      const bool comes = passes.of(rank, i) > 0;
      EXPECT_EQ(comes, place.who == FaultWho::kEveryRank || rank == 0)
          << name << " of rank " << rank;
      if (!comes) continue;
      for (const Fate fate : {Fate::kDies, Fate::kStops}) add(name, rank, fate);
    }
  }
  walk(std::move(cases), 14, quiet);
}

// What a process that was in one group passes in it, before there is a state to take up.
int passes_before(std::string_view name) {
  return is_of(name, {"group.left", "resume.begun", "resume.weights", "resume.loaded"}) ? 0 : 1;
}

TEST_F(FaultMatrix, ASecondRankAtAnyStateOfTheWayBack) {
  RunConfig config = run_config();
  config.phases[1].expert = 0;
  const QuietRun quiet{config, 2, hash_alone(config)};
  const Death firsts[] = {{"step.optimizer", 5, Fate::kDiesOnceCopied},
                          {"exchange.to_tokens", 20, Fate::kDiesOnceCopied},
                          {"save.write", 1, Fate::kDiesOnceCopied},
                          {"memory.committed", 1, Fate::kDiesOnceCopied}};
  std::vector<Case> cases;
  const auto add = [&](const std::string& name, int lost, int second, Fate fate) {
    const bool survives = lost != second;
    if (!survives && name == "group.left") return;
    const Death& first = firsts[draw(std::size(firsts))];
    const Death next{name, survives ? passes_before(name) + 1 : 1, fate};
    Case c{.state = name,
           .text = fmt::format("{}: rank {} killed; {}: rank {} {}", first.point, lost, name,
                               second, fate_name(fate)),
           .deaths = {},
           .faults = 2};
    c.deaths[static_cast<size_t>(lost)] = {first};
    c.deaths[static_cast<size_t>(second)].push_back(next);
    cases.push_back(c);
  };
  for (const FaultPlace& place : kFaultPlaces) {
    if (!is_of(place.name, {"group.", "resume."})) continue;
    for (const int lost : {0, 1}) {
      for (const int second : {0, 1}) {
        for (const Fate fate : {Fate::kDies, Fate::kStops})
          add(std::string(place.name), lost, second, fate);
      }
    }
  }
  walk(std::move(cases), 6, quiet);
}

TEST_F(FaultMatrix, AnyRankAtAnyStateOfARollback) {
  // The loss hardly falls, so that chance alone makes steps bad once the detector is warm.
  const RunConfig config = tiny.config(
      "[train]\nslots = 4\nsequence = 32\nbatch_tokens = 128\nthreads = 1\ndtype = \"f32\"\n"
      "steps = 37\n[optimizer]\nlearning_rate = 1e-7\n"
      "[spike]\nsigma = 0.3\npolicy = \"rollback\"\nrollbacks_max = 100\n"
      "[checkpoint]\nevery_steps = 4\nkeep = 2\nmemory_every_steps = 1\n"
      "[parallel]\nexpert = 2\ndeadline_seconds = 60.0\n");
  const QuietRun quiet{config, 2, hash_alone(config)};
  const Passes passes;
  count_passes(passes, quiet);
  std::vector<Case> cases;
  for (size_t i = 0; i < kPlaces; ++i) {
    const std::string name(kFaultPlaces[i].name);
    for (int rank = 0; rank < 2 && is_of(name, {"rollback."}); ++rank) {
      const int times = passes.of(rank, i);
      EXPECT_GT(times, 0) << name;
      for (const Fate fate : {Fate::kDies, Fate::kStops}) {
        const int nth = some_pass(name, times, draw(1000));
        Case c{.state = name,
               .text = fmt::format("{} {}: rank {} {}", name, nth, rank, fate_name(fate)),
               .deaths = {}};
        c.deaths[static_cast<size_t>(rank)] = {Death{name, nth, fate}};
        cases.push_back(c);
      }
    }
  }
  walk(std::move(cases), 1, quiet);
}

// Rank 1 computes wrongly in two steps, of which the second is verified; what was stored after the first must not be
// taken up, though somebody is lost who was to remove it.
TEST_F(FaultMatrix, AnotherRankAtAnyStateOfADivergence) {
  RunConfig config = tiny.config(tiny.rich("bf16"));
  config.parallel.deadline_seconds = 60;
  config.checkpoint.every_steps = 100;
  config.checkpoint.memory_every_steps = 1;
  config.train.verify_every_steps = 3;
  const QuietRun quiet{config, 4, hash_alone(config)};
  std::vector<Case> cases;
  for (const std::string name : {"diverged.judged", "diverged.removed"}) {
    for (const int rank : {0, 2, 3}) {
      for (const Fate fate : {Fate::kDies, Fate::kStops}) {
        Case c{.state = name,
               .text = fmt::format("{}: rank {} {}", name, rank, fate_name(fate)),
               .deaths = {},
               .may_begin_again = true};  // rank 1 may have left as well
        c.deaths[1] = {Death{"step.slot_gradients", 2, Fate::kSpoils, 0.01, 4}};
        c.deaths[static_cast<size_t>(rank)] = {Death{name, 1, fate}};
        cases.push_back(c);
      }
    }
  }
  walk(std::move(cases), 1, quiet);
}

// All ranks are asked to stop; one is lost while they do. Nobody waits for a successor, who will not come: the others
// end with 18, and the same command goes on from what is whole.
TEST_F(FaultMatrix, AnyRankAtAnyStateOfAStop) {
  constexpr int kRanks = 2, kStopsAt = 3;
  RunConfig config = run_config();
  config.checkpoint.every_steps = 100;  // the save of the stop is the only one
  config.checkpoint.memory_every_steps = 0;
  const QuietRun quiet{config, kRanks, hash_alone(config)};
  const auto stop_and_lose = [&](Job& job, const Case& c) {
    job.on_point = [&job, votes = 0](int, const char* point) mutable {
      if (std::string_view(point) == "step.votes" && ++votes == kStopsAt) job.stop = SIGTERM;
    };
    for (int m = 0; m < kRanks; ++m) {
      const Deaths& mine = c.deaths[static_cast<size_t>(m)];
      job.start(m, mine.empty() ? Death{} : mine.front());
    }
    std::string problem;
    for (int m = 0; m < kRanks; ++m) {
      const bool is_lost = !c.deaths[static_cast<size_t>(m)].empty();
      if (is_lost && c.deaths[static_cast<size_t>(m)].front().fate == Fate::kStops)
        job.end_stopped({m});
    }
    for (int m = 0; m < kRanks; ++m) {
      const bool is_lost = !c.deaths[static_cast<size_t>(m)].empty();
      const int code = job.wait(m), want = is_lost ? -SIGKILL : exit_code(Code::kInterrupted);
      if (code != want)
        problem += fmt::format("member {} ended with {}, wanted {}\n{}", m, code, want, job.log(m));
    }
    return problem;
  };
  std::vector<Case> cases;
  for (const FaultPlace& place : kFaultPlaces) {
    // The save is not in the background, and nothing is there to be dropped for it.
    if (!is_of(place.name, {"stop.", "save.plan", "save.write", "save.hash", "save.commit"}))
      continue;
    for (int rank = 0; rank < kRanks; ++rank) {
      for (const Fate fate : {Fate::kDies, Fate::kStops}) {
        const std::string name(place.name);
        Case c{.state = name,
               .text = fmt::format("{} of a stop: rank {} {}", name, rank, fate_name(fate)),
               .deaths = {}};
        c.deaths[static_cast<size_t>(rank)] = {Death{name, 1, fate}};
        cases.push_back(c);
      }
    }
  }
  walk(std::move(cases), 3, [&](const Case& c) {
    const std::string name = fmt::format("stop{}", cases_++);
    Job job(tiny, name, quiet.config, kRanks), again(tiny, name, quiet.config, kRanks);
    std::string problem = stop_and_lose(job, c);
    const Kept kept = KeptJob(again, kRanks, {}, Stopped::kIsKilled).keep();
    problem += kept.why;
    for (int m = 0; m < kRanks && problem.empty(); ++m) {
      if (!again.said(m).starts_with(quiet.hash + " "))
        problem = fmt::format("member {} ends with '{}'\n{}", m, again.said(m), again.log(m));
    }
    std::filesystem::remove_all(again.out());
    return problem;
  });
}

}  // namespace
}  // namespace moraine
