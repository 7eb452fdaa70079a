// Arena: one mapping for each large buffer, one shared mapping for many small ones.
#include "tensor/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "base/error.h"

namespace moraine {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;  // x86-64 and arm64 transparent huge page
constexpr int64_t kSmall = int64_t{256} << 10;   // below this, buffers share a mapping
constexpr const char* kMapped = "mapped";        // category of what is not ours
constexpr const char* kHost = "host";            // and of the host's beside a device
constexpr const char* kPinned = "pinned";        // likewise, where it copies from and to
constexpr int64_t kAlignment = 64;               // cache line and widest vector

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

}  // namespace

int64_t ArenaReserve::bytes() const {
  int64_t total = 0;
  for (const Mapping& m : mappings_) total += m.bytes;
  return total;
}

void ArenaReserve::clear() {
  for (const Mapping& m : mappings_) munmap(m.data, static_cast<size_t>(m.bytes));
  mappings_.clear();
}

void* ArenaReserve::take(int64_t bytes) {
  const auto found = std::find_if(mappings_.begin(), mappings_.end(),
                                  [bytes](const Mapping& m) { return m.bytes == bytes; });
  if (found == mappings_.end()) return nullptr;
  void* data = found->data;
  mappings_.erase(found);
  std::memset(data, 0, static_cast<size_t>(bytes));
  return data;
}

Arena::~Arena() {
  for (void* memory : taken_) device_->give_back(memory);
  for (void* memory : pinned_) device_->give_back_pinned(memory);
  if (reserve_ != nullptr) {
    reserve_->mappings_.insert(reserve_->mappings_.end(), mappings_.begin(), mappings_.end());
    return;
  }
  for (const ArenaReserve::Mapping& m : mappings_) munmap(m.data, static_cast<size_t>(m.bytes));
}

void* Arena::map(const std::string& name, int64_t bytes) {
  void* data = reserve_ != nullptr ? reserve_->take(bytes) : nullptr;
  if (data == nullptr)
    data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    throw_error(Code::kInvalidArgument,
                "take memory for {}: {} bytes are not to be had; `moraine plan memory` prints what "
                "this run needs",
                name, bytes);
  }
  mappings_.push_back({data, bytes});
  return data;
}

void Arena::note(const std::string& name, const std::string& category, int64_t bytes) {
  MR_CHECK(!sealed_, "%s taken after the arena was sealed", name.c_str());
  MR_CHECK(bytes >= 0);
  entries_.push_back({.name = name, .category = category, .bytes = bytes});
}

void* Arena::take_bytes(const std::string& name, const std::string& category, int64_t bytes) {
  note(name, category, bytes);
  if (dry() || bytes == 0) return nullptr;
  if (!on_device()) return take_host_bytes(name, bytes);
  try {
    taken_.push_back(device_->take(bytes));
  } catch (const Error& e) {
    throw_error(e.code(),
                "take memory for {}: {} bytes, after {} that were to be had: {}; `moraine plan "
                "memory` prints what this needs",
                name, bytes, device_bytes() - bytes, e.what());
  }
  return taken_.back();
}

Tensor Arena::take_host(const std::string& name, const std::string& category, DType dtype,
                        std::initializer_list<int64_t> dims) {
  Tensor t = make_tensor(nullptr, dtype, dims);
  note(name, on_device() ? kHost : category, t.bytes());
  if (!dry() && t.bytes() > 0) t.data = take_host_bytes(name, t.bytes());
  return t;
}

Tensor Arena::take_pinned(const std::string& name, const std::string& category, DType dtype,
                          std::initializer_list<int64_t> dims) {
  if (!on_device()) return take(name, category, dtype, dims);
  Tensor t = make_tensor(nullptr, dtype, dims);
  note(name, kPinned, t.bytes());
  if (dry() || t.bytes() == 0) return t;
  pinned_.push_back(device_->take_pinned(t.bytes()));
  t.data = pinned_.back();
  return t;
}

