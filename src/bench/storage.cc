// BenchStorage: runs each way of saving and restoring between two barriers, by rank 0's clock.
#include "bench/storage.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/pool.h"
#include "base/random.h"
#include "checkpoint/distributed.h"
#include "checkpoint/history.h"
#include "comm/collectives.h"
#include "comm/thread_ranks.h"
#include "kernels/peak.h"
#include "tensor/arena.h"

namespace moraine {
namespace {

constexpr int64_t kTensors = 32, kCutTensors = 8;
constexpr int64_t kRowFloats = 1024;
constexpr int64_t kRowBytes = kRowFloats * 4;
constexpr int64_t kRawPieceBytes = int64_t{1} << 20;  // stays in the cache
constexpr double kDiskDeadline = 3600;                // a slow disk is what is measured

// Rows of each tensor that a rank holds.
struct Layout {
  int64_t rows = 0;  // of every tensor
  int ranks = 0;
  int64_t row_begin(int64_t tensor, int rank) const {
    return tensor < kCutTensors ? rows * rank / ranks : 0;
  }
  int64_t row_end(int64_t tensor, int rank) const {
    if (tensor < kCutTensors) return rows * (rank + 1) / ranks;
    return tensor % ranks == rank ? rows : 0;
  }
  int64_t bytes_of(int rank) const {
    int64_t n = 0;
    for (int64_t t = 0; t < kTensors; ++t) n += row_end(t, rank) - row_begin(t, rank);
    return n * kRowBytes;
  }
};

std::string tensor_name(int64_t tensor) { return fmt::format("state.{:02}", tensor); }

CheckpointInfo info_of_bench() {
  return {.step = 1, .tokens_seen = 0, .seed = 0, .values = {}, .config = "bench"};
}

// Seconds by name, one per round.
using Times = std::map<std::string, std::vector<double>>;

class RankBench {
 public:
  RankBench(Communicator& comm, const BenchStorageOptions& options, const std::string& out)
      : comm_(comm),
        out_(out),
        layout_{.rows = options.mib * (int64_t{1} << 20) / kTensors / kRowBytes,
                .ranks = comm.size()},
        arena_(Arena::Mode::kReal) {
    const int64_t own = layout_.bytes_of(comm.rank());
    state_ = arena_.take("bench.state", "scratch", DType::kU8, {own});
    copy_ = arena_.take("bench.copy", "scratch", DType::kU8, {own});
    uint64_t* words = static_cast<uint64_t*>(state_.data);
    for (int64_t i = 0; i < own / 8; ++i) {  // no run of equal bytes that a disk could shrink
      words[i] = static_cast<uint64_t>(i + 1) * 0x9e3779b97f4a7c15u ^
                 static_cast<uint64_t>(comm.rank()) << 40;
    }
    if (comm.rank() == 0) {
      all_ = arena_.take("bench.all", "scratch", DType::kU8, {kTensors * layout_.rows * kRowBytes});
    }
    uint8_t* at = static_cast<uint8_t*>(state_.data);
    for (int64_t t = 0; t < kTensors; ++t) {
      const int64_t begin = layout_.row_begin(t, comm.rank());
      const int64_t rows = layout_.row_end(t, comm.rank()) - begin;
      if (rows == 0) continue;
      own_.push_back({tensor_name(t),
                      make_tensor(at, DType::kF32, {rows, kRowFloats}),
                      {layout_.rows, kRowFloats},
                      begin});
      at += rows * kRowBytes;
    }
  }

  void round(int64_t index, Times* times) {
    const std::string distributed = join_path(out_, "distributed"),
                      gathered = join_path(out_, "gathered");
    const std::function<void()> writes[] = {
        [&] {
          measure("save gathered", times, [&] { write_gathered(gathered); });
          clear(gathered);
        },
        [&] {
          measure("raw write", times, [&] { write_raw(); });
          drop_cache(out_);
          measure("raw read", times, [&] { read_raw(); });
          clear(raw_path());
        },
        [&] {
          clear(distributed);
          measure("save distributed", times, [&] { write_distributed(distributed); });
        },
    };
    for (int64_t i = 0; i < 3; ++i) writes[(index + i) % 3]();
    measure("restore cached", times, [&] { restore(distributed); });
    drop_cache(distributed + "/step-1");
    measure("restore uncached", times, [&] { restore(distributed); });
    clear(distributed);
    measure("stands still", times,
            [&] { std::memcpy(copy_.data, state_.data, static_cast<size_t>(state_.bytes())); });
  }

 private:
  void measure(const char* name, Times* times, const std::function<void()>& action) {
    barrier(comm_);
    const double begin = now_seconds();
    action();
    barrier(comm_);
    if (comm_.rank() == 0) (*times)[name].push_back(now_seconds() - begin);
  }

  void write_distributed(const std::string& root) {
    write_checkpoint_distributed(comm_, posix_file_system(), root,
                                 {.info = info_of_bench(), .tensors = own_});
  }

