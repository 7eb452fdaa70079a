// The loop of a supervisor: poll, events, effects.
#include "supervisor/supervise.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include <fmt/ranges.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file_lock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/printable.h"
#include "supervisor/local_host.h"
#include "supervisor/policy.h"
#include "supervisor/remote_host.h"
#include "supervisor/run_view.h"
#include "supervisor/state_json.h"
#include "supervisor/supervisor.h"

namespace moraine {
namespace {

constexpr int kCalmMilliseconds = 200, kBusyMilliseconds = 20;
constexpr double kSaveSeconds = 5;        // the state, where nothing was decided
constexpr double kOneRequestSeconds = 1;  // launchers signal a process and its group

// The rank that a report is about; -1: of none.
int rank_of(const HostReport& report) {
  return std::visit(
      [](const auto& one) {
        if constexpr (requires { one.rank; }) return one.rank;
        return -1;
      },
      report);
}

// The rank whose process is known to be there, or not; -1: the report is about something else.
int started_or_ended(const HostReport& report) {
  const bool says_so = std::holds_alternative<RankStarted>(report) ||
                       std::holds_alternative<RankEnded>(report) ||
                       std::holds_alternative<RankStartFailed>(report);
  return says_so ? rank_of(report) : -1;
}

std::string with_host(std::string word, const std::string& host) {
  const size_t place = word.find(kHostPlace);
  if (place != std::string::npos) word.replace(place, std::strlen(kHostPlace), host);
  return word;
}

// Below those that the system gives to connections: one of them could have it by the time rank 0 listens.
int free_port() {
  constexpr int kFirst = 20000, kPorts = 12000, kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    const int port = kFirst + (::getpid() * 31 + i * 7) % kPorts;
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    const bool ok =
        fd >= 0 && ::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    if (fd >= 0) ::close(fd);
    if (ok) return port;
  }
  throw_error(Code::kIo, "supervise: no free port on 127.0.0.1");
}

// Signals that ask for the end come to a descriptor for as long as this is there.
class StopSignals {
 public:
  StopSignals() {
    ::sigemptyset(&signals_);
    for (const int signal : {SIGTERM, SIGINT}) ::sigaddset(&signals_, signal);
    struct sigaction now {};
    ::sigaction(SIGHUP, nullptr, &now);
    if (now.sa_handler != SIG_IGN) ::sigaddset(&signals_, SIGHUP);  // nohup
    ::sigprocmask(SIG_BLOCK, &signals_, &before_);
    fd_ = ::signalfd(-1, &signals_, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd_ < 0) throw_error(Code::kIo, "supervise: no descriptor for signals");
  }
  ~StopSignals() {
    ::close(fd_);
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  int fd() const { return fd_; }
  int take() {  // 0: none
    signalfd_siginfo info{};
    return ::read(fd_, &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  sigset_t signals_{}, before_{};
  int fd_ = -1;
};

// Whether all that is an index or a name in a state that was read is one.
bool is_sound(const SupervisedRun& run, size_t hosts) {
  const auto is_of = [](int64_t index, size_t count) {
    return index >= 0 && index < static_cast<int64_t>(count);
  };
  const size_t ranks = run.ranks.size();
  const auto is_fault = [](RunFault fault) {
    return static_cast<size_t>(fault) < policy_table().size();
  };
  const auto is_incident = [&](const Incident& i) {
    return is_fault(i.fault) && i.level <= RecoveryLevel::kStop &&
           (i.rank == -1 || is_of(i.rank, ranks));
  };
  return ranks > 0 && run.hosts.size() == hosts && run.watch.ranks.size() == ranks &&
         run.phase <= RunPhase::kOver &&
         std::all_of(run.ranks.begin(), run.ranks.end(),
                     [&](const RankStatus& r) {
                       return r.phase <= RankPhase::kAbsent && is_of(r.host, hosts) &&
                              is_fault(r.killed_for);
                     }) &&
         std::all_of(
             run.hosts.begin(), run.hosts.end(),
             [&](const HostRecord& h) { return h.successor == -1 || is_of(h.successor, hosts); }) &&
         std::all_of(run.open.begin(), run.open.end(), is_incident) &&
         std::all_of(run.over.begin(), run.over.end(), is_incident) &&
         std::all_of(run.readings.begin(), run.readings.end(),
                     [&](const HostReading& r) { return is_of(r.host, hosts); });
}

std::vector<std::string> agent_words(const SuperviseOptions& o, const std::string& host,
                                     const std::string& folder) {
  std::vector<std::string> words = o.launch;
  for (std::string& word : words) word = with_host(word, host);
  for (const std::string& word :
       {o.program, std::string("supervise"), std::string("--agent"), std::string("--out"), folder})
    words.push_back(word);
  return words;
}

class SuperviseLoop {
 public:
  SuperviseLoop(FileSystem& fs, const SupervisePlan& plan)
      : fs_(fs),
        plan_(plan),
        lock_(FileLock::take(plan.folder, fmt::format("supervise in {}", plan.folder))),
        view_(fs, plan.folder, plan.show) {}

  SuperviseResult run() {
    if (!restore()) begin();
    while (!supervisor_->is_over()) {
      wait();
      take_signals();
      take_reports();
      tell(TimePassed{});
      view_.show(now_seconds(), supervisor_->run());
      if (now_seconds() - saved_at_ > kSaveSeconds) save();
    }
    take_reports();
    view_.end(now_seconds(), supervisor_->run(),
              fmt::format("exit {}: {}", result_.exit_code, result_.reason));
    return result_;
  }

 private:
  std::string at(const char* name) const { return join_path(plan_.folder, name); }

  void open_hosts(const std::vector<std::string>& names, size_t ranks) {
    hosts_.clear();
    offsets_.assign(ranks, {});
    for (size_t h = 0; h < names.size(); ++h) {
      const int index = static_cast<int>(h), count = static_cast<int>(ranks);
      const std::string folder = join_path(plan_.folder, fmt::format("on-{}", names[h]));
      if (is_this_host(names[h])) {
        const HostSensing sensing = {
            .seconds = plan_.show.sensor_seconds,
            .sensors = {.run_folder = plan_.folder, .memory_folder = plan_.show.memory_folder}};
        hosts_.push_back(std::make_unique<LocalHost>(plan_.folder, count, index, sensing));
      } else {
        hosts_.push_back(std::make_unique<RemoteHost>(
            RemoteHost::Options{.name = names[h],
                                .host = index,
                                .ranks = count,
                                .words = agent_words(plan_.options, names[h], folder),
                                .folder = folder,
                                .work_folder = std::filesystem::current_path().string(),
                                .seconds = plan_.options.host_seconds}));
      }
    }
  }

  void begin() {
    SuperviseOptions options = plan_.options;
    const std::string path = at("ledger.jsonl");
    if (fs_.exists(path)) {
      for (const LedgerEntry& e : read_ledger(fs_.read(path), path))
        options.first_incident = std::max(options.first_incident, e.id + 1);
    }
    port_ = options.ranks > 1 && options.rendezvous.empty() ? free_port() : 0;
    open_hosts(options.hosts, processes());
    supervisor_ = std::make_unique<Supervisor>(now_seconds(), options);
    log_event(Level::kInfo, "supervise.started", "ranks={} folder=\"{}\"", options.ranks,
              plan_.folder);
    take_reports();
    tell(TimePassed{});
  }

  // What a supervisor has left.
  struct Left {
    Json state;  // the supervisor's own part
    Json view = Json::object();
    SupervisedRun run;
    std::vector<std::string> names = {"localhost"};  // of the hosts
    std::vector<FollowedRank> offsets;
    int port = 0;
  };
  Left read_left() const {
    const std::string path = at("state.json");
    const Json state = parse_json(fs_.read(path), path);
    Left left;
    left.state = state.at("run");
    state_from_json(left.state, &left.run);
    if (state.contains("hosts")) left.names = state.at("hosts").get<std::vector<std::string>>();
    if (!is_sound(left.run, left.names.size()))
      throw_error(Code::kCorrupt, "read {}: no state of a supervisor", path);
    left.offsets.resize(left.run.ranks.size());
    for (size_t r = 0; r < left.offsets.size(); ++r)
      left.offsets[r].log_offset = state.at("logs").at(r).get<int64_t>();
    left.offsets[0].out_offset = state.at("out").get<int64_t>();
    if (state.contains("view")) left.view = state.at("view");
    UsefulTime known;  // refused here if it is none
    state_from_json(left.view, &known);
    left.port = static_cast<int>(state.at("port").get<int64_t>());
    return left;
  }

  // Goes on from what a supervisor left that did not see the end; false: there is nothing to go on with.
  bool restore() {
    if (!fs_.exists(at("state.json"))) return false;
    Left left;
    try {
      left = read_left();
    } catch (const Error& e) {  // what it had started is ended by its files
      log_event(Level::kWarning, "supervise.state_failed", "reason=\"{}\"", e.what());
      return false;
    }
    const SupervisedRun& run = left.run;
    const std::vector<std::string>& names = left.names;
    if (run.phase == RunPhase::kOver) return false;
    open_hosts(names, run.ranks.size());
    offsets_ = left.offsets;
    const std::vector<HostReport> found = find_ranks(run);
    const bool any_alive = std::any_of(found.begin(), found.end(), [](const HostReport& r) {
      return std::holds_alternative<RankStarted>(r);
    });
    if (run.ranks.size() != processes() || names != plan_.options.hosts) {
      if (!any_alive) return false;
      throw_error(
          Code::kInvalidArgument,
          "supervise: {} has a run of {} ranks on {} that is alive; wanted the same, not {} "
          "on {}",
          plan_.folder, run.ranks.size(), fmt::join(names, ","), processes(),
          fmt::join(plan_.options.hosts, ","));
    }
    if (run.phase == RunPhase::kStopping && !any_alive) return false;
    port_ = left.port;
    view_.go_on(left.view);
    supervisor_ = std::make_unique<Supervisor>(now_seconds(), plan_.options, left.state);
    log_event(Level::kInfo, "supervise.found", "ranks={} alive={} step={}", run.ranks.size(),
              any_alive, supervisor_->run().step);
    for (const HostReport& report : found) take_known(report);
    return true;
  }
  size_t processes() const { return static_cast<size_t>(plan_.options.ranks); }

  // The processes that `run` has on a host.
  std::vector<FollowedRank> followed(const SupervisedRun& run, int host) const {
    std::vector<FollowedRank> there;
    for (int r = 0; r < static_cast<int>(run.ranks.size()); ++r) {
      const RankStatus& rank = run.ranks[static_cast<size_t>(r)];
      const bool is_there = rank.phase == RankPhase::kStarting || rank.phase == RankPhase::kRunning;
      if (!is_there || rank.host != host) continue;
      FollowedRank& one = there.emplace_back(offsets_[static_cast<size_t>(r)]);
      one.rank = r;
      one.start = rank.starts - 1;
    }
    return there;
  }

  void find_ranks_of(int h, const SupervisedRun& run, std::vector<HostReport>* found) {
    Host& host = *hosts_[static_cast<size_t>(h)];
    for (HostReport& report : host.take()) {
      if (std::holds_alternative<HostBack>(report)) host.begin(followed(run, h));
      found->push_back(std::move(report));
    }
  }

  // What hosts say of the ranks that were there, as far as they can be reached.
  std::vector<HostReport> find_ranks(const SupervisedRun& run) {
    std::vector<HostReport> found;
    const double end = now_seconds() + plan_.options.host_seconds;
    std::set<int> missing;
    for (int h = 0; h < static_cast<int>(hosts_.size()); ++h)
      for (const FollowedRank& r : followed(run, h)) missing.insert(r.rank);
    while (!missing.empty() && now_seconds() < end) {
      for (int h = 0; h < static_cast<int>(hosts_.size()); ++h) find_ranks_of(h, run, &found);
      for (const HostReport& report : found) missing.erase(started_or_ended(report));
      if (!missing.empty())
        std::this_thread::sleep_for(std::chrono::milliseconds(kBusyMilliseconds));
    }
    return found;
  }

  void wait() {
    std::vector<pollfd> polled = {{.fd = signals_.fd(), .events = POLLIN, .revents = 0}};
    const int pace = supervisor_->has_open_incident() ? kBusyMilliseconds : kCalmMilliseconds;
    for (const auto& host : hosts_) {
      host->set_pace(pace);
      host->add_descriptors(&polled);
    }
    view_.add_descriptors(&polled);
    const bool has_started = std::exchange(has_started_, false);  // and it may be known already how
    ::poll(polled.data(), polled.size(), has_started ? 0 : pace);
  }

  void take_signals() {
    while (const int signal = signals_.take()) {
      const double now = now_seconds();
      if (asked_at_ >= 0 && now - asked_at_ < kOneRequestSeconds) continue;
      asked_at_ = now;
      tell(StopAsked{signal});
    }
  }

  // Spares, which are the last, before those that they are for: one that is silent too is none.
  void take_reports() {
    for (int h = static_cast<int>(hosts_.size()) - 1; h >= 0; --h) {
      Host& host = *hosts_[static_cast<size_t>(h)];
      for (const HostReport& report : host.take()) {
        if (!is_of(h, report)) continue;
        if (std::holds_alternative<HostBack>(report)) host.begin(followed(supervisor_->run(), h));
        take_known(report);
      }
    }
  }

  // Who was cut off may still tell of ranks that are elsewhere by now.
  bool is_of(int h, const HostReport& report) const {
    const int rank = rank_of(report);
    if (rank < 0) return true;
    const SupervisedRun& run = supervisor_->run();
    return run.ranks[static_cast<size_t>(rank)].host == h && !has_lost(run, h);
  }
  // A host that was left out because a part of it fails has its ranks until they have ended.
  static bool has_lost(const SupervisedRun& run, int h) {
    const HostRecord& host = run.hosts[static_cast<size_t>(h)];
    return host.lost && host.silent;
  }

  void take_known(const HostReport& report) {
    if (const auto* e = std::get_if<RankStarted>(&report)) tell(*e);
    if (const auto* e = std::get_if<RankStartFailed>(&report)) tell(*e);
    if (const auto* e = std::get_if<RankEnded>(&report)) tell(*e);
    if (const auto* e = std::get_if<RankBeat>(&report)) tell(*e);
    if (const auto* e = std::get_if<RankText>(&report)) take_text(*e);
    if (const auto* e = std::get_if<HostLost>(&report)) tell(*e);
    if (const auto* e = std::get_if<HostBack>(&report)) tell(*e);
    if (const auto* e = std::get_if<HostRead>(&report)) tell(*e);
  }

  void take_text(const RankText& t) {
    FollowedRank& offsets = offsets_[static_cast<size_t>(t.rank)];
    (t.is_out ? offsets.out_offset : offsets.log_offset) = t.offset;
    if (t.text.empty()) return;
    if (t.is_out) return plan_.on_out(t.text);
    if (t.rank == 0) plan_.on_log(t.text);
    for (size_t begin = 0; begin < t.text.size();) {
      const size_t end = std::min(t.text.find('\n', begin), t.text.size());
      const std::string_view line = std::string_view(t.text).substr(begin, end - begin);
      if (const auto event = parse_log_line(line)) tell(RankLogged{t.rank, *event});
      begin = end + 1;
    }
  }

  // The ledger first: an incident may be told twice, but not be lost. Then the state, then what it says is done.
  void tell(const RunEvent& event) {
    view_.hear(event);
    const std::vector<RunEffect> effects = supervisor_->handle(now_seconds(), event);
    for (const RunEffect& effect : effects) {
      view_.see(now_seconds(), effect);
      if (const auto* e = std::get_if<WriteLedger>(&effect)) write_ledger(e->entry);
      if (const auto* e = std::get_if<WriteLog>(&effect)) log_line(e->level, e->name, e->fields);
    }
    if (!effects.empty()) save();
    for (const RunEffect& effect : effects) act(effect);
  }

  std::string rendezvous() const {
    if (plan_.options.rendezvous.empty()) return fmt::format("127.0.0.1:{}", port_);
    const int64_t host = supervisor_->run().ranks[0].host;
    const std::string& name = plan_.options.hosts[static_cast<size_t>(host)];
    return with_host(plan_.options.rendezvous, name.substr(name.find('@') + 1));
  }

  void act(const RunEffect& effect) {
    if (const auto* e = std::get_if<StartRank>(&effect)) {
      has_started_ = true;
      hosts_[static_cast<size_t>(e->host)]->start(e->rank, e->start,
                                                  plan_.words(e->rank, rendezvous()));
    } else if (const auto* s = std::get_if<SignalRank>(&effect)) {
      const int64_t host = supervisor_->run().ranks[static_cast<size_t>(s->rank)].host;
      hosts_[static_cast<size_t>(host)]->signal(s->rank, s->signal);
    } else if (const auto* f = std::get_if<FinishRun>(&effect)) {
      result_ = {f->exit_code, f->reason};
    }
  }

  void write_ledger(const LedgerEntry& entry) {
    try {
      append_to_ledger(fs_, at("ledger.jsonl"), entry, unix_seconds() - now_seconds());
    } catch (const Error& e) {
      log_event(Level::kWarning, "supervise.ledger_failed", "entry=\"{}\" reason=\"{}\"",
                printable(ledger_line(entry)), e.what());
    }
  }

  void save() {
    Json logs = Json::array();
    for (const FollowedRank& r : offsets_) logs.push_back(r.log_offset);
    saved_at_ = now_seconds();
    try {
      fs_.write_atomic(at("state.json"),
                       json_text(Json::object({{"port", port_},
                                               {"logs", logs},
                                               {"out", offsets_[0].out_offset},
                                               {"hosts", plan_.options.hosts},
                                               {"view", view_.left()},
                                               {"run", supervisor_->save(saved_at_)}}),
                                 1));
      save_failed_ = false;
    } catch (const Error& e) {
      if (!save_failed_)
        log_event(Level::kWarning, "supervise.state_failed", "reason=\"{}\"", e.what());
      save_failed_ = true;
    }
  }

  FileSystem& fs_;
  const SupervisePlan& plan_;
  const std::unique_ptr<FileLock> lock_;
  StopSignals signals_;
  RunView view_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<FollowedRank> offsets_;  // of each rank's files, where it is now
  std::unique_ptr<Supervisor> supervisor_;
  SuperviseResult result_;
  int port_ = 0;
  double asked_at_ = -1, saved_at_ = 0;
  bool save_failed_ = false, has_started_ = false;
};

}  // namespace

SuperviseResult supervise(FileSystem& fs, const SupervisePlan& plan) {
  ::signal(SIGPIPE, SIG_IGN);  // of an agent, or of who reads the log, that is gone
  fs.make_durable_directories(plan.folder);
  return SuperviseLoop(fs, plan).run();
}

}  // namespace moraine
