// ProcessRanks: forks the ranks, reads each one's text from a pipe, and reaps them.
#include "comm/process_ranks.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "comm/host_transport.h"

namespace moraine {
namespace {

constexpr int kOtherFailure = 1;  // an exception other than Error

struct Child {
  pid_t pid = -1;
  int pipe = -1;  // read end; -1: at its end
  bool ended = false, stopped = false;
};

void write_all(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno != EINTR) return;
    if (n > 0) done += static_cast<size_t>(n);
  }
}

int run_child(const HostTransport::Options& options, int fd,
              const std::function<std::string(Transport& transport)>& body) {
  HostTransport transport(options);
  std::string text;
  int code = 0;
  try {
    text = body(transport);
  } catch (const Error& e) {
    text = e.what();
    code = exit_code(e.code());
  } catch (const std::exception& e) {
    text = e.what();
    code = kOtherFailure;
  }
  if (code != 0) transport.fail(text);
  write_all(fd, text);
  return code;
}

Child start_child(const HostTransport::Options& options,
                  const std::function<std::string(Transport& transport)>& body) {
  int ends[2];
  if (pipe(ends) != 0)
    throw_error(Code::kIo, "start a rank: make a pipe: {}", std::strerror(errno));
  std::fflush(nullptr);
  const pid_t parent = getpid(), pid = fork();
  if (pid < 0) throw_error(Code::kIo, "start a rank: fork: {}", std::strerror(errno));
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(kOtherFailure);
    close(ends[0]);
    const int code = run_child(options, ends[1], body);
    std::fflush(nullptr);
    _exit(code);
  }
  close(ends[1]);
  return {.pid = pid, .pipe = ends[0], .ended = false, .stopped = false};
}

void read_some(Child& child, RankOutcome& outcome) {
  char buffer[4096];
  const ssize_t n = read(child.pipe, buffer, sizeof buffer);
  if (n > 0) {
    outcome.text.append(buffer, static_cast<size_t>(n));
  } else if (n == 0 || errno != EINTR) {
    close(child.pipe);
    child.pipe = -1;
  }
}

void look_at(Child& child, RankOutcome& outcome) {
  int status = 0;
  if (child.ended || waitpid(child.pid, &status, WNOHANG | WUNTRACED | WCONTINUED) != child.pid)
    return;
  child.stopped = WIFSTOPPED(status);
  child.ended = WIFEXITED(status) || WIFSIGNALED(status);
  if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) outcome.signal = WTERMSIG(status);
}

void wait_for_pipes(std::vector<Child>& children, std::vector<RankOutcome>& outcomes) {
  constexpr int kLookMilliseconds = 5;
  std::vector<pollfd> fds;
  for (const Child& c : children) fds.push_back({c.pipe, POLLIN, 0});  // -1 is passed over
  poll(fds.data(), fds.size(), kLookMilliseconds);
  for (size_t i = 0; i < fds.size(); ++i) {
    if (fds[i].revents != 0) read_some(children[i], outcomes[i]);
  }
}

void collect(std::vector<Child>& children, std::vector<RankOutcome>& outcomes) {
  for (;;) {
    wait_for_pipes(children, outcomes);
    bool any = false, any_running = false;
    for (size_t i = 0; i < children.size(); ++i) {
      look_at(children[i], outcomes[i]);
      any = any || !children[i].ended || children[i].pipe >= 0;
      any_running = any_running || (!children[i].ended && !children[i].stopped);
    }
    if (!any) return;
    for (const Child& c : children) {
      if (!any_running && c.stopped && !c.ended) kill(c.pid, SIGKILL);
    }
  }
}

}  // namespace

std::vector<RankOutcome> run_process_ranks(
    int ranks, const std::function<std::string(Transport& transport)>& body) {
  MR_CHECK(ranks >= 1, "ranks=%d", ranks);
  HostTransport::Options options;
  options.region = HostRegion::make_private(ranks);
  options.kind = RankKind::kProcesses;
  for (int r = 0; r < ranks; ++r) options.ranks.push_back(r);
  std::vector<Child> children;
  for (options.local = 0; options.local < ranks; ++options.local)
    children.push_back(start_child(options, body));
  std::vector<RankOutcome> outcomes(static_cast<size_t>(ranks));
  collect(children, outcomes);
  return outcomes;
}

}  // namespace moraine