void* Arena::take_host_bytes(const std::string& name, int64_t bytes) {
  const int64_t padded = round_up(bytes, kAlignment);
  if (padded >= kSmall) {
    // Huge pages need an address on a huge-page border: map one more and start inside.
    if (padded < kHugePage) return map(name, round_up(padded, 4096));
    const int64_t size = round_up(padded, 4096) + kHugePage;
    char* data = static_cast<char*>(map(name, size));
    char* start = data + (kHugePage - reinterpret_cast<uintptr_t>(data) % kHugePage) % kHugePage;
    madvise(start, static_cast<size_t>(padded / kHugePage * kHugePage), MADV_HUGEPAGE);
    return start;
  }
  if (small_left_ < padded) {
    small_left_ = kHugePage;
    small_ = static_cast<char*>(map(name, small_left_));
  }
  char* data = small_;
  small_ += padded;
  small_left_ -= padded;
  return data;
}

Tensor Arena::take(const std::string& name, const std::string& category, DType dtype,
                   std::initializer_list<int64_t> dims) {
  Tensor t = make_tensor(nullptr, dtype, dims);
  t.data = take_bytes(name, category, t.bytes());
  return t;
}

void Arena::note_mapped(const std::string& name, int64_t bytes) {
  MR_CHECK(!sealed_, "%s mapped after the arena was sealed", name.c_str());
  entries_.push_back({.name = name, .category = kMapped, .bytes = bytes});
}

void Arena::note_taken(const std::string& name, const std::string& category, int64_t bytes) {
  MR_CHECK(!sealed_, "%s taken after the arena was sealed", name.c_str());
  entries_.push_back({.name = name, .category = category, .bytes = bytes});
}

int64_t Arena::mapped_bytes() const {
  int64_t total = 0;
  for (const Entry& e : entries_) total += e.category == kMapped ? e.bytes : 0;
  return total;
}

int64_t Arena::bytes() const {
  int64_t total = 0;
  for (const Entry& e : entries_) total += e.category == kMapped ? 0 : e.bytes;
  return total;
}

int64_t Arena::device_bytes() const {
  int64_t total = 0;
  for (const Entry& e : entries_) {
    const bool elsewhere = e.category == kMapped || e.category == kHost || e.category == kPinned;
    total += on_device() && !elsewhere ? e.bytes : 0;
  }
  return total;
}

std::string memory_table(const Arena& arena, double least) {
  std::map<std::string, int64_t> categories;
  std::map<std::string, std::pair<std::string, int64_t>> names;  // name without layer number
  for (const Arena::Entry& e : arena.entries()) {
    categories[e.category] += e.bytes;
    names[e.name].first = e.category;
    names[e.name].second += e.bytes;
  }
  const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  const auto line = [&](const std::string& category, const std::string& name, int64_t bytes) {
    return fmt::format("  {:<12} {:<36} {:>10.2f}\n", category, name, mib(bytes));
  };
  std::vector<std::pair<int64_t, std::string>> rows;
  int64_t small = 0, small_bytes = 0;
  for (const auto& [name, entry] : names) {
    const auto& [category, bytes] = entry;
    if (static_cast<double>(bytes) < least * static_cast<double>(arena.bytes())) {
      ++small, small_bytes += bytes;
    } else {
      rows.emplace_back(-bytes, line(category, name, bytes));
    }
  }
  std::sort(rows.begin(), rows.end());
  if (small > 0)
    rows.emplace_back(0, line("", fmt::format("({} smaller ones)", small), small_bytes));
  std::string text = fmt::format("  {:<12} {:<36} {:>10}\n", "category", "buffer", "MiB");
  for (const auto& [order, row] : rows) text += row;
  for (const auto& [category, bytes] : categories)  // "mapped" too, which is not in the total
    text += line(category, "(all)", bytes);
  text += line("total", "", arena.bytes());
  if (arena.on_device()) {
    const int64_t device = arena.device_bytes();
    text += line("of it", "in the device's memory", device);
    text += line("of it", "in the host's memory", arena.bytes() - device);
  }
  if (arena.mapped_bytes() == 0) return text;
  return text +
         "  mapped: files that are read where they are, in memory as long as there is room\n";
}

}  // namespace moraine
