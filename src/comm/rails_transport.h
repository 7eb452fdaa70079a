// RailsTransport: ranks as processes on any hosts, that find each other without a launcher and talk over several TCP
// paths.
//
// Ranks of one host use shared memory (host_share.h). To ranks of other hosts lead N rails: rail i of one host to
// rail i of the other, each an address that the user named. Any rails but the last may fail, in any way, and come
// back: no operation notices but by its speed (rails/rail_peer.h). docs/rails.md has protocol, settings and figures.
//
// A job may outlive its ranks: the survivors of a lost one meet again, with who takes its place, and get a transport of
// a new generation (RailsJob). What was under way in the old one is gone, and frames of it are dropped.
//
// Errors:  kInvalidArgument (names of rails, ranks that do not fit), kIo (listening), kPeerLost (who did not come),
//          kInterrupted (the signal).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/rails/rail_times.h"
#include "comm/transport.h"

namespace moraine {

class Rendezvous;
struct RailAddress;

struct RailsOptions {
  int rank = 0, ranks = 1;
  std::string rendezvous;  // "host:port", where rank 0 listens
  std::vector<std::string>
      rails;  // interfaces, addresses or networks; empty: the one that leads to the rendezvous
  std::string secret;          // the same for all; empty: anybody who knows the protocol may join
  double start_seconds = 120;  // for all ranks to come
  RailTimes times = {};        // how long a peer may be silent on all rails, and what is done
  const std::atomic<int>* stop_signal = nullptr;  // not 0: who waits for the others gives up
  // Of a job that replaces ranks (rails/rendezvous.h): how long survivors wait for who takes the place of a lost rank;
  // 0: a lost rank ends the job. And the largest group of at most `present` ranks that can go on.
  double replace_seconds = 0;
  std::function<int(int present)> most_ranks = {};
};

// A process of a job, through all groups that it is in.
class RailsJob {
 public:
  explicit RailsJob(RailsOptions options);
  ~RailsJob();

  // Joins the next group of the job, by the thread that will destroy the transport, which must be gone before the
  // next meeting. rank() and size() are of this group: ranks that are lost for good are not counted. Null: the job has
  // ended without this process.
  std::unique_ptr<Transport> meet();
  uint64_t generation() const;  // of the group; the first one's is 1
  // On rank 0, when the work is done: who waits for a group to be let in is told so.
  void end();
  // On rank 0: somebody has come with whom the group would be larger.
  bool has_newcomers() const;

 private:
  std::unique_ptr<Transport> join_group();

  const RailsOptions options_;
  const std::vector<RailAddress> named_;
  std::unique_ptr<Rendezvous> rendezvous_;
  uint64_t generation_ = 0;
  // Meetings in a row in which ranks that may live found no rail to each other, as this one knows; all agree on what
  // follows from it in the next one's plan.
  int meetings_apart_ = 0;
  bool is_apart_for_good_ = false;
};

// Joins a job that has one group.
std::unique_ptr<Transport> open_rails_transport(const RailsOptions& options);

}  // namespace moraine
