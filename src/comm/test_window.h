// TestWindow: what tests let the ranks of any transport do with a window, and check.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "comm/stream.h"
#include "comm/test_work.h"
#include "comm/window.h"

namespace moraine {

constexpr int kWindowChannel = 5;
constexpr int64_t kWord = 8;

inline void require(bool ok, const char* what) {
  if (!ok) throw_error(Code::kCorrupt, "{}", what);
}

inline std::byte pattern(int from, int round, size_t i) {
  return static_cast<std::byte>(static_cast<size_t>(from * 37 + round * 11) + i);
}

inline std::vector<std::byte> block_of(int from, int round, size_t bytes) {
  std::vector<std::byte> block(bytes);
  for (size_t i = 0; i < bytes; ++i) block[i] = pattern(from, round, i);
  return block;
}

// Every member writes a block into every other, signals, and the other looks. Two segments: bytes, words.
inline void pass_around(Transport& t) {
  Communicator comm = world(t, kWindowChannel);
  const int size = comm.size();
  Window window(comm);
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{20001}, size_t{100003}}) {
    const int64_t each = static_cast<int64_t>(bytes);
    const int data = window.add_segment(each * size + comm.rank(), "blocks");
    const int words = window.add_segment(kWord * size, "signals");
    require(window.bytes_of(size - 1, data) == each * size + size - 1, "bytes_of");
    for (int round = 1; round <= 5; ++round) {
      const std::vector<std::byte> block = block_of(comm.rank(), round, bytes);
      for (int m = 0; m < size; ++m)
        window.put_signal(window.address(m, data, comm.rank() * each), block,
                          window.address(m, words, comm.rank() * kWord));
      for (int m = 0; m < size; ++m) {
        window.wait_until(window.address(comm.rank(), words, m * kWord),
                          static_cast<uint64_t>(round), m);
        const std::byte* got = window.memory(data).data() + m * each;
        require(block_of(m, round, bytes) == std::vector<std::byte>(got, got + bytes),
                "a block is not what was put");
      }
      barrier(comm);  // all have looked: the next round may write
      std::vector<std::byte> copy(bytes);
      window.get(window.address((comm.rank() + 1) % size, data, comm.rank() * each), copy);
      require(copy == block, "a block is not what is got");
      barrier(comm);
    }
    window.remove_segment(words);
    window.remove_segment(data);
  }
}

// Adders of all ranks, and one thread more on each: no addition is lost, and no two see the same number.
inline void add_and_swap(Transport& t) {
  constexpr uint64_t kTimes = 200;
  Communicator comm = world(t, kWindowChannel), other = world(t, kWindowChannel + 1);
  Window window(comm);
  const int words = window.add_segment(3 * kWord, "words");
  const GlobalAddress sum = window.address(comm.size() - 1, words),
                      swapped = window.address(0, words, kWord),
                      seen = window.address(0, words, 2 * kWord);
  const auto add = [&] {
    uint64_t before = 0;
    for (uint64_t i = 0; i < kTimes; ++i) {
      const uint64_t now = window.fetch_add(sum, 3);
      require(i == 0 || now >= before + 3, "a sum went back");
      before = now;
    }
  };
  CommStream stream;
  CommHandle beside = stream.submit(add);
  add();
  for (uint64_t i = 0; i < kTimes; ++i) {
    uint64_t value = window.compare_swap(swapped, 0, 0);
    for (uint64_t now; (now = window.compare_swap(swapped, value, value + 1)) != value;)
      value = now;
    window.fetch_add(seen, value);
  }
  beside.wait();
  barrier(comm);
  const uint64_t n = static_cast<uint64_t>(comm.size()) * kTimes;
  require(window.fetch_add(sum, 0) == 2 * n * 3, "the sum");
  require(window.fetch_add(swapped, 0) == n, "the count of swaps");
  require(window.fetch_add(seen, 0) == n * (n - 1) / 2, "the values that were swapped");
  barrier(comm);
}

}  // namespace moraine
