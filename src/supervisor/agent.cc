// The loop of an agent: orders in, reports out.
#include "supervisor/agent.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <sstream>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/file_system.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/process_stat.h"
#include "supervisor/host_wire.h"
#include "supervisor/local_host.h"

namespace moraine {
namespace {

constexpr int64_t kMostRanks = 4096;
constexpr int kIn = 0, kOut = 1;
constexpr double kSignOfLifeSeconds = 0.25;

// Two agents of a host would both act.
void end_former(const std::string& path) {
  FileSystem& fs = posix_file_system();
  if (fs.exists(path)) {
    std::istringstream words(fs.read(path));
    int64_t pid = 0, started = 0;
    const bool is_there = (words >> pid >> started) && pid > 0 && process_start(pid) == started;
    if (is_there) ::kill(static_cast<pid_t>(pid), SIGKILL);
  }
  fs.write_atomic(path, fmt::format("{} {}\n", ::getpid(), process_start(::getpid())));
}

class Agent {
 public:
  explicit Agent(std::string folder) : folder_(std::move(folder)) {}

  void run() {
    tell(HostBack{0});
    while (is_heard_) {
      wait();
      if (!read_orders()) return;
      if (host_ == nullptr) continue;
      for (const HostReport& report : host_->take()) pass_on(report);
      if (now_seconds() - said_at_ > kSignOfLifeSeconds) tell(HostRead{sign_of_life()});
    }
  }

 private:
  HostReading sign_of_life() const {
    HostReading reading = read_oom_kills(posix_file_system(), {});
    reading.host = host_index_;
    return reading;
  }

  void wait() {
    std::vector<pollfd> polled = {{.fd = kIn, .events = POLLIN, .revents = 0}};
    if (host_ != nullptr) host_->add_descriptors(&polled);
    ::poll(polled.data(), polled.size(), pace_);
    has_input_ = polled[0].revents != 0;
  }

  // False: the supervisor is gone.
  bool read_orders() {
    if (!has_input_) return true;
    char bytes[64 << 10];
    const ssize_t n = ::read(kIn, bytes, sizeof bytes);
    if (n <= 0) return n < 0 && (errno == EINTR || errno == EAGAIN);
    lines_.add({bytes, static_cast<size_t>(n)});
    while (const auto line = lines_.take()) {
      std::string problem;
      const auto order = parse_order(*line, ranks_, &problem);
      if (order) {
        std::visit([this](const auto& o) { obey(o); }, *order);
      } else {
        log_event(Level::kWarning, "supervise.line_dropped", "line=\"{}\" reason=\"{}\"",
                  printable(*line, 256), printable(problem, 256));
      }
    }
    return true;
  }

  void obey(const BeginOrder& o) {
    if (::chdir(o.work_folder.c_str()) != 0)
      throw_error(Code::kNotFound, "supervise --agent: go to {}: {}", o.work_folder,
                  std::strerror(errno));
    ranks_ = o.ranks;
    host_index_ = static_cast<int>(o.host);
    constexpr double kSensorSeconds = 5;
    const HostSensing sensing = {.seconds = kSensorSeconds,
                                 .sensors = {.run_folder = folder_, .memory_folder = "/dev/shm"}};
    host_ = std::make_unique<LocalHost>(folder_, static_cast<int>(o.ranks), host_index_, sensing);
    beats_.assign(static_cast<size_t>(o.ranks), "");
    host_->begin(o.there);
  }
  void obey(const StartOrder& o) {
    if (host_ != nullptr && !o.words.empty()) host_->start(o.rank, o.start, o.words);
  }
  void obey(const SignalOrder& o) {
    if (host_ != nullptr) host_->signal(o.rank, o.signal);
  }
  void obey(const PaceOrder& o) { pace_ = std::clamp(o.milliseconds, 1, 1000); }

  void pass_on(const HostReport& report) {
    if (std::holds_alternative<HostBack>(report)) return;  // said already
    if (const auto* e = std::get_if<RankBeat>(&report)) {
      RankBeat said = *e;  // but for what grows by itself
      said.beat.met_ago = said.beat.loaded_ago = said.beat.computed_ago = -1;
      std::string line = report_line(said);
      std::string& last = beats_[static_cast<size_t>(e->rank)];
      if (line == last) return;
      last = std::move(line);
      write(report_line(report));
      return;
    }
    tell(report);
  }
  void tell(const HostReport& report) { write(report_line(report)); }
  void write(std::string_view line) {
    said_at_ = now_seconds();
    while (!line.empty() && is_heard_) {
      const ssize_t n = ::write(kOut, line.data(), line.size());
      if (n < 0 && errno != EINTR) is_heard_ = false;
      if (n > 0) line.remove_prefix(static_cast<size_t>(n));
    }
  }

  const std::string folder_;
  std::unique_ptr<LocalHost> host_;
  WireLines lines_;
  std::vector<std::string> beats_;  // what was said last
  int64_t ranks_ = kMostRanks;
  int host_index_ = 0, pace_ = 200;
  double said_at_ = 0;
  bool is_heard_ = true, has_input_ = false;
};

}  // namespace

void run_agent(const std::string& folder) {
  ::signal(SIGPIPE, SIG_IGN);
  posix_file_system().make_directories(folder);
  end_former(join_path(folder, "agent.pid"));
  Agent(folder).run();
}

}  // namespace moraine
