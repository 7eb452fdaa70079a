// One Source per dataset turns "its k-th sequence" into pieces; the Loader copies their tokens.
#include "data/loader.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>

#include "base/check.h"
#include "base/error.h"

namespace moraine {
namespace {

// Far below 2^48, where the plan's random numbers run out of bits.
constexpr double kEpochMax = 1e9;
constexpr int64_t kSequenceMax = int64_t{1} << 30;

}  // namespace

class Loader::Source {
 public:
  Source(FileSystem& files, const std::string& path, const LoaderOptions& options, double start,
         const std::vector<EpochRange>& left_out)
      : dataset_(files, path), left_out_(left_out) {
    // The order belongs to the dataset's content, not to its place in a list.
    plan_options_ = {.sequence = options.sequence,
                     .seed = options.seed ^ dataset_.hash().low,
                     .pack = options.pack};
    first_epoch_ = static_cast<int64_t>(start);
    if (plan_locked(first_epoch_)->num_sequences() == 0) {
      throw_error(
          Code::kInvalidArgument,
          "load data: dataset {} has no document of two tokens or more; there is nothing to learn",
          path);
    }
    skipped_ = sequences_until(start);
  }

  const Dataset& dataset() const { return dataset_; }

  struct Place {
    std::shared_ptr<const EpochPlan> plan;
    int64_t epoch, index;  // sequence `index` of `plan`
  };

  // Where the source's k-th sequence since its start is.
  Place find(int64_t k) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    k += skipped_;
    while (epoch_begin_.back() <= k) next_epoch();
    for (const EpochRange& range : left_out_) {
      if (range.begin >= static_cast<double>(first_epoch_ + std::ssize(epoch_begin_) - 1)) break;
      const int64_t begin = std::max(sequences_until(range.begin), skipped_);
      if (k < begin) break;
      k += std::max<int64_t>(0, sequences_until(range.end) - begin);
      while (epoch_begin_.back() <= k) next_epoch();
    }
    const auto above = std::upper_bound(epoch_begin_.begin(), epoch_begin_.end(), k);
    const int64_t past = above - epoch_begin_.begin() - 1;
    const int64_t epoch = first_epoch_ + past;
    return {plan_locked(epoch), epoch, k - epoch_begin_[static_cast<size_t>(past)]};
  }

  std::shared_ptr<const EpochPlan> plan(int64_t epoch) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return plan_locked(epoch);
  }

 private:
  struct Cached {
    int64_t epoch = -1;
    std::shared_ptr<const EpochPlan>
        plan;  // shared: a reader may hold it while it leaves the cache
  };

  std::shared_ptr<const EpochPlan> plan_locked(int64_t epoch) const {
    for (const Cached& cached : cache_) {
      if (cached.epoch == epoch) return cached.plan;
    }
    Cached& oldest = cache_[static_cast<size_t>(next_out_)];
    next_out_ = 1 - next_out_;
    oldest.plan = std::make_shared<const EpochPlan>(
        plan_epoch(dataset_.document_begins(), plan_options_, epoch));
    oldest.epoch = epoch;
    return oldest.plan;
  }

  void next_epoch() const {
    const int64_t epoch = first_epoch_ + std::ssize(epoch_begin_) - 1;
    epoch_begin_.push_back(epoch_begin_.back() + plan_locked(epoch)->num_sequences());
  }

  // From first_epoch_ on; 0 for what lies before.
  int64_t sequences_until(double epochs) const {
    const int64_t past = static_cast<int64_t>(epochs) - first_epoch_;
    if (past < 0) return 0;
    while (std::ssize(epoch_begin_) <= past + 1) next_epoch();
    const int64_t begin = epoch_begin_[static_cast<size_t>(past)],
                  count = epoch_begin_[static_cast<size_t>(past) + 1] - begin;
    const double part = epochs - static_cast<double>(first_epoch_ + past);
    return begin + std::llround(part * static_cast<double>(count));  // k from k / count, exactly
  }

  Dataset dataset_;
  const std::vector<EpochRange> left_out_;
  PlanOptions plan_options_;
  int64_t first_epoch_ = 0;
  int64_t skipped_ = 0;       // sequences of first_epoch_ that earlier phases consumed
  mutable std::mutex mutex_;  // guards all below
  mutable std::array<Cached, 2> cache_;
  mutable int next_out_ = 0;
  mutable std::vector<int64_t> epoch_begin_{
      0};  // first sequence of each epoch from first_epoch_ on
};

