// HostRegion: the memory that ranks of one host share to pass messages.
//
// For each (sender, receiver, channel) a ring of message descriptors; for each rank a doorbell,
// what it is doing, and a mutex whose owner's death the kernel reports; one record of the first
// fault. Only descriptors and small payloads lie here: large payloads stay where they are.
//
// All of it is valid when zero, and pages are taken when they are first touched.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "comm/transport.h"

namespace moraine {

constexpr int kRingMessages = 8;
constexpr int64_t kInlineBytes = 8 * 1024 - 40;  // what fits in a descriptor

enum class RankState : int32_t { kAbsent = 0, kHere, kLeft, kDied };

struct alignas(64) RankRecord {
  std::atomic<uint32_t> doorbell;  // counts events for this rank; its waiters sleep on it
  std::atomic<uint32_t> sleepers;
  alignas(64) std::atomic<RankState> state;
  std::atomic<int32_t> pid;
  pthread_mutex_t alive;  // robust, held by the rank's first thread; processes only
  // Per channel, for messages of others: the operation, and 1 + the rank that it waits for.
  std::atomic<uint64_t> label[kMaxChannels];
  std::atomic<int32_t> waits_for[kMaxChannels];
};

struct alignas(64) Message {
  uint64_t label, address;
  int64_t bytes;
  std::atomic<uint64_t> done;    // number of the last message in this slot that was taken
  std::atomic<uint64_t> opened;  // between threads: of the last one whose address was taken
  std::byte inline_data[kInlineBytes];
};

// Message number n (from 1) is in slot (n - 1) % kRingMessages.
struct alignas(64) Ring {
  std::atomic<uint64_t> sent;
  Message slots[kRingMessages];
};

enum class FaultState : int32_t { kNone = 0, kWriting, kSet };

struct alignas(64) RegionHead {
  static constexpr int kReasonBytes = 2048, kMostCores = 1024;
  std::atomic<FaultState> fault;
  std::atomic<int32_t> fault_rank;
  char reason[kReasonBytes];
  std::atomic<int32_t> joined;                   // ranks that have added their cores
  std::atomic<uint64_t> cores[kMostCores / 64];  // that any rank may run on
};

class HostRegion {
 public:
  // Ranks are threads of this process, or will be forked from it.
  static std::shared_ptr<HostRegion> make_private(int ranks);
  // Ranks are processes that know a name ("/moraine-..."). The creator makes it, the others open
  // it; forget_name when all have. Errors: kIo.
  static std::shared_ptr<HostRegion> make_named(int ranks, const std::string& name);
  static std::shared_ptr<HostRegion> open_named(int ranks, const std::string& name);
  static void forget_name(const std::string& name);

  ~HostRegion();
  HostRegion(const HostRegion&) = delete;
  HostRegion& operator=(const HostRegion&) = delete;

  int ranks() const { return ranks_; }
  RegionHead& head() const { return *reinterpret_cast<RegionHead*>(memory_); }
  RankRecord& rank(int r) const;
  Ring& ring(int from, int to, int channel) const;

  // Between threads: what one rank has and the others may take a share of while it has it. Returns its number.
  uint64_t offer(std::shared_ptr<void> object);
  std::shared_ptr<void> take_offer(uint64_t number);  // null: it is gone

 private:
  HostRegion(int ranks, std::byte* memory, size_t bytes)
      : ranks_(ranks), memory_(memory), bytes_(bytes) {}
  void make_mutexes();

  int ranks_;
  std::byte* memory_;
  size_t bytes_;
  std::mutex offers_mutex_;
  std::map<uint64_t, std::weak_ptr<void>> offers_;
  uint64_t last_offer_ = 0;
};

}  // namespace moraine
