// Points that are merged when there are many, and their lines.
#include "supervisor/run_timeline.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json.h"

namespace moraine {
namespace {

constexpr const char* kFile = "timeline.jsonl";
constexpr const char* kFormer = "timeline.1.jsonl";
constexpr double kGapSeconds = 3;  // nothing was written for so long: no supervisor was there

char letter_of(Activity activity) {
  switch (activity) {
    case Activity::kMeeting:
      return 'm';
    case Activity::kLoading:
      return 'l';
    case Activity::kComputing:
    case Activity::kWaiting:
      return 'c';
    case Activity::kStoring:
      return 's';
    case Activity::kObserving:
    case Activity::kEnding:
      return 'o';
    default:
      return 't';
  }
}

char letter_of(const RankStatus& r, const std::optional<Activity>& activity) {
  switch (r.phase) {
    case RankPhase::kAbsent:
      return '-';
    case RankPhase::kDone:
      return 'd';
    case RankPhase::kStarting:
      return 't';
    case RankPhase::kRunning:
      // A program without a page does whatever it does.
      return activity ? letter_of(*activity) : 'c';
    default:
      return 'x';
  }
}

char worse(char a, char b) {
  const auto place = [](char letter) {
    const size_t at = kRankLetters.find(letter);
    return at == std::string_view::npos ? size_t{0} : at;
  };
  return place(a) < place(b) ? b : a;
}

void merge(TimelinePoint* into, const TimelinePoint& next) {
  const double a = into->end - into->begin, b = next.end - next.begin;
  if (a + b > 0)
    into->tokens_per_second = (a * into->tokens_per_second + b * next.tokens_per_second) / (a + b);
  into->end = next.end;
  into->step = next.step;
  into->ranks = worse_letters(std::move(into->ranks), next.ranks);
}

void note(std::vector<RailOutage>* outages, const RailChange& change, double now) {
  const auto same = [&](const RailOutage& o) {
    return o.end < 0 && o.rank == change.rank && o.peer == change.peer && o.rail == change.rail;
  };
  const auto open = std::find_if(outages->rbegin(), outages->rend(), same);
  if (open != outages->rend()) {
    if (!change.lost) open->end = now;
    return;
  }
  if (!change.lost) return;
  if (outages->size() >= RunTimeline::kOutagesMost) outages->erase(outages->begin());
  outages->push_back({change.rank, change.peer, change.rail, now, -1});
}

// A process that ended has no paths; the next one makes its own.
void end_outages(std::vector<RailOutage>* outages, const TimelinePoint& point) {
  for (RailOutage& o : *outages) {
    const auto r = static_cast<size_t>(o.rank);
    if (o.end < 0 && r < point.ranks.size() && point.ranks[r] == 'x') o.end = point.end;
  }
}

Json line_of(const TimelinePoint& point, const std::vector<RailChange>& rails) {
  Json line = Json::object({{"time", point.end},
                            {"step", point.step},
                            {"tokens_per_s", point.tokens_per_second},
                            {"ranks", point.ranks}});
  for (const RailChange& change : rails)
    line["rails"].push_back(Json::object({{"rank", change.rank},
                                          {"peer", change.peer},
                                          {"rail", change.rail},
                                          {"lost", change.lost}}));
  return line;
}

TimelinePoint point_of(const Json& line) {
  TimelinePoint point;
  point.end = line.at("time").get<double>();
  point.begin = point.end - 1;
  point.step = line.at("step").get<int64_t>();
  point.tokens_per_second = line.at("tokens_per_s").get<double>();
  point.ranks = line.at("ranks").get<std::string>();
  return point;
}

std::vector<RailChange> rails_of(const Json& line) {
  std::vector<RailChange> rails;
  if (!line.contains("rails")) return rails;
  for (const Json& change : line.at("rails"))
    rails.push_back({change.at("rank").get<int>(), change.at("peer").get<std::string>(),
                     change.at("rail").get<std::string>(), change.at("lost").get<bool>()});
  return rails;
}

}  // namespace

std::string worse_letters(std::string a, const std::string& b) {
  if (a.size() < b.size()) a.resize(b.size(), kRankLetters.front());
  for (size_t r = 0; r < b.size(); ++r) a[r] = worse(a[r], b[r]);
  return a;
}

std::string rank_letters(const SupervisedRun& run,
                         const std::vector<std::optional<Activity>>& activities) {
  std::string letters;
  for (size_t r = 0; r < run.ranks.size(); ++r)
    letters += letter_of(run.ranks[r], r < activities.size() ? activities[r] : std::nullopt);
  return letters;
}

void RunTimeline::add(const TimelinePoint& point, const std::vector<RailChange>& rails) {
  keep(point, rails);
  write(point, rails);
}

void RunTimeline::keep(TimelinePoint point, const std::vector<RailChange>& rails) {
  if (!points_.empty()) {  // a clock that was set back
    point.end = std::max(point.end, points_.back().end);
    point.begin = std::clamp(point.begin, points_.back().end, point.end);
  }
  for (const RailChange& change : rails) note(&outages_, change, point.end);
  end_outages(&outages_, point);
  const bool together = !points_.empty() &&
                        points_.back().end - points_.back().begin < 0.999 * seconds_ &&
                        point.begin - points_.back().end < kGapSeconds;
  if (together) return merge(&points_.back(), point);
  points_.push_back(std::move(point));
  while (points_.size() >= kPointsMost) thin();
}

// Pairs become one; not over a gap, until there are so many that gaps are short beside a point.
void RunTimeline::thin() {
  std::vector<TimelinePoint> half;
  bool paired = true;
  for (const TimelinePoint& p : points_) {
    const bool near = !half.empty() && p.begin - half.back().end < std::max(kGapSeconds, seconds_);
    if (!paired && near) {
      merge(&half.back(), p);
      paired = true;
    } else {
      half.push_back(p);
      paired = false;
    }
  }
  points_ = std::move(half);
  seconds_ *= 2;
}

// The last line may have been cut, by a crash or a full disk.
bool RunTimeline::ends_in_a_line() const {
  if (file_bytes_ == 0) return false;
  char last = 0;
  fs_.map(path(kFile))->read_at(file_bytes_ - 1, 1, &last);
  return last != '\n';
}

void RunTimeline::write(const TimelinePoint& point, const std::vector<RailChange>& rails) {
  const std::string line = fmt::format("{}\n", json_text(line_of(point, rails)));
  try {
    if (file_ != nullptr && file_bytes_ > kFileBytesMost) {
      file_ = nullptr;
      fs_.rename(path(kFile), path(kFormer));
    }
    if (file_ == nullptr) {
      file_ = fs_.append_to(path(kFile));
      file_bytes_ = fs_.file_bytes(path(kFile));
      if (ends_in_a_line()) file_->append("\n", 1);
    }
    file_->append(line.data(), static_cast<int64_t>(line.size()));
    file_bytes_ += static_cast<int64_t>(line.size());
  } catch (const Error&) {
    file_ = nullptr;
    throw;
  }
}

void RunTimeline::read() {
  for (const char* name : {kFormer, kFile}) {
    if (fs_.exists(path(name))) read_file(path(name));
  }
}

void RunTimeline::read_file(const std::string& path) {
  const std::string text = fs_.read(path);
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const Json json = parse_json_or_null(line);
    if (!json.is_object()) continue;
    try {
      const std::vector<RailChange> rails = rails_of(json);
      keep(point_of(json), rails);
    } catch (const Error&) {
      continue;  // no line of ours
    }
  }
}

}  // namespace moraine
