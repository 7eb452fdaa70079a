// Orders and reports to JSON and back.
#include "supervisor/host_wire.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>
#include <type_traits>

#include "base/error.h"
#include "supervisor/rank_watch.h"
#include "supervisor/state_json.h"

namespace moraine {

template <class Visitor>
void each_field(Visitor& visit, BeginOrder& o) {
  visit("version", o.version);
  visit("work_folder", o.work_folder);
  visit("ranks", o.ranks);
  visit("host", o.host);
  visit("there", o.there);
}

template <class Visitor>
void each_field(Visitor& visit, StartOrder& o) {
  visit("rank", o.rank);
  visit("start", o.start);
  visit("words", o.words);
}

template <class Visitor>
void each_field(Visitor& visit, SignalOrder& o) {
  visit("rank", o.rank);
  visit("signal", o.signal);
}

template <class Visitor>
void each_field(Visitor& visit, PaceOrder& o) {
  visit("milliseconds", o.milliseconds);
}

template <class Visitor>
void each_field(Visitor& visit, RankStarted& e) {
  visit("rank", e.rank);
  visit("pid", e.pid);
}

template <class Visitor>
void each_field(Visitor& visit, RankStartFailed& e) {
  visit("rank", e.rank);
  visit("reason", e.reason);
  visit("lasting", e.lasting);
}

template <class Visitor>
void each_field(Visitor& visit, RankEnded& e) {
  visit("rank", e.rank);
  visit("exit_code", e.exit_code);
  visit("signal", e.signal);
  visit("last_lines", e.last_lines);
}

template <class Visitor>
void each_field(Visitor& visit, RankBeat& e) {
  visit("rank", e.rank);
  visit("beat", e.beat);
}

template <class Visitor>
void each_field(Visitor& visit, HostLost& e) {
  visit("reason", e.reason);
}

template <class Visitor>
void each_field(Visitor& visit, HostBack& e) {
  visit("host", e.host);
}

template <class Visitor>
void each_field(Visitor& visit, HostRead& e) {
  visit("reading", e.reading);
}

namespace {

// By their places in the variants.
constexpr const char* kOrders[] = {"begin", "start", "signal", "pace"};
constexpr const char* kReports[] = {"started", "start_failed", "ended", "beat",
                                    "text",    "lost",         "hello", "read"};
static_assert(std::size(kOrders) == std::variant_size_v<HostOrder>);
static_assert(std::size(kReports) == std::variant_size_v<HostReport>);

template <class Variant>
std::string line_of(const Variant& said, const char* const* kinds) {
  Json json = Json::object({{"kind", kinds[said.index()]}});
  std::visit([&json](const auto& one) { json.update(state_to_json(one)); }, said);
  return fmt::format("{}\n", json_text(json));
}

// Numbers that static_cast takes to where they belong.
bool has_sane_numbers(const Json& json) {
  if (json.is_number_float()) return std::abs(json.get<double>()) < 1e9;
  if (json.is_number_unsigned()) return json.get<uint64_t>() <= INT64_MAX;
  if (json.is_object())
    return std::all_of(json.items().begin(), json.items().end(),
                       [](const JsonMember& m) { return has_sane_numbers(m.value); });
  return !json.is_array() || std::all_of(json.begin(), json.end(), has_sane_numbers);
}

bool has_rank(const Json& json, int64_t ranks) {
  if (!json.contains("rank")) return false;
  const Json& rank = json.at("rank");
  return rank.is_number_integer() && rank.get<int64_t>() >= 0 && rank.get<int64_t>() < ranks;
}

template <class T>
constexpr bool kOfRank =
    std::is_same_v<T, StartOrder> || std::is_same_v<T, SignalOrder> ||
    std::is_same_v<T, RankStarted> || std::is_same_v<T, RankStartFailed> ||
    std::is_same_v<T, RankEnded> || std::is_same_v<T, RankBeat> || std::is_same_v<T, RankText>;

template <class Variant, size_t kAt = 0>
Variant variant_of(const Json& json, size_t at, int64_t ranks) {
  if constexpr (kAt < std::variant_size_v<Variant>) {
    if (at != kAt) return variant_of<Variant, kAt + 1>(json, at, ranks);
    using T = std::variant_alternative_t<kAt, Variant>;
    if (kOfRank<T> && !has_rank(json, ranks))
      throw_error(Code::kCorrupt, "found no rank from 0 to {}", ranks - 1);
    T value{};
    state_from_json(json, &value);
    return value;
  } else {
    throw_error(Code::kCorrupt, "found kind {}", at);
  }
}

template <class Variant>
std::optional<Variant> parse(std::string_view line, std::span<const char* const> kinds,
                             int64_t ranks, std::string* problem) {
  try {
    const Json json = parse_json(line, "the line");
    if (!json.is_object() || !json.contains("kind"))
      throw_error(Code::kCorrupt, "found no object with a kind");
    const std::string kind = json.at("kind").get<std::string>();
    const auto known = std::find(kinds.begin(), kinds.end(), kind);
    if (known == kinds.end()) throw_error(Code::kCorrupt, "found kind '{}'", kind);
    if (!has_sane_numbers(json)) throw_error(Code::kCorrupt, "found a number beyond all use");
    return variant_of<Variant>(json, static_cast<size_t>(known - kinds.begin()), ranks);
  } catch (const Error& e) {
    *problem = e.what();
    return std::nullopt;
  }
}

}  // namespace

std::string order_line(const HostOrder& order) { return line_of(order, kOrders); }
std::string report_line(const HostReport& report) { return line_of(report, kReports); }

std::optional<HostOrder> parse_order(std::string_view line, int64_t ranks, std::string* problem) {
  std::optional<HostOrder> order = parse<HostOrder>(line, kOrders, ranks, problem);
  if (!order) return order;
  const auto* begin = std::get_if<BeginOrder>(&*order);
  if (begin == nullptr) return order;
  const bool fits =
      begin->version == kWireVersion && begin->ranks > 0 && begin->ranks <= ranks &&
      std::all_of(begin->there.begin(), begin->there.end(),
                  [&](const FollowedRank& r) { return r.rank >= 0 && r.rank < begin->ranks; });
  if (fits) return order;
  *problem = fmt::format("found version {} with {} ranks; wanted version {}", begin->version,
                         begin->ranks, kWireVersion);
  return std::nullopt;
}

std::optional<HostReport> parse_report(std::string_view line, int64_t ranks, std::string* problem) {
  return parse<HostReport>(line, kReports, ranks, problem);
}

std::optional<std::string> WireLines::take() {
  const size_t end = buffer_.find('\n');
  if (end == std::string::npos) {
    if (buffer_.size() > kWireLineMax) buffer_.clear();
    return std::nullopt;
  }
  std::string line = buffer_.substr(0, end);
  buffer_.erase(0, end + 1);
  return line;
}

}  // namespace moraine
