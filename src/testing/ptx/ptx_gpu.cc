// Both sides know a buffer by the emulation's address; the interpreter has bytes of its own for it.
#include "testing/ptx/ptx_gpu.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/file_system.h"
#include "testing/ptx/run.h"

namespace moraine::testing {
namespace {

// Above that only what a launch has stored is compared.
constexpr size_t kComparedWhole = size_t{1} << 20;

gpu::MatrixRule rule_of(const std::string& target) {
  for (const gpu::MatrixRule rule : {gpu::MatrixRule::kSm80, gpu::MatrixRule::kSm90})
    if (target == gpu::matrix_rule_name(rule)) return rule;
  throw_error(Code::kInvalidArgument, "PTX for {}: wanted sm_80 or sm_90", target);
}

// What was compiled and read is kept for all devices of a test program: a test makes many.
const std::string& kept_text(const std::string& target, const std::string& kernel) {
  static std::map<std::string, PtxSource> sources;
  return sources.try_emplace(target, target).first->second.text_with(kernel);
}
const PtxProgram& kept_program(const std::string& target, const std::string& kernel) {
  static std::map<std::pair<std::string, std::string>, PtxProgram> programs;
  const auto known = programs.find({target, kernel});
  if (known != programs.end()) return known->second;
  PtxProgram program = make_ptx_program(parse_ptx(kept_text(target, kernel)), kernel);
  return programs.emplace(std::pair(target, kernel), std::move(program)).first->second;
}

struct PtxCounts {
  int64_t launches = 0, elements = 0, differ = 0, nans = 0;  // nans: of both, with other bits
};

class PtxGpu final : public gpu::Gpu {
 public:
  explicit PtxGpu(const PtxGpuOptions& options)
      : options_(options),
        rule_(rule_of(options.target)),
        emulation_(gpu::emulate_gpu({.wave = kPtxLanes, .rule = rule_})) {}
  ~PtxGpu() override { report(); }
  PtxGpu(const PtxGpu&) = delete;
  PtxGpu& operator=(const PtxGpu&) = delete;

  std::string name() const override { return "interpreted PTX for " + options_.target; }
  int wave() const override { return kPtxLanes; }

  void* take(int64_t bytes) override {
    void* const memory = emulation_->take(bytes);
    memory_.add(address_of(memory), bytes);
    return memory;
  }
  void give_back(void* memory) override {
    memory_.remove(address_of(memory));
    emulation_->give_back(memory);
  }
  bool holds(const void* memory) const override { return emulation_->holds(memory); }
  void copy_in(void* device, const void* host, int64_t bytes) override {
    std::memcpy(find(device, bytes), host, static_cast<size_t>(bytes));
    emulation_->copy_in(device, host, bytes);
  }
  void copy_out(void* host, const void* device, int64_t bytes) override {
    std::memcpy(host, find(device, bytes), static_cast<size_t>(bytes));
  }
  void clear(void* device, int64_t bytes) override {
    std::memset(find(device, bytes), 0, static_cast<size_t>(bytes));
    emulation_->clear(device, bytes);
  }
  void launch(const char* kernel, const gpu::Grid& grid, const void* arguments) override {
    run_ptx(program(kernel),
            {.grid = grid, .arguments = arguments, .rule = rule_, .descending = true}, memory_);
    emulation_->launch(kernel, grid, arguments);
    compare(kernel);
  }
  void wait() override {}

 private:
  static uint64_t address_of(const void* memory) { return reinterpret_cast<uint64_t>(memory); }
  uint8_t* find(const void* device, int64_t bytes) {
    uint8_t* const at = memory_.find(address_of(device), bytes);
    MR_CHECK(at != nullptr, "not in the memory of the GPU");
    return at;
  }

  const PtxProgram& program(const std::string& kernel) {
    if (!options_.edit) return kept_program(options_.target, kernel);
    const auto known = programs_.find(kernel);
    if (known != programs_.end()) return known->second;
    const std::string text = options_.edit(kept_text(options_.target, kernel));
    return programs_.emplace(kernel, make_ptx_program(parse_ptx(text), kernel)).first->second;
  }

