// Arena: owns every large buffer of a run, by name.
//
// The same code that takes the memory also plans it: a dry arena only records, so `moraine plan memory`
// runs the constructors of a run with a dry arena and prints the table; the two cannot disagree.
// Memory is zeroed and page-aligned (huge pages where the kernel gives them), and is freed with the arena.
//
// An arena of a device has the same plan: it takes from the device's memory what the host's arena takes from the
// host's, each buffer by itself, and what the host must read or write by take_host; what is on its way between both,
// by take_pinned.
//
// Errors: kInvalidArgument if the system has not enough memory (with the table's largest rows).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "tensor/device_memory.h"
#include "tensor/tensor.h"

namespace moraine {

// Memory of an arena that is gone, for the next one of the same plan: pages stay this process' own.
class ArenaReserve {
 public:
  ArenaReserve() = default;
  ~ArenaReserve() { clear(); }
  ArenaReserve(const ArenaReserve&) = delete;
  ArenaReserve& operator=(const ArenaReserve&) = delete;

  int64_t bytes() const;
  void clear();  // gives it back to the system

 private:
  friend class Arena;
  struct Mapping {
    void* data;
    int64_t bytes;
  };
  void* take(int64_t bytes);  // zeroed; null: there is none of that size
  std::vector<Mapping> mappings_;
};

class Arena {
 public:
  enum class Mode { kReal, kDry };

  struct Entry {
    std::string name;  // "gradients.level0"
    std::string
        category;  // weights, gradients, optimizer, activations, cache, scratch, comm, copy, mapped, host, pinned
    int64_t bytes = 0;
  };

  // `reserve`: where its memory comes from, if some of the right size is there, and goes to in the end.
  explicit Arena(Mode mode, ArenaReserve* reserve = nullptr) : mode_(mode), reserve_(reserve) {}
  // Of a device, whose memory outlives it; null: the host's.
  Arena(Mode mode, DeviceMemory* device) : mode_(mode), reserve_(nullptr), device_(device) {}
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  bool dry() const { return mode_ == Mode::kDry; }
  bool on_device() const { return device_ != nullptr; }

  // Zeroed memory of this shape; a dry arena returns the shape with data == nullptr.
  Tensor take(const std::string& name, const std::string& category, DType dtype,
              std::initializer_list<int64_t> dims);
  void* take_bytes(const std::string& name, const std::string& category, int64_t bytes);
  // The same of the host's memory; beside a device, in the category "host".
  Tensor take_host(const std::string& name, const std::string& category, DType dtype,
                   std::initializer_list<int64_t> dims);
  // Of the host's, where a device copies without help; beside a device, in the category "pinned".
  Tensor take_pinned(const std::string& name, const std::string& category, DType dtype,
                     std::initializer_list<int64_t> dims);

  // Memory that is a file's, mapped by somebody else: in the table, in no sum of what is taken.
  void note_mapped(const std::string& name, int64_t bytes);
  // Memory that somebody else takes for the run, such as what other ranks write (comm/window.h): in table and sum.
  void note_taken(const std::string& name, const std::string& category, int64_t bytes);

  // After this, taking is a bug: allocation ends before step one.
  void seal() { sealed_ = true; }

  const std::vector<Entry>& entries() const { return entries_; }
  int64_t bytes() const;         // sum over the entries that were taken
  int64_t device_bytes() const;  // of that, a device's
  int64_t mapped_bytes() const;  // and over the others

 private:
  void* map(const std::string& name, int64_t bytes);
  void note(const std::string& name, const std::string& category, int64_t bytes);
  void* take_host_bytes(const std::string& name, int64_t bytes);

  Mode mode_;
  ArenaReserve* reserve_;
  DeviceMemory* device_ = nullptr;
  bool sealed_ = false;
  std::vector<Entry> entries_;
  std::vector<ArenaReserve::Mapping> mappings_;
  std::vector<void*> taken_;   // of the device
  std::vector<void*> pinned_;  // through it
  char* small_ = nullptr;      // the rest of a mapping shared by small buffers
  int64_t small_left_ = 0;
};

// The table by name and by category, largest first, as `plan memory` and `train` print it. What is mapped is in
// it and not in its total. Buffers below `least` of the total are one row.
std::string memory_table(const Arena& arena, double least = 0);

}  // namespace moraine
