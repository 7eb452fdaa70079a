// RunTimeline: what a run did, second by second: a line a second in a file, and in memory a copy that stays small.
//
//   {"time":1767323045.0,"step":12,"tokens_per_s":5300,"ranks":"ccmx","rails":[{"rank":0,"peer":"1","rail":"0",
//    "lost":true}]}
//
// `ranks` has a letter for each rank: rank_letters(). `rails` is there if a path was lost or came back. At 16 MiB the
// file becomes timeline.1.jsonl, in place of the one of that name.
//
// In memory two points that are neighbours become one whenever there are kPointsMost of them; a rank's letter is then
// the worse of both. So hours and weeks cost the same, and a fault of a second is seen in either.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "supervisor/supervised_run.h"

namespace moraine {

struct RailChange {
  int rank = 0;
  std::string peer, rail;
  bool lost = false;
};

struct TimelinePoint {
  double begin = 0, end = 0;  // seconds since 1970
  int64_t step = 0;
  double tokens_per_second = 0;  // mean over the time
  std::string ranks;
};

// One path to another rank was gone.
struct RailOutage {
  int rank = 0;
  std::string peer, rail;
  double begin = 0, end = -1;  // -1: it still is
};

// - absent, d done, c in a step, o looks at the run (validation, samples), s stores, l loads, m meets, t starts,
// x no process. From left to right: the later is the worse.
constexpr std::string_view kRankLetters = "-dcoslmtx";
// `activities`: what each rank says in its page, if it has one.
std::string rank_letters(const SupervisedRun& run,
                         const std::vector<std::optional<Activity>>& activities);
// For each rank the worse of both.
std::string worse_letters(std::string a, const std::string& b);

class RunTimeline {
 public:
  static constexpr size_t kPointsMost = 1200, kOutagesMost = 1000;
  static constexpr int64_t kFileBytesMost = 16 << 20;

  RunTimeline(FileSystem& fs, std::string folder) : fs_(fs), folder_(std::move(folder)) {}
  // What a supervisor before has written. Lines that are none are left out.
  void read();
  // The second that ends at point.end, and what became of paths in it. Errors: kIo: of the file; memory has it.
  void add(const TimelinePoint& point, const std::vector<RailChange>& rails);

  const std::vector<TimelinePoint>& points() const { return points_; }
  const std::vector<RailOutage>& outages() const { return outages_; }  // the last kOutagesMost

 private:
  std::string path(const char* name) const { return join_path(folder_, name); }
  void read_file(const std::string& path);
  bool ends_in_a_line() const;
  void thin();
  void keep(TimelinePoint point, const std::vector<RailChange>& rails);
  void write(const TimelinePoint& point, const std::vector<RailChange>& rails);

  FileSystem& fs_;
  const std::string folder_;
  std::unique_ptr<WritableFile> file_;
  int64_t file_bytes_ = 0;
  double seconds_ = 1;  // of a point
  std::vector<TimelinePoint> points_;
  std::vector<RailOutage> outages_;
};

}  // namespace moraine
