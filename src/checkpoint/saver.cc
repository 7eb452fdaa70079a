// CheckpointSaver: the job of a SaveThread is to write one checkpoint, then to drop old ones.
#include "checkpoint/saver.h"

#include "base/error.h"

namespace moraine {

CheckpointSaver::CheckpointSaver(FileSystem& fs, const std::string& root,
                                 const SaverOptions& options)
    : fs_(fs), root_(root), options_(options) {}

SaveResult CheckpointSaver::save(const CheckpointInfo& info,
                                 std::span<const CheckpointTensor> tensors,
                                 std::span<const CheckpointFile> files) {
  SaveResult saved;
  saved.step = info.step;
  saved.written = write_checkpoint(fs_, root_, info, tensors, files, options_.checkpoint);
  try {
    saved.removed = apply_retention(fs_, root_, options_.retention, info.step);
  } catch (const Error& error) {
    saved.warning = error.what();
  }
  return saved;
}

void CheckpointSaver::start(CheckpointInfo info, std::vector<CheckpointTensor> tensors,
                            std::vector<CheckpointFile> files) {
  const std::string name = fmt::format("save checkpoint step-{}", info.step);
  thread_.start(name, [this, info = std::move(info), tensors = std::move(tensors),
                       files = std::move(files)] { return save(info, tensors, files); });
}

}  // namespace moraine