Loader::Loader(FileSystem& files, const LoaderOptions& options) : options_(options) {
  if (options.sequence < 1 || options.sequence > kSequenceMax) {
    throw_error(Code::kInvalidArgument, "load data: sequence is {} positions, want 1 to {}",
                options.sequence, kSequenceMax);
  }
  if (!options.start_epochs.empty() && options.start_epochs.size() != options.sources.size()) {
    throw_error(Code::kInvalidArgument, "load data: {} start_epochs for {} sources",
                options.start_epochs.size(), options.sources.size());
  }
  if (!options.left_out.empty() && options.left_out.size() != options.sources.size()) {
    throw_error(Code::kInvalidArgument, "load data: {} left_out for {} sources",
                options.left_out.size(), options.sources.size());
  }
  std::vector<double> weights;
  for (const MixtureSource& source : options.sources) weights.push_back(source.weight);
  mixture_ = std::make_unique<Mixture>(weights);
  for (size_t i = 0; i < options.sources.size(); ++i) {
    const std::string& path = options.sources[i].path;
    const double start = options.start_epochs.empty() ? 0 : options.start_epochs[i];
    if (!(start >= 0 && start <= kEpochMax)) {
      throw_error(Code::kInvalidArgument, "load data: {} starts at epoch {}, want 0 to {}", path,
                  start, kEpochMax);
    }
    const std::vector<EpochRange> none;
    sources_.push_back(std::make_unique<Source>(
        files, path, options, start, options.left_out.empty() ? none : options.left_out[i]));
    const Dataset& added = sources_.back()->dataset();
    for (size_t j = 0; j < i; ++j) {
      const Dataset& other = sources_[j]->dataset();
      if (added.hash() == other.hash()) {
        throw_error(Code::kInvalidArgument,
                    "load data: {} and {} are the same data; give it once, with both weights",
                    other.folder(), path);
      }
      if (!(added.manifest().meaning == other.manifest().meaning)) {
        throw_error(
            Code::kInvalidArgument,
            "load data: {} and {} were made with different tokenizers; build one of them again",
            other.folder(), path);
      }
    }
  }
}

Loader::~Loader() = default;

int64_t Loader::total_tokens() const {
  int64_t sum = 0;
  for (const auto& source : sources_) sum += source->dataset().num_tokens();
  return sum;
}

int64_t Loader::total_targets() const {
  int64_t sum = 0;
  for (const auto& source : sources_) sum += source->dataset().num_targets();
  return sum;
}

const TokenMeaning& Loader::meaning() const { return dataset(0).manifest().meaning; }

int64_t Loader::num_sources() const { return static_cast<int64_t>(sources_.size()); }

const Dataset& Loader::dataset(int64_t source) const {
  MR_CHECK(source >= 0 && source < num_sources());
  return sources_[static_cast<size_t>(source)]->dataset();
}

std::vector<double> Loader::epochs_at(int64_t n) const {
  const std::vector<int64_t> counts = mixture_->counts(n);
  std::vector<double> epochs;
  for (size_t i = 0; i < sources_.size(); ++i) {
    const Source::Place place = sources_[i]->find(counts[i]);
    epochs.push_back(static_cast<double>(place.epoch) +
                     static_cast<double>(place.index) /
                         static_cast<double>(place.plan->num_sequences()));
  }
  return epochs;
}

void Loader::read(int64_t first, int64_t count, SequenceBatch* out) const {
  MR_CHECK(first >= 0 && count >= 1);
  const int64_t S = options_.sequence;
  out->tokens.assign(static_cast<size_t>(count * S), 0);
  out->targets.assign(static_cast<size_t>(count * S), -1);
  out->segment_begin.clear();
  out->num_targets = 0;
  std::vector<int32_t> text;  // of one piece, with the token that is only a target
  std::vector<uint8_t> is_target;
  for (int64_t i = 0; i < count; ++i) {
    const Mixture::Draw draw = mixture_->at(first + i);
    const Source& source = *sources_[static_cast<size_t>(draw.source)];
    const Source::Place place = source.find(draw.index);
    int64_t row = i * S;
    for (const Piece& piece : place.plan->pieces_of(place.index)) {
      text.resize(static_cast<size_t>(piece.positions + 1));
      source.dataset().read(piece.token_begin, piece.positions + 1, text.data());
      std::copy(text.begin(), text.end() - 1, out->tokens.begin() + row);
      std::copy(text.begin() + 1, text.end(), out->targets.begin() + row);
      out->segment_begin.push_back(row);
      out->num_targets += piece.positions;
      if (source.dataset().marked()) {
        is_target.resize(static_cast<size_t>(piece.positions));
        source.dataset().read_targets(piece.token_begin + 1, piece.positions, is_target.data());
        for (int64_t t = 0; t < piece.positions; ++t) {
          if (is_target[static_cast<size_t>(t)] != 0) continue;
          out->targets[static_cast<size_t>(row + t)] = -1;
          out->num_targets -= 1;
        }
      }
      row += piece.positions;
    }
    MR_CHECK(row <= (i + 1) * S);
    if (row < (i + 1) * S) out->segment_begin.push_back(row);
  }
}

void Loader::prefetch(int64_t first, int64_t count) const {
  MR_CHECK(first >= 0 && count >= 0);
  for (int64_t i = 0; i < count; ++i) {
    const Mixture::Draw draw = mixture_->at(first + i);
    const Source& source = *sources_[static_cast<size_t>(draw.source)];
    const Source::Place place = source.find(draw.index);
    for (const Piece& piece : place.plan->pieces_of(place.index)) {
      source.dataset().prefetch(piece.token_begin, piece.positions + 1);
    }
  }
}

std::shared_ptr<const EpochPlan> Loader::plan(int64_t source, int64_t epoch) const {
  MR_CHECK(source >= 0 && source < num_sources() && epoch >= 0);
  return sources_[static_cast<size_t>(source)]->plan(epoch);
}

}  // namespace moraine
