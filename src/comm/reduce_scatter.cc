// Reduce-scatter: chooses the path; direct: each owner reads its ranges of all members, piece by
// piece, and adds them in the order of the tree.
#include <algorithm>
#include <bit>
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

// What is copied before it is sent (halving, or rounded to bf16) goes so much at a time.
constexpr int64_t kWindowElements = 1 << 20;

// The scratch of a direct one. Floats first: they need the alignment.
struct DirectScratch {
  int64_t piece;   // elements
  float* levels;   // of TreeSum
  BF16* received;  // [piece] as it came
  BF16* sent;      // [window] rounded copies

  static int64_t bytes(int members, int64_t elements, ReduceDType dtype) {
    const int64_t piece = std::min(kPieceElements, elements);
    const int64_t rounded =
        dtype == ReduceDType::kBF16 ? piece + std::min(kWindowElements, elements) : 0;
    return TreeSum::floats(members, piece) * 4 + rounded * 2;
  }
  // elements: of all shares of the operation.
  DirectScratch(int members, int64_t elements, Bytes memory)
      : piece(std::min(kPieceElements, elements)),
        levels(reinterpret_cast<float*>(memory.data())),
        received(reinterpret_cast<BF16*>(levels + TreeSum::floats(members, piece))),
        sent(received + piece) {}
};

class Direct {
 public:
  Direct(Communicator& comm, const Tensor& data, const Shares& merged, ReduceDType dtype,
         const DirectScratch& scratch)
      : comm_(comm),
        data_(data.as<float>()),
        merged_(merged),
        dtype_(dtype),
        scratch_(scratch),
        sum_(comm.size(), scratch.piece, scratch.levels),
        incoming_(static_cast<size_t>(comm.size())),
        exchange_(comm, Operation::kReduceScatter) {}

  void run() {
    for (int64_t round = 0; round < round_count(merged_); ++round) {
      for (int i = 1; i < comm_.size(); ++i) post(member_after(comm_, i), round);
      take(round);
      if (dtype_ == ReduceDType::kBF16) {
        exchange_.wait_sent();
        sent_ = 0;
      }
    }
    exchange_.wait_sent();
  }

 private:
  int64_t width() const { return dtype_ == ReduceDType::kBF16 ? 2 : 4; }

  void post(int owner, int64_t round) {
    const std::vector<Range>& theirs = merged_[static_cast<size_t>(owner)];
    if (round >= static_cast<int64_t>(theirs.size())) return;
    const Range r = theirs[static_cast<size_t>(round)];
    const int64_t n = r.end - r.begin;
    if (dtype_ == ReduceDType::kF32) {
      exchange_.send(owner, std::as_bytes(std::span(data_ + r.begin, static_cast<size_t>(n))));
      return;
    }
    BF16* const rounded = scratch_.sent + sent_;
    sent_ += n;
    round_to_bf16(rounded, data_ + r.begin, n);
    exchange_.send(owner, std::as_bytes(std::span(rounded, static_cast<size_t>(n))));
  }

  void take(int64_t round) {
    const std::vector<Range>& mine = merged_[static_cast<size_t>(comm_.rank())];
    if (round >= static_cast<int64_t>(mine.size())) return;
    const Range r = mine[static_cast<size_t>(round)];
    for (int i = 1; i < comm_.size(); ++i) {
      const int m = member_before(comm_, i);
      incoming_[static_cast<size_t>(m)] = exchange_.open(m, (r.end - r.begin) * width());
    }
    for (int64_t at = r.begin; at < r.end; at += scratch_.piece) {
      float* out = data_ + at;
      sum_.add([this, out](int m, float* staging, int64_t n) { return source(m, out, staging, n); },
               out, std::min(scratch_.piece, r.end - at));
    }
    for (int m = 0; m < comm_.size(); ++m) {
      if (m != comm_.rank()) exchange_.close(incoming_[static_cast<size_t>(m)]);
    }
  }

