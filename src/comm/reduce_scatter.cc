// Reduce-scatter: chooses the path; direct: each owner reads its ranges of all members, piece by
// piece, and adds them in the order of the tree.
#include <algorithm>
#include <bit>
#include <memory>
#include <vector>

#include "base/check.h"
#include "comm/collectives.h"
#include "comm/exchange.h"
#include "comm/reduce_halving.h"
#include "comm/share_rounds.h"
#include "comm/tree_sum.h"

namespace moraine {
namespace {

// 128 KiB: smaller ones cost system calls, larger ones caches.
constexpr int64_t kPieceElements = 32 << 10;

// Kept for the next operation of this thread: taking and clearing it would cost more than a small
// sum.
float* scratch(int64_t count) {
  thread_local std::unique_ptr<float[]> memory;
  thread_local int64_t capacity = 0;
  if (count > capacity) {
    memory.reset(new float[static_cast<size_t>(count)]);
    capacity = count;
  }
  return memory.get();
}

class Direct {
 public:
  Direct(Communicator& comm, const Tensor& data, const Shares& merged, Wire wire)
      : comm_(comm),
        data_(data.as<float>()),
        merged_(merged),
        wire_(wire),
        sum_(comm.size(), kPieceElements, scratch(TreeSum::floats(comm.size(), kPieceElements))),
        rounded_(wire == Wire::kBF16 ? static_cast<size_t>(kPieceElements) : 0),
        incoming_(static_cast<size_t>(comm.size())),
        exchange_(comm, Operation::kReduceScatter) {}

  void run() {
    for (int64_t round = 0; round < round_count(merged_); ++round) {
      for (int i = 1; i < comm_.size(); ++i) post(member_after(comm_, i), round);
      take(round);
      if (wire_ == Wire::kBF16) {
        exchange_.wait_sent();
        wire_copies_.clear();
      }
    }
    exchange_.wait_sent();
  }

 private:
  int64_t width() const { return wire_ == Wire::kBF16 ? 2 : 4; }

  void post(int owner, int64_t round) {
    const std::vector<Range>& theirs = merged_[static_cast<size_t>(owner)];
    if (round >= static_cast<int64_t>(theirs.size())) return;
    const Range r = theirs[static_cast<size_t>(round)];
    const int64_t n = r.end - r.begin;
    if (wire_ == Wire::kF32) {
      exchange_.send(owner, std::as_bytes(std::span(data_ + r.begin, static_cast<size_t>(n))));
      return;
    }
    wire_copies_.emplace_back(static_cast<size_t>(n));
    round_to_bf16(wire_copies_.back().data(), data_ + r.begin, n);
    exchange_.send(owner, std::as_bytes(std::span(wire_copies_.back())));
  }

  void take(int64_t round) {
    const std::vector<Range>& mine = merged_[static_cast<size_t>(comm_.rank())];
    if (round >= static_cast<int64_t>(mine.size())) return;
    const Range r = mine[static_cast<size_t>(round)];
    for (int i = 1; i < comm_.size(); ++i) {
      const int m = member_before(comm_, i);
      incoming_[static_cast<size_t>(m)] = exchange_.open(m, (r.end - r.begin) * width());
    }
    for (int64_t at = r.begin; at < r.end; at += kPieceElements) {
      float* out = data_ + at;
      sum_.add([this, out](int m, float* staging, int64_t n) { return source(m, out, staging, n); },
               out, std::min(kPieceElements, r.end - at));
    }
    for (int m = 0; m < comm_.size(); ++m) {
      if (m != comm_.rank()) exchange_.close(incoming_[static_cast<size_t>(m)]);
    }
  }

  // This member's own addend is rounded too: no bit depends on who owns a range.
  const float* source(int member, const float* own, float* staging, int64_t count) {
    const bool is_own = member == comm_.rank();
    if (wire_ == Wire::kF32) {
      if (is_own) return own;
      const Bytes room = std::as_writable_bytes(std::span(staging, static_cast<size_t>(count)));
      return reinterpret_cast<const float*>(
          exchange_.next(incoming_[static_cast<size_t>(member)], count * 4, room).data());
    }
    if (is_own) {
      round_to_bf16(rounded_.data(), own, count);
      widen_bf16(staging, rounded_.data(), count);
      return staging;
    }
    const Bytes room = std::as_writable_bytes(std::span(rounded_));
    const ConstBytes piece =
        exchange_.next(incoming_[static_cast<size_t>(member)], count * 2, room);
    widen_bf16(staging, reinterpret_cast<const BF16*>(piece.data()), count);
    return staging;
  }

  Communicator& comm_;
  float* const data_;
  const Shares& merged_;
  const Wire wire_;
  TreeSum sum_;
  std::vector<BF16> rounded_;
  std::vector<Incoming> incoming_;
  std::vector<std::vector<BF16>> wire_copies_;
  Exchange exchange_;  // last: what it sends outlives it
};

}  // namespace

void reduce_scatter(Communicator& comm, const Tensor& data, const Shares& shares, Wire wire) {
  reduce_scatter_by(comm, data, shares, wire, SumPath::kAuto);
}

void reduce_scatter_by(Communicator& comm, const Tensor& data, const Shares& shares, Wire wire,
                       SumPath path) {
  check_shares(shares, comm.size(), data.count());
  const Shares merged = merge_shares(shares);
  if (comm.free()) {
    Exchange counted(comm, Operation::kReduceScatter);
    return;
  }
  const bool can_halve =
      std::has_single_bit(static_cast<unsigned>(comm.size())) && wire == Wire::kF32;
  const bool halve = path == SumPath::kHalving || (path == SumPath::kAuto && !comm.one_host());
  if (halve && can_halve) {
    reduce_scatter_halving(comm, data, merged);
  } else {
    Direct(comm, data, merged, wire).run();
  }
}

}  // namespace moraine
