// Program: starts the built `moraine` as a child process, with its output in files.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "testing/places.h"
#include "testing/sanitized.h"

namespace moraine::testing {

constexpr bool kLimitsMemory = !kSanitized;  // sanitizers reserve terabytes of address space

struct Ended {
  int exit_code = -1;  // of the process, or -signal
  std::string out, err;
};

class Program {
 public:
  // `folder` takes the output files. The child may use `memory_bytes` of address space (0: any).
  Program(const std::string& folder, const std::vector<std::string>& args, int64_t memory_bytes = 0)
      : folder_(folder) {
    std::vector<char*> argv;
    std::string program = moraine_program();
    argv.push_back(program.data());
    std::vector<std::string> copies = args;
    for (std::string& arg : copies) argv.push_back(arg.data());
    argv.push_back(nullptr);
    const std::string out = folder + "/child.out", err = folder + "/child.err";
    pid_ = ::fork();
    if (pid_ != 0) return;
    const int out_fd = ::open(out.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0644),
              err_fd = ::open(err.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0644);
    ::dup2(out_fd, 1);
    ::dup2(err_fd, 2);
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    if (kLimitsMemory && memory_bytes > 0) {
      const rlimit limit{static_cast<rlim_t>(memory_bytes), static_cast<rlim_t>(memory_bytes)};
      ::setrlimit(RLIMIT_AS, &limit);
    }
    ::execv(program.c_str(), argv.data());
    ::_exit(127);
  }
  ~Program() {
    if (pid_ > 0) {
      send(SIGKILL);
      wait();
    }
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const { return pid_; }
  void send(int signal) const { ::kill(pid_, signal); }
  bool runs() const {
    siginfo_t info{};
    return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == 0;
  }
  Ended wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    Ended ended;
    ended.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    ended.out = posix_file_system().read(folder_ + "/child.out");
    ended.err = posix_file_system().read(folder_ + "/child.err");
    return ended;
  }

 private:
  std::string folder_;
  pid_t pid_ = -1;
};

// A line of sh in which "$M" is the program; its exit code is that of a command that a signal ended,
// 128 and the signal.
inline Ended run_shell(const std::string& folder, const std::string& line) {
  const std::string script = folder + "/line.sh", out = folder + "/sh.out",
                    err = folder + "/sh.err";
  const auto file = posix_file_system().create(script);
  const std::string text = "M='" + moraine_program() + "'\nulimit -c 0\n" + line + "\n";
  file->append(text.data(), static_cast<int64_t>(text.size()));
  file->close();
  const int status = std::system(("sh '" + script + "' >'" + out + "' 2>'" + err + "'").c_str());
  Ended ended;
  ended.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  ended.out = posix_file_system().read(out);
  ended.err = posix_file_system().read(err);
  return ended;
}

inline Ended run_program(const std::string& folder, const std::vector<std::string>& args,
                         int64_t memory_bytes = 0) {
  return Program(folder, args, memory_bytes).wait();
}

// The commands that `moraine --help` lists.
inline std::vector<std::string> listed_commands(const std::string& folder) {
  std::vector<std::string> names;
  const std::string help = run_program(folder, {"--help"}).out;
  for (size_t at = help.find("\n  "); at != std::string::npos; at = help.find("\n  ", at + 1))
    names.push_back(help.substr(at + 3, help.find(' ', at + 3) - at - 3));
  return names;
}

// The word after `key=` in a line of results.
inline std::string value_of(const std::string& text, const std::string& key) {
  const size_t at = text.find(key + "=");
  if (at == std::string::npos) return "no " + key + " in: " + text;
  const size_t begin = at + key.size() + 1;
  return text.substr(begin, text.find_first_of(" \n", begin) - begin);
}

}  // namespace moraine::testing
