// The real disk, through POSIX calls with every result checked.
#include "base/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/heartbeat.h"
#include "base/mapped_ranges.h"
#include "base/memory_error.h"
#include "base/saturate.h"

namespace moraine {
namespace {

constexpr int64_t kReadBytes = int64_t{64} << 20;  // between two beats

[[noreturn]] void fail(const char* what, const std::string& path) {
  const int code = errno;
  throw_error(code == ENOENT ? Code::kNotFound : Code::kIo, "{} {}: {}", what, path,
              std::strerror(code));
}

struct Descriptor {
  int fd;
  ~Descriptor() { ::close(fd); }
};

class PosixWritableFile : public WritableFile {
 public:
  PosixWritableFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  ~PosixWritableFile() override {
    if (fd_ >= 0) ::close(fd_);
  }
  void append(const void* data, int64_t bytes) override {
    const char* at = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t n = ::write(fd_, at, static_cast<size_t>(bytes));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail("write", path_);
      at += n;
      bytes -= n;
    }
  }
  void sync() override {
    if (::fsync(fd_) != 0) fail("sync", path_);
  }
  void close() override {
    if (fd_ < 0) return;
    const int fd = fd_;
    fd_ = -1;
    if (::close(fd) != 0) fail("close", path_);
  }

 private:
  int fd_;
  std::string path_;
};

struct stat status(int fd, const std::string& path) {
  struct stat s {};
  if (::fstat(fd, &s) != 0) fail("stat", path);
  return s;
}

// What waits for a writer, or never ends. A read of a folder says what it is.
bool is_stream(const struct stat& s) { return !S_ISREG(s.st_mode) && !S_ISDIR(s.st_mode); }

std::string read_to_end(int fd, const std::string& path) {
  const struct stat s = status(fd, path);
  const int64_t bytes_max = is_stream(s) ? kStreamBytesMax : kReadBytesMax;
  const auto check = [&](int64_t bytes) {
    if (bytes <= bytes_max) return;
    throw_error(Code::kInvalidArgument,
                "read {}: more than {} bytes; what is read whole has at most that", path,
                bytes_max);
  };
  check(s.st_size);
  return with_memory_for(path, [&] {
    std::string content;
    char buffer[1 << 16];
    while (true) {
      const ssize_t n = ::read(fd, buffer, sizeof buffer);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail("read", path);
      if (n == 0) return content;
      content.append(buffer, static_cast<size_t>(n));
      check(static_cast<int64_t>(content.size()));
    }
  });
}

struct stat status(const std::string& path) {
  struct stat s {};
  if (::stat(path.c_str(), &s) != 0) fail("stat", path);
  return s;
}

FileKind kind_of(mode_t mode) {
  if (S_ISREG(mode)) return FileKind::kFile;
  if (S_ISDIR(mode)) return FileKind::kFolder;
  if (S_ISLNK(mode)) return FileKind::kLink;
  if (S_ISFIFO(mode)) return FileKind::kPipe;
  return S_ISSOCK(mode) ? FileKind::kSocket : FileKind::kDevice;
}

class PosixFileSystem : public FileSystem {
 public:
  std::unique_ptr<WritableFile> create(const std::string& path) override {
    return open_for_write(path, O_TRUNC);
  }
  std::unique_ptr<WritableFile> append_to(const std::string& path) override {
    return open_for_write(path, O_APPEND);
  }
  std::string read(const std::string& path) override {
    // O_NONBLOCK: opening a pipe without a writer would wait for one.
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) fail("open", path);
    const Descriptor owned{fd};
    if (is_stream(status(fd, path))) throw_error(Code::kIo, "read {}: not a regular file", path);
    return read_to_end(fd, path);
  }
  std::unique_ptr<MappedFile> map(const std::string& path) override {
    // O_NONBLOCK: opening a pipe without a writer would wait for one.
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) fail("open", path);
    struct stat s {};
    if (::fstat(fd, &s) != 0 || !S_ISREG(s.st_mode)) {
      ::close(fd);
      throw_error(Code::kIo, "map {}: not a regular file", path);
    }
    const int64_t bytes = s.st_size;
    void* data = nullptr;
    if (bytes > 0) {
      data = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ, MAP_SHARED, fd, 0);
      if (data == MAP_FAILED) {
        const int code = errno;
        ::close(fd);
        errno = code;
        fail("map", path);
      }
    }
    return std::make_unique<MappedFile>(fd, static_cast<const uint8_t*>(data), bytes, path);
  }
  bool exists(const std::string& path) override {
    return is_there(::access(path.c_str(), F_OK), path);
  }
  FileKind kind(const std::string& path) override {
    struct stat s {};
    return is_there(::lstat(path.c_str(), &s), path) ? kind_of(s.st_mode) : FileKind::kNothing;
  }
  bool is_directory(const std::string& path) override {
    struct stat s {};
    return is_there(::stat(path.c_str(), &s), path) && S_ISDIR(s.st_mode);
  }
  bool is_special(const std::string& path) override {
    struct stat s {};
    return is_there(::stat(path.c_str(), &s), path) && !S_ISREG(s.st_mode) && !S_ISDIR(s.st_mode);
  }
  std::string end_of_links(const std::string& path) override {
    std::string at = path;
    while (kind(at) == FileKind::kLink) {
      // Follows it, so the system refuses a loop, and a stranger's link in a folder where all may write.
      struct stat s {};
      if (::stat(at.c_str(), &s) != 0 && errno != ENOENT) fail("follow", path);
      char next[PATH_MAX];
      const ssize_t bytes = ::readlink(at.c_str(), next, sizeof(next));
      if (bytes < 0) fail("follow", path);
      const std::string name(next, static_cast<size_t>(bytes));
      at = name.starts_with('/') ? name : join_path(parent_path(at), name);
    }
    return at;
  }
  int64_t file_bytes(const std::string& path) override { return status(path).st_size; }
  int64_t free_bytes(const std::string& folder) override {
    struct statvfs s {};
    if (::statvfs(folder.c_str(), &s) != 0) fail("look at the disk of", folder);
    return multiply_saturated(static_cast<int64_t>(s.f_bavail), static_cast<int64_t>(s.f_frsize));
  }
  std::vector<std::string> list(const std::string& path) override {
    DIR* folder = ::opendir(path.c_str());
    if (folder == nullptr) fail("list", path);
    std::vector<std::string> names;
    int code = 0;
    while (true) {
      errno = 0;  // at the end of a folder it stays so
      const dirent* entry = ::readdir(folder);
      code = errno;
      if (entry == nullptr) break;
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name);
    }
    ::closedir(folder);
    errno = code;
    if (code != 0) fail("list", path);
    std::sort(names.begin(), names.end());
    return names;
  }
  void make_directories(const std::string& path) override {
    std::error_code code;
    std::filesystem::create_directories(path, code);
    if (code) throw_error(Code::kIo, "make directory {}: {}", path, code.message());
  }
  void rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) fail("rename", from + " to " + to);
  }
  void remove_all(const std::string& path) override {
    std::error_code code;
    std::filesystem::remove_all(path, code);
    if (code) throw_error(Code::kIo, "remove {}: {}", path, code.message());
  }
  void truncate(const std::string& path, int64_t bytes) override {
    if (::truncate(path.c_str(), bytes) != 0) fail("truncate", path);
  }
  void sync_directory(const std::string& path) override {
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) fail("open directory", path);
    const int result = ::fsync(fd);
    ::close(fd);
    if (result != 0) fail("sync directory", path);
  }

 private:
  // A disk that does not answer has not said that there is nothing.
  static bool is_there(int result, const std::string& path) {
    if (result == 0) return true;
    if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP && errno != ENAMETOOLONG)
      fail("look for", path);
    return false;
  }

  std::unique_ptr<WritableFile> open_for_write(const std::string& path, int mode) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | mode, 0644);
    if (fd < 0) fail("create", path);
    return std::make_unique<PosixWritableFile>(fd, path);
  }
};

}  // namespace

