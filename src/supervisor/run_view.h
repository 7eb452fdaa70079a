// RunView: what a supervised run shows to people while it goes on: its page, its numbers, alerts.
//
// Hears what the supervisor hears, sees what it decides, decides nothing. FOLDER/timeline.jsonl gets a line a second,
// FOLDER/incidents.html is written anew after an incident, at most every kPageSeconds, every minute, and at the end.
//
// Errors: in the constructor kIo: the port of the numbers is taken, kInvalidArgument: the webhook is no address. A file
//         that can not be written is an event, told once until it can; the run goes on.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/json.h"
#include "supervisor/options.h"
#include "supervisor/run_effect.h"
#include "supervisor/run_event.h"
#include "supervisor/run_metrics_http.h"
#include "supervisor/run_timeline.h"
#include "supervisor/supervised_run.h"
#include "supervisor/useful_share.h"
#include "supervisor/webhook.h"

namespace moraine {

class RunView {
 public:
  static constexpr double kPageSeconds = 10, kCalmPageSeconds = 60;

  // Goes on with what is in `folder`, which is there.
  RunView(FileSystem& fs, const std::string& folder, const ShowOptions& options);

  // What the next supervisor goes on from, which tells it this.
  Json left() const;
  void go_on(const Json& left);

  void hear(const RunEvent& event);
  void see(double now, const RunEffect& effect);
  void add_descriptors(std::vector<pollfd>* polled) const;  // when one is ready, show() has work
  void show(double now, const SupervisedRun& run);          // as often as one likes
  void end(double now, const SupervisedRun& run, const std::string& outcome);
  std::string metrics(double now, const SupervisedRun& run);  // what is answered at the port

 private:
  struct Told {  // of a file that could not be written
    bool ledger = false, timeline = false, page = false;
  };
  struct Counted {  // of a rank's process
    int64_t pid = 0, strangers = 0;
  };
  BeatSnapshot* beat_of(int rank);
  Counted& counted_of(int rank);
  void alert(const std::string& fault, const std::string& text);
  std::vector<std::optional<Activity>> activities() const;
  double speed(double now) const;
  void add_second(double now, const SupervisedRun& run);
  void write_page(double now, const SupervisedRun& run, const std::string& outcome);
  template <class Body>
  void attempt(const char* file, bool* told, const Body& body);

  FileSystem& fs_;
  const std::string folder_;
  RunTimeline timeline_;
  std::unique_ptr<RunMetricsHttp> server_;  // null: none
  std::unique_ptr<Webhook> webhook_;        // null: none
  std::string metrics_;                     // of metrics_at_: who asks often is told the same
  std::vector<LedgerEntry> entries_;
  UsefulTime useful_;
  const double to_unix_;  // from the supervisor's clock
  const std::function<double(const UsefulShare&)> expect_useful_;
  std::vector<std::optional<BeatSnapshot>> beats_;  // of each rank's process, if it has a page
  std::vector<Counted> counted_;                    // of each rank
  int64_t strangers_ = 0;                           // of all processes that this one has seen
  std::string letters_;                             // of this second, the worst of each rank
  std::vector<RailChange> rails_;                   // of this second
  int64_t step_ = 0;
  double moved_at_ = -1, second_at_ = -1, page_at_ = -1, metrics_at_ = -1;  // -1: never
  bool news_ = true;
  Told told_;
};

}  // namespace moraine
