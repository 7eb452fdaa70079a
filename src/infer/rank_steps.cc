// RankSteps: a header, then the step's lists one behind the other.
#include "infer/rank_steps.h"

#include <cstring>

#include "base/error.h"
#include "comm/all_ranks.h"
#include "comm/collectives.h"

namespace moraine {
namespace {

enum class Kind : int64_t { kStep, kIdle, kEnd };

struct Header {
  Kind kind;
  int64_t copies = 0, rows = 0, segments = 0, pages = 0;
};

// Calls f(bytes) for each list, in the order on the wire.
template <class StepType, class F>
void for_lists(StepType& step, const F& f) {
  const auto bytes = [](auto& list) { return std::as_bytes(std::span(list)); };
  for (const ConstBytes part : {bytes(step.copies), bytes(step.token), bytes(step.position),
                                bytes(step.segments), bytes(step.pages)})
    f(part);
}

void send_header(Communicator& ranks, Header header) {
  broadcast(ranks, 0, std::as_writable_bytes(std::span(&header, 1)));
}

void receive_step(Communicator& ranks, const Header& header, Step* step) {
  const auto size = [](int64_t n) { return static_cast<size_t>(n); };
  step->copies.resize(size(header.copies));
  step->token.resize(size(header.rows));
  step->position.resize(size(header.rows));
  step->segments.resize(size(header.segments));
  step->pages.resize(size(header.pages));
  size_t total = 0;
  for_lists(*step, [&](ConstBytes list) { total += list.size(); });
  std::vector<std::byte> wire(total);
  broadcast(ranks, 0, wire);
  const std::byte* from = wire.data();
  for_lists(*step, [&](ConstBytes list) {
    if (!list.empty()) std::memcpy(const_cast<std::byte*>(list.data()), from, list.size());
    from += list.size();
  });
}

}  // namespace

void Step::clear() {
  for (std::vector<int32_t>* list : {&token, &position, &pages}) list->clear();
  copies.clear();
  segments.clear();
}

Tensor compute_step(Context& ctx, Model& model, Cache& cache, Step& step) {
  for (const PageCopy& copy : step.copies) copy_page(ctx, cache, copy.from, copy.to);
  const int64_t T = step.rows();
  if (T == 0) return {};
  const Batch batch{.token = make_tensor(step.token.data(), DType::kI32, {T}),
                    .position = make_tensor(step.position.data(), DType::kI32, {T}),
                    .segments = step.segments};
  return model.forward(ctx, batch, &cache, step.pages);
}

StepRanks::StepRanks(Transport& t, int channel, double deadline)
    : steps(t, all_ranks(t), channel, "steps", deadline),
      experts(t, all_ranks(t), channel + 1, "experts", deadline),
      cache(t, all_ranks(t), channel, "cache", deadline),
      guests(t, all_ranks(t), channel + 2, "guests", deadline) {}

ModelRanks StepRanks::of_model(const ModelConfig& config, bool share_cache) {
  if (steps.size() == 1) return {};
  if (config.experts == 0 && !share_cache)
    throw_error(Code::kInvalidArgument,
                "{} ranks: the model has no experts to divide; wanted one rank, or a cache that "
                "they share",
                steps.size());
  return {.experts = config.experts > 0 ? &experts : nullptr,
          .cache = share_cache ? &cache : nullptr,
          .guests = &guests};
}

StepLeader::~StepLeader() {
  if (alone()) return;
  try {
    send_header(*ranks_, {.kind = Kind::kEnd});
  } catch (const std::exception&) {  // they are lost, and whoever waited for them has said so
  }
}

void StepLeader::tell(const Step& step) {
  if (alone()) return;
  send_header(*ranks_, {.kind = Kind::kStep,
                        .copies = static_cast<int64_t>(step.copies.size()),
                        .rows = step.rows(),
                        .segments = static_cast<int64_t>(step.segments.size()),
                        .pages = static_cast<int64_t>(step.pages.size())});
  std::vector<std::byte> wire;
  for_lists(step, [&](ConstBytes list) { wire.insert(wire.end(), list.begin(), list.end()); });
  broadcast(*ranks_, 0, wire);
}

void StepLeader::tell_idle() {
  if (!alone()) send_header(*ranks_, {.kind = Kind::kIdle});
}

void follow_steps(Communicator& ranks, Context& ctx, Model& model, Cache& cache) {
  Step step;
  while (true) {
    Header header{};
    broadcast(ranks, 0, std::as_writable_bytes(std::span(&header, 1)));
    if (header.kind == Kind::kEnd) return;
    if (header.kind == Kind::kIdle) continue;
    receive_step(ranks, header, &step);
    compute_step(ctx, model, cache, step);
  }
}

}  // namespace moraine
