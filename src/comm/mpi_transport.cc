// Joins an Open MPI job: finds out who shares a host, routes messages, ends in order.
#include "comm/mpi_transport.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/host_transport.h"
#include "comm/mpi_library.h"
#include "comm/mpi_messages.h"
#include "comm/watchdog.h"

namespace moraine {
namespace {

constexpr unsigned kGraceSeconds = 1;

void check_mpi(int result, const char* doing) {
  if (result == kMpiSuccess) return;
  throw_error(Code::kPeerLost, "{}: Open MPI says: {}", doing, mpi_library().error_text(result));
}

// Every rank's T, by Open MPI's own all-gather: before there is a transport.
template <class T>
std::vector<T> exchange(const T& mine, int size) {
  std::vector<T> all(static_cast<size_t>(size));
  const MpiLibrary& mpi = mpi_library();
  check_mpi(mpi.allgather(&mine, sizeof(T), mpi.byte, all.data(), sizeof(T), mpi.byte, mpi.world),
            "start: exchange addresses");
  return all;
}

struct Place {  // equal for ranks that can share memory and read each other
  char boot[40];
  uint64_t memory_device, pid_space;
};

Place this_place() {
  Place place;
  std::memset(&place, 0, sizeof place);
  std::ifstream("/proc/sys/kernel/random/boot_id").read(place.boot, sizeof place.boot - 1);
  struct stat info;
  if (stat("/dev/shm", &info) == 0) place.memory_device = info.st_dev;
  if (stat("/proc/self/ns/pid", &info) == 0) place.pid_space = info.st_ino;
  return place;
}

bool host_memory_is_off() {
  const char* text = std::getenv("MORAINE_HOST_MEMORY");
  return text != nullptr && !std::strcmp(text, "off");
}

// Host of each rank, numbered by first rank.
std::vector<int> find_hosts(int rank, int size) {
  const std::vector<Place> places = exchange(this_place(), size);
  const std::vector<char> off = exchange<char>(host_memory_is_off() ? 1 : 0, size);
  const bool apart = std::find(off.begin(), off.end(), 1) != off.end();
  std::vector<int> hosts;
  int count = 0;
  for (size_t r = 0; r < places.size(); ++r) {
    int host = -1;
    for (size_t before = 0; before < r && host < 0 && !apart; ++before) {
      if (!std::memcmp(&places[before], &places[r], sizeof(Place))) host = hosts[before];
    }
    hosts.push_back(host >= 0 ? host : count++);
  }
  MR_CHECK(hosts[static_cast<size_t>(rank)] >= 0);
  return hosts;
}

struct RegionName {
  char text[64];
};

// The host's first rank makes the memory; its name is gone when all have it.
std::shared_ptr<HostRegion> share_region(const std::vector<int>& ranks, int rank, int size) {
  const int members = static_cast<int>(ranks.size());
  const bool is_first = ranks.front() == rank;
  RegionName name = {};
  std::shared_ptr<HostRegion> region;
  bool ok = true;
  if (is_first) {
    std::snprintf(name.text, sizeof name.text, "/moraine-%d-%llx", static_cast<int>(getpid()),
                  static_cast<unsigned long long>(
                      std::chrono::steady_clock::now().time_since_epoch().count()));
    try {
      region = HostRegion::make_named(members, name.text);
    } catch (const Error& e) {
      log_event(Level::kWarning, "comm.no_host_memory", "reason=\"{}\"", e.what());
      ok = false;
    }
  }
  const std::vector<RegionName> names = exchange(name, size);
  if (!is_first) {
    try {
      region = HostRegion::open_named(members, names[static_cast<size_t>(ranks.front())].text);
    } catch (const Error&) {
      ok = false;
    }
  }
  const std::vector<char> all_ok = exchange<char>(ok ? 1 : 0, size);
  if (is_first && region != nullptr) HostRegion::forget_name(name.text);
  return std::find(all_ok.begin(), all_ok.end(), 0) == all_ok.end() ? region : nullptr;
}

// Whether every rank of every host can read the memory of its neighbours.
bool probe_reading(const HostTransport& host, const std::vector<int>& ranks, int rank, int size) {
  static const uint64_t secret = 0x6d6f7261696e65;
  const std::vector<uint64_t> addresses = exchange(reinterpret_cast<uint64_t>(&secret), size);
  bool ok = true;
  for (const int r : ranks) {
    uint64_t value = 0;
    const bool read =
        r == rank || (host.read_memory(host.local_of(r), addresses[static_cast<size_t>(r)],
                                       std::as_writable_bytes(std::span(&value, 1))) &&
                      value == secret);
    ok = ok && read;
  }
  const std::vector<char> all_ok = exchange<char>(ok ? 1 : 0, size);
  return std::find(all_ok.begin(), all_ok.end(), 0) == all_ok.end();
}

// mpirun ends all ranks when one has failed; each has a message of its own to print first.
void end_a_little_later(int) { alarm(kGraceSeconds); }

void delay_unhandled_sigterm() {
  struct sigaction action;
  if (sigaction(SIGTERM, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return;
  std::memset(&action, 0, sizeof action);
  action.sa_handler = end_a_little_later;
  sigaction(SIGTERM, &action, nullptr);
}

// The transport -----------------------------------------------------------------------------------

class MpiTransport : public Transport {
 public:
  MpiTransport(int rank, std::vector<int> hosts);
  ~MpiTransport() override;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(hosts_.size()); }
  int host_of(int rank) const override { return hosts_[static_cast<size_t>(rank)]; }
  std::string name() const override { return shares_memory_ ? "mpi (shared memory)" : "mpi"; }

  SendTicket send(int peer, int channel, uint64_t label, ConstBytes data, double seconds) override {
    return host_->reaches(peer) ? host_->send(peer, channel, label, data, seconds)
                                : messages_->send(peer, channel, label, data, seconds);
  }
  void wait_sent(const SendTicket& ticket, double seconds) override {
    host_->reaches(ticket.peer) ? host_->wait_sent(ticket, seconds)
                                : messages_->wait_sent(ticket, seconds);
  }
  void receive(int peer, int channel, uint64_t label, Bytes out, double seconds) override {
    host_->reaches(peer) ? host_->receive(peer, channel, label, out, seconds)
                         : messages_->receive(peer, channel, label, out, seconds);
  }
  Incoming open(int peer, int channel, uint64_t label, int64_t bytes, double seconds) override {
    return host_->reaches(peer) ? host_->open(peer, channel, label, bytes, seconds)
                                : messages_->open(peer, channel, label, bytes, seconds);
  }
  ConstBytes next(Incoming& in, int64_t bytes, Bytes staging, double seconds) override {
    return host_->reaches(in.peer) ? host_->next(in, bytes, staging, seconds)
                                   : messages_->next(in, bytes, staging, seconds);
  }
  void close(Incoming& in) override {
    host_->reaches(in.peer) ? host_->close(in) : messages_->close(in);
  }
  void fail(const std::string& reason) override { host_->fail(reason); }
  HostTransport* host() override { return host_.get(); }
  void name_channel(int channel, const std::string& name) override {
    host_->name_channel(channel, name);
  }

 private:
  std::unique_ptr<HostTransport> make_host(std::shared_ptr<HostRegion> region,
                                           std::vector<int> ranks);

  const int rank_;
  const std::vector<int> hosts_;
  const int exceptions_ = std::uncaught_exceptions();
  bool shares_memory_ = false;
  std::unique_ptr<HostTransport> host_;
  std::unique_ptr<MpiMessages> messages_;
};

MpiTransport::MpiTransport(int rank, std::vector<int> hosts)
    : rank_(rank), hosts_(std::move(hosts)) {
  std::vector<int> neighbours;
  for (int r = 0; r < size(); ++r) {
    if (host_of(r) == host_of(rank)) neighbours.push_back(r);
  }
  const std::shared_ptr<HostRegion> region = share_region(neighbours, rank, size());
  if (region != nullptr) {
    host_ = make_host(region, neighbours);
    const bool readable = probe_reading(*host_, neighbours, rank, size());
    if (!readable) {
      host_.reset();
      if (rank == 0)
        log_event(Level::kWarning, "comm.no_host_memory",
                  "reason=\"a process may not read the memory of another (process_vm_readv)\"");
    }
  }
  const bool is_shared = host_ != nullptr;
  // Anybody with a neighbour: then there is memory to speak of.
  for (size_t r = 1; r < hosts_.size(); ++r)
    shares_memory_ = shares_memory_ || (is_shared && hosts_[r] != static_cast<int>(r));
  if (!is_shared) {
    neighbours = {rank};
    host_ = make_host(HostRegion::make_private(1), neighbours);
  }
  std::vector<int> others;
  for (int r = 0; r < size(); ++r) {
    if (!host_->reaches(r)) others.push_back(r);
  }
  messages_ = std::make_unique<MpiMessages>(*host_, rank_, size(), others);
}

std::unique_ptr<HostTransport> MpiTransport::make_host(std::shared_ptr<HostRegion> region,
                                                       std::vector<int> ranks) {
  const bool all = ranks.size() == hosts_.size();
  const int local = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin());
  HostTransport::Options options;
  options.region = std::move(region);
  options.kind = RankKind::kProcesses;
  options.local = local;
  options.ranks = std::move(ranks);
  options.hosts = hosts_;
  if (!all) {  // waits in shared memory must not hold up messages to other hosts
    options.idle = [this] {
      if (messages_ != nullptr) messages_->look();
    };
    options.on_fault = [this](const std::string& reason) {
      if (messages_ != nullptr) messages_->announce_fault(reason);
    };
  }
  return std::make_unique<HostTransport>(std::move(options));
}

// What happens before a run is open, and after its last step, is short.
constexpr double kStartSeconds = 120, kEndSeconds = 60;

MpiTransport::~MpiTransport() {
  if (std::uncaught_exceptions() > exceptions_)
    host_->fail(fmt::format("rank {} ended with an Error of its own", rank_));
  bool in_order = host_->fault_rank() < 0;
  if (in_order) {
    try {
      in_order = messages_->finish(kEndSeconds);
    } catch (const Error&) {
      in_order = false;
    }
  }
  if (in_order) {
    messages_.reset();
    host_.reset();
    const Watchdog watchdog(kEndSeconds, "end: not all ranks of the job left together");
    mpi_library().finalize();
  } else {
    messages_.release();  // Open MPI may still use its buffers
  }
}

}  // namespace

// PMI_RANK, PMIX_RANK: srun.
bool started_by_mpi() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

std::unique_ptr<Transport> open_mpi_transport() {
  const MpiLibrary& mpi = mpi_library();
  int provided = 0, rank = 0, size = 0;
  const Watchdog watchdog(kStartSeconds,
                          "start: not all ranks of the job came together; is each of them this "
                          "program, and none stopped?");
  check_mpi(mpi.init_thread(nullptr, nullptr, kMpiThreadSerialized, &provided), "start");
  if (provided < kMpiThreadSerialized)
    throw_error(Code::kNotFound, "start: this Open MPI cannot be called by several threads");
  check_mpi(mpi.comm_set_errhandler(mpi.world, mpi.errors_return), "start");
  check_mpi(mpi.comm_rank(mpi.world, &rank), "start");
  check_mpi(mpi.comm_size(mpi.world, &size), "start");
  delay_unhandled_sigterm();
  return std::make_unique<MpiTransport>(rank, find_hosts(rank, size));
}

}  // namespace moraine