  void write_gathered(const std::string& root) {
    const size_t size = static_cast<size_t>(comm_.size());
    uint8_t* at = static_cast<uint8_t*>(state_.data);
    std::vector<CheckpointTensor> tensors;
    for (int64_t t = 0; t < kTensors; ++t) {
      std::vector<ConstBytes> send(size);
      std::vector<Bytes> receive(size);
      const int64_t own =
          (layout_.row_end(t, comm_.rank()) - layout_.row_begin(t, comm_.rank())) * kRowBytes;
      send[0] = {reinterpret_cast<const std::byte*>(at), static_cast<size_t>(own)};
      at += own;
      if (comm_.rank() == 0) {
        uint8_t* whole = static_cast<uint8_t*>(all_.data) + t * layout_.rows * kRowBytes;
        for (int r = 0; r < comm_.size(); ++r) {
          const int64_t begin = layout_.row_begin(t, r), end = layout_.row_end(t, r);
          receive[static_cast<size_t>(r)] = {
              reinterpret_cast<std::byte*>(whole + begin * kRowBytes),
              static_cast<size_t>((end - begin) * kRowBytes)};
        }
        tensors.push_back(
            {tensor_name(t), make_tensor(whole, DType::kF32, {layout_.rows, kRowFloats})});
      }
      all_to_all(comm_, send, receive);
    }
    if (comm_.rank() == 0) {
      write_checkpoint(posix_file_system(), root, {.info = info_of_bench(), .tensors = tensors});
    }
  }

  void restore(const std::string& root) {
    const Checkpoint checkpoint =
        Checkpoint::open(posix_file_system(), join_path(root, "step-1"), false);
    uint8_t* at = static_cast<uint8_t*>(copy_.data);
    for (const TensorRows& t : own_) {
      Tensor out = t.local;
      out.data = at;
      checkpoint.read_rows(t.name, t.row_begin, out);
      at += out.bytes();
    }
    if (std::memcmp(copy_.data, state_.data, 4096) != 0) {
      throw_error(Code::kCorrupt, "bench storage: {} gave other bytes than were saved", root);
    }
  }

  std::string raw_path() const { return join_path(out_, fmt::format("raw-{}", comm_.rank())); }

  void write_raw() {
    const auto file = posix_file_system().create(raw_path());
    const uint8_t* data = static_cast<const uint8_t*>(state_.data);
    for (int64_t at = 0; at < state_.bytes(); at += kRawPieceBytes) {
      file->append(data + at, std::min(kRawPieceBytes, state_.bytes() - at));
    }
    file->sync();
    file->close();
  }

  void read_raw() {
    const int fd = ::open(raw_path().c_str(), O_RDONLY | O_CLOEXEC);
    uint8_t* out = static_cast<uint8_t*>(copy_.data);
    int64_t done = 0;
    while (fd >= 0 && done < copy_.bytes()) {
      const ssize_t n = ::read(fd, out + done,
                               static_cast<size_t>(std::min(kRawPieceBytes, copy_.bytes() - done)));
      if (n <= 0) break;
      done += n;
    }
    if (fd >= 0) ::close(fd);
    if (done != copy_.bytes()) throw_error(Code::kIo, "bench storage: read {}", raw_path());
  }

  // Of the plain files in `folder`; they have been synced.
  void drop_cache(const std::string& folder) {
    barrier(comm_);
    if (comm_.rank() != 0) return;
    for (const std::string& name : posix_file_system().list(folder)) {
      const int fd = ::open(join_path(folder, name).c_str(), O_RDONLY | O_CLOEXEC);
      if (fd < 0) continue;
      ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
      ::close(fd);
    }
  }

  // Each rank its own path, or all the same one. Removing is work of the disk too: it is done
  // before the next measurement.
  void clear(const std::string& path) {
    barrier(comm_);
    if (comm_.rank() == 0 || path == raw_path()) posix_file_system().remove_all(path);
    posix_file_system().sync_directory(out_);
    barrier(comm_);
  }

  Communicator& comm_;
  const std::string& out_;
  const Layout layout_;
  Arena arena_;
  Tensor state_, copy_, all_;  // u8 [bytes of this rank], the same, [bytes of all] on rank 0
  std::vector<TensorRows> own_;
};

Times measure_ranks(int ranks, const BenchStorageOptions& options, const std::string& out) {
  Times times;
  run_thread_ranks(ranks, [&](Transport& transport) {
    std::vector<int> all(static_cast<size_t>(ranks));
    std::iota(all.begin(), all.end(), 0);
    Communicator comm(transport, all, 0, "bench", kDiskDeadline);
    RankBench bench(comm, options, out);
    Times warm_up;
    bench.round(0, &warm_up);
    for (int64_t round = 0; round < options.rounds; ++round) bench.round(round, &times);
  });
  return times;
}

Spread ratio(const Times& times, const char* above, const char* below) {
  std::vector<double> values;
  for (size_t i = 0; i < times.at(above).size(); ++i) {
    values.push_back(times.at(above)[i] / times.at(below)[i]);
  }
  return spread_of(std::move(values));
}

// Share of a limit that is itself noisy: its fastest round counts.
Spread share_of(const Times& times, const char* limit, const char* name) {
  const std::vector<double>& limits = times.at(limit);
  const double fastest = *std::min_element(limits.begin(), limits.end());
  std::vector<double> values;
  for (const double seconds : times.at(name)) values.push_back(fastest / seconds);
  return spread_of(std::move(values));
}

class Printer {
 public:
  Printer(const BenchStorageOptions& options, double copy_gb_s)
      : options_(options), copy_gb_s_(copy_gb_s) {}

