// Chaos: one child that supervises, faults while it does, and both ends compared.
#include "chaos/chaos.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/asked_flip.h"
#include "base/child_process.h"
#include "base/clock.h"
#include "base/error.h"
#include "chaos/damage.h"

namespace moraine {
namespace {

constexpr double kTickSeconds = 0.01;

// "hash=..." of the last line `done ...`; "": there is none.
std::string hash_in(FileSystem& fs, const std::string& path) {
  if (!fs.exists(path)) return "";
  const std::string text = fs.read(path), key = " hash=";
  const size_t line = text.rfind("done step=");
  const size_t at = line == std::string::npos ? line : text.find(key, line);
  if (at == std::string::npos) return "";
  return text.substr(at + key.size(), text.find_first_of(" \n", at + 1) - at - key.size());
}

std::vector<std::string> words_of(const ChaosOptions& o, const char* command,
                                  const std::string& out) {
  std::vector<std::string> words = {o.program, command, "--out", out};
  words.insert(words.end(), o.train.begin(), o.train.end());
  return words;
}

std::string quiet_hash(FileSystem& fs, const ChaosOptions& o) {
  if (!o.quiet_hash.empty()) return o.quiet_hash;
  const std::string log = join_path(o.out, "quiet");
  const double begin = now_seconds();
  std::vector<std::string> words = words_of(o, "train", join_path(o.out, "quiet"));
  words.insert(words.end(), o.quiet.begin(), o.quiet.end());
  ChildProcess quiet(words, log);
  const int code = quiet.wait();
  const std::string hash = hash_in(fs, log + ".out");
  if (code != 0 || hash.empty())
    throw_error(Code::kInvalidArgument,
                "chaos: the quiet run ended with exit code {}, as {}.err says; wanted a run that "
                "ends well by itself",
                code, log);
  o.tell(fmt::format("quiet run: {:.1f} s, hash {}", now_seconds() - begin, hash));
  return hash;
}

// The supervised run, with faults.
class Storm {
 public:
  Storm(FileSystem& fs, const ChaosOptions& o)
      : fs_(fs),
        o_(o),
        out_(join_path(o.out, "storm")),
        links_(o.links > 0 ? std::make_unique<CutLinks>(o.links) : nullptr),
        damage_(fs, {.run = out_,
                     .memory_base = o.memory_base,
                     .links = links_.get(),
                     .link_count = o.links}) {
    if (links_ == nullptr) return;
    if (!links_->problem().empty())
      throw_error(Code::kInvalidArgument, "chaos --links {}: {}", o.links, links_->problem());
    setenv("MORAINE_HOST_MEMORY", "network", 1);
  }

  ChaosResult run() {
    ChaosResult result;
    const double begin = now_seconds();
    start();
    double due = begin;
    for (const PlannedFault& fault : plan_faults(o_.plan)) {
      due = std::max(due, now_seconds()) + fault.after;
      if (!pass_until(due)) break;
      result.faults.push_back(inject(fault));
      const InjectedFault& done = result.faults.back();
      o_.tell(fmt::format("{:8.1f} s  {:<16} {}{}", now_seconds() - begin, chaos_name(fault.fault),
                          done.was_done ? "" : "not done: ", done.note));
    }
    pass_until(-1);
    result.storm_seconds = now_seconds() - begin;
    result.storm_hash = hash_in(fs_, join_path(o_.out, "storm.out"));
    if (result.storm_hash.empty())
      throw_error(Code::kPeerLost,
                  "chaos: the supervised run ended with exit code {} and without a result; {}.err "
                  "and {}/supervise say why",
                  supervisor_->wait(), join_path(o_.out, "storm"), out_);
    return result;
  }

 private:
  void start() {
    setenv(kFlipsVariable, "1", 1);
    std::vector<std::string> words = words_of(o_, "supervise", out_);
    words.insert(words.end(), o_.supervise.begin(), o_.supervise.end());
    for (const std::string& assignment : host_assignments()) {
      words.emplace_back("--set");
      words.push_back(assignment);
    }
    words.insert(words.end(), {"--ranks", fmt::format("{}", o_.plan.ranks)});
    supervisor_ = std::make_unique<ChildProcess>(words, join_path(o_.out, "storm"));
  }

  // Of the two hosts, which are entered by the files of their namespaces.
  std::vector<std::string> host_assignments() const {
    if (links_ == nullptr) return {};
    std::string rails;
    for (int link = 0; link < o_.links; ++link)
      rails += fmt::format("{}\"10.77.{}.0/24\"", link == 0 ? "" : ", ", link);
    const std::string enter =
        fmt::format("case {{host}} in a) n={};; *) n={};; esac; exec nsenter --net=$n \\\"$@\\\"",
                    links_->file_of(0), links_->file_of(1));
    return {"supervise.hosts=[\"a\", \"b\"]",
            fmt::format("supervise.launch=[\"sh\", \"-c\", \"{}\", \"sh\"]", enter),
            "supervise.rendezvous=10.77.0.1:7070", fmt::format("parallel.rails=[{}]", rails),
            "checkpoint.memory_every_steps=0"};
  }

  // False: the run has ended. -1: until it has.
  bool pass_until(double due) {
    while (due < 0 || now_seconds() < due) {
      damage_.tick();
      if (supervisor_->has_ended()) return false;
      std::this_thread::sleep_for(std::chrono::duration<double>(kTickSeconds));
    }
    return true;
  }

  InjectedFault inject(const PlannedFault& fault) {
    InjectedFault done = damage_.inject(fault);
    if (fault.fault != ChaosFault::kKillSupervisor) return done;
    supervisor_->kill(SIGKILL);
    supervisor_->wait();
    start();
    done.was_done = true;
    done.note = "started again at once";
    return done;
  }

  FileSystem& fs_;
  const ChaosOptions& o_;
  const std::string out_;
  const std::unique_ptr<CutLinks> links_;
  Damage damage_;
  std::unique_ptr<ChildProcess> supervisor_;
};

}  // namespace

bool ChaosResult::has_tested() const {
  return std::any_of(faults.begin(), faults.end(),
                     [](const InjectedFault& fault) { return fault.was_done; });
}

ChaosResult run_chaos(FileSystem& fs, const ChaosOptions& o) {
  fs.make_directories(o.out);
  if (fs.exists(join_path(o.out, "storm")))
    throw_error(Code::kInvalidArgument,
                "chaos: {} holds an earlier storm; remove it or choose another --out", o.out);
  const std::string quiet = quiet_hash(fs, o);
  ChaosResult result = Storm(fs, o).run();
  result.quiet_hash = quiet;
  const std::string ledger = join_path(o.out, "storm/supervise/ledger.jsonl");
  const std::vector<LedgerEntry> entries =
      fs.exists(ledger) ? read_ledger(fs.read(ledger), ledger) : std::vector<LedgerEntry>();
  for (const LedgerEntry& entry : entries) result.lost_seconds += entry.seconds_lost;
  result.rows = chaos_rows(result.faults, entries);
  return result;
}

}  // namespace moraine
