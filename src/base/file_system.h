// FileSystem: the one door to the disk, so that tests can cut any write.
//
// Errors: every call throws Error: kNotFound (no such file), kIo (anything else), with the path and the
//         reason in the message.
// Threads: a FileSystem may be used from any thread; a WritableFile from one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace moraine {

// A file being written. Closing without sync leaves the bytes to the kernel.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual void append(const void* data, int64_t bytes) = 0;  // all bytes, or kIo
  virtual void sync() = 0;                                   // to stable storage
  virtual void close() = 0;  // idempotent; the destructor also closes
};

// A file open for reading, mapped too. The view lives as long as the object.
//
// read_at is for bytes that must be right: a disk that fails, or a file that was cut, is an Error
// there, where a look at data() is the end of the process (base/mapped_ranges.h).
class MappedFile {
 public:
  MappedFile(int fd, const uint8_t* data, int64_t bytes, const std::string& path);  // takes fd
  virtual ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  const uint8_t* data() const { return data_; }
  int64_t bytes() const { return bytes_; }  // when it was opened
  // Errors: kCorrupt: the file ends before `offset + bytes`; kIo.
  virtual void read_at(int64_t offset, int64_t bytes, void* out) const;
  void will_need(int64_t offset, int64_t bytes) const;  // read-ahead hint
  // Reads the pages and puts them in place: a look at data() finds them there. Waits for the disk. What can
  // not be read is left out.
  void populate(int64_t offset, int64_t bytes) const;
  void will_not_need(int64_t offset, int64_t bytes) const;  // drop-from-memory hint

 private:
  const int fd_;
  const uint8_t* const data_;
  const int64_t bytes_;
  const std::string path_;
};

// Of what is read whole: configs, tables, logs, while what is larger is mapped; and of text that is encoded at once.
constexpr int64_t kReadBytesMax = int64_t{4} << 30, kStreamBytesMax = int64_t{1} << 30;

// What has a name.
enum class FileKind { kNothing, kFile, kFolder, kLink, kPipe, kSocket, kDevice };

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual std::unique_ptr<WritableFile> create(const std::string& path) = 0;  // truncates
  virtual std::unique_ptr<WritableFile> append_to(
      const std::string& path) = 0;  // makes it if absent
  // The whole file. kIo for what is not a regular file, as a pipe or a device; kInvalidArgument for one
  // longer than kReadBytesMax, and if memory runs out.
  virtual std::string read(const std::string& path) = 0;
  virtual std::unique_ptr<MappedFile> map(const std::string& path) = 0;
  virtual bool exists(const std::string& path) = 0;
  // Of the name itself: a link is one, whatever it leads to, where all others follow it. kNothing also if this user may
  // not look.
  virtual FileKind kind(const std::string& path) = 0;
  virtual bool is_directory(const std::string& path) = 0;
  // A pipe, a socket or a device: other programs mean it by its name, so no file may take its place.
  virtual bool is_special(const std::string& path) = 0;
  // The name at the end of a chain of links, there or not; `path` itself if it is no link. kIo for links that the
  // system does not follow, as a loop of them.
  virtual std::string end_of_links(const std::string& path) = 0;
  virtual int64_t file_bytes(const std::string& path) = 0;
  virtual int64_t free_bytes(const std::string& folder) = 0;  // that its disk gives to this user
  virtual std::vector<std::string> list(const std::string& path) = 0;  // names, sorted
  virtual void make_directories(const std::string& path) = 0;          // and parents; ok if there
  virtual void rename(const std::string& from, const std::string& to) = 0;
  virtual void remove_all(const std::string& path) = 0;  // ok if absent
  virtual void truncate(const std::string& path, int64_t bytes) = 0;
  virtual void sync_directory(const std::string& path) = 0;

  // Writes `path`.partial, syncs, renames: readers see the old file or the new, never a mixture. Links stay: the file
  // at their end is written, beside itself. kInvalidArgument, and nothing is written, if a pipe, a socket or a device
  // has that name.
  void write_atomic(const std::string& path, const std::string& content);

  // make_directories, and a power cut can not take away again what it has made.
  void make_durable_directories(const std::string& path);
};

// For input that a person may send through a pipe: to its end, of a pipe or a device at most kStreamBytesMax.
std::string read_stream(const std::string& path);

// The real disk.
FileSystem& posix_file_system();

std::string join_path(const std::string& folder, const std::string& name);
std::string parent_path(const std::string& path);  // "." if there is none

}  // namespace moraine
