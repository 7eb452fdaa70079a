// EpochPlan: cuts documents, shuffles the pieces, packs them by windows, shuffles the result.
#include "data/epoch_plan.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/heartbeat.h"
#include "base/random.h"

namespace moraine {
namespace {

// What a random number is for; with the epoch it makes the `step` of the draw.
enum class Use : uint64_t { kFirstCut = 0, kPieceOrder = 1, kSequenceOrder = 2 };

uint64_t draw_below(uint64_t n, const PlanOptions& o, Use use, int64_t epoch, int64_t index) {
  const uint64_t step = static_cast<uint64_t>(use) << 48 | static_cast<uint64_t>(epoch);
  return random_below(n, o.seed, Stream::kDataOrder, step, static_cast<uint64_t>(index));
}

// Fisher and Yates; element i's partner is a draw at index i.
template <class T>
void shuffle(std::vector<T>* items, const PlanOptions& o, Use use, int64_t epoch) {
  for (int64_t i = static_cast<int64_t>(items->size()) - 1; i > 0; --i) {
    const uint64_t j = draw_below(static_cast<uint64_t>(i) + 1, o, use, epoch, i);
    std::swap((*items)[static_cast<size_t>(i)], (*items)[j]);
  }
}

std::vector<Piece> cut_documents(std::span<const int64_t> begins, const PlanOptions& o,
                                 int64_t epoch, EpochPlan* plan) {
  std::vector<Piece> pieces;
  for (int64_t d = 0; d + 1 < static_cast<int64_t>(begins.size()); ++d) {
    const int64_t begin = begins[static_cast<size_t>(d)];
    const int64_t n = begins[static_cast<size_t>(d) + 1] - begin - 1;
    if (n <= 0) continue;
    ++plan->documents;
    plan->positions += n;
    int64_t end = n;
    if (n > o.sequence) {
      end = 1 + static_cast<int64_t>(
                    draw_below(static_cast<uint64_t>(o.sequence), o, Use::kFirstCut, epoch, d));
    }
    for (int64_t at = 0; at < n; at = end, end = std::min(n, end + o.sequence)) {
      pieces.push_back({begin + at, end - at});
      plan->long_document_cuts += at > 0;
    }
  }
  return pieces;
}

// Sequences under construction.
struct Packer {
  const int64_t S;
  EpochPlan* plan;
  std::vector<std::vector<Piece>> bins;  // of this window
  std::vector<Piece> rest;               // unfilled sequence of the windows before
  std::vector<std::vector<Piece>> done;

  bool dense(int64_t hole) const { return hole * kHoleShare <= S; }

  void pack_window(std::vector<Piece> window) {
    beat_if_heard();  // a plan of many documents takes longer than a step
    window.insert(window.end(), rest.begin(), rest.end());
    rest.clear();
    // Stable: pieces of equal length stay shuffled, else neighbours in the dataset meet every
    // epoch.
    std::stable_sort(window.begin(), window.end(),
                     [](const Piece& a, const Piece& b) { return a.positions > b.positions; });
    std::set<std::pair<int64_t, size_t>>
        open;  // (room, bin): first that fits is the fullest, then the oldest
    bins.clear();
    for (const Piece& piece : window) {
      const auto fit = open.lower_bound({piece.positions, 0});
      int64_t room = S;
      size_t bin = bins.size();
      if (fit != open.end()) {
        room = fit->first;
        bin = fit->second;
        open.erase(fit);
      } else {
        bins.emplace_back();
      }
      bins[bin].push_back(piece);
      if (room > piece.positions) open.insert({room - piece.positions, bin});
    }
    close_bins(open);
  }

  // Keeps the dense bins; lays the pieces of the others end to end.
  void close_bins(const std::set<std::pair<int64_t, size_t>>& open) {
    std::vector<uint8_t> sparse(bins.size(), 0);
    for (const auto& [room, bin] : open) sparse[bin] = !dense(room);
    int64_t room = S;
    for (size_t bin = 0; bin < bins.size(); ++bin) {
      if (!sparse[bin]) {
        done.push_back(std::move(bins[bin]));
        continue;
      }
      for (const Piece& piece : bins[bin]) lay(piece, &room);
    }
  }

  void lay(Piece piece, int64_t* room) {
    while (piece.positions > *room) {
      if (!dense(*room)) {
        rest.push_back({piece.token_begin, *room});
        piece = {piece.token_begin + *room, piece.positions - *room};
        ++plan->packing_cuts;
      }
      done.push_back(std::move(rest));
      rest.clear();
      *room = S;
    }
    rest.push_back(piece);
    *room -= piece.positions;
  }
};

}  // namespace

double EpochPlan::efficiency() const {
  if (num_sequences() == 0) return 1;
  return static_cast<double>(positions) /
         (static_cast<double>(num_sequences()) * static_cast<double>(sequence));
}

std::span<const Piece> EpochPlan::pieces_of(int64_t index) const {
  MR_CHECK(index >= 0 && index < num_sequences());
  const size_t begin = static_cast<size_t>(sequence_begin[static_cast<size_t>(index)]);
  const size_t end = static_cast<size_t>(sequence_begin[static_cast<size_t>(index) + 1]);
  return std::span<const Piece>(pieces).subspan(begin, end - begin);
}

EpochPlan plan_epoch(std::span<const int64_t> document_begins, const PlanOptions& o,
                     int64_t epoch) {
  MR_CHECK(o.sequence > 0 && epoch >= 0);
  EpochPlan plan;
  plan.sequence = o.sequence;
  std::vector<Piece> pieces = cut_documents(document_begins, o, epoch, &plan);
  shuffle(&pieces, o, Use::kPieceOrder, epoch);

  Packer packer{.S = o.sequence, .plan = &plan, .bins = {}, .rest = {}, .done = {}};
  if (o.pack) {
    for (size_t begin = 0; begin < pieces.size(); begin += kWindowPieces) {
      const size_t end = std::min(pieces.size(), begin + size_t{kWindowPieces});
      packer.pack_window({pieces.begin() + static_cast<int64_t>(begin),
                          pieces.begin() + static_cast<int64_t>(end)});
    }
    if (!packer.rest.empty()) packer.done.push_back(std::move(packer.rest));
  } else {
    for (const Piece& piece : pieces) packer.done.push_back({piece});
  }
  shuffle(&packer.done, o, Use::kSequenceOrder, epoch);

  plan.pieces.reserve(pieces.size() + static_cast<size_t>(plan.packing_cuts));
  plan.sequence_begin.push_back(0);
  for (const std::vector<Piece>& sequence : packer.done) {
    plan.pieces.insert(plan.pieces.end(), sequence.begin(), sequence.end());
    plan.sequence_begin.push_back(static_cast<int64_t>(plan.pieces.size()));
  }
  return plan;
}

}  // namespace moraine
