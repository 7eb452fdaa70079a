// What ranks check of each other in a step, before anything moves (step_verdict.h).
//
// One of each rank's slots is computed by another rank as well, before its own: in the same memory, at the same time on
// all ranks. The slots take turns. Its own gradients are hashed before they are added to anything.
#include <cstring>
#include <utility>

#include "base/fault_point.h"
#include "model/weights.h"
#include "train/trainer.h"

namespace moraine {
namespace {

// Each of a rank's slots in turn, as chance has it: saves, too, decide which steps are verified.
int64_t verified_slot(int64_t step, int64_t slots) {
  return static_cast<int64_t>(hash_bytes(&step, sizeof step).low % static_cast<uint64_t>(slots));
}

template <class T>
std::vector<T> gather_all(Communicator& world, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(static_cast<size_t>(world.size()));
  all_gather_equal(world, std::as_bytes(std::span(&mine, 1)),
                   std::as_writable_bytes(std::span(all)));
  return all;
}

SlotPass pass_of(std::span<const StepReport> reports, int shift, SlotHash StepReport::*field) {
  SlotPass pass{.shift = shift, .by = {}};
  for (const StepReport& report : reports) pass.by.push_back(report.*field);
  return pass;
}

}  // namespace

void Trainer::check_state() {
  if (seal_ == nullptr) return;
  const OpTimer timer(ctx_.profile, Span::kPhase, "verify");
  seal_->check(ctx_);
}

void Trainer::close_state() {
  if (seal_ == nullptr) return;
  const OpTimer timer(ctx_.profile, Span::kPhase, "verify");
  seal_->close(ctx_);
}

StepVerdict Trainer::compare_weights() {
  if (seal_ == nullptr) return {};
  StepReport mine;
  mine.weights = seal_->weights(ctx_), mine.experts = seal_->experts(ctx_);
  return judge_state(ranks_->mesh, gather_all(ranks_->world, mine));
}

Trainer::Verified Trainer::begin_verified(const StepPlan& plan, int64_t slots, const Read& read) {
  MR_CHECK(seal_ != nullptr);
  const OpTimer timer(ctx_.profile, Span::kPhase, "verify");
  fault_point("verify.other_slot");
  Verified slot{.index = verified_slot(plan.step, slots), .own = {}, .again = {}};
  slot.again = other_slot(plan, slot.index, slot_shift(ranks_->mesh), read);
  return slot;
}

// The slot of the rank that is `shift` before this one.
SlotHash Trainer::other_slot(const StepPlan& plan, int64_t index, int shift, const Read& read) {
  Profile* const profile =
      std::exchange(ctx_.profile, nullptr);  // its operations are not the step's
  const Mesh& mesh = ranks_->mesh;
  const int rank = (mesh.rank - shift + mesh.ranks) % mesh.ranks;
  const int64_t first = rank / mesh.context * (config_.train.slots / mesh.data());
  const GradientSink sink = reducer_->begin_other(ctx_);
  const SlotSum sum = backward_slot(plan, first + index, read, sink);
  const Tensor gradients = reducer_->end_other(ctx_);
  const SlotHash hash = hash_slot(gradients, sum, shift);
  ctx_.profile = profile;
  return hash;
}

SlotHash Trainer::hash_slot(const Tensor& gradients, const SlotSum& sum, int shift) {
  const ParameterTable& table = model_->table();
  SlotHash hash;
  const Hash128 shared = StateHash(shared_parts(table, gradients)).digest(ctx_);
  Hasher with_loss;
  with_loss.add(&shared, sizeof shared);
  with_loss.add(&sum.loss, sizeof sum.loss);
  with_loss.add(&sum.targets, sizeof sum.targets);
  hash.shared = with_loss.digest();
  // By whose slots they are: the same order in every pass.
  std::vector<Tensor> experts;
  const int senders = ranks_->mesh.expert;
  for (int s = 0; s < senders; ++s)
    experts.push_back(sender_experts(table, gradients, (s + shift) % senders));
  hash.experts = StateHash(experts).digest(ctx_);
  return hash;
}

StepVerdict Trainer::judge(const StepPlan& plan, const Verified& slot, const Numbers& numbers,
                           const Read& read) {
  const OpTimer timer(ctx_.profile, Span::kPhase, "verify");
  fault_point("verify.judge");
  is_judging_ = true;
  seal_->check(ctx_);
  Hasher all_numbers;
  all_numbers.add(&numbers, sizeof numbers);
  if (!load_.empty()) all_numbers.add(load_.data, load_.bytes());
  const std::vector<StepReport> reports =
      gather_all(ranks_->world, StepReport{.weights = seal_->weights(ctx_),
                                           .experts = seal_->experts(ctx_),
                                           .numbers = all_numbers.digest(),
                                           .own = slot.own,
                                           .again = slot.again});
  const Mesh& mesh = ranks_->mesh;
  const StepVerdict state = judge_state(mesh, reports);
  if (!state.agreed()) return state;
  const SlotPass own = pass_of(reports, 0, &StepReport::own),
                 again = pass_of(reports, slot_shift(mesh), &StepReport::again);
  is_judging_ = !slots_agree(mesh, own, again);
  if (!is_judging_) return {};
  std::vector<SlotPass> more;
  for (const int shift : deciding_shifts(mesh))
    more.push_back({shift, gather_all(ranks_->world, other_slot(plan, slot.index, shift, read))});
  StepVerdict verdict = judge_slots(mesh, own, again, more);
  is_judging_ = !verdict.agreed();
  return verdict;
}

}  // namespace moraine
