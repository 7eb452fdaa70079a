// ModelPlace: where a directory that holds a model is made, whole or not at all.
//
// It is written to `<directory>.partial` and renamed. One process at a time holds that. What a killed one has left in
// it is removed first, what is in it when its holder gives it up is removed then.
//
// Errors: kInvalidArgument if the directory is there already and not an empty one, if its name is empty, or if
//         `<directory>.partial` is no folder, holds what is none of ours, or is another process's; kIo.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file_lock.h"
#include "base/file_system.h"
#include "checkpoint/checkpoint.h"

namespace moraine {

// What both kinds of directory that hold a model alone are made of.
struct DirectoryContent {
  CheckpointInfo info;
  std::vector<CheckpointTensor> tensors;
  std::span<const CheckpointFile> files;
  CheckpointOptions options;
};
// Wraps the tensors' functions, so that `progress` hears of each piece. It lives as long as `content`.
void count_progress(DirectoryContent& content,
                    const std::function<void(int64_t done, int64_t total)>& progress);

class ModelPlace {
 public:
  ModelPlace(FileSystem& fs, const std::string& name);
  ~ModelPlace();
  ModelPlace(const ModelPlace&) = delete;
  ModelPlace& operator=(const ModelPlace&) = delete;

  // Makes the directory, once. Errors: kIo; those of the tensors.
  void write(const DirectoryContent& content);
  // The same of a folder that is not a checkpoint, which `fill` fills.
  void write(const std::function<void(const std::string& folder)>& fill);

 private:
  void put_in_place(const std::string& made);

  FileSystem& fs_;
  const std::string directory_, root_;
  std::unique_ptr<FileLock> lock_;
};

// As shells complete it: "m/" is "m". Errors: kInvalidArgument for "".
std::string directory_to_make(std::string name);

// Whether the disk has room: before a byte is written, or minutes are spent. Errors: kIo, which says how much there is,
// how much it takes, and what to remove.
void check_room(FileSystem& fs, const std::string& directory, int64_t bytes);
void check_room(FileSystem& fs, const std::string& directory, const DirectoryContent& content);
// check_room, and what a ModelPlace does.
void write_directory(FileSystem& fs, const std::string& name, const DirectoryContent& content);

}  // namespace moraine
