// One function for each rule, and their order.
#include "train/what_binds.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

namespace moraine {
namespace {

// From these shares of the time on a setting that makes one smaller is felt.
constexpr double kAroundShare = 0.1;      // data, checkpoints, validation, samples
constexpr double kRanksShare = 0.2;       // waiting for ranks
constexpr double kOptimizerShare = 0.25;  // costs the same for any batch
constexpr double kRecomputeShare = 0.15;
constexpr double kBetweenShare = 0.2;  // in a step, in no operation
// A floor that is this share of the whole time is what there is to wait for.
constexpr double kFloorShare = 1.0 / 3;
// Steps of the same work differ by a few percent on a machine of their own.
constexpr double kSpreadMost = 1.5;
constexpr size_t kSpreadSteps = 5;

using Facts = BindingFacts;
using Sentence = std::optional<std::string>;

// Of all steps; the probe of the storage happens once in a run.
double share_of(const Facts& f, double seconds) {
  const double all = split_time(f.rows, f.limits).seconds - row_of(f.rows, "storage").seconds_whole;
  return all > 0 ? seconds / all : 0;
}
double whole(const Facts& f, const char* phase) {
  return share_of(f, row_of(f.rows, phase).seconds_whole);
}

// With the neighbour's share in it no other number says anything.
Sentence shared_machine(const Facts& f) {
  if (f.token_seconds.size() < kSpreadSteps) return {};
  std::vector<double> sorted = f.token_seconds;
  std::sort(sorted.begin(), sorted.end());
  const size_t last = sorted.size() - 1;
  const double p10 = sorted[last / 10], p90 = sorted[last - last / 10];
  if (!(p90 > kSpreadMost * p10)) return {};
  return fmt::format(
      "something else uses these cores: the slowest steps take {:.1f} times as long as the "
      "fastest; "
      "measure again on a quiet machine, or lower train.threads to the cores that are free, before "
      "another setting is changed",
      p90 / p10);
}

Sentence loading_data(const Facts& f) {
  const double share = whole(f, "data");
  if (share < kAroundShare) return {};
  return fmt::format(
      "loading data, {:.0f}% of the time: put data.train on faster storage, or in the page cache",
      100 * share);
}

Sentence checkpoints(const Facts& f) {
  const double share = whole(f, "checkpoint");
  if (share < kAroundShare) return {};
  return fmt::format("checkpoints, {:.0f}% of the time: raise checkpoint.every_steps", 100 * share);
}

Sentence validation(const Facts& f) {
  const double share = whole(f, "validation");
  if (share < kAroundShare) return {};
  return fmt::format(
      "validation, {:.0f}% of the time: lower report.valid_tokens, or raise "
      "report.valid_every_steps",
      100 * share);
}

Sentence samples(const Facts& f) {
  const double share = whole(f, "sample");
  if (share < kAroundShare) return {};
  return fmt::format(
      "samples, {:.0f}% of the time: raise report.sample_every_steps, or lower "
      "report.sample_tokens",
      100 * share);
}

// By the beginning of the name of what is waited for most.
struct RankRemedy {
  const char *name, *remedy;
};
constexpr RankRemedy kRankRemedies[] = {
    {"ranks: gradients", "raise train.batch_tokens; parallel.reduce_dtype = \"bf16\" sends half"},
    {"ranks: weights", "raise train.batch_tokens: they are sent once a step"},
    {"ranks: guests", "raise parallel.placement_gate or train.batch_tokens"},
    {"ranks: rows",
     "parallel.placement = \"balanced\" if some experts are busy (home_load_over_mean); lower "
     "parallel.expert, if the experts fit"},
    {"ranks: keys", "lower parallel.context, or try the other parallel.attention"},
    {"ranks:", "ranks are not equally fast: look at the machines, or at train.threads"}};

Sentence waiting_for_ranks(const Facts& f) {
  const double share = share_of(f, split_time(f.rows, f.limits).ranks);
  if (share < kRanksShare) return {};
  Profile::Row most{.name = "ranks: "};
  for (const Profile::Row& row : f.rows) {
    if (row.span == Span::kRanks && row.seconds > most.seconds) most = row;
  }
  const RankRemedy* remedy =
      std::find_if(std::begin(kRankRemedies), std::end(kRankRemedies), [&](const RankRemedy& r) {
        return std::strncmp(most.name, r.name, std::strlen(r.name)) == 0;
      });
  return fmt::format("other ranks, {:.0f}% of the time, most of it in `{}`: {}", 100 * share,
                     most.name, remedy == std::end(kRankRemedies) ? "" : remedy->remedy);
}

Sentence optimizer(const Facts& f) {
  const double share = whole(f, "optimizer");
  if (share < kOptimizerShare) return {};
  return fmt::format(
      "the optimizer, {:.0f}% of the time, which costs the same for a batch of any size: raise "
      "train.batch_tokens (in a new run)",
      100 * share);
}

Sentence recomputation(const Facts& f) {
  const double share = whole(f, "recompute");
  if (share < kRecomputeShare) return {};
  return fmt::format(
      "layers that are computed again, {:.0f}% of the time: train.recompute = \"none\", if there "
      "is "
      "memory for it (`moraine plan memory`)",
      100 * share);
}

// What gives every operation more rows; empty: nothing does.
std::string more_rows(const Facts& f) {
  if (f.micro_sequences < f.slot_sequences)
    return fmt::format("raise train.micro_sequences ({} of a slot's {} sequences at a time)",
                       f.micro_sequences, f.slot_sequences);
  if (f.slots > 1)
    return fmt::format("lower train.slots (this rank has {}; in a new run)", f.slots);
  return "";
}

Sentence small_operations(const Facts& f) {
  double between = 0;
  for (const char* phase : {"step", "forward", "backward", "recompute"})
    between += row_of(f.rows, phase).seconds;
  const double share = share_of(f, between);
  if (share < kBetweenShare) return {};
  const std::string remedy = more_rows(f);
  return fmt::format("what is between operations, {:.0f}% of the time: they are too small; {}",
                     100 * share,
                     remedy.empty() ? "raise train.batch_tokens (in a new run)" : remedy);
}

Sentence too_few_threads(const Facts& f) {
  if (f.threads >= f.cores) return {};
  return fmt::format("threads: this rank uses {} of the {} cores that it may: raise train.threads",
                     f.threads, f.cores);
}

Sentence slow_type(const Facts& f) {
  if (f.bf16 || !f.bf16_faster) return {};
  return "f32, where bf16 is faster: train.dtype = \"auto\" (in a new run)";
}

Sentence memory(const Facts& f) {
  const TimeSplit split = split_time(f.rows, f.limits);
  const double share = share_of(f, split.bytes_bound_floor);
  if (share < kFloorShare || split.bytes_bound_floor < split.flops_bound_floor) return {};
  std::string remedy = more_rows(f);
  if (!f.bf16) remedy = "train.dtype = \"bf16\" moves half the bytes (in a new run)";
  return fmt::format(
      "memory: moving the bytes of operations takes {:.0f}% of the time at the full bandwidth; {}",
      100 * share, remedy.empty() ? "no setting of the run moves fewer" : remedy);
}

Sentence arithmetic(const Facts& f) {
  const double share = share_of(f, split_time(f.rows, f.limits).flops_bound_floor);
  if (share < kFloorShare) return {};
  return fmt::format(
      "arithmetic: the operations' flops take {:.0f}% of the time at the full peak; no setting of "
      "the run makes them fewer, {}",
      100 * share, f.ranks > 1 ? "more ranks share them" : "more cores or ranks share them");
}

// Operations of a step, whatever its batch.
constexpr const char* kOnceAStep[] = {"muon", "adamw", "pack_matrix"};

// Neither floor is near.
Sentence far_from_floors(const Facts& f) {
  const Profile::Row* worst = nullptr;
  double most = 0;
  for (const Profile::Row& row : f.rows) {
    const double above = row.seconds - floor_of(row, f.limits).seconds;
    if (row.span != Span::kOperation || above <= most) continue;
    most = above;
    worst = &row;
  }
  if (worst == nullptr) return "nothing: no operation was measured";
  std::string remedy = more_rows(f);
  if (remedy.empty())
    remedy =
        "larger operations come nearer: a longer train.sequence, or a wider model (in a new run)";
  for (const char* name : kOnceAStep) {
    if (std::strcmp(name, worst->name) == 0)
      remedy = "it costs the same for a batch of any size: raise train.batch_tokens (in a new run)";
  }
  return fmt::format(
      "what operations take beyond their floors, most of it `{}`, {:.0f}% of the time; {}",
      worst->name, 100 * share_of(f, most), remedy);
}

constexpr Sentence (*kRules[])(const Facts&) = {
    shared_machine,    loading_data, checkpoints,   validation,       samples,
    waiting_for_ranks, optimizer,    recomputation, small_operations, too_few_threads,
    slow_type,         memory,       arithmetic,    far_from_floors};

}  // namespace

std::string what_binds(const BindingFacts& facts) {
  const bool probed = row_of(facts.rows, "storage").seconds_whole > 0;
  const char* without = probed ? " (the probe of the storage, once in a run, left out)" : "";
  for (const auto rule : kRules) {
    if (const Sentence sentence = rule(facts)) return "what binds: " + *sentence + without + ".";
  }
  return "";
}

}  // namespace moraine
