// WatchedFileSystem: passes everything on to another file system; tells of appends.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/file_system.h"

namespace moraine::testing {

class WatchedFileSystem : public FileSystem {
 public:
  WatchedFileSystem(FileSystem& base, std::function<void(const std::string& path)> on_append)
      : base_(base), on_append_(std::move(on_append)) {}
  std::unique_ptr<WritableFile> create(const std::string& path) override {
    return std::make_unique<File>(*this, path, base_.create(path));
  }
  std::unique_ptr<WritableFile> append_to(const std::string& path) override {
    return std::make_unique<File>(*this, path, base_.append_to(path));
  }
  std::string read(const std::string& path) override { return base_.read(path); }
  std::unique_ptr<MappedFile> map(const std::string& path) override { return base_.map(path); }
  bool exists(const std::string& path) override { return base_.exists(path); }
  FileKind kind(const std::string& path) override { return base_.kind(path); }
  std::string end_of_links(const std::string& path) override { return base_.end_of_links(path); }
  bool is_special(const std::string& path) override { return base_.is_special(path); }
  bool is_directory(const std::string& path) override { return base_.is_directory(path); }
  int64_t file_bytes(const std::string& path) override { return base_.file_bytes(path); }
  int64_t free_bytes(const std::string& folder) override { return base_.free_bytes(folder); }
  std::vector<std::string> list(const std::string& path) override { return base_.list(path); }
  void make_directories(const std::string& path) override { base_.make_directories(path); }
  void rename(const std::string& from, const std::string& to) override { base_.rename(from, to); }
  void remove_all(const std::string& path) override { base_.remove_all(path); }
  void truncate(const std::string& path, int64_t bytes) override { base_.truncate(path, bytes); }
  void sync_directory(const std::string& path) override { base_.sync_directory(path); }

 private:
  class File : public WritableFile {
   public:
    File(WatchedFileSystem& fs, std::string path, std::unique_ptr<WritableFile> base)
        : fs_(fs), path_(std::move(path)), base_(std::move(base)) {}
    void append(const void* data, int64_t bytes) override {
      base_->append(data, bytes);
      fs_.on_append_(path_);
    }
    void sync() override {}  // tests survive no power cut
    void close() override { base_->close(); }

   private:
    WatchedFileSystem& fs_;
    const std::string path_;
    std::unique_ptr<WritableFile> base_;
  };
  FileSystem& base_;
  std::function<void(const std::string& path)> on_append_;
};

}  // namespace moraine::testing