  // Elements are what the interpreter stored; bytes that only the emulation changed count for one each.
  void compare(const std::string& kernel) {
    PtxCounts& counts = counts_[kernel];
    const PtxCounts before = counts;
    std::string first;
    for (PtxBuffer& b : memory_.buffers()) {
      if (b.stored.empty() && b.data.size() > kComparedWhole) continue;
      emulated_.resize(b.data.size());
      emulation_->copy_out(emulated_.data(), reinterpret_cast<const void*>(b.address),
                           static_cast<int64_t>(b.data.size()));
      const int64_t nans = counts.nans;
      compare_buffer(b, counts, first);
      if (counts.nans > nans)
        emulation_->copy_in(reinterpret_cast<void*>(b.address), b.data.data(),
                            static_cast<int64_t>(b.data.size()));
      b.stored.clear();
      b.stored.shrink_to_fit();
    }
    ++counts.launches;
    if (counts.differ > before.differ)
      throw_error(Code::kDevice, "{} for {}: {} of {} elements differ, the first {}", kernel,
                  options_.target, counts.differ - before.differ, counts.elements - before.elements,
                  first);
  }

  void compare_buffer(const PtxBuffer& b, PtxCounts& counts, std::string& first) const {
    const auto differs = [&](size_t at, size_t bytes) {
      return std::memcmp(b.data.data() + at, emulated_.data() + at, bytes) != 0;
    };
    const bool any = b.data.size() <= kComparedWhole && differs(0, b.data.size());
    for (size_t at = 0; at < b.data.size() && (any || !b.stored.empty());) {
      const size_t stored = b.stored.empty() ? 0 : b.stored[at];
      const size_t bytes = std::max(stored, size_t{1});
      const bool wrong = (stored != 0 || any) && differs(at, bytes);
      const bool nan = wrong && both_nan(b.data.data() + at, emulated_.data() + at, stored);
      counts.elements += stored != 0 ? 1 : 0;
      counts.nans += nan ? 1 : 0;
      counts.differ += wrong && !nan ? 1 : 0;
      if (wrong && !nan && first.empty())
        first = fmt::format("at byte {} of {}: {} by PTX, {} emulated", at, b.data.size(),
                            hex(b.data.data() + at, bytes), hex(emulated_.data() + at, bytes));
      at += bytes;
    }
  }
  // Read as floats of so many bytes.
  static bool both_nan(const uint8_t* x, const uint8_t* y, size_t bytes) {
    return is_nan(x, bytes) && is_nan(y, bytes);
  }
  static bool is_nan(const uint8_t* data, size_t bytes) {
    uint64_t v = 0;
    std::memcpy(&v, data, bytes);
    if (bytes == 2) return (v & 0x7fff) > 0x7f80;
    if (bytes == 4) return (v & 0x7fffffff) > 0x7f800000;
    return bytes == 8 && (v & ~(uint64_t{1} << 63)) > uint64_t{0x7ff} << 52;
  }
  // The last byte first.
  static std::string hex(const uint8_t* data, size_t bytes) {
    std::string text = "0x";
    while (bytes > 0) text += fmt::format("{:02x}", data[--bytes]);
    return text;
  }

  void report() const {
    const char* const file = std::getenv("MORAINE_PTX_REPORT");
    if (file == nullptr) return;
    std::string text;
    for (const auto& [kernel, c] : counts_)
      text += fmt::format("{} {} {} {} {} {}\n", kernel, options_.target, c.launches, c.elements,
                          c.differ, c.nans);
    try {
      posix_file_system().append_to(file)->append(text.data(), static_cast<int64_t>(text.size()));
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
  }

  const PtxGpuOptions options_;
  const gpu::MatrixRule rule_;
  const std::unique_ptr<gpu::Gpu> emulation_;
  PtxMemory memory_;
  std::map<std::string, PtxProgram> programs_;  // edited ones
  std::map<std::string, PtxCounts> counts_;
  std::vector<uint8_t> emulated_;  // of the buffer that is compared
};

}  // namespace

std::unique_ptr<gpu::Gpu> make_ptx_gpu(const PtxGpuOptions& options) {
  return std::make_unique<PtxGpu>(options);
}

}  // namespace moraine::testing
