// A block at a time: its threads as fibers, who may go on, and what is wrong if nobody may.
#include "kernels/gpu/emulate.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/random.h"
#include "kernels/gpu/emulated_fiber.h"
#include "kernels/gpu/shared_array.h"

namespace moraine::gpu {
namespace {

constexpr int64_t kStackBytes = 128 * 1024;  // frames of a build without optimisation, instrumented
constexpr int64_t kPageBytes = 4096;

// Knuth's linear congruential sequence (MMIX): good enough, by its upper half, for who goes first.
constexpr uint64_t kNextFactor = 6364136223846793005u, kNextTerm = 1442695040888963407u;

// One stack for each thread of a block, a page that faults below each.
class Stacks {
 public:
  explicit Stacks(int threads) : bytes_(threads * (kStackBytes + kPageBytes)) {
    void* const memory = mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw_error(Code::kDevice, "emulated GPU: no memory for stacks");
    data_ = static_cast<uint8_t*>(memory);
    for (int t = 0; t < threads; ++t) {
      mprotect(data_ + t * (kStackBytes + kPageBytes), kPageBytes, PROT_NONE);
    }
  }
  ~Stacks() { munmap(data_, static_cast<size_t>(bytes_)); }
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  FiberStack operator[](int t) const {
    return {data_ + t * (kStackBytes + kPageBytes) + kPageBytes, kStackBytes};
  }

