// SaveThread: one thread, one job at a time, its state under one lock.
#include "checkpoint/save_thread.h"

#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"

namespace moraine {

struct SaveThread::Shared {
  enum class Stage { kIdle, kBusy, kDone };

  std::mutex mutex;
  std::condition_variable changed;
  Stage stage = Stage::kIdle;
  bool stopping = false;
  SaveResult result;
  std::optional<Error> error;

  // The job; the thread's while busy.
  std::string name;
  std::function<SaveResult()> save;

  std::thread thread;

  void run();
  void run_job(SaveResult* saved, std::optional<Error>* failure);
  std::optional<SaveResult> take();  // under the lock
};

void SaveThread::Shared::run_job(SaveResult* saved, std::optional<Error>* failure) {
  const double begin = now_seconds();
  try {
    *saved = save();
    saved->seconds = now_seconds() - begin;
  } catch (const Error& e) {
    *failure = e;
  } catch (const std::exception& e) {  // out of memory
    *failure = Error(Code::kIo, fmt::format("{}: {}", name, e.what()));
  }
  save = nullptr;
}

void SaveThread::Shared::run() {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return stopping || stage == Stage::kBusy; });
    if (stage != Stage::kBusy) return;  // a job that was started is finished first
    lock.unlock();
    SaveResult saved;
    std::optional<Error> failure;
    run_job(&saved, &failure);
    lock.lock();
    result = std::move(saved);
    error = std::move(failure);
    stage = Stage::kDone;
    changed.notify_all();
  }
}

// The result of a finished save; back to idle.
std::optional<SaveResult> SaveThread::Shared::take() {
  if (stage != Stage::kDone) return std::nullopt;
  stage = Stage::kIdle;
  if (error.has_value()) throw Error(*error);
  return std::move(result);
}

SaveThread::SaveThread() : shared_(std::make_unique<Shared>()) {
  shared_->thread = start_thread("saving", [shared = shared_.get()] { shared->run(); });
}

SaveThread::~SaveThread() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->stopping = true;
  }
  shared_->changed.notify_all();
  shared_->thread.join();
}

void SaveThread::start(const std::string& name, std::function<SaveResult()> save) {
  {
    const std::lock_guard lock(shared_->mutex);
    MR_CHECK(shared_->stage == Shared::Stage::kIdle, "the last save was not taken by poll or wait");
    shared_->name = name;
    shared_->save = std::move(save);
    shared_->stage = Shared::Stage::kBusy;
  }
  shared_->changed.notify_all();
}

bool SaveThread::busy() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->stage == Shared::Stage::kBusy;
}

bool SaveThread::idle() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->stage == Shared::Stage::kIdle;
}

std::optional<SaveResult> SaveThread::poll() {
  const std::lock_guard lock(shared_->mutex);
  return shared_->take();
}

std::optional<SaveResult> SaveThread::wait() {
  std::unique_lock lock(shared_->mutex);
  shared_->changed.wait(lock, [&] { return shared_->stage != Shared::Stage::kBusy; });
  return shared_->take();
}

}  // namespace moraine
