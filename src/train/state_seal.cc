// StateSeal: three hashes, taken and compared.
#include "train/state_seal.h"

#include "base/error.h"

namespace moraine {
namespace {

constexpr const char* kNames[] = {"weights that every rank has", "weights of experts",
                                  "parts of the optimizer state"};

}  // namespace

std::vector<Tensor> shared_parts(const ParameterTable& table, const Tensor& flat) {
  return {flat.rows(0, table.expert_begin), flat.rows(table.matrix_count, table.total_count)};
}

StateSeal::StateSeal(const ParameterTable& table, const Tensor& master,
                     const OptimizerGroups& optimizers) {
  const Tensor experts = master.rows(table.expert_begin, table.matrix_count);
  std::vector<Tensor> state;
  for (const DistributedOptimizer* optimizer : optimizers.all()) {
    for (const OptimizerTensor& t : optimizer->state()) state.push_back(t.tensor);
  }
  parts_[kWeights] = StateHash(shared_parts(table, master));
  parts_[kExperts] = StateHash(std::span(&experts, 1));
  parts_[kOptimizer] = StateHash(state);
}

void StateSeal::close(Context& ctx) {
  for (int i = 0; i < kParts; ++i) closed_[i] = parts_[i].digest(ctx);
  is_closed_ = true;
}

void StateSeal::check(Context& ctx) {
  if (!is_closed_) return;
  for (int i = 0; i < kParts; ++i) {
    const Hash128 now = parts_[i].digest(ctx);
    if (now == closed_[i]) continue;
    throw_error(
        Code::kRankDiverged,
        "check memory: the {} had hash {} when the last step was done, and have {} now; they "
        "have changed by themselves: look at this host's memory before it is used again",
        kNames[i], hash_hex(closed_[i]), hash_hex(now));
  }
}

}  // namespace moraine
