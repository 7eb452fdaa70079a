// RankProfiles: names once, as JSON, then rows and events as numbers that lie one behind the other.
#include "train/rank_profiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "base/json.h"
#include "base/quantile.h"
#include "comm/collectives.h"
#include "train/time_split.h"

namespace moraine {
namespace {

// A row or an event.
struct WireSpan {
  int64_t name = 0, span = 0, calls = 0;
  double begin = 0, seconds = 0, seconds_whole = 0, flops = 0, integer_ops = 0, bytes = 0;
};

std::string wire_of(const RankProfile& mine) {
  std::map<std::string, int64_t> numbers;
  Json names = Json::array();
  const auto number = [&](const char* name) {
    const auto [at, is_new] = numbers.try_emplace(name, static_cast<int64_t>(names.size()));
    if (is_new) names.push_back(name);
    return at->second;
  };
  std::vector<WireSpan> spans;
  for (const Profile::Row& r : mine.rows)
    spans.push_back({.name = number(r.name),
                     .span = static_cast<int64_t>(r.span),
                     .calls = r.calls,
                     .seconds = r.seconds,
                     .seconds_whole = r.seconds_whole,
                     .flops = r.flops,
                     .integer_ops = r.integer_ops,
                     .bytes = r.bytes});
  for (const Profile::Event& e : mine.events)
    spans.push_back({.name = number(e.name),
                     .span = static_cast<int64_t>(e.span),
                     .begin = e.begin,
                     .seconds = e.seconds,
                     .flops = e.flops,
                     .integer_ops = e.integer_ops,
                     .bytes = e.bytes});
  std::string wire = json_text({{"host", mine.host},
                                {"start", mine.start},
                                {"traced", mine.traced},
                                {"rows", static_cast<int64_t>(mine.rows.size())},
                                {"names", names}}) +
                     "\n";
  wire.append(reinterpret_cast<const char*>(spans.data()), spans.size() * sizeof(WireSpan));
  return wire;
}

RankProfile profile_of(const std::string& wire) {
  const size_t begin = wire.find('\n') + 1;
  const Json head = parse_json(wire.substr(0, begin), "the profile of a rank");
  RankProfile profile = {.host = head.at("host").get<int64_t>(),
                         .start = head.at("start").get<double>(),
                         .traced = head.at("traced").get<int64_t>(),
                         .rows = {},
                         .events = {}};
  std::vector<std::string> names;
  for (const Json& name : head.at("names")) names.push_back(name.get<std::string>());
  profile.names = std::make_shared<const std::vector<std::string>>(std::move(names));
  std::vector<WireSpan> spans((wire.size() - begin) / sizeof(WireSpan));
  std::memcpy(spans.data(), wire.data() + begin, spans.size() * sizeof(WireSpan));
  const auto rows = head.at("rows").get<size_t>();
  for (size_t i = 0; i < spans.size(); ++i) {
    const WireSpan& s = spans[i];
    const char* const name = profile.names->at(static_cast<size_t>(s.name)).c_str();
    const auto span = static_cast<Span>(s.span);
    if (i < rows)
      profile.rows.push_back({.name = name,
                              .span = span,
                              .calls = s.calls,
                              .seconds = s.seconds,
                              .seconds_whole = s.seconds_whole,
                              .flops = s.flops,
                              .integer_ops = s.integer_ops,
                              .bytes = s.bytes});
    else
      profile.events.push_back({.name = name,
                                .span = span,
                                .begin = s.begin,
                                .seconds = s.seconds,
                                .flops = s.flops,
                                .integer_ops = s.integer_ops,
                                .bytes = s.bytes});
  }
  return profile;
}

// Of one row on each rank.
struct OverRanks {
  std::string label;
  Span span = Span::kOperation;
  std::vector<double> seconds;

  size_t slowest() const {
    return static_cast<size_t>(std::max_element(seconds.begin(), seconds.end()) - seconds.begin());
  }
  double most() const { return seconds[slowest()]; }
};

std::vector<OverRanks> rows_over_ranks(std::span<const RankProfile> ranks) {
  std::map<std::string, OverRanks> by_name;
  for (size_t r = 0; r < ranks.size(); ++r) {
    for (const Profile::Row& row : ranks[r].rows) {
      OverRanks& over = by_name[row.name];
      over.label = row_label(row);
      over.span = row.span;
      over.seconds.resize(ranks.size());
      over.seconds[r] += row.seconds;
    }
  }
  std::vector<OverRanks> all;
  for (auto& [name, over] : by_name) all.push_back(std::move(over));
  std::stable_sort(all.begin(), all.end(), [](const OverRanks& a, const OverRanks& b) {
    return a.span != b.span ? a.span < b.span : a.most() > b.most();
  });
  return all;
}

}  // namespace

std::vector<RankProfile> gather_profiles(Communicator& world, const RankProfile& mine) {
  std::vector<RankProfile> all;
  for (const std::string& wire : gather(world, 0, wire_of(mine))) all.push_back(profile_of(wire));
  return all;
}

std::string rank_table(std::span<const RankProfile> ranks, int64_t steps) {
  OverRanks all = {.label = "all", .seconds = std::vector<double>(ranks.size())};
  std::string text = fmt::format("{:<34} {:>10} {:>10} {:>10} {:>8}\n", "ms a step, over the ranks",
                                 "least", "median", "most", "of rank");
  const auto add = [&](const OverRanks& row) {
    const double ms = 1e3 / static_cast<double>(steps);
    text += fmt::format("{:<34} {:>10.2f} {:>10.2f} {:>10.2f} {:>8}\n", row.label,
                        ms * *std::min_element(row.seconds.begin(), row.seconds.end()),
                        ms * quantile_of(row.seconds, 0.5), ms * row.most(), row.slowest());
  };
  for (const OverRanks& row : rows_over_ranks(ranks)) {
    add(row);
    for (size_t r = 0; r < ranks.size(); ++r) all.seconds[r] += row.seconds[r];
  }
  add(all);
  return text;
}

}  // namespace moraine
