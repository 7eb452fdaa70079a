// Reload: moves the server to a newer checkpoint of the run that it was pointed at.
//
//   every so many seconds   is there a step that is newer than the one that answers? then it is loaded
//                           beside it, new requests get it, and the old one goes when its last answer is
//                           complete
//
// A checkpoint that can not be read is logged, counted, and not tried again. Memory: both versions while
// the old one still answers.
// Threads: one of its own; stop, from any other, ends it and every version that it has loaded.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/file_system.h"
#include "server/metrics.h"
#include "server/served_model.h"

namespace moraine {

class Reload {
 public:
  using Load = std::function<std::shared_ptr<const ServedModel>()>;
  struct Options {
    std::string path;
    double seconds;  // between looks; 0: never
    Load load;       // opens the newest checkpoint under `path`
  };
  Reload(FileSystem& fs, Options options, CurrentModel& current, ServerMetrics& metrics);
  ~Reload() { stop(); }
  void stop();
  // Looks now; true if a newer one was taken. On the caller's thread: for tests, when seconds are 0.
  bool look();

 private:
  void run();
  void retire(bool all);

  FileSystem& fs_;
  const Options o_;
  CurrentModel& current_;
  ServerMetrics& metrics_;
  int64_t seen_ = -1;                                        // the newest step that was tried
  std::vector<std::shared_ptr<const ServedModel>> retired_;  // that may still answer
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace moraine
