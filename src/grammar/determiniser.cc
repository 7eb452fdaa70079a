// A state is the set of the loose states that take a byte, or end, behind the empty steps.
#include "grammar/determiniser.h"

#include <algorithm>
#include <array>
#include <span>
#include <unordered_map>
#include <utility>

#include "grammar/ids_hash.h"

namespace moraine {
namespace {

using Edge = Automaton::Edge;
using States = std::vector<int32_t>;  // in order, none twice

constexpr size_t kBytes = 256;
// Units of CompileWork: of a loose state, of a set, of an edge of one, and for each entry: an empty step, an edge that
// is looked at, one that is sorted and kept.
constexpr int64_t kLooseWork = 4, kSetWork = 40, kEdgeWork = 8, kStepWork = 2, kLookWork = 1,
                  kKeepWork = 5;

using NumberOfStates = std::unordered_map<States, int32_t, IdsHash>;

void sort_once(States* states) {
  if (!std::is_sorted(states->begin(), states->end())) std::sort(states->begin(), states->end());
  states->erase(std::unique(states->begin(), states->end()), states->end());
}

// What leaves each state, one state behind the other.
template <class T>
class StepsByState {
 public:
  template <class Steps, class F>
  StepsByState(int32_t states, const Steps& steps, const F& what)
      : begin_(static_cast<size_t>(states) + 1, 0), all_(steps.size()) {
    for (const auto& step : steps) ++begin_[static_cast<size_t>(step.from)];
    int32_t sum = 0;
    for (int32_t& begin : begin_) begin = sum += begin;  // the ends
    for (size_t i = steps.size(); i-- > 0;) {
      const auto at = --begin_[static_cast<size_t>(steps[i].from)];
      all_[static_cast<size_t>(at)] = what(steps[i]);
    }
  }
  std::span<const T> of(int32_t state) const {
    const auto begin = static_cast<size_t>(begin_[static_cast<size_t>(state)]);
    return std::span(all_).subspan(
        begin, static_cast<size_t>(begin_[static_cast<size_t>(state) + 1]) - begin);
  }

 private:
  std::vector<int32_t> begin_;  // [states + 1]
  std::vector<T> all_;
};

class Determiniser {
 public:
  Determiniser(const LooseSteps& loose, int32_t end, int64_t states_max, CompileWork& work)
      : edges_(loose.states, loose.bytes, [](const LooseSteps::Byte& step) { return step.edge; }),
        empty_(loose.states, loose.empty, [](const LooseSteps::Empty& step) { return step.to; }),
        end_(end),
        states_max_(states_max),
        work_(work),
        number_of_one_(static_cast<size_t>(loose.states), -1),
        seen_(static_cast<size_t>(loose.states), 0) {
    goes_on_ = work_.spend(loose.states * kLooseWork);
  }

  bool run(Automaton* made) {
    number_of({0});
    std::vector<std::vector<Edge>> edges;
    std::vector<bool> accepting;
    for (size_t i = 0; i < sets_.size() && goes_on_; ++i) {
      const States& set = *sets_[i];
      accepting.push_back(std::binary_search(set.begin(), set.end(), end_));
      edges.push_back(edges_of(set));
    }
    if (!goes_on_) return false;
    *made = Automaton::of_states(edges, accepting);
    return true;
  }

 private:
  void spend(int64_t entries, int64_t each) { goes_on_ = work_.spend(entries * each) && goes_on_; }

  // Where the states of `from` lead without a byte, themselves too.
  int32_t number_of(const States& from) {
    int32_t* number = from.size() == 1 ? &number_of_one_[static_cast<size_t>(from[0])]
                                       : &number_of_start_.try_emplace(from, -1).first->second;
    return *number < 0 ? *number = make_set(from) : *number;
  }

  int32_t make_set(const States& from) {
    ++epoch_;
    waiting_ = from;
    States set;
    for (const int32_t state : from) seen_[static_cast<size_t>(state)] = epoch_;
    int64_t looked = 0;
    while (!waiting_.empty()) {
      const int32_t at = waiting_.back();
      waiting_.pop_back();
      const std::span<const int32_t> empty = empty_.of(at);
      if (!edges_.of(at).empty() || at == end_) set.push_back(at);
      for (const int32_t to : empty) {
        if (std::exchange(seen_[static_cast<size_t>(to)], epoch_) != epoch_) waiting_.push_back(to);
      }
      looked += 1 + static_cast<int64_t>(empty.size());
    }
    spend(looked, kStepWork);
    spend(static_cast<int64_t>(set.size() + from.size()), kKeepWork);
    sort_once(&set);
    const auto [at, made] = number_.try_emplace(std::move(set), static_cast<int32_t>(sets_.size()));
    if (made) {
      sets_.push_back(&at->first);
      spend(1, kSetWork);
      goes_on_ = goes_on_ && static_cast<int64_t>(sets_.size()) <= states_max_;
    }
    return at->second;
  }

  std::vector<Edge> edges_of(const States& set) {
    if (set.size() == 1 && edges_.of(set[0]).size() == 1) {
      Edge edge = edges_.of(set[0])[0];
      spend(1, kEdgeWork);
      edge.to = goes_on_ ? number_of({edge.to}) : 0;
      return {edge};
    }
    std::array<bool, kBytes + 1> cut{};  // where the set of edges changes
    int64_t count = 0;
    for (const int32_t state : set) {
      for (const Edge& edge : edges_.of(state)) {
        cut[edge.low] = cut[size_t{edge.high} + 1] = true;
        ++count;
      }
    }
    std::array<uint8_t, kBytes> part{};  // of each byte: how many cuts are before it
    for (size_t byte = 1; byte < kBytes; ++byte)
      part[byte] = static_cast<uint8_t>(part[byte - 1] + (cut[byte] ? 1 : 0));
    spend(count, kLookWork);
    for (const int32_t state : set) {
      for (const Edge& edge : edges_.of(state)) {
        for (size_t i = part[edge.low]; i <= part[edge.high]; ++i) to_[i].push_back(edge.to);
      }
    }
    std::vector<Edge> out;
    for (size_t low = 0, high; low < kBytes; low = high + 1) {
      for (high = low; high + 1 < kBytes && part[high + 1] == part[low];) ++high;
      States& to = to_[part[low]];
      if (to.empty()) continue;
      spend(static_cast<int64_t>(to.size()), kKeepWork);
      spend(1, kEdgeWork);
      sort_once(&to);
      const int32_t next = goes_on_ ? number_of(to) : 0;
      out.push_back({static_cast<uint8_t>(low), static_cast<uint8_t>(high), next});
      to.clear();
    }
    return out;
  }

  const StepsByState<Edge> edges_;
  const StepsByState<int32_t> empty_;
  const int32_t end_;
  const int64_t states_max_;
  CompileWork& work_;
  bool goes_on_ = true;
  NumberOfStates number_, number_of_start_;
  std::vector<int32_t> number_of_one_;  // of a start of one state; -1: none yet
  std::vector<const States*> sets_;
  std::array<States, kBytes> to_;  // of each part of the bytes; empty between calls
  States waiting_;
  std::vector<int64_t> seen_;
  int64_t epoch_ = 0;
};

}  // namespace

bool make_deterministic(const LooseSteps& loose, int32_t end, int64_t states_max, CompileWork& work,
                        Automaton* made) {
  return Determiniser(loose, end, states_max, work).run(made);
}

}  // namespace moraine
