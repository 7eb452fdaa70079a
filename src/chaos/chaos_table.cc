// ChaosTable: matches incidents with faults, and counts.
#include "chaos/chaos_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace moraine {
namespace {

constexpr double kEarly = 0.5;  // a hang begins with the last beat, which is before its cause

bool is_of_a_rank(ChaosFault fault) {
  return fault != ChaosFault::kKillSupervisor && fault != ChaosFault::kMemoryPressure &&
         fault != ChaosFault::kFillDisk && !is_of_a_link(fault);
}

bool could_cause(const PlannedFault& f, const LedgerEntry& entry) {
  const bool tells_of_links =
      entry.fault == RunFault::kLinkLost || entry.fault == RunFault::kPeerSilent ||
      entry.fault == RunFault::kCarrierLost || entry.fault == RunFault::kNicErrors;
  const bool tells_of_silence =
      entry.fault == RunFault::kPeerLost || entry.fault == RunFault::kHostLost;
  if (is_of_a_link(f.fault)) return tells_of_links || tells_of_silence;
  return !tells_of_links && (!is_of_a_rank(f.fault) || entry.rank < 0 || f.rank == entry.rank);
}

// -1: none.
int64_t cause_of(const LedgerEntry& entry, const std::vector<InjectedFault>& faults) {
  int64_t cause = -1;
  for (size_t i = 0; i < faults.size(); ++i) {
    const InjectedFault& f = faults[i];
    if (!f.was_done || f.unix_time > entry.begin_unix + kEarly) continue;
    if (could_cause(f.planned, entry)) cause = static_cast<int64_t>(i);
  }
  return cause;
}

void add(ChaosRow& row, const std::string& level) {
  const auto found = std::find_if(row.levels.begin(), row.levels.end(),
                                  [&](const auto& one) { return one.first == level; });
  if (found == row.levels.end())
    row.levels.emplace_back(level, 1);
  else
    ++found->second;
}

}  // namespace

std::vector<ChaosRow> chaos_rows(const std::vector<InjectedFault>& faults,
                                 const std::vector<LedgerEntry>& ledger) {
  std::vector<std::vector<const LedgerEntry*>> of_fault(faults.size());
  for (const LedgerEntry& entry : ledger) {
    const int64_t cause = cause_of(entry, faults);
    if (cause >= 0) of_fault[static_cast<size_t>(cause)].push_back(&entry);
  }
  std::map<ChaosFault, ChaosRow> rows;
  for (size_t i = 0; i < faults.size(); ++i) {
    ChaosRow& row = rows[faults[i].planned.fault];
    row.fault = faults[i].planned.fault;
    ++row.planned;
    row.done += faults[i].was_done;
    if (!faults[i].was_done) continue;
    double lost = 0;
    RecoveryLevel highest = RecoveryLevel::kLink;
    for (const LedgerEntry* entry : of_fault[i]) {
      lost += entry->seconds_lost;
      highest = std::max(highest, entry->level);
    }
    add(row, of_fault[i].empty() ? "run" : level_name(highest));
    row.seconds_lost += lost;
    row.seconds_most = std::max(row.seconds_most, lost);
  }
  std::vector<ChaosRow> list;
  for (auto& [fault, row] : rows) list.push_back(std::move(row));
  return list;
}

std::string chaos_table_text(const std::vector<ChaosRow>& rows) {
  std::string text = fmt::format("{:<16} {:>7} {:>7} {:>9} {:>9}  {}\n", "fault", "planned", "done",
                                 "lost s", "most s", "absorbed at");
  int64_t planned = 0, done = 0;
  double lost = 0;
  for (const ChaosRow& row : rows) {
    std::string levels;
    for (const auto& [level, count] : row.levels)
      levels += fmt::format("{}{} {}", levels.empty() ? "" : ", ", level, count);
    text += fmt::format("{:<16} {:>7} {:>7} {:>9.2f} {:>9.2f}  {}\n", chaos_name(row.fault),
                        row.planned, row.done, row.seconds_lost, row.seconds_most, levels);
    planned += row.planned;
    done += row.done;
    lost += row.seconds_lost;
  }
  return text + fmt::format("{:<16} {:>7} {:>7} {:>9.2f}\n", "all", planned, done, lost);
}

}  // namespace moraine
