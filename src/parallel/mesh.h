// Mesh: which rank does what: data, expert and context parallel groups as a pure function.
//
//   rank = data * context + position     context: ranks that share the tokens of one sequence
//   expert = rank % expert_ranks         neighbours hold different experts: an expert group is
//                                        expert_ranks consecutive ranks
// The mesh of experts is independent of the attention's: an expert group may span data parallel
// ranks, context parallel ranks or both.
//
// Slots: data parallel rank i owns slots [i, i+1) * slots / data_ranks, 2^k of them unless it owns all, so that a
// rank's, and an expert group's, slots are a subtree of the slot tree.
#pragma once

#include <cstdint>
#include <vector>

namespace moraine {

struct Mesh {
  int ranks = 1, context = 1, expert = 1;
  int rank = 0;  // this one

  int data() const { return ranks / context; }
  int data_rank() const { return rank / context; }
  int context_rank() const { return rank % context; }
  int expert_rank() const { return rank % expert; }

  std::vector<int> all() const;
  std::vector<int> context_group() const;  // ranks that share this one's sequences
  std::vector<int> expert_group() const;   // ranks that hold the other experts for this one
  std::vector<int> replica_group() const;  // ranks that hold the same experts as this one
};

// The same ranks and experts with other ranks sharing a sequence (a phase of the run).
Mesh with_context(const Mesh& mesh, int64_t context);

// Errors: kInvalidArgument: names the number that does not divide, and what would.
Mesh make_mesh(int ranks, int rank, int64_t expert, int64_t context, int64_t slots,
               int64_t num_experts);

}  // namespace moraine
