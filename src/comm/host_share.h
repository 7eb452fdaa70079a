// HostShare: which ranks of a job share a host, and the memory that they share.
//
// Ranks share a host if they can map each other's memory and read it: same kernel, same /dev/shm, same process
// numbers. MORAINE_HOST_MEMORY=off on any rank: every rank is a host of its own. MORAINE_HOST_MEMORY=network: ranks in
// different network namespaces are on different hosts, so that links between them can be tested on one machine.
//
// Before there is a transport, ranks tell each other by an Exchange: every rank's text, in the order of ranks.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/host_transport.h"

namespace moraine {

// Called by all ranks at the same places.
using TextExchange = std::function<std::vector<std::string>(const std::string& mine)>;

// Host of each rank, numbered by first rank.
std::vector<int> find_hosts(const TextExchange& exchange);

// This rank's way to the ranks of its host, by shared memory; to itself alone where there is none (then the log says
// comm.no_host_memory). `idle`, `on_fault`: of HostTransport::Options; not used if all ranks are reached.
struct HostCalls {
  std::function<void()> idle;
  std::function<void(const std::string& reason)> on_fault;
};
std::unique_ptr<HostTransport> join_host(const TextExchange& exchange, int rank,
                                         const std::vector<int>& hosts, HostCalls calls);

}  // namespace moraine
