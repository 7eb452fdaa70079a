// RailsTransport: ranks as processes on any hosts, that find each other without a launcher and talk over several TCP
// paths.
//
// Ranks of one host use shared memory (host_share.h). To ranks of other hosts lead N rails: rail i of one host to
// rail i of the other, each an address that the user named. Any rails but the last may fail, in any way, and come
// back: no operation notices but by its speed (rails/rail_peer.h). docs/rails.md has protocol, settings and figures.
//
// Errors:  kInvalidArgument (names of rails, ranks that do not fit), kIo (listening), kPeerLost (who did not come).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/transport.h"

namespace moraine {

struct RailsOptions {
  int rank = 0, ranks = 1;
  std::string rendezvous;  // "host:port", where rank 0 listens
  std::vector<std::string>
      rails;  // interfaces, addresses or networks; empty: the one that leads to the rendezvous
  std::string secret;          // the same for all; empty: anybody who knows the protocol may join
  double start_seconds = 120;  // for all ranks to come
  double hold_seconds = 60;    // how long a peer may be silent on all rails
};

// Joins the job, by the thread that will destroy it.
std::unique_ptr<Transport> open_rails_transport(const RailsOptions& options);

}  // namespace moraine
