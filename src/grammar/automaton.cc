// Tries of strings, products, and the states that lead somewhere.
#include "grammar/automaton.h"

#include <algorithm>
#include <deque>
#include <unordered_map>
#include <utility>

#include "base/utf8.h"

namespace moraine {
namespace {

constexpr int64_t kPairWork = 30, kCommonEdgeWork = 6;  // units of CompileWork

// Whether each state leads to an accepting one.
std::vector<bool> leading(const std::vector<std::vector<Automaton::Edge>>& edges,
                          const std::vector<bool>& accepting) {
  std::vector<std::vector<int32_t>> into(edges.size());
  std::vector<int32_t> waiting;
  for (size_t from = 0; from < edges.size(); ++from) {
    for (const Automaton::Edge& edge : edges[from]) {
      into[edge.to].push_back(static_cast<int32_t>(from));
    }
    if (accepting[from]) waiting.push_back(static_cast<int32_t>(from));
  }
  std::vector<bool> leads = accepting;
  while (!waiting.empty()) {
    const int32_t to = waiting.back();
    waiting.pop_back();
    for (const int32_t from : into[to]) {
      if (leads[from]) continue;
      leads[from] = true;
      waiting.push_back(from);
    }
  }
  return leads;
}

}  // namespace

bool Automaton::accepts(std::string_view text) const {
  if (empty()) return false;
  int32_t state = 0;
  for (const char c : text) {
    state = next(state, static_cast<uint8_t>(c));
    if (state < 0) return false;
  }
  return accepting_[state];
}

std::vector<int32_t> Automaton::characters_left() const {
  struct Step {
    int32_t from, characters;
  };
  std::vector<std::vector<Step>> into(accepting_.size());
  std::deque<std::pair<int32_t, int32_t>> waiting;  // state, characters; by rising characters
  for (int32_t from = 0; from < states(); ++from) {
    for (const Edge& edge : edges(from))
      into[edge.to].push_back({from, is_utf8_trail(edge.low) ? 0 : 1});
    if (accepting_[from]) waiting.emplace_back(from, 0);
  }
  std::vector<int32_t> left(accepting_.size(), -1);
  while (!waiting.empty()) {
    const auto [to, characters] = waiting.front();
    waiting.pop_front();
    if (left[to] >= 0) continue;
    left[to] = characters;
    for (const Step& step : into[to]) {
      if (step.characters == 0) {
        waiting.emplace_front(step.from, characters);
      } else {
        waiting.emplace_back(step.from, characters + 1);
      }
    }
  }
  return left;
}

Automaton Automaton::of_states(const std::vector<std::vector<Edge>>& edges,
                               const std::vector<bool>& accepting) {
  Automaton made;
  if (edges.empty()) return made;
  const std::vector<bool> leads = leading(edges, accepting);
  if (!leads[0]) return made;
  std::vector<int32_t> number(edges.size(), -1);
  int32_t kept = 0;
  for (size_t i = 0; i < edges.size(); ++i) {
    if (leads[i]) number[i] = kept++;
  }
  made.begin_.push_back(0);
  for (size_t i = 0; i < edges.size(); ++i) {
    if (!leads[i]) continue;
    for (const Edge& edge : edges[i]) {
      if (number[edge.to] < 0) continue;
      std::vector<Edge>& all = made.edges_;
      const bool first = static_cast<int32_t>(all.size()) == made.begin_.back();
      if (!first && all.back().to == number[edge.to] && all.back().high + 1 == edge.low) {
        all.back().high = edge.high;
      } else {
        all.push_back({edge.low, edge.high, number[edge.to]});
      }
    }
    made.begin_.push_back(static_cast<int32_t>(made.edges_.size()));
    made.accepting_.push_back(accepting[i]);
  }
  return made;
}

Automaton Automaton::of_strings(std::vector<std::string> strings) {
  std::sort(strings.begin(), strings.end());
  std::vector<std::vector<Edge>> edges(strings.empty() ? 0 : 1);
  std::vector<bool> accepting(edges.size(), false);
  std::vector<int32_t> path = {0};  // of the last string
  std::string_view last;
  for (const std::string& text : strings) {
    size_t same = 0;
    while (same < last.size() && same < text.size() && last[same] == text[same]) ++same;
    path.resize(same + 1);
    for (size_t i = same; i < text.size(); ++i) {
      const uint8_t byte = static_cast<uint8_t>(text[i]);
      const int32_t state = static_cast<int32_t>(edges.size());
      edges[path.back()].push_back({byte, byte, state});
      edges.emplace_back();
      accepting.push_back(false);
      path.push_back(state);
    }
    accepting[path.back()] = true;
    last = text;
  }
  return of_states(edges, accepting);
}

bool Automaton::intersect(const Automaton& a, const Automaton& b, int64_t states_max,
                          CompileWork& work, Automaton* both) {
  *both = Automaton();
  if (a.empty() || b.empty()) return true;
  const auto key = [](int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  };
  std::unordered_map<uint64_t, int32_t> number = {{0, 0}};
  std::vector<std::pair<int32_t, int32_t>> pairs = {{0, 0}};
  std::vector<std::vector<Edge>> edges;
  std::vector<bool> accepting;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto [left, right] = pairs[i];
    edges.emplace_back();
    accepting.push_back(a.accepting(left) && b.accepting(right));
    int32_t x = a.begin_[left], y = b.begin_[right];
    const int64_t steps = a.begin_[left + 1] - x + b.begin_[right + 1] - y;
    while (x < a.begin_[left + 1] && y < b.begin_[right + 1]) {
      const Edge &p = a.edges_[x], &q = b.edges_[y];
      const uint8_t low = std::max(p.low, q.low), high = std::min(p.high, q.high);
      if (low <= high) {
        const auto [at, made] =
            number.try_emplace(key(p.to, q.to), static_cast<int32_t>(pairs.size()));
        if (made) pairs.emplace_back(p.to, q.to);
        edges.back().push_back({low, high, at->second});
      }
      (p.high < q.high ? x : y)++;
    }
    if (static_cast<int64_t>(pairs.size()) > states_max) return false;
    if (!work.spend(kPairWork + kCommonEdgeWork * steps)) return false;
  }
  *both = of_states(edges, accepting);
  return true;
}

}  // namespace moraine
