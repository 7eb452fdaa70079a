// Collectives: operations that every rank of a communicator performs together.
//
// All block until this rank's part is done, its results are there and its inputs may be changed.
// Asynchronous: submit them to a CommStream (comm/stream.h) with a communicator of its own.
//
//   reduce_scatter   data[i] = sum over ranks of data[i], for i in this rank's ranges; elsewhere
//                    data is unchanged. The sum is a binary tree over ranks, nearest neighbours
//                    first: ((0+1)+(2+3))+((4+5)+(6+7)), a last rank without a partner passes on:
//                    the upper levels of SlotTree. No bit depends on algorithm or transport.
//   all_gather       data[i] of its owner, for every i in anybody's ranges.
//   all_to_all       member r's send[me] arrives in my receive[r]; sizes agree on both sides.
//
// Steps and bytes on the wire: docs/collectives.md.
// Errors: kPeerLost (transport.h). Wrong shares or sizes are the caller's bug.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "tensor/tensor.h"

namespace moraine {

struct Range {
  int64_t begin = 0, end = 0;  // elements
};

// Who owns what of a flat buffer: for each member, ascending ranges; no element has two owners.
using Shares = std::vector<std::vector<Range>>;

// What the addends of a sum are sent as. kBF16 rounds each addend once: half the bytes, and another answer.
enum class ReduceDType : uint8_t { kF32, kBF16 };

void barrier(Communicator& comm);
void broadcast(Communicator& comm, int root, Bytes data);

// Strings of any length. gather: all at the root, nothing elsewhere.
std::vector<std::string> gather(Communicator& comm, int root, const std::string& mine);
std::vector<std::string> all_gather_text(Communicator& comm, const std::string& mine);

// `data`: flat [n] of any type, in place.
void all_gather(Communicator& comm, const Tensor& data, const Shares& shares);
// How reduce_scatter goes: the same bits either way.
//   kDirect   each owner reads its ranges of all others: P - 1 messages of n / P elements each.
//   kHalving  log2 P exchanges of n/2, n/4, ... elements, neighbours first; fewer messages, one
//             more copy. Needs a power of two and an f32 reduce dtype, else kDirect.
//   kAuto     kDirect in one host, kHalving over hosts.
enum class SumPath : uint8_t { kAuto, kDirect, kHalving };

struct ReduceScatter {
  ReduceDType dtype = ReduceDType::kF32;
  SumPath path = SumPath::kAuto;
  Bytes scratch = {};  // at least reduce_scatter_scratch(); empty: taken and freed by the call
};
// `data`: flat [n] f32, in place.
void reduce_scatter(Communicator& comm, const Tensor& data, const Shares& shares,
                    const ReduceScatter& how = {});
// Bytes, for shares of so many elements together: a few MiB at most. Enough for every path.
int64_t reduce_scatter_scratch(int members, int64_t elements, ReduceDType dtype);

// Every member's equal pieces, in order: all.size() == size * mine.size().
void all_gather_equal(Communicator& comm, ConstBytes mine, Bytes all);

void all_to_all(Communicator& comm, std::span<const ConstBytes> send,
                std::span<const Bytes> receive);

// Any number of pieces for each member, that lie anywhere: piece i of send[me] at member r arrives in my
// receive[r][i]. Both lists of a pair are equally long. No piece for itself.
void all_to_all_pieces(Communicator& comm, std::span<const std::vector<ConstBytes>> send,
                       std::span<const std::vector<Bytes>> receive);

// The same as all_to_all over hosts with fewer, larger messages: bundles go to the member of this host that has
// the target's place in its host, then from host to host. hosts[m]: host of member m; all hosts
// must have equally many members, else it is flat. Pays where the latency between hosts is most of
// the time (docs/collectives.md).
void all_to_all_two_level(Communicator& comm, std::span<const int> hosts,
                          std::span<const ConstBytes> send, std::span<const Bytes> receive);

void all_reduce_sum(Communicator& comm, std::span<int64_t> values);  // exact
// Each value is nonzero on at most one member: exact in any order.
void all_reduce_disjoint(Communicator& comm, std::span<double> values);

}  // namespace moraine