  void head() const {
    if (options_.json) {
      line("copy limit", 0, {copy_gb_s_, copy_gb_s_, copy_gb_s_}, "GB/s");
      return;
    }
    fmt::print(
        "{} MiB of state, ranks are threads; medians of {} rounds; copy limit {:.1f} GB/s (read + "
        "write)\n",
        options_.mib, options_.rounds, copy_gb_s_);
    fmt::print("{:<6}{:<18}{:>10}{:>10}{:>10}{:>10}  {}\n", "ranks", "what", "ms", "p10", "p90",
               "GB/s", "of the limit of this run");
  }

  void ranks(int ranks, const Times& times) const {
    const double gb = static_cast<double>(options_.mib * (int64_t{1} << 20)) / 1e9;
    row(ranks, times, "save distributed", gb, share_of(times, "raw write", "save distributed"));
    row(ranks, times, "save gathered", gb, share_of(times, "raw write", "save gathered"));
    row(ranks, times, "raw write", gb, share_of(times, "raw write", "raw write"));
    row(ranks, times, "restore cached", gb, {0, 0, 0});
    row(ranks, times, "restore uncached", gb, share_of(times, "raw read", "restore uncached"));
    row(ranks, times, "raw read", gb, share_of(times, "raw read", "raw read"));
    const Spread still = spread_of(times.at("stands still"));
    const double share = 2 * gb / still.median / copy_gb_s_;
    row(ranks, times, "stands still", 2 * gb, {share, share, share});
    const Spread gain = ratio(times, "save gathered", "save distributed");
    if (options_.json) {
      line("gathered over distributed", ranks, gain, "ratio");
      return;
    }
    fmt::print(
        "{:<6}gathered / distributed {:.2f} ({:.2f} to {:.2f}); standing still is under 1 % of 10 "
        "steps from {:.0f} ms a step on\n\n",
        ranks, gain.median, gain.p10, gain.p90, still.median * 1e3 * 10);
    std::fflush(stdout);
  }

 private:
  void row(int ranks, const Times& times, const char* name, double gb, const Spread& share) const {
    const Spread s = spread_of(times.at(name));
    if (options_.json) {
      line(name, ranks, s, "s");
      if (share.median > 0) line(fmt::format("{} of limit", name), ranks, share, "ratio");
      return;
    }
    fmt::print("{:<6}{:<18}{:>10.1f}{:>10.1f}{:>10.1f}{:>10.2f}  {}\n", ranks, name, s.median * 1e3,
               s.p10 * 1e3, s.p90 * 1e3, gb / s.median,
               share.median > 0 ? fmt::format("{:.0f} %", share.median * 100) : "");
  }

  void line(const std::string& name, int ranks, const Spread& s, const char* unit) const {
    const Json json = {{"bench", "storage"},  {"name", name},       {"ranks", ranks},
                       {"mib", options_.mib}, {"median", s.median}, {"p10", s.p10},
                       {"p90", s.p90},        {"unit", unit},       {"rounds", options_.rounds}};
    fmt::print("{}\n", json_text(json));
    std::fflush(stdout);
  }

  const BenchStorageOptions& options_;
  const double copy_gb_s_;
};

double measure_copy_limit() {
  Pool pool(usable_cores());
  Arena arena(Arena::Mode::kReal);
  const Tensor buffer = arena.take("bench.stream", "scratch", DType::kU8, {int64_t{512} << 20});
  const double plain = measure_stream(pool, StreamKind::kCopy, buffer, 0.5).median;
  return std::max(plain, measure_stream(pool, StreamKind::kCopyNonTemporal, buffer, 0.5).median);
}

}  // namespace

void bench_storage(const BenchStorageOptions& options) {
  FileSystem& fs = posix_file_system();
  const std::string out =
      join_path(options.out, fmt::format("moraine-bench-storage-{}", ::getpid()));
  fs.make_directories(out);
  try {
    const Printer printer(options, measure_copy_limit());
    printer.head();
    for (const int64_t ranks : options.ranks) {
      printer.ranks(static_cast<int>(ranks), measure_ranks(static_cast<int>(ranks), options, out));
    }
  } catch (const Error&) {
    fs.remove_all(out);
    throw;
  }
  fs.remove_all(out);
}

}  // namespace moraine
