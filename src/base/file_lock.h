// FileLock: one process at a time in a folder.
//
// An advisory lock (flock) on the file `lock` in the folder, which holds the owner's process id and
// host for who finds it taken. It goes with the process, however that ends; the file is removed
// by the owner, and may stay after a crash without meaning anything.
//
// Errors: kInvalidArgument: taken, by whom; kIo.
#pragma once

#include <memory>
#include <string>

namespace moraine {

inline constexpr const char* kLockName = "lock";

class FileLock {
 public:
  // `doing`: what for, for messages, for example "train into runs/a". The folder must be there. A
  // file system without locks gives an object that holds none.
  static std::unique_ptr<FileLock> take(const std::string& folder, const std::string& doing);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_;
  std::string path_;  // to remove; empty: not ours
};

}  // namespace moraine
