// Buffers in the order of their addresses; cells of shared memory with the last writer and the readers since a barrier.
#include "testing/ptx/memory.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"

namespace moraine::testing {

void PtxMemory::add(uint64_t address, int64_t bytes) {
  const auto at = std::find_if(buffers_.begin(), buffers_.end(),
                               [&](const PtxBuffer& b) { return b.address > address; });
  buffers_.insert(
      at,
      {.address = address, .data = std::vector<uint8_t>(static_cast<size_t>(bytes)), .stored = {}});
}

void PtxMemory::remove(uint64_t address) {
  const auto at = std::find_if(buffers_.begin(), buffers_.end(),
                               [&](const PtxBuffer& b) { return b.address == address; });
  MR_CHECK(at != buffers_.end(), "memory that was not added");
  buffers_.erase(at);
  last_ = 0;
}

PtxBuffer* PtxMemory::buffer_of(uint64_t address, int64_t bytes) {
  const auto holds = [&](const PtxBuffer& b) {
    return address >= b.address &&
           address - b.address + static_cast<uint64_t>(bytes) <= b.data.size();
  };
  if (last_ < buffers_.size() && holds(buffers_[last_])) return &buffers_[last_];
  const auto after = std::upper_bound(buffers_.begin(), buffers_.end(), address,
                                      [](uint64_t a, const PtxBuffer& b) { return a < b.address; });
  if (after == buffers_.begin() || !holds(*(after - 1))) return nullptr;
  last_ = static_cast<size_t>(after - 1 - buffers_.begin());
  return &buffers_[last_];
}

uint8_t* PtxMemory::find(uint64_t address, int64_t bytes) {
  PtxBuffer* const b = buffer_of(address, bytes);
  return b == nullptr ? nullptr : b->data.data() + (address - b->address);
}

uint8_t* PtxMemory::find_for_store(uint64_t address, int64_t bytes) {
  PtxBuffer* const b = buffer_of(address, bytes);
  if (b == nullptr) return nullptr;
  if (b->stored.empty()) b->stored.resize(b->data.size());
  b->stored[address - b->address] = static_cast<uint8_t>(bytes);
  return b->data.data() + (address - b->address);
}

std::string PtxMemory::nearest_text(uint64_t address) const {
  const PtxBuffer* before = nullptr;
  for (const PtxBuffer& b : buffers_)
    if (b.address <= address) before = &b;
  if (address < 4096) return "near null";
  if (before == nullptr) return "before all buffers";
  return fmt::format("{} bytes from the begin of a buffer of {}", address - before->address,
                     before->data.size());
}

void PtxSharedMemory::begin(const std::vector<PtxSharedVariable>& variables) {
  variables_ = &variables;
  const int64_t end =
      variables.empty()
          ? 0
          : static_cast<int64_t>(variables.back().address - kSharedBase) + variables.back().bytes;
  bytes_.assign(static_cast<size_t>(end), 0xff);
  cells_.assign(static_cast<size_t>(end + 1) / 2, Cell());
  epoch_ = 1;
}

int64_t PtxSharedMemory::place(uint64_t address, int bytes, std::string& wrong) const {
  if (bytes == 1) {
    wrong = "single bytes of shared memory are not watched here";
    return -1;
  }
  const PtxSharedVariable* before = nullptr;
  for (const PtxSharedVariable& v : *variables_) {
    if (address < v.address) break;
    before = &v;
  }
  if (before != nullptr && address + static_cast<uint64_t>(bytes) <=
                               before->address + static_cast<uint64_t>(before->bytes))
    return static_cast<int64_t>(address - kSharedBase);
  wrong = before == nullptr ? fmt::format("no shared memory at {:#x}", address)
                            : fmt::format("byte {} of shared {}, which has {}",
                                          address - before->address, before->name, before->bytes);
  return -1;
}

bool PtxSharedMemory::writer_races(const Cell& c, const PtxAccess& who) const {
  if (c.writer == kNobody || c.writer == who.thread || c.write_epoch != epoch_) return false;
  return c.writer / kPtxLanes != who.warp || c.write_warp_epoch == who.warp_epoch;
}

bool PtxSharedMemory::reader_races(const Cell& c, const PtxAccess& who) const {
  if (c.reader == kNobody || c.reader == who.thread || c.read_epoch != epoch_) return false;
  return c.reader_warp != who.warp || c.read_warp_epoch == who.warp_epoch;
}

std::string PtxSharedMemory::race_text(uint64_t address, const Cell& c, bool with_writer,
                                       bool writes) const {
  const PtxSharedVariable* in = nullptr;
  for (const PtxSharedVariable& v : *variables_)
    if (address >= v.address) in = &v;
  const int32_t other = with_writer ? c.writer : c.reader;
  return fmt::format(
      "race on byte {} of shared {}: {} {} it at line {}, this one {} it, and no barrier is "
      "between",
      address - in->address, in->name,
      other == kSeveral ? "several threads" : fmt::format("thread {}", other),
      with_writer ? "wrote" : "read", with_writer ? c.write_line : c.read_line,
      writes ? "writes" : "reads");
}

const uint8_t* PtxSharedMemory::read(uint64_t address, int bytes, const PtxAccess& who,
                                     std::string& wrong) {
  const int64_t at = place(address, bytes, wrong);
  if (at < 0) return nullptr;
  for (int64_t i = at / 2; i < (at + bytes) / 2; ++i) {
    Cell& c = cells_[static_cast<size_t>(i)];
    if (c.writer == kNobody) {
      wrong = fmt::format("byte {} of shared memory was never written", 2 * i);
      return nullptr;
    }
    if (writer_races(c, who)) {
      wrong = race_text(kSharedBase + static_cast<uint64_t>(2 * i), c, true, false);
      return nullptr;
    }
    if (c.read_epoch != epoch_) {
      c.reader = who.thread;
      c.reader_warp = who.warp;
    } else if (c.reader_warp != who.warp) {
      c.reader = c.reader_warp = kSeveral;
    } else if (c.read_warp_epoch != who.warp_epoch) {
      c.reader = who.thread;  // earlier ones of the warp are behind its barrier
    } else if (c.reader != who.thread) {
      c.reader = kSeveral;
    }
    c.read_epoch = epoch_;
    c.read_warp_epoch = who.warp_epoch;
    c.read_line = who.line;
  }
  return bytes_.data() + at;
}

uint8_t* PtxSharedMemory::write(uint64_t address, int bytes, const PtxAccess& who,
                                std::string& wrong) {
  const int64_t at = place(address, bytes, wrong);
  if (at < 0) return nullptr;
  for (int64_t i = at / 2; i < (at + bytes) / 2; ++i) {
    Cell& c = cells_[static_cast<size_t>(i)];
    const bool writer = writer_races(c, who);
    if (writer || reader_races(c, who)) {
      wrong = race_text(kSharedBase + static_cast<uint64_t>(2 * i), c, writer, true);
      return nullptr;
    }
    c.writer = who.thread;
    c.write_epoch = epoch_;
    c.write_warp_epoch = who.warp_epoch;
    c.write_line = who.line;
  }
  return bytes_.data() + at;
}

}  // namespace moraine::testing
