// HostShare: compares places, makes the memory, and tries it.
#include "comm/host_share.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"

namespace moraine {
namespace {

std::string host_memory_setting() {
  const char* text = std::getenv("MORAINE_HOST_MEMORY");
  return text == nullptr ? "" : text;
}

uint64_t inode_of(const char* path, bool device) {
  struct stat info;
  if (stat(path, &info) != 0) return 0;
  return device ? info.st_dev : info.st_ino;
}

// Equal for ranks that can share memory and read each other.
std::string this_place() {
  const std::string setting = host_memory_setting();
  if (setting == "off") return "off";
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  const uint64_t network = setting == "network" ? inode_of("/proc/self/ns/net", false) : 0;
  return fmt::format("{} {} {} {}", boot, inode_of("/dev/shm", true),
                     inode_of("/proc/self/ns/pid", false), network);
}

bool all_say_yes(const TextExchange& exchange, bool mine) {
  const std::vector<std::string> all = exchange(mine ? "yes" : "no");
  return std::find(all.begin(), all.end(), "no") == all.end();
}

// The host's first rank makes the memory; its name is gone when all have it.
std::shared_ptr<HostRegion> share_region(const TextExchange& exchange,
                                         const std::vector<int>& ranks, int rank) {
  const int members = static_cast<int>(ranks.size());
  const bool is_first = ranks.front() == rank;
  std::string name;
  std::shared_ptr<HostRegion> region;
  bool ok = true;
  if (is_first) {
    name = fmt::format("/moraine-{}-{:x}", getpid(),
                       std::chrono::steady_clock::now().time_since_epoch().count());
    try {
      region = HostRegion::make_named(members, name);
    } catch (const Error& e) {
      log_event(Level::kWarning, "comm.no_host_memory", "reason=\"{}\"", e.what());
      ok = false;
    }
  }
  const std::vector<std::string> names = exchange(name);
  if (!is_first) {
    try {
      region = HostRegion::open_named(members, names[static_cast<size_t>(ranks.front())]);
    } catch (const Error&) {
      ok = false;
    }
  }
  const bool all_ok = all_say_yes(exchange, ok);
  if (is_first && region != nullptr) HostRegion::forget_name(name);
  return all_ok ? region : nullptr;
}

// Whether every rank of every host can read the memory of its neighbours.
bool probe_reading(const TextExchange& exchange, const HostTransport& host,
                   const std::vector<int>& ranks) {
  static const uint64_t secret = 0x6d6f7261696e65;
  const std::vector<std::string> addresses =
      exchange(fmt::format("{}", reinterpret_cast<uint64_t>(&secret)));
  bool ok = true;
  for (const int r : ranks) {
    if (r == host.rank()) continue;
    const uint64_t address = std::strtoull(addresses[static_cast<size_t>(r)].c_str(), nullptr, 10);
    uint64_t value = 0;
    ok =
        ok &&
        host.read_memory(host.local_of(r), address, std::as_writable_bytes(std::span(&value, 1))) &&
        value == secret;
  }
  return all_say_yes(exchange, ok);
}

std::unique_ptr<HostTransport> make_host(std::shared_ptr<HostRegion> region, std::vector<int> ranks,
                                         int rank, const std::vector<int>& hosts,
                                         const HostCalls& calls) {
  const bool is_all = ranks.size() == hosts.size();
  HostTransport::Options options;
  options.region = std::move(region);
  options.kind = RankKind::kProcesses;
  options.local = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
  options.ranks = std::move(ranks);
  options.hosts = hosts;
  if (!is_all) {
    options.idle = calls.idle;
    options.on_fault = calls.on_fault;
  }
  return std::make_unique<HostTransport>(std::move(options));
}

}  // namespace

std::vector<int> find_hosts(const TextExchange& exchange) {
  const std::vector<std::string> places = exchange(this_place());
  const bool apart = std::find(places.begin(), places.end(), "off") != places.end();
  std::vector<int> hosts;
  int count = 0;
  for (size_t r = 0; r < places.size(); ++r) {
    const auto same =
        std::find(places.begin(), places.begin() + static_cast<int64_t>(r), places[r]);
    const size_t before = static_cast<size_t>(same - places.begin());
    hosts.push_back(before < r && !apart ? hosts[before] : count++);
  }
  return hosts;
}

std::unique_ptr<HostTransport> join_host(const TextExchange& exchange, int rank,
                                         const std::vector<int>& hosts, HostCalls calls) {
  std::vector<int> neighbours;
  for (int r = 0; r < static_cast<int>(hosts.size()); ++r) {
    if (hosts[static_cast<size_t>(r)] == hosts[static_cast<size_t>(rank)]) neighbours.push_back(r);
  }
  const std::shared_ptr<HostRegion> region = share_region(exchange, neighbours, rank);
  if (region != nullptr) {
    std::unique_ptr<HostTransport> host = make_host(region, neighbours, rank, hosts, calls);
    if (probe_reading(exchange, *host, neighbours)) return host;
    if (rank == 0)
      log_event(Level::kWarning, "comm.no_host_memory",
                "reason=\"a process may not read the memory of another (process_vm_readv)\"");
  }
  return make_host(HostRegion::make_private(1), {rank}, rank, hosts, calls);
}

}  // namespace moraine
