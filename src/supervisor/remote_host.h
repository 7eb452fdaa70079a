// RemoteHost: another machine, behind an agent that a launcher (ssh, srun) starts there.
//
// An agent that ends, or that nothing is heard of, is started again, and again: at once, then after 0.2 s, twice as
// long each time up to 5 s. After `seconds` without a word the host is told as lost, in every take() until it is heard
// again. What it is told while it is out of reach it hears when it is back. Silence counts only while this process
// itself was looking.
//
// Threads: one; the caller has no other (fork).
#pragma once

#include <sys/types.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "supervisor/host.h"
#include "supervisor/host_wire.h"
#include "supervisor/log_tail.h"

namespace moraine {

class RemoteHost final : public Host {
 public:
  struct Options {
    std::string name;
    int host = 0;  // of the run's hosts
    int64_t ranks = 1;
    std::vector<std::string> words;  // start its agent
    std::string folder;              // of the agent, as both see it; its log
    std::string work_folder;         // where words and paths of ranks are meant from
    double seconds = 20;
  };
  explicit RemoteHost(Options options);
  ~RemoteHost() override;
  RemoteHost(const RemoteHost&) = delete;
  RemoteHost& operator=(const RemoteHost&) = delete;

  void begin(const std::vector<FollowedRank>& there) override;
  void start(int rank, int64_t start, const std::vector<std::string>& words) override;
  void signal(int rank, int signal) override;
  void set_pace(int milliseconds) override;
  void add_descriptors(std::vector<pollfd>* polled) const override;
  std::vector<HostReport> take() override;

 private:
  void launch(double now);
  void hang_up(double now);
  void order(const HostOrder& order);
  void send();
  bool receive();
  void hear(const std::string& line, double now);
  std::string why_silent(double now);

  const Options options_;
  pid_t launcher_ = 0;
  int in_ = -1, out_ = -1;  // of the agent
  bool is_ready_ = false;   // it has said hello, and was told to begin
  double heard_at_, looked_at_, launched_at_ = 0, due_ = 0, delay_ = 0;
  int dropped_ = 0;  // lines of this agent
  int pace_ = 200;
  std::string to_send_, end_;
  std::vector<StartOrder> to_start_;  // not told to it yet
  std::vector<SignalOrder> to_signal_;
  std::set<int> to_kill_;  // ranks whose end is still to be heard of
  WireLines lines_;
  LogTail log_;
  std::vector<HostReport> reports_;
};

}  // namespace moraine
