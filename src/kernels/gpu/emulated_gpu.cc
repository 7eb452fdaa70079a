// emulate_gpu: kernels run where they are launched, on memory that nobody else may touch.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "kernels/gpu/emulated_kernels.h"
#include "kernels/gpu/runtime.h"

namespace moraine::gpu {
namespace {

constexpr int64_t kPage = 4096;
// 1 MiB: smaller ones are cleared more often than they stay unused.
constexpr int64_t kGivenBackBytes = 1 << 20;

// Pages of one take(), and one behind them that is never opened: what was taken ends there.
struct GuardedPages {
  uint8_t* begin;  // of the mapping
  int64_t bytes;   // without the guard
  void* data;      // what was handed out
};

class EmulatedGpu final : public Gpu {
 public:
  explicit EmulatedGpu(const Emulation& emulation) : emulation_(emulation) {}
  ~EmulatedGpu() override {
    for (const GuardedPages& p : pages_) munmap(p.begin, static_cast<size_t>(p.bytes + kPage));
  }
  EmulatedGpu(const EmulatedGpu&) = delete;
  EmulatedGpu& operator=(const EmulatedGpu&) = delete;

  std::string name() const override {
    return fmt::format("emulated {}, wave {}", matrix_rule_name(emulation_.rule), emulation_.wave);
  }
  int wave() const override { return emulation_.wave; }
  std::string generation() override { return matrix_rule_name(emulation_.rule); }
  void* stream() override { return &stream_; }

  void* take(int64_t bytes) override {
    MR_CHECK(bytes > 0, "%ld bytes", static_cast<long>(bytes));
    const int64_t whole = (bytes + kPage - 1) / kPage * kPage;
    void* const memory = mmap(nullptr, static_cast<size_t>(whole + kPage), PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw_error(Code::kDevice, "{}: {} bytes: no memory", name(), bytes);
    auto* const begin = static_cast<uint8_t*>(memory);
    // A mark that its neighbours lack: else the system joins them to it when they are closed and parts them when they
    // are opened, which is dearer than most launches.
    madvise(begin + whole, kPage, MADV_DONTDUMP);
    pages_.push_back({begin, whole, begin + whole - (bytes + 15) / 16 * 16});
    return pages_.back().data;
  }
  void give_back(void* memory) override {
    const auto p = std::find_if(pages_.begin(), pages_.end(),
                                [&](const GuardedPages& g) { return g.data == memory; });
    MR_CHECK(p != pages_.end(), "memory that was not taken");
    munmap(p->begin, static_cast<size_t>(p->bytes + kPage));
    pages_.erase(p);
  }
  bool holds(const void* memory) const override { return pages_of(memory) != pages_.end(); }
  void copy_in(void* device, const void* host, int64_t bytes) override {
    const OpenedPages opened(*this, device);
    std::memcpy(device, host, static_cast<size_t>(bytes));
  }
  void copy_out(void* host, const void* device, int64_t bytes) override {
    const OpenedPages opened(*this, device);
    std::memcpy(host, device, static_cast<size_t>(bytes));
  }
  void clear(void* device, int64_t bytes) override {
    const OpenedPages opened(*this, device);
    auto* const begin = static_cast<uint8_t*>(device);
    if (bytes >= kGivenBackBytes && clear_pages(begin, bytes)) return;
    std::memset(begin, 0, static_cast<size_t>(bytes));
  }
  void launch(const char* kernel, const Grid& grid, const void* arguments) override {
    const Opened opened(*this);
    for (const EmulatedEntry& entry : emulated_kernels(emulation_.wave)) {
      if (std::strcmp(entry.name, kernel) == 0) return emulate(emulation_, entry, grid, arguments);
    }
    throw_error(Code::kDevice, "{}: no kernel {}", name(), kernel);
  }
  void wait() override {}

 private:
  using Pages = std::vector<GuardedPages>;
  Pages::const_iterator pages_of(const void* memory) const {
    const auto* const at = static_cast<const uint8_t*>(memory);
    return std::find_if(pages_.begin(), pages_.end(), [at](const GuardedPages& p) {
      return at >= p.begin && at < p.begin + p.bytes;
    });
  }
  // Pages that go back to the system read as zero. Each launch opens and closes all pages that are there: those of a
  // cache that nobody uses yet are not.
  static bool clear_pages(uint8_t* begin, int64_t bytes) {
    const auto at = reinterpret_cast<uintptr_t>(begin);
    const auto before = static_cast<int64_t>((kPage - at % kPage) % kPage);
    const int64_t whole = (bytes - before) / kPage * kPage;
    if (madvise(begin + before, static_cast<size_t>(whole), MADV_DONTNEED) != 0) return false;
    std::memset(begin, 0, static_cast<size_t>(before));
    std::memset(begin + before + whole, 0, static_cast<size_t>(bytes - before - whole));
    return true;
  }
  // While it lives, what was taken at once may be touched.
  class OpenedPages {
   public:
    OpenedPages(const EmulatedGpu& gpu, const void* memory) : pages_(gpu.pages_of(memory)) {
      MR_CHECK(pages_ != gpu.pages_.end(), "not in the memory of the GPU");
      mprotect(pages_->begin, static_cast<size_t>(pages_->bytes), PROT_READ | PROT_WRITE);
    }
    ~OpenedPages() { mprotect(pages_->begin, static_cast<size_t>(pages_->bytes), PROT_NONE); }
    OpenedPages(const OpenedPages&) = delete;
    OpenedPages& operator=(const OpenedPages&) = delete;

   private:
    const Pages::const_iterator pages_;
  };
  // While it lives, all memory may be touched.
  class Opened {
   public:
    explicit Opened(const EmulatedGpu& gpu) : gpu_(gpu) { gpu_.protect(PROT_READ | PROT_WRITE); }
    ~Opened() { gpu_.protect(PROT_NONE); }
    Opened(const Opened&) = delete;
    Opened& operator=(const Opened&) = delete;

   private:
    const EmulatedGpu& gpu_;
  };
  void protect(int how) const {
    for (const GuardedPages& p : pages_) mprotect(p.begin, static_cast<size_t>(p.bytes), how);
  }

  const Emulation emulation_;
  Pages pages_;
  EmulatedStream stream_ = {.gpu = this,
                            .copy_in =
                                [](void* gpu, void* device, const void* host, int64_t bytes) {
                                  static_cast<EmulatedGpu*>(gpu)->copy_in(device, host, bytes);
                                },
                            .copy_out =
                                [](void* gpu, void* host, const void* device, int64_t bytes) {
                                  static_cast<EmulatedGpu*>(gpu)->copy_out(host, device, bytes);
                                }};
};

}  // namespace

void* Gpu::take_pinned(int64_t bytes) {
  return ::operator new (static_cast<size_t>(bytes), std::align_val_t{kPage});
}

void Gpu::give_back_pinned(void* memory) { ::operator delete (memory, std::align_val_t{kPage}); }

std::unique_ptr<Gpu> emulate_gpu(const Emulation& emulation) {
  return std::make_unique<EmulatedGpu>(emulation);
}

}  // namespace moraine::gpu
