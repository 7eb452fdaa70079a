// Processes and tails of one machine, as reports.
#include "supervisor/local_host.h"

#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/file_system.h"

namespace moraine {
namespace {

LogTail tail_of(const std::string& path) {
  FileSystem& fs = posix_file_system();
  return LogTail(path, fs.exists(path) ? fs.file_bytes(path) : 0);
}

}  // namespace

LocalHost::LocalHost(const std::string& folder, int ranks, int host, HostSensing sensing)
    : host_(host),
      sensing_(std::move(sensing)),
      ranks_(folder, ranks),
      out_(tail_of(ranks_.path(0, "out"))) {
  for (int r = 0; r < ranks; ++r) tails_.push_back(tail_of(ranks_.path(r, "log")));
  reports_.emplace_back(HostBack{host});
}

// A start or what was found instead of one.
void LocalHost::tell(const RunEvent& event) {
  if (const auto* e = std::get_if<RankStarted>(&event)) reports_.emplace_back(*e);
  if (const auto* e = std::get_if<RankStartFailed>(&event)) reports_.emplace_back(*e);
  if (const auto* e = std::get_if<RankEnded>(&event)) reports_.emplace_back(*e);
}

void LocalHost::begin(const std::vector<FollowedRank>& there) {
  std::vector<bool> followed(tails_.size());
  for (const FollowedRank& r : there) followed[static_cast<size_t>(r.rank)] = true;
  for (size_t r = 0; r < tails_.size(); ++r) {
    if (!followed[r]) ranks_.kill_former(static_cast<int>(r));
  }
  for (const FollowedRank& r : there) {
    tails_[static_cast<size_t>(r.rank)].go_to(r.log_offset);
    if (r.rank == 0) out_.go_to(r.out_offset);
    RunEvent found = ranks_.find(r.rank, r.start);
    if (std::holds_alternative<RankEnded>(found)) read_log(r.rank);
    if (r.rank == 0) read_out();
    tell(found);
  }
  read_sensors(sensing_.seconds > 0);
}

void LocalHost::read_sensors(bool all) {
  FileSystem& fs = posix_file_system();
  HostReading reading =
      all ? read_host(fs, sensing_.sensors) : read_oom_kills(fs, sensing_.sensors);
  reading.host = host_;
  if (all) sensed_at_ = now_seconds();
  reports_.emplace_back(HostRead{std::move(reading)});
}

void LocalHost::start(int rank, int64_t start, const std::vector<std::string>& words) {
  // From here on: another host may have had it until now.
  reports_.emplace_back(RankText{rank, false, "", tails_[static_cast<size_t>(rank)].offset()});
  if (rank == 0) reports_.emplace_back(RankText{rank, true, "", out_.offset()});
  tell(ranks_.start(rank, words, start));
}

void LocalHost::read_log(int rank) {
  LogTail& tail = tails_[static_cast<size_t>(rank)];
  std::string text = tail.read();
  if (!text.empty()) reports_.emplace_back(RankText{rank, false, std::move(text), tail.offset()});
}

void LocalHost::read_out() {
  std::string text = out_.read(false);
  if (!text.empty()) reports_.emplace_back(RankText{0, true, std::move(text), out_.offset()});
}

std::vector<HostReport> LocalHost::take() {
  const int ranks = static_cast<int>(tails_.size());
  for (int r = 0; r < ranks; ++r) read_log(r);
  read_out();
  const bool is_due = sensing_.seconds > 0 && now_seconds() - sensed_at_ > sensing_.seconds;
  if (is_due && sensed_at_ >= 0) read_sensors(true);
  for (int r = 0; r < ranks; ++r) {  // what a rank did before it ended counts
    BeatSnapshot beat;
    if (ranks_.read_beat(r, &beat)) reports_.emplace_back(RankBeat{r, beat});
  }
  for (RankEnded& ended : ranks_.take_ended()) {
    LogTail& tail = tails_[static_cast<size_t>(ended.rank)];
    read_log(ended.rank);
    if (ended.rank == 0) read_out();
    ended.last_lines = tail.last_lines();
    tail.forget_lines();
    read_sensors(false);
    reports_.emplace_back(std::move(ended));
  }
  return std::exchange(reports_, {});
}

}  // namespace moraine
