// LocalHost: the ranks on this machine, with what they write.
//
// Errors:  kIo where the folder cannot be written.
// Threads: one; the caller has no other (fork).
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "supervisor/host.h"
#include "supervisor/host_sensors.h"
#include "supervisor/local_ranks.h"
#include "supervisor/log_tail.h"

namespace moraine {

struct HostSensing {
  double seconds =
      0;  // between two readings of all sensors; 0: the kernel's kills alone, when a rank has ended
  HostSensors sensors = {};
};

class LocalHost final : public Host {
 public:
  // `host`: of the run's hosts, for what it reads.
  LocalHost(const std::string& folder, int ranks, int host, HostSensing sensing = {});

  void begin(const std::vector<FollowedRank>& there) override;
  void start(int rank, int64_t start, const std::vector<std::string>& words) override;
  void signal(int rank, int signal) override { ranks_.signal(rank, signal); }
  void set_pace(int) override {}
  void add_descriptors(std::vector<pollfd>* polled) const override {
    ranks_.add_descriptors(polled);
  }
  std::vector<HostReport> take() override;

 private:
  void read_log(int rank);
  void read_out();
  void tell(const RunEvent& event);

  void read_sensors(bool all);

  const int host_;
  const HostSensing sensing_;
  double sensed_at_ = -1;  // all of them; -1: never
  LocalRanks ranks_;
  std::deque<LogTail> tails_;
  LogTail out_;
  std::vector<HostReport> reports_;
};

}  // namespace moraine