MappedFile::MappedFile(int fd, const uint8_t* data, int64_t bytes, const std::string& path)
    : fd_(fd), data_(data), bytes_(bytes), path_(path) {
  if (data_ != nullptr) add_mapped_range(data_, bytes_, path_);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    remove_mapped_range(data_);
    ::munmap(const_cast<uint8_t*>(data_), static_cast<size_t>(bytes_));
  }
  ::close(fd_);
}

void MappedFile::read_at(int64_t offset, int64_t bytes, void* out) const {
  char* at = static_cast<char*>(out);
  for (int64_t done = 0; done < bytes;) {
    const auto piece = static_cast<size_t>(std::min(bytes - done, kReadBytes));
    const ssize_t n = ::pread(fd_, at + done, piece, offset + done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("read", path_);
    if (n == 0) {
      throw_error(Code::kCorrupt,
                  "read {}: it ends before byte {} now, and had {} when it was opened", path_,
                  offset + bytes, bytes_);
    }
    done += n;
    beat_if_heard();
  }
}

static bool advise(const uint8_t* data, int64_t total, int64_t offset, int64_t bytes, int advice) {
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  const int64_t begin = std::max<int64_t>(0, offset / page * page);
  const int64_t end = std::min(total, offset + bytes);
  if (data == nullptr || begin >= end) return true;
  return ::madvise(const_cast<uint8_t*>(data) + begin, static_cast<size_t>(end - begin), advice) ==
         0;
}

void MappedFile::will_need(int64_t offset, int64_t bytes) const {
  advise(data_, bytes_, offset, bytes, MADV_WILLNEED);
}

void MappedFile::populate(int64_t offset, int64_t bytes) const {
  constexpr int kPopulateRead = 22;  // MADV_POPULATE_READ; headers before Linux 5.14 lack the name
  if (advise(data_, bytes_, offset, bytes, kPopulateRead) || errno != EINVAL) return;
  will_need(offset, bytes);  // an older kernel
}

void MappedFile::will_not_need(int64_t offset, int64_t bytes) const {
  advise(data_, bytes_, offset, bytes, MADV_DONTNEED);
}

void FileSystem::write_atomic(const std::string& path, const std::string& content) {
  if (is_special(path))
    throw_error(Code::kInvalidArgument,
                "write {}: this is a device, a pipe or a socket; wanted the name of a file", path);
  const std::string place = end_of_links(path);
  const std::string partial = place + ".partial";
  const std::unique_ptr<WritableFile> file = create(partial);
  file->append(content.data(), static_cast<int64_t>(content.size()));
  file->sync();
  file->close();
  rename(partial, place);
  sync_directory(parent_path(place));
}

void FileSystem::make_durable_directories(const std::string& path) {
  std::vector<std::string> made;
  for (std::string at = path; !exists(at); at = parent_path(at)) made.push_back(at);
  make_directories(path);
  for (const std::string& at : made) sync_directory(parent_path(at));
}

std::string read_stream(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail("open", path);
  const Descriptor owned{fd};
  return read_to_end(fd, path);
}

FileSystem& posix_file_system() {
  static PosixFileSystem file_system;
  return file_system;
}

std::string join_path(const std::string& folder, const std::string& name) {
  if (folder.empty()) return name;
  return folder.back() == '/' ? folder + name : folder + "/" + name;
}

std::string parent_path(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

}  // namespace moraine