  // This member's own addend is rounded too: no bit depends on who owns a range.
  const float* source(int member, const float* own, float* staging, int64_t count) {
    const bool is_own = member == comm_.rank();
    if (dtype_ == ReduceDType::kF32) {
      if (is_own) return own;
      const Bytes room = std::as_writable_bytes(std::span(staging, static_cast<size_t>(count)));
      return reinterpret_cast<const float*>(
          exchange_.next(incoming_[static_cast<size_t>(member)], count * 4, room).data());
    }
    if (is_own) {
      round_to_bf16(scratch_.received, own, count);
      widen_bf16(staging, scratch_.received, count);
      return staging;
    }
    const Bytes room =
        std::as_writable_bytes(std::span(scratch_.received, static_cast<size_t>(count)));
    const ConstBytes piece =
        exchange_.next(incoming_[static_cast<size_t>(member)], count * 2, room);
    widen_bf16(staging, reinterpret_cast<const BF16*>(piece.data()), count);
    return staging;
  }

  Communicator& comm_;
  float* const data_;
  const Shares& merged_;
  const ReduceDType dtype_;
  const DirectScratch scratch_;
  TreeSum sum_;
  int64_t sent_ = 0;  // elements of scratch_.sent that are on their way
  std::vector<Incoming> incoming_;
  Exchange exchange_;  // last: what it sends outlives it
};

int64_t elements(const Shares& shares) {
  int64_t n = 0;
  for (const std::vector<Range>& ranges : shares) {
    for (const Range& r : ranges) n += r.end - r.begin;
  }
  return n;
}

Range extent(const Shares& merged) {
  Range all = {INT64_MAX, 0};
  for (const std::vector<Range>& ranges : merged) {
    if (ranges.empty()) continue;
    all.begin = std::min(all.begin, ranges.front().begin);
    all.end = std::max(all.end, ranges.back().end);
  }
  return all;
}

bool can_halve(int members, ReduceDType dtype) {
  return std::has_single_bit(static_cast<unsigned>(members)) && dtype == ReduceDType::kF32;
}

}  // namespace

int64_t reduce_scatter_scratch(int members, int64_t elements, ReduceDType dtype) {
  const int64_t direct = DirectScratch::bytes(members, elements, dtype),
                halving = 2 * std::min(kWindowElements, elements) * 4;
  return can_halve(members, dtype) ? std::max(direct, halving) : direct;
}

void reduce_scatter(Communicator& comm, const Tensor& data, const Shares& shares,
                    const ReduceScatter& how) {
  check_shares(shares, comm.size(), data.count());
  const Shares merged = merge_shares(shares);
  const int64_t n = elements(merged);
  if (n == 0) return;
  const int64_t bytes = reduce_scatter_scratch(comm.size(), n, how.dtype);
  std::vector<float> own;  // float: for its alignment
  Bytes scratch = how.scratch;
  if (scratch.empty()) {
    own.resize(static_cast<size_t>((bytes + 3) / 4));
    scratch = std::as_writable_bytes(std::span(own));
  }
  MR_CHECK(static_cast<int64_t>(scratch.size()) >= bytes, "%zu bytes of scratch, wanted %ld",
           scratch.size(), long(bytes));
  const DirectScratch direct(comm.size(), n, scratch);
  const bool halve =
      can_halve(comm.size(), how.dtype) &&
      (how.path == SumPath::kHalving || (how.path == SumPath::kAuto && !comm.one_host()));
  if (!halve && how.dtype == ReduceDType::kF32) {
    Direct(comm, data, merged, how.dtype, direct).run();
    return;
  }
  const Range all = extent(merged);
  for (int64_t at = all.begin; at < all.end; at += kWindowElements) {
    const Shares part = cut_shares(merged, {at, at + kWindowElements});
    if (halve) {
      reduce_scatter_halving(comm, data, part,
                             {reinterpret_cast<float*>(scratch.data()), scratch.size() / 4});
    } else {
      Direct(comm, data, part, how.dtype, direct).run();
    }
  }
}

}  // namespace moraine
