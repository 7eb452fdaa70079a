// FailingFileSystem: a disk that fails where a test wants it to.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file_system.h"

namespace moraine::testing {

// Passes everything on, but throws kIo at the n-th change of the disk; with `killed` also at each one
// behind it, as if the process had ended there.
class FailingFileSystem : public FileSystem {
 public:
  FailingFileSystem(FileSystem& real, int64_t changes, bool killed = false)
      : real_(real), left_(changes), killed_(killed) {}
  std::unique_ptr<WritableFile> create(const std::string& path) override {
    change();
    return std::make_unique<File>(*this, real_.create(path));
  }
  std::unique_ptr<WritableFile> append_to(const std::string& path) override {
    return real_.append_to(path);
  }
  std::string read(const std::string& path) override { return real_.read(path); }
  std::unique_ptr<MappedFile> map(const std::string& path) override { return real_.map(path); }
  bool exists(const std::string& path) override { return real_.exists(path); }
  FileKind kind(const std::string& path) override { return real_.kind(path); }
  bool is_special(const std::string& path) override { return real_.is_special(path); }
  std::string end_of_links(const std::string& path) override { return real_.end_of_links(path); }
  bool is_directory(const std::string& path) override { return real_.is_directory(path); }
  int64_t file_bytes(const std::string& path) override { return real_.file_bytes(path); }
  int64_t free_bytes(const std::string& folder) override { return real_.free_bytes(folder); }
  std::vector<std::string> list(const std::string& path) override { return real_.list(path); }
  void make_directories(const std::string& path) override {
    change(), real_.make_directories(path);
  }
  void rename(const std::string& from, const std::string& to) override {
    change(), real_.rename(from, to);
  }
  void remove_all(const std::string& path) override { change(), real_.remove_all(path); }
  void truncate(const std::string& path, int64_t bytes) override { real_.truncate(path, bytes); }
  void sync_directory(const std::string& path) override { change(), real_.sync_directory(path); }

 private:
  struct File : WritableFile {
    File(FailingFileSystem& owner, std::unique_ptr<WritableFile> file)
        : owner(owner), file(std::move(file)) {}
    void append(const void* data, int64_t bytes) override {
      owner.change(), file->append(data, bytes);
    }
    void sync() override { owner.change(), file->sync(); }
    void close() override { file->close(); }
    FailingFileSystem& owner;
    std::unique_ptr<WritableFile> file;
  };
  void change() {
    const int64_t left = left_--;
    if (left == 0 || (killed_ && left < 0)) throw_error(Code::kIo, "the disk is full (test)");
  }
  FileSystem& real_;
  int64_t left_;
  const bool killed_;
};

}  // namespace moraine::testing
