// Joins an Open MPI job, and ends it in order.
#include "comm/mpi_transport.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/host_share.h"
#include "comm/mpi_library.h"
#include "comm/mpi_messages.h"
#include "comm/routed_transport.h"
#include "comm/watchdog.h"

namespace moraine {
namespace {

constexpr unsigned kGraceSeconds = 1;

void check_mpi(int result, const char* doing) {
  if (result == kMpiSuccess) return;
  throw_error(Code::kPeerLost, "{}: Open MPI says: {}", doing, mpi_library().error_text(result));
}

// Every rank's text, by Open MPI's own all-gather: before there is a transport.
std::vector<std::string> exchange(const std::string& mine, int size) {
  constexpr size_t kBytes = 256;
  MR_CHECK(mine.size() < kBytes);
  char text[kBytes] = {};
  std::memcpy(text, mine.data(), mine.size());
  std::vector<char> all(kBytes * static_cast<size_t>(size));
  const MpiLibrary& mpi = mpi_library();
  check_mpi(mpi.allgather(text, kBytes, mpi.byte, all.data(), kBytes, mpi.byte, mpi.world),
            "start: exchange addresses");
  std::vector<std::string> texts;
  for (int r = 0; r < size; ++r) texts.push_back(all.data() + kBytes * static_cast<size_t>(r));
  return texts;
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

class MpiTransport : public RoutedTransport {
 public:
  MpiTransport(const TextExchange& exchange, int rank, std::vector<int> hosts);
  ~MpiTransport() override;

 private:
  MpiMessages* messages_ = nullptr;  // far_
};

MpiTransport::MpiTransport(const TextExchange& exchange, int rank, std::vector<int> hosts)
    : RoutedTransport(rank, std::move(hosts), "mpi") {
  // Waits in shared memory must not hold up messages to other hosts.
  HostCalls calls;
  calls.idle = [this] {
    if (messages_ != nullptr) messages_->look();
  };
  calls.on_fault = [this](const std::string& reason) {
    if (far_ != nullptr) far_->announce_fault(reason);
  };
  std::unique_ptr<HostTransport> host = join_host(exchange, rank, hosts_, std::move(calls));
  std::vector<int> others;
  for (int r = 0; r < size(); ++r) {
    if (!host->reaches(r)) others.push_back(r);
  }
  HostTransport& near = *host;
  auto messages = std::make_unique<MpiMessages>(near, rank, size(), others);
  messages_ = messages.get();
  set_routes(std::move(host), std::move(messages));
}

// What happens before a run is open, and after its last step, is short.
constexpr double kMpiStartSeconds = 120, kMpiEndSeconds = 60;

MpiTransport::~MpiTransport() {
  if (ends_alone()) host_->fail(fmt::format("rank {} ended with an Error of its own", rank_));
  if (finish(kMpiEndSeconds)) {
    messages_ = nullptr;
    far_.reset();
    host_.reset();
    const Watchdog watchdog(kMpiEndSeconds, "end: not all ranks of the job left together");
    mpi_library().finalize();
  } else {
    far_.release();  // Open MPI may still use its buffers
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
  const Watchdog watchdog(kMpiStartSeconds,
                          "start: not all ranks of the job came together; is each of them this "
                          "program, and none stopped?");
  check_mpi(mpi.init_thread(nullptr, nullptr, kMpiThreadSerialized, &provided), "start");
  if (provided < kMpiThreadSerialized)
    throw_error(Code::kNotFound, "start: this Open MPI cannot be called by several threads");
  check_mpi(mpi.comm_set_errhandler(mpi.world, mpi.errors_return), "start");
  check_mpi(mpi.comm_rank(mpi.world, &rank), "start");
  check_mpi(mpi.comm_size(mpi.world, &size), "start");
  delay_unhandled_sigterm();
  const TextExchange all = [size](const std::string& mine) { return exchange(mine, size); };
  return std::make_unique<MpiTransport>(all, rank, find_hosts(all));
}

}  // namespace moraine
