// StorageProbe: reads one file from several threads through one descriptor.
#include "data/storage_probe.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "base/thread.h"

namespace moraine {
namespace {

constexpr int64_t kReadsMax = 4'000'000;  // per thread: bounds the memory of the latencies
// Above, the cache answered too often to speak of the device.
constexpr double kCachedShareMax = 0.1;

struct Descriptor {
  int fd;
  ~Descriptor() { ::close(fd); }
};

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

struct Reader {    // one thread's work and result
  int thread = 0;  // whose draws
  std::vector<float> latencies_us;
  int error = 0;
};

// Share of the file's pages that the page cache holds; 1 if the kernel does not say.
double cached_share(FileSystem& files, const std::string& path) {
  const std::unique_ptr<MappedFile> map = files.map(path);
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  std::vector<unsigned char> resident(static_cast<size_t>((map->bytes() + page - 1) / page));
  void* data = const_cast<uint8_t*>(map->data());
  if (::mincore(data, static_cast<size_t>(map->bytes()), resident.data()) != 0) return 1;
  const auto count =
      std::count_if(resident.begin(), resident.end(), [](unsigned char r) { return r & 1; });
  return static_cast<double>(count) / static_cast<double>(resident.size());
}

void read_pages(int fd, int64_t pages, const StorageProbeOptions& o, double deadline, Reader* out) {
  constexpr size_t kAlign = 4096;  // what O_DIRECT asks of memory
  const size_t bytes = static_cast<size_t>(o.page_bytes);
  const std::unique_ptr<void, Free> buffer(
      std::aligned_alloc(kAlign, (bytes + kAlign - 1) / kAlign * kAlign));
  for (int64_t i = 0; i < kReadsMax; ++i) {
    const double begin = now_seconds();
    if (begin > deadline && i > 0) return;
    const uint64_t page =
        random_below(static_cast<uint64_t>(pages), o.seed, Stream::kTest,
                     static_cast<uint64_t>(out->thread), static_cast<uint64_t>(i));
    const ssize_t n = ::pread(fd, buffer.get(), bytes, static_cast<off_t>(page * bytes));
    if (n < 0 && errno == EINTR) continue;
    if (n != static_cast<ssize_t>(bytes)) {
      out->error = n < 0 ? errno : EIO;
      return;
    }
    out->latencies_us.push_back(static_cast<float>((now_seconds() - begin) * 1e6));
  }
}

// A direct descriptor that can really read; -1 if the file system refuses.
int open_direct(const std::string& path, int64_t page_bytes) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
  if (fd < 0) return -1;
  Reader trial;
  StorageProbeOptions once;
  once.page_bytes = page_bytes;
  read_pages(fd, 1, once, 0, &trial);
  if (trial.error == 0) return fd;
  ::close(fd);
  return -1;
}

}  // namespace

StorageProbe measure_storage_iops(FileSystem& files, const std::string& path,
                                  const StorageProbeOptions& o) {
  if (o.threads < 1 || o.threads > 256 || !(o.seconds >= 0.001 && o.seconds <= 600) ||
      o.page_bytes < 512 || o.page_bytes > (16 << 20) || o.page_bytes % 512 != 0) {
    throw_error(Code::kInvalidArgument,
                "measure storage: {} threads, {} s, pages of {} bytes; want 1 to 256, 0.001 to "
                "600, a multiple of "
                "512 up to 16 MiB",
                o.threads, o.seconds, o.page_bytes);
  }
  const int64_t pages = files.file_bytes(path) / o.page_bytes;
  if (pages < 1) {
    throw_error(Code::kInvalidArgument, "measure storage: {} is smaller than one page of {} bytes",
                path, o.page_bytes);
  }
  StorageProbe probe;
  probe.page_bytes = o.page_bytes;
  int fd = open_direct(path, o.page_bytes);
  probe.direct = fd >= 0;
  if (fd < 0) fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw_error(Code::kIo, "open {}: {}", path, std::strerror(errno));
  const Descriptor closer{fd};
  if (!probe.direct) {
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    probe.cached_share = cached_share(files, path);
    probe.page_cache_answered = probe.cached_share > kCachedShareMax;
  }

  std::vector<Reader> readers(static_cast<size_t>(o.threads));
  std::vector<std::thread> threads;
  const double begin = now_seconds();
  const auto join_all = [&] {
    for (std::thread& thread : threads) thread.join();
  };
  try {
    for (int t = 0; t < o.threads; ++t) {
      Reader* reader = &readers[static_cast<size_t>(t)];
      reader->thread = t;
      threads.push_back(start_thread(
          "reading pages", [&, reader] { read_pages(fd, pages, o, begin + o.seconds, reader); }));
    }
  } catch (const Error&) {
    join_all();
    throw;
  }
  join_all();
  const double seconds = std::max(now_seconds() - begin, 1e-9);

  std::vector<float> all;
  for (const Reader& reader : readers) {
    if (reader.error != 0) throw_error(Code::kIo, "read {}: {}", path, std::strerror(reader.error));
    all.insert(all.end(), reader.latencies_us.begin(), reader.latencies_us.end());
  }
  std::sort(all.begin(), all.end());
  probe.reads = static_cast<int64_t>(all.size());
  probe.iops = static_cast<double>(all.size()) / seconds;
  probe.latency_us_median = all[all.size() / 2];
  probe.latency_us_p99 = all[all.size() - 1 - all.size() / 100];
  return probe;
}

std::string storage_probe_text(const StorageProbe& probe) {
  return fmt::format(
      "measured          {:.0f} reads/s of {} bytes, median {:.1f} us, p99 {:.1f} us, {} "
      "reads\n{}\n",
      probe.iops, probe.page_bytes, probe.latency_us_median, probe.latency_us_p99, probe.reads,
      probe.direct ? "direct reads: the page cache took no part"
      : probe.page_cache_answered
          ? fmt::format(
                "THE PAGE CACHE ANSWERED ({:.0f} % of the file was in memory): not the device's "
                "speed; measure a file larger than memory",
                100 * probe.cached_share)
          : "no direct reads on this file system; the file was dropped from the page cache before");
}

}  // namespace moraine
