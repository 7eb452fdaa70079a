// TestWork: what tests let the ranks of any transport do, and check.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "comm/all_ranks.h"
#include "comm/collectives.h"

namespace moraine {

constexpr double kTestDeadline = 60;

inline Communicator world(Transport& t, int channel = 0, double deadline = kTestDeadline) {
  return Communicator(t, all_ranks(t), channel, "world", deadline);
}

struct Work {
  int64_t count;              // elements that are summed
  int64_t piece = count / 3;  // bytes from each rank to rank 0; to rank m: m + 1 times as many
  int variant = 0;            // of the values
};

// Values that sum exactly, so that a plain sum is the reference. Returns how many are wrong.
inline int64_t sum_and_gather(Communicator& comm, const Work& w, Hasher* hasher) {
  const int me = comm.rank(), size = comm.size();
  const auto value = [&w](int64_t i) { return (i * 7 + w.variant) % 1000; };
  Shares shares;
  for (int m = 0; m < size; ++m) shares.push_back({{w.count * m / size, w.count * (m + 1) / size}});
  std::vector<float> data;
  for (int64_t i = 0; i < w.count; ++i) data.push_back(static_cast<float>(value(i) + me));
  const Tensor all = make_tensor(data.data(), DType::kF32, {w.count});
  reduce_scatter(comm, all, shares);
  all_gather(comm, all, shares);
  hasher->add(data.data(), w.count * 4);
  int64_t wrong = 0;
  for (int64_t i = 0; i < w.count; ++i) {
    const int64_t want = size * value(i) + size * (size - 1) / 2;
    wrong += data[static_cast<size_t>(i)] != static_cast<float>(want);
  }
  return wrong;
}

// Returns how many pieces are wrong.
inline int64_t swap_pieces(Communicator& comm, const Work& w, Hasher* hasher) {
  const int me = comm.rank(), size = comm.size();
  std::vector<std::vector<std::byte>> out, in;
  for (int m = 0; m < size; ++m) {
    out.emplace_back(static_cast<size_t>(w.piece * (m + 1)), std::byte(me * 16 + m + w.variant));
    in.emplace_back(static_cast<size_t>(w.piece * (me + 1)));
  }
  const std::vector<ConstBytes> send(out.begin(), out.end());
  const std::vector<Bytes> receive(in.begin(), in.end());
  all_to_all(comm, send, receive);
  int64_t wrong = 0;
  for (int m = 0; m < size; ++m) {
    const std::vector<std::byte>& bytes = in[static_cast<size_t>(m)];
    const auto right = std::count(bytes.begin(), bytes.end(), std::byte(m * 16 + me + w.variant));
    wrong += right != static_cast<int64_t>(bytes.size());
    hasher->add(bytes.data(), static_cast<int64_t>(bytes.size()));
  }
  return wrong;
}

// Every collective once. The hash is of what this rank has afterwards. Errors: kCorrupt on all ranks if one has a wrong
// value.
inline Hash128 work(Communicator& comm, const Work& w) {
  const int me = comm.rank(), last = comm.size() - 1;
  Hasher hasher;
  int64_t wrong = sum_and_gather(comm, w, &hasher);
  wrong += swap_pieces(comm, w, &hasher);
  std::vector<std::byte> text(static_cast<size_t>(w.count), std::byte(me == last ? 77 : 0));
  broadcast(comm, last, text);
  wrong += std::count(text.begin(), text.end(), std::byte{77}) != w.count;
  std::vector<int64_t> sums = {wrong, 1};
  all_reduce_sum(comm, sums);
  if (sums[0] != 0 || sums[1] != comm.size())
    throw_error(Code::kCorrupt, "rank {}, {} elements, variant {}: {} of all ranks are wrong", me,
                w.count, w.variant, sums[0]);
  barrier(comm);
  return hasher.digest();
}

// A message to the next rank, taken in pieces that fit no border of the transport's own.
inline void stream_around(Transport& t, size_t bytes = 700001, size_t piece = 100003) {
  const int next = (t.rank() + 1) % t.size(), before = (t.rank() + t.size() - 1) % t.size();
  const auto value = [](int rank, size_t i) {
    return std::byte((i * 7 + i / 1000 + size_t(rank)) & 255);
  };
  std::vector<std::byte> out(bytes), staging(piece);
  for (size_t i = 0; i < bytes; ++i) out[i] = value(t.rank(), i);
  const SendTicket ticket = t.send(next, 3, 5, out, kTestDeadline);
  Incoming in = t.open(before, 3, 5, static_cast<int64_t>(bytes), kTestDeadline);
  for (size_t at = 0; at < bytes; at += piece) {
    const size_t n = std::min(piece, bytes - at);
    const ConstBytes got = t.next(in, static_cast<int64_t>(n), staging, kTestDeadline);
    for (size_t i = 0; i < n; ++i) {
      if (got[i] != value(before, at + i)) throw_error(Code::kCorrupt, "wrong byte {}", at + i);
    }
  }
  t.close(in);
  t.wait_sent(ticket, kTestDeadline);
}

}  // namespace moraine
