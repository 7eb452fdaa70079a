// FaultyFileSystem: a test double that fails, dies or loses power at a chosen write call.
//
// Counts every call that changes the disk (create, append, sync, close, rename, remove, truncate,
// make directory, sync directory) and passes it to the file system beneath, until
//
//   throw_at(n)    call n throws kIo, once; the caller lives on (an I/O error)
//   disk_full(n)   appends throw kIo as soon as n bytes have been written (a full disk)
//   kill_at(n)     call n and all later ones do nothing, silently; if call n is an append, half
//                  of its bytes arrive, if a removal, half of the files go (the process is killed)
//   kill_loudly_at(n)  as kill_at, and calls from n on throw Killed: one rank dies, the others live
//   power_cut(b)   now: bytes that were not synced are cut off; with `b`, names too: renames and
//                  new files whose directory was not synced are undone
//
// Syncs are recorded, not passed on: a test makes thousands. Threads: any. Paths must be spelled
// the same way each time.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file_system.h"
#include "checkpoint/unsynced_state.h"

namespace moraine::testing {

// No std::exception: no code of ours catches it, as nobody catches SIGKILL.
struct Killed {};

class FaultyFileSystem : public FileSystem {
 public:
  explicit FaultyFileSystem(FileSystem& base) : base_(base) {}

  void throw_at(int64_t call) { throw_at_ = call; }
  void kill_at(int64_t call) { kill_at_ = call; }
  void kill_loudly_at(int64_t call) {
    kill_at_ = call;
    loud_ = true;
  }
  void disk_full(int64_t bytes) { bytes_left_ = bytes; }
  void say_free(int64_t bytes) { free_ = bytes; }  // what free_bytes answers
  int64_t calls() const { return calls_; }
  bool fired() const { return fired_; }

  void power_cut(bool lose_names) {
    const std::lock_guard lock(mutex_);
    unsynced_.cut(base_, lose_names);
  }

  std::unique_ptr<WritableFile> create(const std::string& path) override {
    return open(path, base_.exists(path) ? 0 : -1, [&] { return base_.create(path); });
  }
  std::unique_ptr<WritableFile> append_to(const std::string& path) override {
    const int64_t old = base_.exists(path) ? base_.file_bytes(path) : -1;
    return open(path, old, [&] { return base_.append_to(path); });
  }
  void make_directories(const std::string& path) override {
    if (base_.exists(path) || !alive("make directory", path)) return;
    std::vector<std::string> made;
    for (std::string at = path; !base_.exists(at); at = parent_path(at)) made.push_back(at);
    base_.make_directories(path);
    const std::lock_guard lock(mutex_);
    for (auto at = made.rbegin(); at != made.rend(); ++at) unsynced_.made(*at);
  }
  void rename(const std::string& from, const std::string& to) override {
    if (!alive("rename", from)) return;
    std::shared_ptr<const std::string> old;
    if (base_.exists(to) && !base_.is_directory(to)) {
      old = std::make_shared<const std::string>(base_.read(to));
    }
    base_.rename(from, to);
    const std::lock_guard lock(mutex_);
    unsynced_.renamed(from, to, old);
  }
  void remove_all(const std::string& path) override {
    if (!base_.exists(path)) return;
    const Life life = count("remove", path);
    if (life == Life::kAlive) base_.remove_all(path);
    if (life != Life::kDying) return;
    if (base_.is_directory(path)) {
      const std::vector<std::string> names = base_.list(path);  // half of it goes
      for (size_t i = 0; i < names.size(); i += 2) base_.remove_all(join_path(path, names[i]));
    }
    if (loud_) throw Killed();
  }
  void truncate(const std::string& path, int64_t bytes) override {
    if (alive("truncate", path)) base_.truncate(path, bytes);
  }
  void sync_directory(const std::string& path) override {
    if (!alive("sync directory", path)) return;
    const std::lock_guard lock(mutex_);
    unsynced_.folder_synced(path);
  }

