// CheckpointSaver: one thread, one job at a time, its state under one lock.
#include "checkpoint/saver.h"

#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"

namespace moraine {

struct CheckpointSaver::Shared {
  enum class Stage { kIdle, kBusy, kDone };

  Shared(FileSystem& fs_in, const std::string& root_in, const SaverOptions& options_in)
      : fs(fs_in), root(root_in), options(options_in) {}

  FileSystem& fs;
  const std::string root;
  const SaverOptions options;

  std::mutex mutex;
  std::condition_variable changed;
  Stage stage = Stage::kIdle;
  bool stopping = false;
  SaveResult result;
  std::optional<Error> error;

  // The job; the thread's while busy.
  CheckpointInfo info;
  std::vector<CheckpointTensor> tensors;
  std::vector<CheckpointFile> files;

  std::thread thread;

  void run();
  SaveResult save();
  std::optional<SaveResult> take();  // under the lock
};

SaveResult CheckpointSaver::Shared::save() {
  const double begin = now_seconds();
  SaveResult saved;
  saved.step = info.step;
  saved.written = write_checkpoint(fs, root, info, tensors, files, options.checkpoint);
  try {
    saved.removed = apply_retention(fs, root, options.retention, info.step);
  } catch (const Error& error) {
    saved.warning = error.what();
  }
  saved.seconds = now_seconds() - begin;
  return saved;
}

void CheckpointSaver::Shared::run() {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return stopping || stage == Stage::kBusy; });
    if (stage != Stage::kBusy) return;  // a job that was started is finished first
    lock.unlock();
    SaveResult saved;
    std::optional<Error> failure;
    try {
      saved = save();
    } catch (const Error& e) {
      failure = e;
    } catch (const std::exception& e) {  // out of memory
      failure = Error(Code::kIo, fmt::format("save checkpoint step-{}: {}", info.step, e.what()));
    }
    lock.lock();
    result = std::move(saved);
    error = std::move(failure);
    stage = Stage::kDone;
    changed.notify_all();
  }
}

// The result of a finished save; back to idle.
std::optional<SaveResult> CheckpointSaver::Shared::take() {
  if (stage != Stage::kDone) return std::nullopt;
  stage = Stage::kIdle;
  tensors.clear();
  files.clear();
  if (error.has_value()) throw Error(*error);
  return std::move(result);
}

CheckpointSaver::CheckpointSaver(FileSystem& fs, const std::string& root,
                                 const SaverOptions& options)
    : shared_(std::make_unique<Shared>(fs, root, options)) {
  shared_->thread = std::thread([shared = shared_.get()] { shared->run(); });
}

CheckpointSaver::~CheckpointSaver() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->stopping = true;
  }
  shared_->changed.notify_all();
  shared_->thread.join();
}

void CheckpointSaver::start(CheckpointInfo info, std::vector<CheckpointTensor> tensors,
                            std::vector<CheckpointFile> files) {
  {
    const std::lock_guard lock(shared_->mutex);
    MR_CHECK(shared_->stage == Shared::Stage::kIdle, "the last save was not taken by poll or wait");
    shared_->info = std::move(info);
    shared_->tensors = std::move(tensors);
    shared_->files = std::move(files);
    shared_->stage = Shared::Stage::kBusy;
  }
  shared_->changed.notify_all();
}

bool CheckpointSaver::busy() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->stage == Shared::Stage::kBusy;
}

bool CheckpointSaver::idle() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->stage == Shared::Stage::kIdle;
}

std::optional<SaveResult> CheckpointSaver::poll() {
  const std::lock_guard lock(shared_->mutex);
  return shared_->take();
}

std::optional<SaveResult> CheckpointSaver::wait() {
  std::unique_lock lock(shared_->mutex);
  shared_->changed.wait(lock, [&] { return shared_->stage != Shared::Stage::kBusy; });
  return shared_->take();
}

}  // namespace moraine
