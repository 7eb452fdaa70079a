// Reload: a look at the names of a folder, now and then.
#include "server/reload.h"

#include <chrono>
#include <exception>

#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "checkpoint/history.h"

namespace moraine {
namespace {

int64_t newest_step(FileSystem& fs, const std::string& path) {
  const std::vector<int64_t> steps = list_checkpoints(fs, path);
  return steps.empty() ? -1 : steps.back();
}

// 1200 of "step-1200-5f0c1e2a"; -1: not of a run.
int64_t step_of(const std::string& fingerprint) {
  constexpr std::string_view kStep = "step-";
  return fingerprint.starts_with(kStep) ? std::atoll(fingerprint.c_str() + kStep.size()) : -1;
}

}  // namespace

Reload::Reload(FileSystem& fs, Options options, CurrentModel& current, ServerMetrics& metrics)
    : fs_(fs),
      o_(std::move(options)),
      current_(current),
      metrics_(metrics),
      seen_(step_of(current.get()->fingerprint)) {
  if (o_.seconds > 0) thread_ = start_thread("look for newer checkpoints", [this] { run(); });
}

void Reload::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    changed_.wait_for(lock, std::chrono::duration<double>(o_.seconds),
                      [this] { return stopping_; });
    if (stopping_) return;
    lock.unlock();
    look();
    lock.lock();
  }
}

bool Reload::look() {
  retire(/*all=*/false);
  int64_t step = -1;
  try {
    step = newest_step(fs_, o_.path);
    if (step <= seen_) return false;
    seen_ = step;
    std::shared_ptr<const ServedModel> loaded = o_.load();
    if (loaded->fingerprint == current_.get()->fingerprint) {
      loaded->generator->stop();
      throw_error(Code::kCorrupt, "the newest checkpoint that can be read is the one that answers");
    }
    retired_.push_back(current_.replace(std::move(loaded)));
  } catch (const std::exception& e) {  // no memory for a second model is no end of the first
    metrics_.reloaded(false);
    log_event(Level::kWarning, "serve.reload_failed", "step={} what=\"{}\"", step, e.what());
    return false;
  }
  metrics_.reloaded(true);
  log_event(Level::kInfo, "serve.reloaded", "fingerprint={}", current_.get()->fingerprint);
  retire(/*all=*/false);
  return true;
}

// Ends versions that nobody holds any more.
void Reload::retire(bool all) {
  std::erase_if(retired_, [&](const std::shared_ptr<const ServedModel>& model) {
    if (!all && model.use_count() > 1) return false;
    model->generator->stop();
    return true;
  });
}

void Reload::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  retire(/*all=*/true);
  current_.get()->generator->stop();
}

}  // namespace moraine
