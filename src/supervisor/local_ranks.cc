// Processes by fork, pidfd and the files that they leave.
#include "supervisor/local_ranks.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/clock.h"
#include "base/error.h"
#include "base/file_system.h"
#include "base/process_stat.h"
#include "supervisor/child.h"

namespace moraine {
namespace {

int open_pidfd(int64_t pid) {
  return static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0));
}

void write_pid(const std::string& path, int64_t start) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return;  // a full disk: the process is not found again
  const std::string text = fmt::format("{} {} {}\n", ::getpid(), process_start(::getpid()), start);
  if (::write(fd, text.data(), text.size()) < 0) errno = 0;
  ::close(fd);
}

struct PidFile {
  int64_t pid = 0, started = 0, start = -1;
};

PidFile read_pid(const std::string& path) {
  std::ifstream file(path);
  PidFile p;
  if (!(file >> p.pid >> p.started >> p.start)) return {};
  return p;
}

}  // namespace

LocalRanks::LocalRanks(std::string folder, int ranks)
    : folder_(std::move(folder)), processes_(static_cast<size_t>(ranks)) {}

LocalRanks::~LocalRanks() {
  for (Process& p : processes_) forget(p);
}

void LocalRanks::forget(Process& p) {
  if (p.pidfd >= 0) ::close(p.pidfd);
  p = {};
}

std::string LocalRanks::path(int rank, const char* suffix) const {
  return join_path(folder_, fmt::format("rank-{}.{}", rank, suffix));
}

RunEvent LocalRanks::start(int rank, const std::vector<std::string>& words, int64_t start) {
  Process& p = processes_[static_cast<size_t>(rank)];
  forget(p);
  std::unique_ptr<HeartbeatFile> page;
  try {
    page = HeartbeatFile::make(path(rank, "beat"));
  } catch (const Error& e) {
    return RankStartFailed{rank, e.what(), false};
  }
  int failure[2];
  if (::pipe2(failure, O_CLOEXEC) != 0)
    return RankStartFailed{rank, fmt::format("pipe: {}", std::strerror(errno)), false};
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::setsid();
    restore_signals();
    move_to(::open("/dev/null", O_RDONLY), 0);
    move_to(::open(path(rank, "out").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644), 1);
    move_to(::open(path(rank, "log").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644), 2);
    ::setenv(kHeartbeatVariable, path(rank, "beat").c_str(), 1);
    write_pid(path(rank, "pid"), start);
    become(words, failure[1]);
  }
  const int fork_error = errno;
  ::close(failure[1]);
  int error = 0;
  const bool failed = pid > 0 && ::read(failure[0], &error, sizeof error) == sizeof error;
  ::close(failure[0]);
  if (pid < 0)
    return RankStartFailed{rank, fmt::format("fork: {}", std::strerror(fork_error)), false};
  if (failed) {
    ::waitpid(pid, nullptr, 0);
    return RankStartFailed{rank, fmt::format("start {}: {}", words[0], std::strerror(error)), true};
  }
  p.pid = pid;
  p.started = process_start(pid);
  p.is_child = true;
  p.pidfd = open_pidfd(pid);
  p.page = std::move(page);
  return RankStarted{rank, pid};
}

RunEvent LocalRanks::find(int rank, int64_t start) {
  Process& p = processes_[static_cast<size_t>(rank)];
  forget(p);
  const PidFile known = read_pid(path(rank, "pid"));
  if (known.start != start)
    return RankStartFailed{rank, "the supervisor ended before it had started the process", false};
  p.pid = known.pid;
  p.started = known.started;
  p.pidfd = open_pidfd(p.pid);
  try {
    p.page = HeartbeatFile::open(path(rank, "beat"));
  } catch (const Error&) {  // who is watched without a page is watched by its end alone
    p.page = nullptr;
  }
  RankEnded ended{.rank = rank, .last_lines = {}};
  if (has_ended(p, &ended)) {
    forget(p);
    return ended;
  }
  return RankStarted{rank, known.pid};
}

