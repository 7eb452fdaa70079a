// SuperviseOptions: what the supervisor's decisions depend on beside what it hears, and what is around them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace moraine {

struct UsefulShare;

struct SuperviseOptions {
  int64_t ranks = 1;
  std::vector<std::string> hosts = {"localhost"};
  int64_t spares = 0;  // how many of the hosts, the last ones, wait for one to be lost
  std::vector<std::string> launch = {"ssh", "-o", "BatchMode=yes", "{host}"};  // before a command
  std::string secret_file;     // of --secret-file, on all hosts; empty: none
  std::string rendezvous;      // HOST:PORT; {host}: the host of rank 0; empty: a port of this one
  std::string program;         // moraine on other hosts; empty: where it is on this one
  double host_seconds = 20;    // that another host may be silent for
  bool can_replace = false;    // ranks that lose one wait for it: it alone is started again
  bool speaks_codes = true;    // exit codes are those of base/error.h
  bool tells_steps = true;     // a training run: what it gets on by is steps, not time
  double hang_seconds = 30;    // in a step
  double hang_factor = 10;     // of the median step
  double start_seconds = 300;  // in anything else than a step
  double straggler_factor = 1.5;
  int64_t restarts = 20;       // an hour, for a cause
  double steady_seconds = 60;  // that a program without steps runs to count as one that got on
  int64_t attempts = 5;        // of a rank, in a row, without a step
  double backoff_seconds = 1;
  double backoff_seconds_max = 60;
  double grace_seconds = 5;   // that ranks have to end by themselves once a peer is lost
  double stop_seconds = 300;  // that ranks have to save in
  double disk_low_mib = 1024;
  int64_t first_incident = 1;  // behind those of the ledger
};

// What it looks at beside its processes, and what it shows.
struct ShowOptions {
  double sensor_seconds = 5;               // between two readings of the host; 0: none
  int64_t metrics_port = 0;                // of 127.0.0.1; 0: none
  std::string webhook;                     // "": none
  std::string memory_folder = "/dev/shm";  // checkpoint.memory_folder
  int64_t state_every_steps = 0;           // checkpoint.memory_every_steps
  // What is to be expected of a run with such interruptions: its useful share. Empty: not asked.
  std::function<double(const UsefulShare& seen)> expect_useful = {};
};

// The table [supervise].
struct SuperviseConfig {
  SuperviseOptions decide;
  ShowOptions show;
};

constexpr const char* kHostPlace = "{host}";  // in words that are meant for several hosts

// Ranks there are started by this process itself.
inline bool is_this_host(const std::string& name) { return name.empty() || name == "localhost"; }

// The address of rank 0 goes where rank 0 goes.
inline bool rendezvous_moves(const SuperviseOptions& options) {
  return options.rendezvous.find(kHostPlace) != std::string::npos;
}

}  // namespace moraine
