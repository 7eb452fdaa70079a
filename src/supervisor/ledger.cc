// Lines of the ledger, written and read.
#include "supervisor/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include "base/error.h"
#include "base/json.h"

namespace moraine {
namespace {

Json entry_to_json(const LedgerEntry& e) {
  Json evidence = Json::array(), phases = Json::object();
  for (const std::string& text : e.evidence) evidence.push_back(text);
  for (const LedgerPhase& phase : e.phases) phases[phase.name] = phase.seconds;
  return Json::object({{"id", e.id},
                       {"utc_begin", utc_of(e.begin_unix)},
                       {"utc_end", utc_of(e.end_unix)},
                       {"begin", e.begin},
                       {"end", e.end},
                       {"begin_unix", e.begin_unix},
                       {"end_unix", e.end_unix},
                       {"fault", fault_name(e.fault)},
                       {"rank", e.rank},
                       {"host", e.host},
                       {"evidence", evidence},
                       {"decision", e.decision},
                       {"level", level_name(e.level)},
                       {"step", e.step},
                       {"seconds_lost", e.seconds_lost},
                       {"phases", phases}});
}

RunFault fault_of(const std::string& name) {
  for (const PolicyRow& row : policy_table()) {
    if (name == row.name) return row.fault;
  }
  throw_error(Code::kCorrupt, "fault '{}': there is none of this name", name);
}

RecoveryLevel level_of(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(RecoveryLevel::kStop); ++i) {
    if (name == level_name(static_cast<RecoveryLevel>(i))) return static_cast<RecoveryLevel>(i);
  }
  throw_error(Code::kCorrupt, "level '{}': there is none of this name", name);
}

LedgerEntry entry_from_json(const Json& j) {
  LedgerEntry e;
  e.id = j.at("id").get<int64_t>();
  e.fault = fault_of(j.at("fault").text());
  e.rank = j.at("rank").get<int32_t>();
  e.host = j.at("host").text();
  for (const Json& text : j.at("evidence")) e.evidence.push_back(text.text());
  e.decision = j.at("decision").text();
  e.level = level_of(j.at("level").text());
  e.step = j.at("step").get<int64_t>();
  e.begin = j.at("begin").get<double>(), e.end = j.at("end").get<double>();
  e.begin_unix = j.at("begin_unix").get<double>(), e.end_unix = j.at("end_unix").get<double>();
  e.seconds_lost = j.at("seconds_lost").get<double>();
  for (const JsonMember& phase : j.at("phases").items())
    e.phases.push_back({phase.name, phase.value.get<double>()});
  return e;
}

}  // namespace

std::string utc_of(double unix_seconds) {
  const double whole = std::floor(unix_seconds);
  const auto seconds = static_cast<std::time_t>(whole);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900,
                     utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                     static_cast<int>((unix_seconds - whole) * 1000));
}

std::string ledger_line(const LedgerEntry& entry) {
  return fmt::format("{}\n", json_text(entry_to_json(entry)));
}

void append_to_ledger(FileSystem& fs, const std::string& path, LedgerEntry entry,
                      double unix_minus_now) {
  entry.begin_unix = entry.begin + unix_minus_now;
  entry.end_unix = entry.end + unix_minus_now;
  // A line that was cut, by a full disk or a crash, must not swallow this one.
  std::string line = ledger_line(entry);
  if (fs.exists(path)) {
    const std::string before = fs.read(path);
    if (!before.empty() && before.back() != '\n') line.insert(line.begin(), '\n');
  }
  const auto file = fs.append_to(path);
  file->append(line.data(), static_cast<int64_t>(line.size()));
  file->sync();
  file->close();
}

std::vector<LedgerEntry> read_ledger(std::string_view text, const std::string& name) {
  std::vector<LedgerEntry> entries;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const Json json = parse_json_or_null(line);
    if (json.is_null()) continue;  // cut
    try {
      LedgerEntry entry = entry_from_json(json);
      std::erase_if(entries, [&](const LedgerEntry& e) { return e.id == entry.id; });
      entries.push_back(std::move(entry));
    } catch (const Error& e) {
      throw_error(Code::kCorrupt, "read {}: an entry that is none: {}", name, e.what());
    }
  }
  return entries;
}

}  // namespace moraine