  std::string read(const std::string& path) override { return base_.read(path); }
  std::unique_ptr<MappedFile> map(const std::string& path) override { return base_.map(path); }
  bool exists(const std::string& path) override { return base_.exists(path); }
  FileKind kind(const std::string& path) override { return base_.kind(path); }
  std::string end_of_links(const std::string& path) override { return base_.end_of_links(path); }
  bool is_special(const std::string& path) override { return base_.is_special(path); }
  bool is_directory(const std::string& path) override { return base_.is_directory(path); }
  int64_t file_bytes(const std::string& path) override { return base_.file_bytes(path); }
  int64_t free_bytes(const std::string& folder) override {
    return free_ < 0 ? base_.free_bytes(folder) : free_;
  }
  std::vector<std::string> list(const std::string& path) override { return base_.list(path); }

 private:
  class File : public WritableFile {
   public:
    File(FaultyFileSystem& fs, std::string path, std::unique_ptr<WritableFile> base)
        : fs_(fs), path_(std::move(path)), base_(std::move(base)) {}
    void append(const void* data, int64_t bytes) override { fs_.append(*this, data, bytes); }
    void sync() override {
      if (!fs_.alive("sync", path_) || base_ == nullptr) return;
      const std::lock_guard lock(fs_.mutex_);
      fs_.unsynced_.synced(path_);
    }
    void close() override {
      if (fs_.alive("close", path_) && base_ != nullptr) base_->close();
    }

   private:
    friend class FaultyFileSystem;
    FaultyFileSystem& fs_;
    const std::string path_;
    std::unique_ptr<WritableFile> base_;  // nullptr: made after death
  };

  enum class Life { kAlive, kDying, kDead };  // dying: this call is the one that kills

  // Counts a call.
  Life count(const char* what, const std::string& path) {
    const std::lock_guard lock(mutex_);
    const int64_t call = calls_++;
    if (call == throw_at_) {
      fired_ = true;
      throw_error(Code::kIo, "{} {}: injected fault", what, path);
    }
    if (kill_at_ < 0 || call < kill_at_) return Life::kAlive;
    fired_ = true;
    if (call == kill_at_) return Life::kDying;
    if (loud_) throw Killed();
    return Life::kDead;
  }
  bool alive(const char* what, const std::string& path) {
    const Life life = count(what, path);
    if (life == Life::kDying && loud_) throw Killed();
    return life == Life::kAlive;
  }

  template <class Open>
  std::unique_ptr<WritableFile> open(const std::string& path, int64_t old, const Open& open_base) {
    if (!alive("create", path)) return std::make_unique<File>(*this, path, nullptr);
    auto file = std::make_unique<File>(*this, path, open_base());
    const std::lock_guard lock(mutex_);
    unsynced_.opened(path, std::max<int64_t>(old, 0));
    if (old < 0) unsynced_.made(path);
    return file;
  }

  void append(File& file, const void* data, int64_t bytes) {
    const Life life = count("write", file.path_);
    if (file.base_ == nullptr || life == Life::kDead) return;
    if (life == Life::kDying) bytes /= 2;  // torn
    bool full = false;
    {
      const std::lock_guard lock(mutex_);
      full = bytes_left_ >= 0 && bytes > bytes_left_;
      if (full) bytes = bytes_left_;
      if (bytes_left_ >= 0) bytes_left_ -= bytes;
      fired_ = fired_ || full;
      unsynced_.grows(file.path_, base_.file_bytes(file.path_));
    }
    file.base_->append(data, bytes);
    if (life == Life::kDying && loud_) throw Killed();
    if (full) throw_error(Code::kIo, "write {}: No space left on device", file.path_);
  }

  FileSystem& base_;
  std::mutex mutex_;
  int64_t calls_ = 0;
  int64_t throw_at_ = -1;
  int64_t kill_at_ = -1;
  int64_t bytes_left_ = -1;  // -1: no limit
  int64_t free_ = -1;        // -1: what there is
  bool fired_ = false;
  bool loud_ = false;
  UnsyncedState unsynced_;
};

}  // namespace moraine::testing
