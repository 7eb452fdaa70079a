// HostTransport: messages between ranks of one host, threads or processes, through shared memory.
//
// send writes a descriptor into the ring of (sender, receiver, channel) and rings the receiver's
// doorbell. Small payloads travel in the descriptor and are finished at once; larger ones are read
// once by the receiver, straight from the sender's memory: through a pointer between threads, by
// process_vm_readv between processes. docs/collectives.md has the protocol.
//
// Threads share one address space: a rank that ends after a fault stays until no other reads its
// memory (withdraw). Between processes the kernel reads, and says when there is nothing to read.
//
// A waiter looks a few times, then sleeps on its doorbell, and wakes every few milliseconds to look
// at the fault record, the peer's liveness and its deadline.
//
// Errors:  kPeerLost, as transport.h. The first one is recorded for all ranks.
// Threads: one thread per channel at a time. The thread that makes it destroys it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/host_region.h"
#include "comm/transport.h"

namespace moraine {

enum class RankKind : uint8_t { kThreads, kProcesses };

class HostTransport : public Transport {
 public:
  struct Options {
    std::shared_ptr<HostRegion> region;
    RankKind kind = RankKind::kThreads;
    int local = 0;           // index in the region
    std::vector<int> ranks;  // the job's rank of each index
    std::vector<int> hosts;  // host of each rank of the job; empty: all in one
    // Called by every waiter every few milliseconds: other sources of faults. May be empty.
    std::function<void()> idle;
    // Called once by the rank that records a fault: to tell those who do not see this memory.
    std::function<void(const std::string& reason)> on_fault;
  };
  explicit HostTransport(Options options);
  ~HostTransport() override;  // says goodbye: who still waits for this rank gets "rank n left"

  int rank() const override { return ranks_[static_cast<size_t>(local_)]; }
  int size() const override;
  int host_of(int rank) const override;
  std::string name() const override;

  SendTicket send(int peer, int channel, uint64_t label, ConstBytes data, double seconds) override;
  void wait_sent(const SendTicket& ticket, double seconds) override;
  void receive(int peer, int channel, uint64_t label, Bytes out, double seconds) override;
  Incoming open(int peer, int channel, uint64_t label, int64_t bytes, double seconds) override;
  ConstBytes next(Incoming& message, int64_t bytes, Bytes staging, double seconds) override;
  void close(Incoming& message) override;
  void drop(Incoming& message) override;
  void withdraw(const SendTicket& ticket, const std::string& reason) override;
  void fail(const std::string& reason) override;
  void name_channel(int channel, const std::string& name) override;
  HostTransport* host() override { return this; }

  // The job's rank that failed first, or -1.
  int fault_rank() const;
  std::string fault_reason() const;
  // fail() on behalf of another rank of the job.
  void record_fault(int rank, const std::string& reason);
  [[noreturn]] void throw_lost(const std::string& reason);  // fail, then throw
  void throw_if_fault(int channel, uint64_t label) const;
  // Throws if the rank of this host has died or left.
  void throw_if_gone(int rank, int channel, uint64_t label, const char* doing);
  std::string context_text(int channel, uint64_t label) const;
  bool reaches(int rank) const { return local_of(rank) >= 0; }
  // Reads memory of another process of the region. False: not permitted, or it is gone.
  bool read_memory(int peer, uint64_t address, Bytes out) const;
  // After it said false.
  [[noreturn]] void throw_unreachable(int rank, int channel, uint64_t label);
  HostRegion& region() const { return *region_; }
  int local_of(int rank) const;
  RankKind kind() const { return kind_; }

  // A wait of this rank for something that `ready` sees in shared memory.
  struct Wait {
    int peer;  // index in the region
    int channel;
    uint64_t label;
    double seconds;
    const char* doing;  // "waits for", "waits for the reader"
  };
  template <class Ready>
  void wait(const Wait& w, Ready ready);

 private:
  struct Counters {  // of one (peer, channel); the last number used
    uint64_t sent = 0, received = 0;
  };
  Counters& counters(int local, int channel) {
    return counters_[static_cast<size_t>(local * kMaxChannels + channel)];
  }
  Message& slot(int from, int to, int channel, uint64_t number) const {
    return region_->ring(from, to, channel).slots[(number - 1) % kRingMessages];
  }
  RankRecord& mine() const { return region_->rank(local_); }
  void mark_opened(Incoming& message, uint64_t label);
  bool message_there(int from, int channel, uint64_t number) const;

  enum class Spin : uint8_t { kUnknown, kYes, kNo };
  void add_cores();
  bool may_spin();
  bool spin(bool (*ready)(const void*), const void* context);
  void wait_slowly(const Wait& w, bool (*ready)(const void*), const void* context);
  bool has_gone(int local);
  [[noreturn]] void throw_gone(const Wait& w);
  [[noreturn]] void throw_deadline(const Wait& w);
  std::string describe(int local) const;

  std::shared_ptr<HostRegion> region_;
  const RankKind kind_;
  const int local_;
  const std::vector<int> ranks_, hosts_;
  const std::function<void()> idle_;
  const std::function<void(const std::string& reason)> on_fault_;
  const int64_t inline_bytes_;  // a system call costs more than copying this twice
  std::atomic<Spin> spin_{Spin::kUnknown};
  std::vector<Counters> counters_;
  std::string channel_names_[kMaxChannels];
};

template <class Ready>
void HostTransport::wait(const Wait& w, Ready ready) {
  const auto call = [](const void* context) { return (*static_cast<const Ready*>(context))(); };
  if (ready() || spin(call, &ready)) return;
  wait_slowly(w, call, &ready);
}

}  // namespace moraine
