// Mesh: computes the groups from rank numbers.
#include "parallel/mesh.h"

#include <string>

#include "base/error.h"

namespace moraine {
namespace {

std::vector<int> every(int begin, int end, int stride) {
  std::vector<int> ranks;
  for (int r = begin; r < end; r += stride) ranks.push_back(r);
  return ranks;
}

bool power_of_two(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

// Data parallel ranks whose slots are a subtree of the slot tree: 2^k of them each, or all.
bool may_divide(int64_t slots, int64_t data) {
  return data == 1 || (slots % data == 0 && power_of_two(slots / data));
}

std::string rank_counts(int64_t slots, int64_t context) {
  std::string text;
  for (int64_t data = 1; data <= slots; ++data)
    if (may_divide(slots, data)) text += (data > 1 ? ", " : "") + std::to_string(data * context);
  return text;
}

}  // namespace

std::vector<int> Mesh::all() const { return every(0, ranks, 1); }

std::vector<int> Mesh::context_group() const {
  const int begin = rank - context_rank();
  return every(begin, begin + context, 1);
}

std::vector<int> Mesh::expert_group() const {
  const int begin = rank - expert_rank();
  return every(begin, begin + expert, 1);
}

std::vector<int> Mesh::replica_group() const { return every(expert_rank(), ranks, expert); }

Mesh with_context(const Mesh& mesh, int64_t context) {
  Mesh other = mesh;
  other.context = static_cast<int>(context);
  return other;
}

Mesh make_mesh(int ranks, int rank, int64_t expert, int64_t context, int64_t slots,
               int64_t num_experts) {
  if (context < 1 || !power_of_two(context) || ranks % context != 0) {
    throw_error(
        Code::kInvalidArgument,
        "parallel.context = {} on {} ranks: wanted a power of two that divides the ranks (the "
        "context of a phase goes before that of [parallel])",
        context, ranks);
  }
  if (expert < 1 || ranks % expert != 0 || !power_of_two(expert)) {
    throw_error(Code::kInvalidArgument,
                "parallel.expert = {} on {} ranks: wanted a power of two that divides the ranks",
                expert, ranks);
  }
  if (expert > 1 && num_experts == 0) {
    throw_error(Code::kInvalidArgument,
                "parallel.expert = {}: model.experts = 0, a dense model has none to divide; wanted "
                "1",
                expert);
  }
  if (expert > 1 && num_experts % expert != 0) {
    throw_error(Code::kInvalidArgument,
                "parallel.expert = {}: does not divide model.experts = {}; every rank holds the "
                "same number of experts",
                expert, num_experts);
  }
  const int64_t data = ranks / context;
  if (!may_divide(slots, data)) {
    throw_error(Code::kInvalidArgument,
                "{} ranks, {} of them data parallel (context = {}): train.slots = {} does not "
                "divide into 1, 2, 4 ... for each; wanted {} ranks, or another context (the number "
                "of slots decides the answer, so it stays as it is)",
                ranks, data, context, slots, rank_counts(slots, context));
  }
  return {.ranks = ranks,
          .context = static_cast<int>(context),
          .expert = static_cast<int>(expert),
          .rank = rank};
}

}  // namespace moraine