 private:
  int64_t bytes_;
  uint8_t* data_;
};

// Of this thread, for all its launches: to take them anew would cost more than most kernels.
const Stacks& stacks_for(int threads) {
  if (!kFibersRun)
    throw_error(Code::kDevice, "emulated GPU: not in a build with the thread sanitizer");
  thread_local std::unique_ptr<Stacks> stacks;
  thread_local int most = 0;
  if (threads > most) {
    stacks.reset();
    stacks = std::make_unique<Stacks>(threads);
    most = threads;
  }
  return *stacks;
}

bool same_line(const SourceLine& a, const SourceLine& b) {
  return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

enum class Waits : uint8_t { kNo, kForBlock, kForWave, kEnded };

struct LateCopy {
  SharedArray* array;
  int64_t index;
  const void* from;
  SourceLine at;
  int group;
};

struct Thread {
  EmulatedThread self;
  std::vector<LateCopy> copies;
  int copy_groups = 0;  // that were committed
  EmulatedFiber fiber;
  Waits waits = Waits::kNo;
  SourceLine at = {nullptr, 0};      // where it waits
  WaveOperation together = nullptr;  // what it waits for, of its wave
  void* mine = nullptr;
  AccessTime time;  // but for `at`
};

class EmulatedBlock {
 public:
  EmulatedBlock(const Emulation& emulation, const Stacks& stacks, int threads,
                EmulatedKernel kernel, const void* arguments)
      : emulation_(emulation), stacks_(stacks), kernel_(kernel), arguments_(arguments) {
    threads_.resize(static_cast<size_t>(threads));
    order_.resize(threads_.size());
    std::iota(order_.begin(), order_.end(), 0);
    if (emulation_.order == ThreadOrder::kDescending) std::reverse(order_.begin(), order_.end());
    lanes_.resize(static_cast<size_t>(emulation_.wave));
  }

  // Empty, or what is wrong.
  std::string run(int64_t block_x, int64_t block_y);

  Thread& running() { return threads_[static_cast<size_t>(running_)]; }
  const Emulation& emulation() const { return emulation_; }
  void wait(Waits what, const SourceLine& at);
  // Does not return: the block is given up.
  void fault(std::string what);
  // What is wrong if no race is found until the next barrier of the block.
  void suspect(std::string what) {
    if (suspicion_.empty()) suspicion_ = std::move(what);
  }
  SharedArray* declare(const char* name, int64_t count, int64_t bytes, const SourceLine& at);
  AccessTime now(const SourceLine& at) {
    AccessTime time = running().time;
    time.at = at;
    return time;
  }
  void count_wave_barrier() { ++running().time.wave_barriers; }

 private:
  static void enter(void* block);
  void draw_order();
  bool run_round();
  bool release_waves();
  bool release_block();
  std::string stuck_text() const;
  std::string too_much_text(const char* name, const SourceLine& at) const;

  const Emulation& emulation_;
  const Stacks& stacks_;
  const EmulatedKernel kernel_;
  const void* const arguments_;
  std::vector<Thread> threads_;
  std::vector<int> order_;
  std::vector<void*> lanes_;                          // of the wave that is released
  std::vector<std::unique_ptr<SharedArray>> shared_;  // of all blocks
  int64_t shared_bytes_ = 0;                          // of those that this block declared
  int running_ = 0, ended_ = 0;
  int block_barriers_ = 0, begun_ = 0;  // of all blocks; when this one began
  uint64_t round_ = 0;                  // of all blocks
  std::string fault_, suspicion_;
};

thread_local EmulatedBlock* current_block = nullptr;

void EmulatedBlock::enter(void* block) {
  auto& self = *static_cast<EmulatedBlock*>(block);
  self.kernel_(self.arguments_);
}

// The same numbers in another order, from one draw a round.
void EmulatedBlock::draw_order() {
  if (emulation_.order != ThreadOrder::kRandom) return;
  uint64_t state = random_bits(emulation_.seed, Stream::kTest, ++round_, 0);
  for (size_t i = order_.size(); i > 1; --i) {
    state = state * kNextFactor + kNextTerm;
    std::swap(order_[i - 1], order_[(state >> 32) * i >> 32]);
  }
}

// Every thread that may go on, until it meets others; false if there was none.
bool EmulatedBlock::run_round() {
  bool any = false;
  draw_order();
  for (const int t : order_) {
    running_ = t;
    if (running().waits != Waits::kNo) continue;
    any = true;
    if (!running().fiber.resume()) {
      running().waits = Waits::kEnded;
      ++ended_;
    }
    if (!fault_.empty()) return false;
  }
  return any;
}

// The waves whose lanes all wait for the same.
bool EmulatedBlock::release_waves() {
  bool any = false;
  for (size_t begin = 0; begin < threads_.size(); begin += lanes_.size()) {
    const Thread& first = threads_[begin];
    if (first.waits != Waits::kForWave) continue;
    const auto same = [&](const Thread& t) {
      return t.waits == Waits::kForWave && t.together == first.together &&
             same_line(t.at, first.at);
    };
    const auto end = threads_.begin() + static_cast<int64_t>(begin + lanes_.size());
    if (!std::all_of(threads_.begin() + static_cast<int64_t>(begin), end, same)) continue;
    any = true;
    for (size_t i = 0; i < lanes_.size(); ++i) {
      lanes_[i] = threads_[begin + i].mine;
      threads_[begin + i].waits = Waits::kNo;
    }
    if (first.together != nullptr) first.together(lanes_.data(), emulation_.wave);
  }
  return any;
}

bool EmulatedBlock::release_block() {
  const SourceLine& at = threads_.front().at;
  for (const Thread& t : threads_) {
    if (t.waits != Waits::kForBlock || !same_line(t.at, at)) return false;
  }
  ++block_barriers_;
  for (Thread& t : threads_) {
    t.waits = Waits::kNo;
    t.time.block_barriers = block_barriers_;
  }
  return true;
}

// Of all threads that wait differently from the first, the first.
std::string EmulatedBlock::stuck_text() const {
  const auto text = [](const Thread& t) {
    if (t.waits == Waits::kEnded) return fmt::format("{} has ended", t.self.thread);
    return fmt::format("{} waits for the {} at {}", t.self.thread,
                       t.waits == Waits::kForBlock ? "block" : "wave", place_text(t.at));
  };
  const Thread& first = threads_.front();
  for (const Thread& t : threads_) {
    if (t.waits == first.waits && same_line(t.at, first.at)) continue;
    return fmt::format("threads do not meet: {}, {}", text(first), text(t));
  }
  return fmt::format("threads do not meet: {}", text(first));
}

std::string EmulatedBlock::run(int64_t block_x, int64_t block_y) {
  shared_bytes_ = 0;
  begun_ = ++block_barriers_;
  ended_ = 0;
  for (size_t t = 0; t < threads_.size(); ++t) {
    Thread& thread = threads_[t];
    thread = Thread();
    thread.self = {static_cast<int>(t), block_x, block_y};
    thread.time.thread = static_cast<int16_t>(t);
    thread.time.wave = static_cast<int16_t>(thread.self.thread / emulation_.wave);
    thread.time.block_barriers = begun_;
    thread.fiber.start(stacks_[static_cast<int>(t)], &EmulatedBlock::enter, this);
  }
  current_block = this;
  while (fault_.empty() && ended_ < std::ssize(threads_)) {
    const bool ran = run_round(), freed = fault_.empty() && release_waves();
    if (ran || freed || !fault_.empty()) continue;
    if (!suspicion_.empty()) {
      fault_ = suspicion_;
    } else if (!release_block()) {
      fault_ = stuck_text();
    }
  }
  if (fault_.empty()) fault_ = suspicion_;
  current_block = nullptr;
  return fault_;
}

void EmulatedBlock::wait(Waits what, const SourceLine& at) {
  Thread& t = running();
  t.waits = what;
  t.at = at;
  t.fiber.suspend();
}

// Nothing on the fiber's stack may keep memory, not even a temporary of the call: it is never unwound.
void EmulatedBlock::fault(std::string what) {
  fault_ = std::move(what);
  running().fiber.suspend();
}

std::string EmulatedBlock::too_much_text(const char* name, const SourceLine& at) const {
  return fmt::format("shared {} at {}: {} bytes in all, at most {}", name, place_text(at),
                     shared_bytes_, kSharedBytes);
}

// One array for each declaration, whoever comes to it and however often: as the compilers do it.
SharedArray* EmulatedBlock::declare(const char* name, int64_t count, int64_t bytes,
                                    const SourceLine& at) {
  const auto same = [&](const std::unique_ptr<SharedArray>& array) {
    return same_line(array->declared, at) && array->count == count &&
           array->element_bytes == bytes && array->name == name;
  };
  auto found = std::find_if(shared_.begin(), shared_.end(), same);
  if (found != shared_.end() && (*found)->begun() == begun_) return found->get();
  shared_bytes_ += (count * bytes + 15) / 16 * 16;
  if (shared_bytes_ > kSharedBytes) fault(too_much_text(name, at));
  if (found == shared_.end()) {
    found = shared_.insert(found, std::make_unique<SharedArray>(name, count, bytes, at));
  }
  (*found)->begin(begun_);
  return found->get();
}

EmulatedBlock& block() {
  MR_CHECK(current_block != nullptr, "kernel code outside a launch");
  return *current_block;
}

}  // namespace

void emulate(const Emulation& emulation, const EmulatedEntry& kernel, const Grid& grid,
             const void* arguments) {
  MR_CHECK(emulation.wave == 32 || emulation.wave == 64, "wave of %d", emulation.wave);
  MR_CHECK(grid.threads > 0 && grid.threads <= kMaxThreads && grid.threads % emulation.wave == 0,
           "%d threads in waves of %d", grid.threads, emulation.wave);
  EmulatedBlock runner(emulation, stacks_for(grid.threads), grid.threads, kernel.run, arguments);
  const int64_t count = grid.blocks_x * grid.blocks_y;
  const bool backwards = emulation.order == ThreadOrder::kDescending;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t b = backwards ? count - 1 - i : i;
    const std::string fault = runner.run(b % grid.blocks_x, b / grid.blocks_x);
    if (fault.empty()) continue;
    throw_error(Code::kDevice, "emulated kernel {}, block {}, {}: {}", kernel.name,
                b % grid.blocks_x, b / grid.blocks_x, fault);
  }
}

const EmulatedThread& emulated_thread() { return block().running().self; }

const Emulation& current_emulation() { return block().emulation(); }

void meet_block(const SourceLine& at) { block().wait(Waits::kForBlock, at); }

void meet_wave(WaveOperation together, void* mine, const SourceLine& at) {
  Thread& t = block().running();
  t.together = together;
  t.mine = mine;
  block().wait(Waits::kForWave, at);
  if (together == nullptr) block().count_wave_barrier();
}

SharedArray* declare_shared(const char* name, int64_t count, int64_t element_bytes,
                            const SourceLine& at) {
  return block().declare(name, count, element_bytes, at);
}

void* read_shared(SharedArray* array, int64_t index, const SourceLine& at) {
  EmulatedBlock& here = block();
  const AccessTime now = here.now(at);
  if (!array->read(index, now)) [[unlikely]]
    here.fault(array->fault_text(index, now, false));
  if (!array->written(index)) [[unlikely]]
    here.suspect(array->unwritten_text(index, now));
  return array->element(index);
}

void* write_shared(SharedArray* array, int64_t index, const SourceLine& at) {
  EmulatedBlock& here = block();
  const AccessTime now = here.now(at);
  if (!array->write(index, now)) [[unlikely]]
    here.fault(array->fault_text(index, now, true));
  return array->element(index);
}

void copy_shared_later(SharedArray* array, int64_t index, const void* from, const SourceLine& at) {
  std::memset(write_shared(array, index, at), 0xff, static_cast<size_t>(array->element_bytes));
  Thread& t = block().running();
  t.copies.push_back({array, index, from, at, t.copy_groups});
}

void commit_shared_copies() { ++block().running().copy_groups; }

void wait_shared_copies(int later_groups) {
  Thread& t = block().running();
  size_t done = 0;
  for (; done < t.copies.size() && t.copies[done].group < t.copy_groups - later_groups; ++done) {
    const LateCopy& c = t.copies[done];
    void* const to = write_shared(c.array, c.index, c.at);
    const auto bytes = static_cast<size_t>(c.array->element_bytes);
    if (c.from == nullptr) {
      std::memset(to, 0, bytes);
    } else {
      std::memcpy(to, c.from, bytes);
    }
  }
  t.copies.erase(t.copies.begin(), t.copies.begin() + static_cast<int64_t>(done));
}

}  // namespace moraine::gpu
