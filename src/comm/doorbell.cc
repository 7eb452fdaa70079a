// Doorbell: sleeps and wakes through futex calls, between threads and between processes.
#include "comm/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace moraine {
namespace {

// A shared futex: the word may be mapped by several processes.
void futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* timeout) {
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, timeout, nullptr, 0);
}

}  // namespace

void ring_doorbell(RankRecord& rank) {
  rank.doorbell.fetch_add(1, std::memory_order_seq_cst);
  if (rank.sleepers.load(std::memory_order_seq_cst) != 0)
    futex(rank.doorbell, FUTEX_WAKE, INT_MAX, nullptr);
}

void sleep_on_doorbell(RankRecord& rank, uint32_t seen, double seconds) {
  timespec timeout;
  timeout.tv_sec = static_cast<time_t>(seconds);
  timeout.tv_nsec = static_cast<long>((seconds - static_cast<double>(timeout.tv_sec)) * 1e9);
  rank.sleepers.fetch_add(1, std::memory_order_seq_cst);
  futex(rank.doorbell, FUTEX_WAIT, seen, &timeout);
  rank.sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace moraine
