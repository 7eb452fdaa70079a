// A launcher with two pipes, and what goes through them.
#include "supervisor/remote_host.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <iterator>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/file_system.h"
#include "base/log.h"
#include "base/printable.h"
#include "supervisor/child.h"

namespace moraine {
namespace {

constexpr double kDelay = 0.2, kDelayMax = 5;
constexpr double kLookSeconds = 1;  // between two looks, or this process did not run
constexpr int kMostDropped = 5;     // lines of an agent that are told
constexpr double kEndSeconds = 1;   // for an agent that is not needed any more

std::string log_path(const std::string& folder) { return join_path(folder, "agent.log"); }

int64_t bytes_of(const std::string& path) {
  FileSystem& fs = posix_file_system();
  return fs.exists(path) ? fs.file_bytes(path) : 0;
}

void close_one(int* fd) {
  if (*fd >= 0) ::close(*fd);
  *fd = -1;
}

}  // namespace

RemoteHost::RemoteHost(Options options)
    : options_(std::move(options)),
      heard_at_(now_seconds()),
      looked_at_(heard_at_),
      log_(log_path(options_.folder), bytes_of(log_path(options_.folder))) {
  posix_file_system().make_directories(options_.folder);
}

// An agent ends when it is not spoken to any more.
RemoteHost::~RemoteHost() {
  close_one(&in_);
  const double end = now_seconds() + kEndSeconds;
  while (launcher_ > 0 && now_seconds() < end) {
    if (::waitpid(launcher_, nullptr, WNOHANG) != 0) launcher_ = 0;
    if (launcher_ > 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  hang_up(end);
}

void RemoteHost::launch(double now) {
  int in[2], out[2], failure[2];
  if (::pipe2(in, O_CLOEXEC) != 0) return;
  if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(failure, O_CLOEXEC) != 0)
    throw_error(Code::kIo, "supervise: no pipe to host {}: {}", options_.name,
                std::strerror(errno));
  launched_at_ = now;
  launcher_ = ::fork();
  if (launcher_ == 0) {
    ::setsid();
    restore_signals();
    move_to(in[0], 0);
    move_to(out[1], 1);
    move_to(::open(log_path(options_.folder).c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644), 2);
    become(options_.words, failure[1]);
  }
  for (const int fd : {in[0], out[1], failure[1]}) ::close(fd);
  in_ = in[1], out_ = out[0];
  int error = 0;
  if (launcher_ > 0 && ::read(failure[0], &error, sizeof error) == sizeof error)
    end_ = fmt::format("start {}: {}", options_.words[0], std::strerror(error));
  ::close(failure[0]);
  for (const int fd : {in_, out_}) ::fcntl(fd, F_SETFL, O_NONBLOCK);
  dropped_ = 0;
  if (error != 0 || launcher_ < 0) hang_up(now);
}

void RemoteHost::hang_up(double now) {
  close_one(&in_);
  close_one(&out_);
  int status = 0;
  if (launcher_ > 0) {
    // One that has closed its output is about to end, and says how.
    for (int times = 0; times < 20 && launcher_ > 0; ++times) {
      if (::waitpid(launcher_, &status, WNOHANG) != 0) {
        launcher_ = 0;
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    }
    if (launcher_ > 0) {
      ::kill(-launcher_, SIGKILL);
      ::kill(launcher_, SIGKILL);
      ::waitpid(launcher_, &status, 0);
    }
    end_ = WIFSIGNALED(status)
               ? fmt::format("{} ended by signal {}", options_.words[0], WTERMSIG(status))
               : fmt::format("{} ended with exit code {}", options_.words[0], WEXITSTATUS(status));
  }
  launcher_ = 0;
  is_ready_ = false;
  to_send_.clear();
  lines_ = {};
  due_ = now + delay_;
  delay_ = std::min(std::max(kDelay, 2 * delay_), kDelayMax);
}

void RemoteHost::begin(const std::vector<FollowedRank>& there) {
  std::vector<FollowedRank> started;
  const auto waits = [this](int rank) {
    return std::any_of(to_start_.begin(), to_start_.end(),
                       [rank](const StartOrder& o) { return o.rank == rank; });
  };
  const auto is_there = [&there](int rank) {
    return std::any_of(there.begin(), there.end(),
                       [rank](const FollowedRank& r) { return r.rank == rank; });
  };
  std::copy_if(there.begin(), there.end(), std::back_inserter(started),
               [&](const FollowedRank& r) { return !waits(r.rank); });
  is_ready_ = true;
  order(BeginOrder{.work_folder = options_.work_folder,
                   .ranks = options_.ranks,
                   .host = options_.host,
                   .there = started});
  order(PaceOrder{pace_});
  // Orders to ranks that went elsewhere meanwhile are void.
  for (const StartOrder& o : std::exchange(to_start_, {})) {
    if (is_there(o.rank)) order(o);
  }
  for (const SignalOrder& o : std::exchange(to_signal_, {})) {
    if (is_there(o.rank)) order(o);
  }
  std::erase_if(to_kill_, [&](int rank) { return !is_there(rank); });
  for (const int rank : to_kill_) order(SignalOrder{rank, SIGKILL});
}

void RemoteHost::start(int rank, int64_t start, const std::vector<std::string>& words) {
  to_kill_.erase(rank);
  const StartOrder o = {rank, start, words};
  if (is_ready_) return order(o);
  std::erase_if(to_start_, [rank](const StartOrder& other) { return other.rank == rank; });
  to_start_.push_back(o);
}

void RemoteHost::signal(int rank, int signal) {
  if (signal == SIGKILL) to_kill_.insert(rank);
  if (is_ready_) return order(SignalOrder{rank, signal});
  to_signal_.push_back({rank, signal});
}

void RemoteHost::set_pace(int milliseconds) {
  if (pace_ == milliseconds) return;
  pace_ = milliseconds;
  if (is_ready_) order(PaceOrder{pace_});
}

void RemoteHost::order(const HostOrder& order) {
  to_send_ += order_line(order);
  send();
}

void RemoteHost::send() {
  while (in_ >= 0 && !to_send_.empty()) {
    const ssize_t n = ::write(in_, to_send_.data(), to_send_.size());
    if (n <= 0) return;  // its end is seen where its words are read
    to_send_.erase(0, static_cast<size_t>(n));
  }
}

void RemoteHost::add_descriptors(std::vector<pollfd>* polled) const {
  if (out_ >= 0) polled->push_back({.fd = out_, .events = POLLIN, .revents = 0});
  if (in_ >= 0 && !to_send_.empty())
    polled->push_back({.fd = in_, .events = POLLOUT, .revents = 0});
}

// False: there is nothing more to come.
bool RemoteHost::receive() {
  constexpr size_t kMost = 4 << 20;  // then others have their turn
  std::string bytes(64 << 10, '\0');
  for (size_t all = 0; all < kMost;) {
    const ssize_t n = ::read(out_, bytes.data(), bytes.size());
    if (n == 0) return false;
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    lines_.add({bytes.data(), static_cast<size_t>(n)});
    all += static_cast<size_t>(n);
  }
  return true;
}

void RemoteHost::hear(const std::string& line, double now) {
  std::string problem;
  std::optional<HostReport> report = parse_report(line, options_.ranks, &problem);
  const bool is_hello = report && std::holds_alternative<HostBack>(*report);
  if (report && !is_ready_ && !is_hello) problem = "before its hello";
  if (report && std::holds_alternative<HostLost>(*report)) problem = "not its word to say";
  if (!problem.empty()) {
    if (++dropped_ <= kMostDropped)
      log_event(Level::kWarning, "supervise.line_dropped", "host={} line=\"{}\" reason=\"{}\"",
                options_.name, printable(line, 256), printable(problem, 256));
    return;
  }
  heard_at_ = now;
  if (is_hello) {
    delay_ = 0;
    reports_.emplace_back(HostBack{options_.host});
    return;
  }
  if (auto* e = std::get_if<HostRead>(&*report)) e->reading.host = options_.host;
  if (const auto* e = std::get_if<RankEnded>(&*report)) to_kill_.erase(e->rank);
  reports_.push_back(std::move(*report));
}

std::string RemoteHost::why_silent(double now) {
  log_.read();
  std::string text = fmt::format("no word for {:.1f} s", now - heard_at_);
  if (!end_.empty()) text += fmt::format("; {}", end_);
  const std::vector<std::string> lines = log_.last_lines();
  if (!lines.empty()) text += fmt::format("; {}", lines.back());
  return text;
}

std::vector<HostReport> RemoteHost::take() {
  const double now = now_seconds();
  if (now - looked_at_ > kLookSeconds) heard_at_ = std::min(now, heard_at_ + now - looked_at_);
  looked_at_ = now;
  if (launcher_ == 0 && now >= due_) launch(now);
  if (launcher_ > 0) {
    const bool goes_on = receive();
    while (const auto line = lines_.take()) {
      hear(*line, now);
      // Who is told of a hello answers it before the next line is looked at.
      if (!is_ready_ && !reports_.empty()) return std::exchange(reports_, {});
    }
    send();
    const bool is_mute = now - std::max(heard_at_, launched_at_) > options_.seconds / 2;
    if (!goes_on || is_mute) hang_up(now);
  }
  if (now - heard_at_ > options_.seconds)
    reports_.emplace_back(HostLost{options_.host, why_silent(now), heard_at_});
  return std::exchange(reports_, {});
}

}  // namespace moraine