void LocalRanks::kill_former(int rank) {
  Process& p = processes_[static_cast<size_t>(rank)];
  const PidFile known = read_pid(path(rank, "pid"));
  if (p.is_child && p.pid > 0) {
    signal(rank, SIGKILL);
    ::waitpid(static_cast<pid_t>(p.pid), nullptr, 0);
  } else if (known.pid > 0 && process_start(known.pid) == known.started) {
    const int pidfd = open_pidfd(known.pid);
    ::kill(static_cast<pid_t>(-known.pid), SIGKILL);
    ::kill(static_cast<pid_t>(known.pid), SIGKILL);
    pollfd ended = {.fd = pidfd, .events = POLLIN, .revents = 0};
    constexpr int kMilliseconds = 5000;  // one that waits for a disk that is gone is not waited for
    if (pidfd >= 0) ::poll(&ended, 1, kMilliseconds);
    if (pidfd >= 0) ::close(pidfd);
  }
  forget(p);
}

void LocalRanks::signal(int rank, int signal) {
  const Process& p = processes_[static_cast<size_t>(rank)];
  if (p.pid <= 0) return;
  if (!p.is_child && process_start(p.pid) != p.started) return;
  if (signal == SIGKILL) ::kill(static_cast<pid_t>(-p.pid), signal);
  ::kill(static_cast<pid_t>(p.pid), signal);
}

void LocalRanks::add_descriptors(std::vector<pollfd>* polled) const {
  for (const Process& p : processes_) {
    if (p.pidfd >= 0) polled->push_back({.fd = p.pidfd, .events = POLLIN, .revents = 0});
  }
}

bool LocalRanks::has_ended(const Process& p, RankEnded* ended) const {
  if (p.is_child) {
    int status = 0;
    if (::waitpid(static_cast<pid_t>(p.pid), &status, WNOHANG) == 0) return false;
    ended->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    ended->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    return true;
  }
  if (process_start(p.pid) == p.started) return false;
  const bool is_its_own =
      p.page != nullptr && p.page->page().pid == p.pid && p.page->page().process_start == p.started;
  const int32_t said = is_its_own ? p.page->page().ended.load() : 0;
  ended->exit_code = said - 1;
  return true;
}

std::vector<RankEnded> LocalRanks::take_ended() {
  std::vector<RankEnded> all;
  for (size_t r = 0; r < processes_.size(); ++r) {
    Process& p = processes_[r];
    RankEnded ended{.rank = static_cast<int>(r), .last_lines = {}};
    if (p.pid <= 0 || !has_ended(p, &ended)) continue;
    // What it has started and left behind would be a second process of the rank.
    if (ended.exit_code != 0) ::kill(static_cast<pid_t>(-p.pid), SIGKILL);
    forget(p);
    all.push_back(ended);
  }
  return all;
}

bool LocalRanks::read_beat(int rank, BeatSnapshot* beat) const {
  const Process& p = processes_[static_cast<size_t>(rank)];
  if (p.pid <= 0 || p.page == nullptr) return false;
  const HeartbeatPage& page = p.page->page();
  if (page.magic != HeartbeatPage::kMagic || page.pid != p.pid) return false;
  const auto ago = [now = now_seconds()](double moment) {
    return moment > 0 ? std::max(0.0, now - moment) : -1;
  };
  const bool stopped = is_process_stopped(p.pid);
  *beat = {.generation = page.generation,
           .rank = static_cast<int32_t>(page.rank),
           .activity = page.activity,
           .waits_for = page.waits_for,
           .beats = static_cast<int64_t>(page.beats.load()),
           .step = page.step,
           .steps_total = page.steps_total,
           .step_seconds = page.step_seconds,
           .compute_seconds = page.compute_seconds,
           .tokens_per_second = page.tokens_per_second,
           .loss = page.loss,
           .stopped = stopped,
           .stops = stopped ? process_switches(p.pid) : 0,
           .held = page.held,
           .strangers = page.strangers,
           .met_ago = ago(page.met_at),
           .loaded_ago = ago(page.loaded_at),
           .computed_ago = ago(page.computed_at)};
  return true;
}

bool is_process_stopped(int64_t pid) {
  const std::optional<ProcessStat> stat = read_process_stat(pid);
  return stat && stat->state == 'T';
}

}  // namespace moraine
